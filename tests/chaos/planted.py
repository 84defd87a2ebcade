"""The command `pylog` with one fault of `tests.sim.mutants` in it: python -m tests.chaos.planted MUTANT broker ..."""

import sys

from tests.sim.mutants import install

if __name__ == "__main__":
    install(sys.argv.pop(1))
    from pylog.__main__ import main

    main()
