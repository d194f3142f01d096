"""`python -m deltalakedb.cli` is the command `dl`."""

from deltalakedb.cli.app import main

if __name__ == "__main__":
    main()
