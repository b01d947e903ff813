"""`python -m mt_cli`: the same as the `mt-cli` command."""

import gc
import signal
import sys

UNTIL_COLLECTION = 50_000
"""New objects after which Python looks for garbage. With its 2,000 or less, it looks through what
is imported again and again, which takes a tenth of a short command.
"""


def main() -> None:
    """Run the command line, which takes half a second to import."""
    gc.set_threshold(UNTIL_COLLECTION)
    try:
        from mt_cli.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(128 + signal.SIGINT)
    run()


if __name__ == "__main__":
    main()
