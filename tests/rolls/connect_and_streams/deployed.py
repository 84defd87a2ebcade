"""Hosts with connectors and queries as these tests handle them."""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import yaml

from local.hosts.client import settings
from tests.rolls.cluster import AUTHORITY, LOCAL, ROOT, bootstrap, inside, playbook

SCENARIO = "connect_and_streams"
BESIDE = ROOT / "molecule" / SCENARIO / "inventory"
"""The inventory of what these hosts run besides brokers."""

_CHANGED = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


def given(group: str) -> dict[str, Any]:
    """Return what the scenario's inventory says for a group."""
    found: dict[str, Any] = yaml.safe_load((BESIDE / "group_vars" / f"{group}.yml").read_text())
    return found


def play(name: str, extra: Mapping[str, Any] | None = None, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook over the inventory, with *extra* variables instead of what that says."""
    return playbook(name, extra, "-i", str(BESIDE), *more)


def played(name: str, extra: Mapping[str, Any] | None = None, *more: str) -> dict[str, int]:
    """Run a playbook that must end well; return how many tasks changed on each host."""
    done = play(name, extra, *more)
    assert done.returncode == 0, done.stdout[-3000:]
    return {host: int(changed) for host, changed, _, _ in _CHANGED.findall(done.stdout) if host != "localhost"}


def unit(host: str, name: str, what: str) -> str:
    """Return one property of a unit."""
    return inside(host, f"systemctl show --value --property {what} {name}").strip()


def pid(host: str, name: str) -> int:
    """Return the number of a unit's main process, 0 if it has none."""
    return int(unit(host, name, "MainPID"))


def kill(host: str, name: str) -> None:
    """Kill a unit's main process as a crash would."""
    number = pid(host, name)
    assert number > 0
    inside(host, f"kill -KILL {number}")


@contextmanager
def meanwhile(work: Callable[[], object], limit: int) -> Iterator[None]:
    """Do *work* again and again, *limit* times at most, during the block; an error of it is the block's."""
    is_over = threading.Event()
    failed: list[Exception] = []

    def repeat() -> None:
        try:
            for _ in range(limit):
                if is_over.is_set():
                    return
                work()
        except Exception as error:  # noqa: BLE001 - the block raises it
            failed.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if failed:
        raise failed[0]


def pylog(*words: str) -> Any:
    """Return what `pylog` says as JSON to the local inventory's user."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write(settings(bootstrap(), LOCAL / "users" / "demo.password", AUTHORITY))
        file.flush()
        program = [sys.executable, "-m", "pylog", *words, "--format", "json"]
        environment = os.environ | {"PYLOG_CONFIG": file.name}
        done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=120, env=environment)
    return json.loads(done.stdout)
