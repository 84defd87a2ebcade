"""The command `pylog` with a broker whose disk fails every write and sync once the file FAIL_WHEN is there."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pylog.__main__ import main


def failing(call: Callable[..., Any], trigger: Path) -> Callable[..., Any]:
    def fail(*arguments: Any) -> Any:
        if trigger.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return call(*arguments)

    return fail


if __name__ == "__main__":
    for name in ("pwrite", "fsync", "fdatasync"):
        setattr(os, name, failing(getattr(os, name), Path(os.environ["FAIL_WHEN"])))
    main()
