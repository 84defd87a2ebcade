"""One suite for containers and production: what a host must be once `site` has run.

pytest tests/infra --ansible-inventory=inventories/local --hosts=all       (inventories/yours works the same)

`-m readonly` runs what changes nothing on a host; the rest produces to topics of its own or restarts a broker.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from testinfra.host import Host
from testinfra.utils.ansible_runner import AnsibleRunner


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> AnsibleRunner:
    """The inventory under test."""
    inventory = request.config.getoption("--ansible-inventory")
    assert inventory, "name the inventory: --ansible-inventory=inventories/local"
    return AnsibleRunner(inventory)


@pytest.fixture(scope="session")
def variables(runner: AnsibleRunner) -> Callable[[str], dict[str, Any]]:
    """A host's variables, read from the inventory once."""
    return cache(lambda name: dict(runner.get_variables(name)))


@pytest.fixture
def name(host: Host) -> str:
    """The host's name in the inventory."""
    return str(host.backend.get_hostname())


@pytest.fixture
def mine(name: str, variables: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """This host's variables."""
    return variables(name)


@pytest.fixture
def instances(mine: dict[str, Any]) -> list[dict[str, Any]]:
    """The brokers of this host."""
    return list(mine.get("pylog_broker_instances", []))


@pytest.fixture
def on_failure_show_journal(host: Host, request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Name a unit whose journal is printed if the test fails."""
    units: list[str] = []
    before = request.session.testsfailed
    yield units.append
    if request.session.testsfailed > before or units:
        for unit in units:
            print(host.run("journalctl -u %s -n 30 --no-pager", unit).stdout)


def read_json(host: Host, command: str, *arguments: str) -> Any:
    """Return what *command* printed, as JSON; fails with its error output."""
    result = host.run(command, *arguments)
    assert result.rc == 0, f"{result.command}: {result.stderr}"
    return json.loads(result.stdout)


def ask_broker(host: Host, broker_id: int, path: str, data: str | None = None) -> Any:
    """Return the answer of a broker's admin socket."""
    post = f"-X POST -d '{data}' " if data is not None else ""
    return read_json(
        host, f"curl -sS {post}--unix-socket /run/pylog/broker-{broker_id}.sock http://localhost{path}"
    )
