"""The first line of a file that only its owner and group may read, as a password."""

import os
import stat
from pathlib import Path

from pylog.errors import ConfigError


def read_password(path: Path, name: str) -> str:
    """Return the password in the first line of *path*.

    Args:
        path: of the file.
        name: of the setting that names the file, for the message of an error.

    Raises:
        ConfigError: the file is missing, empty, not UTF-8, or readable by everybody.
    """
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IROTH:
                raise ConfigError(f"{name}: {path} must not be readable by everybody: chmod o-r {path}")
            password = file.readline().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{name}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: {path} must be UTF-8") from None
    if not password:
        raise ConfigError(f"{name}: {path}: its first line must be the password")
    return password
