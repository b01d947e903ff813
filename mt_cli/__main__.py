"""`python -m mt_cli`: the same as the `mt-cli` command."""

from mt_cli.cli import main

if __name__ == "__main__":
    main()
