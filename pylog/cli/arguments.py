"""What the list of processes shows of a command line: secrets in it are covered once they are read.

Linux shows the memory in which a process was given its arguments, and shows it as it is now, so that overwriting a
secret there hides it.  It was readable until then, which no program can undo.
"""

from pathlib import Path

_STAT = Path("/proc/self/stat")
_COMMAND_LINE = Path("/proc/self/cmdline")
_ARG_START = 48 - 3
"""Place of arg_start, the 48th field of /proc/PID/stat, behind the name of the program, which is the second."""


def hide(name: str, secret: str) -> bool:
    """Overwrite *secret* in each ``name=secret`` that other processes see of the command line; return if it is gone.

    Source: proc(5), arg_start.
    """
    import ctypes  # takes 10 ms, and most command lines have no secret

    shown, covered = f"{name}={secret}".encode(errors="surrogateescape"), secret.encode(errors="surrogateescape")
    try:
        # The name of the program, in brackets, may have spaces and brackets itself.
        start = int(_STAT.read_text().rpartition(")")[2].split()[_ARG_START])
        line = _COMMAND_LINE.read_bytes()
        place = line.find(shown) if start and covered else -1
        while place >= 0:
            ctypes.memset(start + place + len(shown) - len(covered), ord("*"), len(covered))
            place = line.find(shown, place + len(shown))
        return not covered or shown not in _COMMAND_LINE.read_bytes()
    except (OSError, ValueError, IndexError):
        return False
