"""One suite for containers and production: what a host must be once `site` has run.

pytest tests/infra --connection=ansible --ansible-inventory=inventories/local --hosts=all     (yours works the same)

`-m readonly` runs what changes nothing on a host; the rest produces to topics of its own or restarts a broker.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import paramiko
import pytest
import yaml
from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host
from testinfra.utils.ansible_runner import AnsibleRunner

from pylog.ops.addresses import addresses
from pylog.ops.inventory import PROMPT, Target, load
from pylog.ops.tasks import connect, watchers_of


class Login(BaseBackend):
    """Runs commands as root on one host, over the connection that `fab` makes.

    Testinfra's own knows neither a password of sudo nor variables that are templates or lie in a vault, unless each
    command is a run of Ansible.
    """

    NAME = "ansible"

    def __init__(self, target: Target) -> None:
        super().__init__(target.name)
        self.target = target
        self.connection = connect(target)
        self.failure: Exception | None = None

    def run(self, command: str, *args: str, **_: Any) -> CommandResult:
        """Run *command*, its *args* quoted into it; it has nothing to read."""
        if self.failure:
            raise self.failure  # each test would wait for the host again
        try:
            self.connection.open()
        except (OSError, paramiko.SSHException) as error:
            self.failure = error
            raise
        script = f"exec </dev/null\n{self.quote(command, *args)}"
        done = self.connection.run(
            f"{self.target.sudo}/bin/sh -c {shlex.quote(script)}", in_stream=False, hide=True, warn=True,
            encoding="utf-8", watchers=watchers_of(self.target),
        )  # fmt: skip
        return self.result(
            done.exited, command.encode(), done.stdout.encode(), done.stderr.replace(PROMPT, "").encode()
        )


class Runner(AnsibleRunner):
    """The inventory under test, with everything in it filled in."""

    def __init__(self, inventory: str) -> None:
        super().__init__(inventory)
        self.targets = {target.name: target for target in load(inventory)}
        self._logins: dict[str, Host] = {}

    def get_hosts(self, pattern: str = "all") -> list[str]:
        """Return the hosts whose name, or one of whose groups, is *pattern*."""
        known = self.targets.items()
        return [name for name, one in known if any(fnmatch(word, pattern) for word in (name, *one.groups, "all"))]

    def get_host(self, host: str, **_: Any) -> Host:
        """Return the host; its connection is made with the first command."""
        if host not in self._logins:
            self._logins[host] = Host(Login(self.targets[host]))
        return self._logins[host]


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """The inventory under test."""
    inventory = request.config.getoption("--ansible-inventory")
    assert inventory, "name the inventory: --ansible-inventory=inventories/local"
    found = Runner(str(inventory))
    yield found
    for host in found._logins.values():
        host.backend.connection.close()


@pytest.fixture(scope="module")
def host(_testinfra_host: Host, runner: Runner) -> Host:
    """The host that a test is run for."""
    return runner.get_host(str(_testinfra_host.backend.get_hostname()))


@pytest.fixture(scope="session")
def variables(runner: Runner) -> Callable[[str], dict[str, Any]]:
    """A host's variables as Ansible fills them in, read from the inventory once."""
    return {
        name: {**target.variables, "inventory_hostname": name, "group_names": sorted(target.groups)}
        for name, target in runner.targets.items()
    }.__getitem__


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
    """The brokers of this host; a host without one is skipped, since a loop over none would test nothing."""
    want_group(mine, "pylog_broker")
    return list(mine["pylog_broker_instances"])


@pytest.fixture(autouse=True)
def deployed(request: pytest.FixtureRequest) -> None:
    """Skip hosts of the inventory that the bundle deploys nothing to."""
    if "host" in request.fixturenames:
        mine = request.getfixturevalue("mine")
        if not any(group.startswith("pylog_") for group in mine["group_names"]):
            pytest.skip(f"{mine['inventory_hostname']} is in no group of the bundle")


def want_group(mine: dict[str, Any], *groups: str) -> None:
    """Skip a host that is in none of *groups*: what the test looks for is not deployed there."""
    if not {*groups} & {*mine["group_names"]}:
        pytest.skip(f"{mine['inventory_hostname']} is not in {' or '.join(groups)}")


def members(runner: AnsibleRunner, group: str) -> list[str]:
    """Return the hosts of *group*; skip the test where the inventory has none."""
    found = list(runner.get_hosts(group))
    if not found:
        pytest.skip(f"the inventory has no host in {group}")
    return found


def datacenter_of(variables: dict[str, Any]) -> str:
    """Return the name of the group of hosts that form one cluster."""
    return str(variables.get("pylog_datacenter", "all"))


def places(runner: AnsibleRunner, variables: Callable[[str], dict[str, Any]], datacenter: str) -> str:
    """Return ``HOST:PORT`` of all brokers of *datacenter*, as clients reach them."""
    found = {name: variables(name) for name in runner.get_hosts("pylog_broker")}
    reached = addresses(found, {})["brokers"]
    return ",".join(one for name in found if datacenter_of(found[name]) == datacenter for one in reached[name])


def pylog(host: Host, *words: str) -> Any:
    """Return what the command on *host* printed as JSON; it writes nothing, not even what Python compiles."""
    command = " ".join(["PYTHONDONTWRITEBYTECODE=1 /opt/pylog/current/bin/pylog", *("%s" for _ in words)])
    return read_json(host, command, *words)


@pytest.fixture
def on_failure_show_journal(host: Host, request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Name a unit whose journal is printed if the test fails."""
    units: list[str] = []
    before = request.session.testsfailed
    yield units.append
    if request.session.testsfailed > before or units:
        for unit in units:
            print(host.run("journalctl -u %s -n 30 --no-pager", unit).stdout)


ROLES = Path(__file__).resolve().parents[2] / "roles"


def setting(mine: dict[str, Any], role: str, name: str) -> Any:
    """Return a role's variable: what the inventory says, or the role's default."""
    return mine[name] if name in mine else yaml.safe_load((ROLES / role / "defaults" / "main.yml").read_text())[name]


def named_ports(mine: dict[str, Any]) -> set[int]:
    """Return every port that a variable of the inventory or of a role names."""
    found: set[int] = set()
    defaults = [yaml.safe_load(path.read_text()) or {} for path in ROLES.glob("*/defaults/main.yml")]
    for variables in (*defaults, mine):
        for name, value in variables.items():
            if name.endswith("_port") and str(value).isdigit():
                found.add(int(value))
            elif name.endswith("_listen") and str(value).rpartition(":")[2].isdigit():
                found.add(int(str(value).rpartition(":")[2]))
    return found


def read_json(host: Host, command: str, *arguments: str) -> Any:
    """Return what *command* printed, as JSON; fails with its error output."""
    result = host.run(command, *arguments)
    assert result.rc == 0, f"{result.command}: {result.stderr}"
    return json.loads(result.stdout)


def ask_broker(host: Host, broker_id: int, path: str) -> Any:
    """Return the answer of a broker's admin socket; a bare host has Python, but no curl."""
    return read_json(host, "python3 -c %s %s %s", _ASK, f"/run/pylog/broker-{broker_id}.sock", path)


_ASK = """
import http.client, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("GET", sys.argv[2])
print(connection.getresponse().read().decode())
"""
