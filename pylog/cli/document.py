"""Documents that commands are given, as YAML or JSON, in a file or on standard input."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pylog import faults
from pylog.cli.failure import Failure
from pylog.errors import ConfigError

_Read = TypeVar("_Read")


def read_document(file: str, read: Callable[[object], _Read], *, next: str = "") -> _Read:
    """Return what *read* makes of a document; an empty one is ``{}``.

    What is wrong is told by file and line, and never by the line's text, which may hold a password.

    Args:
        file: its path, or ``-`` for standard input.
        read: raises `ConfigError` for what is wrong with the document.
        next: what to do when the document is corrected.

    Raises:
        Failure: `FILE_UNREADABLE` or `CONFIG_WRONG`.
    """
    import yaml

    def wrong(where: str, found: str) -> Failure:
        return Failure(faults.CONFIG_WRONG, "the document is wrong", where=where, found=found, next=next)

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise Failure(faults.FILE_UNREADABLE, where=file, found=error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise Failure(faults.FILE_UNREADABLE, where=file, found=str(error)) from None
    try:
        # JSON is YAML but for a few escapes, and what programs write is parsed ten times faster as what it is.
        return read(json.loads(text) if text.lstrip().startswith("{") else yaml.safe_load(text) or {})
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise wrong(f"{file}:{mark.line + 1}" if mark else file, "no YAML") from None
    except json.JSONDecodeError as error:
        raise wrong(f"{file}:{error.lineno}", "no JSON") from None
    except ConfigError as error:
        raise wrong(file, str(error)) from None
