"""`python -m flows` is `blr`."""

from flows.cli import main

if __name__ == "__main__":
    main()
