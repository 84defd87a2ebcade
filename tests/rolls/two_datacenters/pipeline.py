"""Two datacenters and a lake as these tests handle them."""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pylog.audit.producer import AuditedProducer
from pylog.cli.activity import TOPICS, Activity
from pylog.cli.demo import AVRO_SUFFIX, avro
from pylog.client.admin.cluster import Admin
from pylog.ops.inventory import Target, load
from pylog.ops.tasks import connect
from tests.rolls import cluster

HOSTS_FILE = Path(os.environ.get("PYLOG_HOSTS_FILE", cluster.ROOT / ".local" / "hosts.json"))
LAKE = HOSTS_FILE.parent / "shared"
"""The lake as this machine sees it; Spark's hosts have it mounted."""

SHARED = "/srv/lake"
"""The same as they see it."""

_OVER = ".over"
IS_OVER = f"[ -e {SHARED}/{_OVER} ]"
"""By this a program on those hosts knows that what it was to disturb has ended."""

WINDOW_MS = 5000
"""As the inventory has it."""

LOAD = "pylog-ingest.service"
MIRROR_HOST, DRIVER_HOST, WORKER_HOSTS = "offline1", "spark1", ("spark1", "spark2")
PATIENCE_S = 180
"""How long nothing may move before a wait gives up; what moves may take as long as it takes."""

LOAD_LIMIT_S = 3600
"""What the unit itself gives a load."""


@cache
def _targets() -> dict[str, Target]:
    return {one.name: one for one in load(cluster.INVENTORY)}


def brokers(datacenter: str) -> str:
    """Return the addresses of a datacenter's brokers."""
    return ",".join(
        f"{one.address}:{instance['port']}"
        for one in _targets().values()
        if datacenter in one.groups
        for instance in one.variables.get("pylog_broker_instances", [])
    )


def address(host: str) -> str:
    """Return a host's address."""
    return _targets()[host].address


def registry(datacenter: str) -> str:
    """Return where a datacenter's schema registry answers."""
    [host] = [one for one in _targets().values() if {"pylog_registry", datacenter} <= set(one.groups)]
    return f"http://{host.address}:8081"


def on(host: str, command: str, *, is_checked: bool = True) -> str:
    """Return what *command* prints on *host*; an unchecked one may fail."""
    with connect(_targets()[host]) as connection:
        return str(connection.run(command, hide=True, in_stream=False, warn=not is_checked).stdout).strip()


