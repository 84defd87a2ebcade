"""Where shipping goes on after a restart.

state => {"version": 1, "cursor": string}      (JSON)
"""

import json
from pathlib import Path

from pylog.errors import ConfigError
from pylog.log.checkpoint import write_atomically

_VERSION = 1


def load_cursor(path: Path) -> str | None:
    """Return the cursor of the last acknowledged entry, or None where nothing was ever acknowledged.

    Raises:
        ConfigError: the file is there but is no state; starting over is the operator's decision.
    """
    try:
        found = json.loads(path.read_text())
        version, cursor = found["version"], found["cursor"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: {error!r}, wanted a state file; without it everything is shipped again") from error
    if version != _VERSION or not isinstance(cursor, str):
        raise ConfigError(f"{path}: version {version!r}, wanted {_VERSION}: written by another release")
    return cursor


def store_cursor(path: Path, cursor: str) -> None:
    """Replace the state; on return it survives a power cut.

    Raises:
        StorageError: the disk refuses; the old state is still there.
    """
    write_atomically(path, json.dumps({"version": _VERSION, "cursor": cursor}) + "\n")
