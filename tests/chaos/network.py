"""A network of the run's own, out of reach of the machine's: a hub with a bridge, and a namespace for each node.

    hub (clients, 10.9.0.254) --- bridge --- veth --- node 1 (10.9.0.1), node 2, ...

Nodes are numbered from 1, brokers first and then ZooKeeper's servers.  Needs root, iproute2 and nftables.
"""

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.ledger import NAMESPACE, Ledger

HUB_ADDRESS = "10.9.0.254"
_TABLE = ("inet", "faults")
_CLONE_NEWNET = 0x4000_0000
_BURST_BYTES = 16_384
_LONGEST_QUEUE_MS = 800


def address(node: int) -> str:
    """Return where a node is; the same in every run, since no network knows another."""
    return f"10.9.0.{node}"


class Network:
    """Namespaces whose names begin with *name*, written to *ledger* before they are made."""

    def __init__(self, name: str, nodes: int, ledger: Ledger) -> None:
        self._name = name
        self._nodes = range(1, nodes + 1)
        self._ledger = ledger

    @property
    def hub(self) -> str:
        """The namespace of the clients."""
        return f"{self._name}-hub"

    def space(self, node: int) -> str:
        """Return the namespace of a node."""
        return f"{self._name}-{node}"

    def prefix(self, node: int) -> list[str]:
        """Return the command that runs another one in a node's namespace, as the same process."""
        return ["ip", "netns", "exec", self.space(node)]

    def make(self) -> None:
        """Make it."""
        self._add(self.hub)
        _run("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self.hub, "addr", "add", f"{HUB_ADDRESS}/24", "dev", "bridge")
        _run("ip", "-n", self.hub, "link", "set", "bridge", "up")
        for node in self._nodes:
            space = self.space(node)
            self._add(space)
            peer = ["type", "veth", "peer", "name", "eth0", "netns", space]
            _run("ip", "-n", self.hub, "link", "add", f"node{node}", *peer)
            _run("ip", "-n", self.hub, "link", "set", f"node{node}", "master", "bridge", "up")
            _run("ip", "-n", space, "addr", "add", f"{address(node)}/24", "dev", "eth0")
            _run("ip", "-n", space, "link", "set", "eth0", "up")
            self._nft(node, "add", "table", *_TABLE)
            chain = "{ type filter hook output priority 0; }"
            self._nft(node, "add", "chain", *_TABLE, "output", chain)

    def enter_hub(self) -> None:
        """Bring this process, which must have one thread, and all it starts from now on to where the clients are."""
        descriptor = os.open(Path("/run/netns", self.hub), os.O_RDONLY)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(descriptor, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter the namespace {self.hub}")
        finally:
            os.close(descriptor)

    def cut(self, node: int, other: int) -> None:
        """Drop what *node* sends to *other*, to all other nodes if that is 0; what they send still arrives."""
        others = [other] if other else [one for one in self._nodes if one != node]
        addresses = ", ".join(map(address, others))
        self._nft(node, "add", "rule", *_TABLE, "output", "ip", "daddr", f"{{ {addresses} }}", "drop")

    def heal(self, node: int) -> None:
        """Let *node* send to everybody again."""
        self._nft(node, "flush", "chain", *_TABLE, "output")

    def clog(self, node: int, bits_s: int) -> None:
        """Let so many bits a second leave *node*, and drop what waits too long."""
        shape = ["tbf", "rate", f"{bits_s}bit", "burst", str(_BURST_BYTES), "latency", f"{_LONGEST_QUEUE_MS}ms"]
        _run("tc", "-n", self.space(node), "qdisc", "replace", "dev", "eth0", "root", *shape)

    def unclog(self, node: int) -> None:
        """Take the limit away."""
        _run("tc", "-n", self.space(node), "qdisc", "del", "dev", "eth0", "root", may_fail=True)

    def _add(self, space: str) -> None:
        self._ledger.note(NAMESPACE, space)
        _run("ip", "netns", "add", space)
        _run("ip", "-n", space, "link", "set", "lo", "up")

    def _nft(self, node: int, *command: str) -> None:
        _run(*self.prefix(node), "nft", *command)


def _run(*command: str, may_fail: bool = False) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise RuntimeError(f"{_words(command)}: {done.stderr.strip()}")


def _words(command: Sequence[str]) -> str:
    return " ".join(command)