def pylog(*arguments: str, exit_codes: tuple[int, ...] = (0,)) -> str:
    """Return what a command of pylog prints on this machine."""
    done = subprocess.run([sys.executable, "-m", "pylog", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in exit_codes, f"{shlex.join(arguments)}: {done.returncode}\n{done.stderr}"
    return done.stdout


def wait_until(
    condition: Callable[[], object],
    what: str,
    timeout_s: float = PATIENCE_S,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Poll *condition* until it holds; give up once *progress* has not changed for *timeout_s*."""
    deadline, last = time.monotonic() + timeout_s, progress()
    while not condition():
        now = progress()
        if now != last:
            deadline, last = time.monotonic() + timeout_s, now
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}; last seen: {last}"
        time.sleep(0.5)


def drain() -> None:
    """Wait until the mirror has brought what the live datacenter holds now."""
    on(MIRROR_HOST, f"pylog mirror status --config /etc/pylog/mirror.yml --wait {PATIENCE_S}")


def start_load() -> None:
    """Start the load job once a run of the timer's has ended, and come back when it runs."""
    wait_load()
    before = _show("InvocationID")
    on(DRIVER_HOST, f"systemctl start --no-block {LOAD}")
    wait_until(lambda: _show("InvocationID") != before, "the load job starts")


def wait_load() -> str:
    """Wait until the load job has ended; return how: success, or systemd's word for the failure."""
    wait_until(lambda: _show("ActiveState") in ("inactive", "failed"), "the load job ends", LOAD_LIMIT_S)
    return _show("Result")


def _show(name: str) -> str:
    return on(DRIVER_HOST, f"systemctl show --property {name} --value {LOAD}")


@contextmanager
def beside(script: str, *hosts: str) -> Iterator[list[str]]:
    """Run *script* on *hosts* during the block; it ends when `IS_OVER` holds, and the list then has what each said."""
    mark = LAKE / _OVER
    mark.unlink(missing_ok=True)
    said: list[str] = []
    with ThreadPoolExecutor(len(hosts)) as pool:
        running = [pool.submit(on, host, script) for host in hosts]
        try:
            yield said
        finally:
            mark.touch()
        said += [one.result() for one in running]


def run_load() -> None:
    """Run the load job to its good end."""
    start_load()
    result = wait_load()
    assert result == "success", on(DRIVER_HOST, f"journalctl --no-pager --lines 60 --unit {LOAD}")


def commits() -> int:
    """Return how many commits the lake has."""
    return len(list((LAKE / "_commits").glob("*.json")))


@contextmanager
def link_cut(host: str) -> Iterator[None]:
    """Cut *host* off from the live datacenter's brokers, in both directions, as a firewall that drops would."""
    container = json.loads(HOSTS_FILE.read_text())["hosts"][host]["container"]
    inspect = ["podman", "inspect", "--format", "{{.State.Pid}}", container]
    pid = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout.strip()

    def nft(script: str) -> None:
        subprocess.run(["nsenter", "--target", pid, "--net", "nft", "--file", "-"], input=script, text=True, check=True)

    far = ", ".join(one.rsplit(":", 1)[0] for one in brokers("live").split(","))
    nft(f"""table ip cut {{
        chain in {{ type filter hook input priority 0; ip saddr {{ {far} }} drop; }}
        chain out {{ type filter hook output priority 0; ip daddr {{ {far} }} drop; }}
    }}""")
    try:
        yield
    finally:
        nft("delete table ip cut")


@contextmanager
def lost(datacenter: str) -> Iterator[None]:
    """Let every host of *datacenter* stand still, all of its programs at once, as after a power cut; they come back."""
    hosts = json.loads(HOSTS_FILE.read_text())["hosts"]
    containers = [hosts[name]["container"] for name, one in _targets().items() if datacenter in one.groups]
    subprocess.run(["podman", "pause", *containers], check=True, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run(["podman", "unpause", *containers], check=True, stdout=subprocess.DEVNULL)


class Stream(threading.Thread):
    """Produces audited Avro records to the live datacenter, at a steady rate, until it is stopped.

    Attributes:
        keys: what was produced, by topic; whole once `stop` has returned.
        count: how many those are.
    """

    RATE = 400

    def __init__(self) -> None:
        super().__init__(name="stream", daemon=True)
        self.run_name = f"s{time.time_ns() // 1_000_000:x}"
        self.began_s = time.time()
        self.keys: dict[str, list[bytes]] = {}
        self.count = 0
        self._end = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            present = Admin(brokers("live")).cluster().topics
            for name in {topic + AVRO_SUFFIX for topic in TOPICS} - present.keys():
                Admin(brokers("live")).create_topic(name, partitions=2, replication_factor=3)
            activity = Activity(self.run_name, 7, avro(registry("live"), AVRO_SUFFIX))
            with AuditedProducer(brokers("live"), window_ms=WINDOW_MS, report_s=2.0, linger_ms=20) as producer:
                while not self._end.wait(0.1):
                    for name, events in activity.take(self.RATE // 10).items():
                        for key, value in events:
                            assert key is not None, "every event has one"
                            producer.send(name + AVRO_SUFFIX, value, key)
                            self.keys.setdefault(name + AVRO_SUFFIX, []).append(key)
                            self.count += 1
        except BaseException as failure:
            self._failure = failure
            raise

    def stop(self) -> None:
        """Wait until all is acknowledged."""
        self._end.set()
        self.join()
        assert self._failure is None, self._failure

    def keys_in(self, found: Iterator[bytes | None]) -> Counter[bytes]:
        """Return how often each key of this stream is among *found*."""
        mine = f"{self.run_name}-".encode()
        return Counter(key for key in found if key is not None and key.startswith(mine))


def audit(since_s: float) -> dict[str, Any]:
    """Return what the audit says of the time since then, once it has judged every window."""
    arguments = ["audit", "report", "--ledger", brokers("live"), "--ledger", brokers("offline"),
                 "--window-ms", str(WINDOW_MS), "--format", "json"]  # fmt: skip
    found: dict[str, Any] = {}
    # The command counts back from when it has started, by when the first window may lie before that.
    margin_s = 60

    def is_judged() -> bool:
        nonlocal found
        on(DRIVER_HOST, "systemctl start pylog-audit-lake.service")
        found = json.loads(pylog(*arguments, f"--since={int(time.time() - since_s) + margin_s}s", exit_codes=(0, 1)))
        return not any(row["pending"] for rows in found["topics"].values() for row in rows)

    wait_until(is_judged, "the audit judges every window", progress=lambda: _pending(found))
    return found


def _pending(found: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    rows = [(topic, row) for topic, rows in found.get("topics", {}).items() for row in rows]
    return [(topic, row["window"], row["pending"]) for topic, row in rows if row["pending"]]
