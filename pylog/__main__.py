"""`python -m pylog` and the command `pylog`."""

import sys

from pylog.cli.app import run


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
