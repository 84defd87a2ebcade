"""A program of pylog as a process of its own, from a configuration file."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

WAIT_S = 60.0
"""Far above what a quiet machine takes; only a fault meets it."""


def wait_until(condition: Callable[[], object], what: Callable[[], str] | str, timeout_s: float = WAIT_S) -> None:
    """Poll *condition* until it holds: clients of others cannot be told to hand over their clock."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)


class Program:
    """``pylog VERB --config FILE``, killed with the context if it still runs.

    Args:
        directory: where its file and its log go.
        verb: of the command.
        config: what the file says.
        prefix: command that runs the program's own, such as ``ip netns exec NAME``.
    """

    def __init__(self, directory: Path, verb: str, config: Mapping[str, object], *, prefix: Sequence[str] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.config_path = directory / f"{verb.split()[0]}.yml"
        self.config_path.write_text(yaml.safe_dump({"version": 1, **config}))
        self._log_path = directory / f"{verb.split()[0]}.log"
        self._command = [*prefix, sys.executable, "-m", "pylog", *verb.split(), "--config", str(self.config_path)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def wait_log(self, text: str) -> None:
        wait_until(lambda: text in self.log or self.has_ended, lambda: self.log)
        assert text in self.log, self.log

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(WAIT_S)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(WAIT_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.has_ended:
            self.kill()


@contextmanager
def json_server(answers: Mapping[str, object]) -> Iterator[str]:
    """Answer GET with the JSON of each path, whatever the query; yield the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            self.send_response(404 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def scrape(port: int, host: str = "127.0.0.1") -> dict[str, float]:
    """Return the samples at ``/metrics``, by name and labels; nothing while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return {}
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}
