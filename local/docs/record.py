"""Records the tutorial on a real terminal: docs/session.cast (asciinema v2) and docs/session.txt.

python -m local.docs.record        (about a minute; starts and stops a broker on a free port)
"""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import socket
import struct
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, field
from pathlib import Path

from local.docs.blocks import blocks_of

PAGES = Path(__file__).resolve().parents[2] / "docs"
_COLUMNS, _LINES = 140, 32
_KEY_S = 0.01
_LONGEST_PAUSE_S = 1.5
_TIMEOUT_S = 60.0
# What the shell says before each prompt, taken out of the record: it is ready for the next line.
_READY = b"\x1b]9;ready\x07"
_PROMPT = b"$ "
_CLEARED = "\x1b[2K"
_UP = "\x1b[1A"
_CONTROL = re.compile(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;?]*[a-zA-Z]|\r")


@dataclass(slots=True)
class Recording:
    """What a terminal showed, and when, in seconds since the start."""

    events: list[tuple[float, str]] = field(default_factory=list)
    _now_s: float = 0.0
    _seen_s: float = field(default_factory=time.monotonic)

    def add(self, shown: bytes) -> None:
        """Take in what came; long waits are shortened."""
        seen_s = time.monotonic()
        self._now_s += min(seen_s - self._seen_s, _LONGEST_PAUSE_S)
        self._seen_s = seen_s
        self.events.append((round(self._now_s, 3), shown.decode(errors="replace")))

    def cast(self) -> str:
        """Return it as asciinema v2."""
        head = {"version": 2, "width": _COLUMNS, "height": _LINES, "title": "pylog: a group of three"}
        lines = [json.dumps(head), *(json.dumps([at_s, "o", text]) for at_s, text in self.events)]
        return "\n".join(lines) + "\n"

    def text(self) -> str:
        """Return what a reader saw, without colours."""
        seen: list[str] = []
        for line in "".join(text for _, text in self.events).split("\n"):
            # A progress bar is drawn and wiped away, on its own line or from the next.
            if _UP in line:
                del seen[-1:]
            seen.append(_CONTROL.sub("", line.rpartition(_CLEARED)[2]).rstrip())
        return "\n".join(seen).strip() + "\n"


class Terminal:
    """A shell on a terminal of its own, recorded."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.recording = Recording()
        self._child, self._fd = pty.fork()
        if self._child == 0:
            os.chdir(directory)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "+o", "history"], environment)
        self.wait()

    def run(self, line: str) -> None:
        """Type a line and wait until the shell is ready again."""
        for key in line + "\n":
            os.write(self._fd, key.encode())
            time.sleep(_KEY_S)
        self.wait()

    def wait(self) -> None:
        """Record what comes until the shell is ready."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        pending = b""
        while not (_READY in pending and pending.partition(_READY)[2].endswith(_PROMPT)):
            assert time.monotonic() < deadline_s, f"the shell is not ready:\n{self.recording.text()}"
            if select.select([self._fd], [], [], 0.1)[0]:
                pending += os.read(self._fd, 65536)
                # A marker that is not whole yet stays for the next round.
                if b"\x1b]" not in pending:
                    self.recording.add(pending)
                    pending = b""
        self.recording.add(pending.replace(_READY, b""))

    def close(self) -> None:
        """End the shell as one ends whose window is closed."""
        os.close(self._fd)
        os.waitpid(self._child, 0)


def record(page: str) -> Recording:
    """Run the commands of a page and return what a terminal showed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            # The broker takes a free port; what is recorded has the one that the page names.
            "PYLOG_BOOTSTRAP": f"localhost:{port}",
            "HOME": directory,
            "TERM": "xterm-256color",
            "PS1": "$ ",
            "PROMPT_COMMAND": r"printf '\033]9;ready\007'",
            "COLUMNS": str(_COLUMNS),
            "LINES": str(_LINES),
            "INPUTRC": "/dev/null",
            "LC_ALL": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        terminal = Terminal(Path(directory), environment)
        try:
            for block in blocks_of(page):
                for line in block.commands.splitlines():
                    terminal.run(line.replace("9092", port))
        finally:
            terminal.close()
    recording = terminal.recording
    recording.events = [(at_s, text.replace(port, "9092")) for at_s, text in recording.events]
    return recording


def main() -> None:
    """Record the tutorial and write both files."""
    assert shutil.which("bash"), "the tutorial is written for bash"
    recording = record((PAGES / "tutorial.md").read_text())
    (PAGES / "session.cast").write_text(recording.cast())
    (PAGES / "session.txt").write_text(recording.text())


if __name__ == "__main__":
    main()
