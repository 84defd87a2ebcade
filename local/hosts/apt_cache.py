"""A cache for Debian packages between the mirrors and the hosts of one checkout.

Packages and by-hash lists never change under their name, so they are kept for good below .local/cache/apt;
everything else passes through unkept. Only Debian's own mirrors are reached, and the cache listens on the loopback
address and on the bridges of this checkout's hosts, nowhere else.

    start [ADDRESS]   start unless it runs, listen on ADDRESS too, print http://ADDRESS:PORT
    stop
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import BinaryIO, ClassVar

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".local" / "apt-cache"
CACHE = ROOT / ".local" / "cache" / "apt"
LOOPBACK = "127.0.0.1"
FETCH_TIMEOUT_S = 60
START_TIMEOUT_S = 30
ATTEMPTS = 3


def mirrors(targets: str | None = None) -> frozenset[str]:
    """Return the servers of Debian's archive that this machine's apt uses, which its hosts use too.

    Args:
        targets: what apt lists, one "SITE SUITE" a line; asked for if None.
    """
    if targets is None:
        command = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages"]
        targets = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in targets.splitlines()]
    suites = ("bookworm", "bookworm-updates", "bookworm-security")
    return frozenset(urllib.parse.urlsplit(site).netloc for site, suite in lines if suite in suites)


def is_allowed(url: urllib.parse.SplitResult, servers: frozenset[str]) -> bool:
    """Say whether *url* is on one of *servers*: nobody may use this as an open proxy."""
    return url.scheme == "http" and url.netloc in servers


def is_immutable(url: urllib.parse.SplitResult) -> bool:
    """Say whether the content under *url* never changes."""
    return url.path.endswith((".deb", ".udeb")) or "/by-hash/" in url.path


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection of apt; it pipelines, so the connection stays open between answers."""

    protocol_version = "HTTP/1.1"
    timeout = 120
    # Hosts install the same packages at the same moment: the first fetches, the others wait for its file.
    fetching: ClassVar[defaultdict[str, threading.Lock]] = defaultdict(threading.Lock)
    servers: ClassVar[frozenset[str]] = frozenset()

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        if not is_allowed(url, self.servers):
            self.send_error(403, f"only Debian's mirrors pass here, not {url.hostname}")
            return
        try:
            if is_immutable(url):
                path = self._fetch_once(self.path)
                with path.open("rb") as body:
                    self._answer(200, path.stat().st_size, body)
            else:
                self._pass()
        except urllib.error.HTTPError as error:
            self.send_response(error.code, error.reason)
            self.send_header("Content-Length", "0")
            self.end_headers()
        except (OSError, ValueError) as error:
            self.log_error("%s: %s", self.path, error)
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.send_error(502, "the mirror did not answer")

    def _fetch_once(self, url: str) -> Path:
        path = CACHE / hashlib.sha256(url.encode()).hexdigest()
        with self.fetching[url]:
            for attempt in range(1, ATTEMPTS + 1):
                if path.exists():
                    break
                try:
                    self._fetch(url, path)
                except urllib.error.HTTPError:
                    raise
                except OSError:
                    if attempt == ATTEMPTS:
                        raise
        return path

    def _fetch(self, url: str, path: Path) -> None:
        with (
            tempfile.NamedTemporaryFile(dir=CACHE, prefix="part-") as part,
            urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer,
        ):
            shutil.copyfileobj(answer, part, 1 << 20)
            part.flush()
            wanted = answer.headers["Content-Length"]
            if wanted is not None and int(wanted) != part.tell():
                raise ConnectionError(f"{url} ended early")
            os.link(part.name, path)

    def _pass(self) -> None:
        request = urllib.request.Request(self.path)
        if since := self.headers["If-Modified-Since"]:
            request.add_header("If-Modified-Since", since)
        # Spooled, not streamed: the length is known before the first byte goes out.
        with (
            urllib.request.urlopen(request, timeout=FETCH_TIMEOUT_S) as answer,
            tempfile.TemporaryFile() as body,
        ):
            shutil.copyfileobj(answer, body, 1 << 20)
            size_bytes = body.tell()
            body.seek(0)
            self._answer(answer.status, size_bytes, body, answer.headers["Last-Modified"])

    def _answer(self, status: int, size_bytes: int, body: BinaryIO, modified: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size_bytes))
        if modified:
            self.send_header("Last-Modified", modified)
        self.end_headers()
        shutil.copyfileobj(body, self.wfile, 1 << 20)


class Server(http.server.ThreadingHTTPServer):
    """A server that does not ask for the name of its own address, which takes seconds where no name server answers."""

    def server_bind(self) -> None:
        """Bind; the name is asked for by nobody."""
        socketserver.TCPServer.server_bind(self)


def _serve(port: int) -> None:
    """Listen on every address of the address file, and again on each SIGHUP."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    _Handler.servers = mirrors()
    listening: set[str] = set()
    while True:
        for address in (STATE / "addresses").read_text().split():
            if address in listening:
                continue
            try:
                server = Server((address, port), _Handler)
            except OSError as error:
                print(f"cannot listen on {address}:{port}: {error}", file=sys.stderr, flush=True)
                continue
            port = server.server_address[1]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            listening.add(address)
        _write(STATE / "port", f"{port}\n")
        signal.sigwait({signal.SIGHUP})


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def _running() -> int | None:
    """Return the process id of this checkout's cache, if it runs."""
    try:
        pid = int((STATE / "pid").read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    # Its own file may lie elsewhere since it was started; the checkout is the same.
    is_ours = any(one.startswith(os.fsencode(ROOT / "local")) for one in arguments)
    return pid if is_ours and b"serve" in arguments else None


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def start(address: str = LOOPBACK) -> str:
    """Start the cache unless it runs, make it listen on *address* as well, and return its URL there.

    Raises:
        TimeoutError: it did not come up; its output is in .local/apt-cache/log.
    """
    STATE.mkdir(parents=True, exist_ok=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    addresses = STATE / "addresses"
    known = addresses.read_text().split() if addresses.exists() else [LOOPBACK]
    _write(addresses, "\n".join(dict.fromkeys([*known, address])) + "\n")
    old_port = (STATE / "port").read_text().strip() if (STATE / "port").exists() else "0"
    if pid := _running():
        os.kill(pid, signal.SIGHUP)
    else:
        for part in CACHE.glob("part-*"):
            part.unlink()
        # The port of last time if it is free, so that hosts may keep what they were told.
        port = old_port if old_port != "0" and not _answers(LOOPBACK, int(old_port)) else "0"
        (STATE / "port").unlink(missing_ok=True)
        with (STATE / "log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), "serve", port],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _write(STATE / "pid", f"{child.pid}\n")
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            port_now = int((STATE / "port").read_text())
            if _answers(address, port_now):
                return f"http://{address}:{port_now}"
        time.sleep(0.05)
    raise TimeoutError(f"the package cache does not listen on {address}; see {STATE / 'log'}")


def stop() -> None:
    """Stop the cache; what it holds stays."""
    if pid := _running():
        os.kill(pid, signal.SIGTERM)
    shutil.rmtree(STATE, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Run one command line."""
    match arguments:
        case ["start"]:
            print(start())
        case ["start", address]:
            print(start(address))
        case ["stop"]:
            stop()
        case ["serve", port]:
            _serve(int(port))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
