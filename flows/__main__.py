"""`python -m flows` is `blr`."""

from flows.cli.app import main

if __name__ == "__main__":
    main()
