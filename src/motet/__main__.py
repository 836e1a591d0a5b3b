"""`python -m motet` is the command `motet`."""

from motet.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
