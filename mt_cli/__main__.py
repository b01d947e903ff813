"""`python -m mt_cli`: the same as the `mt-cli` command."""

import signal
import sys


def main() -> None:
    """Run the command line, which takes half a second to import."""
    try:
        from mt_cli.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(128 + signal.SIGINT)
    run()


if __name__ == "__main__":
    main()
