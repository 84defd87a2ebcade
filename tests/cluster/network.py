"""A network of this test's own: each broker in a namespace, links that can be cut one way or lose packets.

All stand on one bridge; this process and ZooKeeper are at its address.  Needs root, iproute2 and nftables.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from pylog.testing import BrokerProcess
from tests.cluster.conftest import Brokers, write_config
from tests.servers.zookeeper import ZooKeeper

BROKERS = (1, 2, 3)
_TABLE = "inet faults"
_NUMBERS = 250


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _bridge(number: int) -> str:
    return f"plt{number}"


def _add_bridge() -> int:
    """Add a bridge with the first free number: other runs of these tests on this machine have theirs."""
    started = os.getpid() % _NUMBERS
    for number in chain(range(started, _NUMBERS), range(started)):
        command = ["ip", "link", "add", _bridge(number), "type", "bridge"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return number
        assert "File exists" in done.stderr, f"{' '.join(command)}: {done.stderr}"
    raise AssertionError(f"{_NUMBERS} networks of killed runs are left: ip link show type bridge")


class Network:
    """Namespaces on a bridge, gone with the context.

    Attributes:
        host: address of the bridge, where clients and ZooKeeper are.
    """

    def __init__(self) -> None:
        self._name = self._subnet = self.host = ""  # chosen with the bridge

    def __enter__(self) -> "Network":
        number = _add_bridge()
        self._name, self._subnet = _bridge(number), f"10.199.{number}"
        self.host = f"{self._subnet}.254"
        try:
            self._set_up()
        except BaseException:
            self._remove()
            raise
        return self

    def _set_up(self) -> None:
        bridge = self._name
        _run("ip", "addr", "add", f"{self.host}/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for one in BROKERS:
            space, link = self._space(one), f"{bridge}v{one}"
            _run("ip", "netns", "add", space)
            _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "link", "set", link, "master", bridge, "up")
            _run("ip", "-n", space, "addr", "add", f"{self.address(one)}/24", "dev", "eth0")
            _run("ip", "-n", space, "link", "set", "eth0", "up")
            _run("ip", "-n", space, "link", "set", "lo", "up")
            self._nft(one, "add", "table", *_TABLE.split())
            for hook in ("input", "output"):
                kind = f"{{ type filter hook {hook} priority 0; }}"
                self._nft(one, "add", "chain", *_TABLE.split(), hook, kind)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for one in BROKERS:
            subprocess.run(["ip", "netns", "del", self._space(one)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._name], capture_output=True, check=False)

    def address(self, broker: int) -> str:
        """Return where a broker is."""
        return f"{self._subnet}.{broker}"

    def prefix(self, broker: int) -> list[str]:
        """Return the command that runs another one in a broker's namespace."""
        return ["ip", "netns", "exec", self._space(broker)]

    def cut(self, broker: int, address: str, *, port: int | None = None, both_ways: bool = True) -> None:
        """Drop what *broker* sends to *address*, and unless it is one way also what comes from there."""
        to_port = ["tcp", "dport", str(port)] if port else []
        from_port = ["tcp", "sport", str(port)] if port else []
        self._nft(broker, "add", "rule", *_TABLE.split(), "output", "ip", "daddr", address, *to_port, "drop")
        if both_ways:
            self._nft(broker, "add", "rule", *_TABLE.split(), "input", "ip", "saddr", address, *from_port, "drop")

    def lose(self, broker: int, percent: int) -> None:
        """Drop so many of a hundred packets that *broker* sends or is sent."""
        for hook, side in (("input", "iifname"), ("output", "oifname")):
            chance = ["numgen", "random", "mod", "100", "<", str(percent)]
            self._nft(broker, "add", "rule", *_TABLE.split(), hook, side, "eth0", *chance, "drop")

    def heal(self, *brokers: int) -> None:
        """Take all faults of these brokers' links away, of all if none is named."""
        for one in brokers or BROKERS:
            for hook in ("input", "output"):
                self._nft(one, "flush", "chain", *_TABLE.split(), hook)

    def _space(self, broker: int) -> str:
        return f"{self._name}-{broker}"

    def _nft(self, broker: int, *command: str) -> None:
        _run(*self.prefix(broker), "nft", *command)


@dataclass(frozen=True, slots=True)
class Spread:
    """A cluster on such a network."""

    network: Network
    zookeeper: ZooKeeper
    brokers: Brokers

    def cut_store(self, broker: int) -> None:
        """Cut a broker from ZooKeeper alone."""
        self.network.cut(broker, self.network.host, port=self.zookeeper.servers[0].port)

    def without(self, *brokers: int) -> Brokers:
        """Return the other brokers."""
        return {one: broker for one, broker in self.brokers.items() if one not in brokers}


@contextmanager
def spread(directory: Path, **settings: Any) -> Iterator[Spread]:
    """Three brokers, each in its namespace."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        zookeeper = stack.enter_context(ZooKeeper(directory / "zookeeper", host=network.host))
        brokers: Brokers = {}
        for one in BROKERS:
            home = directory / str(one)
            host = network.address(one)
            config = write_config(home, one, zookeeper, host=host, **settings)
            broker = BrokerProcess(home, host=host, config_file=config, prefix=network.prefix(one))
            brokers[one] = stack.enter_context(broker)
        yield Spread(network, zookeeper, brokers)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spread]:
    with spread(tmp_path_factory.mktemp("spread")) as found:
        yield found
