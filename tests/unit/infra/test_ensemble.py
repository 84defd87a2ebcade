"""How the suite that runs against any inventory judges a ZooKeeper ensemble."""

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import testinfra
from testinfra.host import Host

from tests.infra import test_cluster


class Server(socketserver.BaseRequestHandler):
    """Answers every four-letter word as a server without an ensemble answers `mntr`."""

    def handle(self) -> None:
        self.request.recv(4)
        self.request.sendall(b"zk_server_state\tstandalone\n")


class Here:
    """An inventory whose only host is this machine."""

    def __init__(self, *groups: str) -> None:
        self.groups = groups

    def get_hosts(self, pattern: str) -> list[str]:
        return ["zk1"] if pattern in self.groups else []

    def get_host(self, name: str) -> Host:
        return testinfra.get_host("local://")


@contextlib.contextmanager
def serving() -> Iterator[int]:
    with socketserver.TCPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def variables(port: int) -> Callable[[str], dict[str, Any]]:
    return {"zk1": {"zookeeper_id": 1, "zookeeper_client_port": port}}.__getitem__


def judge(runner: Here, port: int) -> None:
    test_cluster.test_the_ensemble_has_one_leader_and_the_rest_follow(runner, variables(port), "all")


def test_a_server_that_serves_passes() -> None:
    with serving() as port:
        judge(Here("pylog_zookeeper"), port)


def test_a_server_that_does_not_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one behind TLS answered nothing in the clear: the test was left out then, and a dead ensemble was green."""
    monkeypatch.setattr(test_cluster, "DEADLINE_S", 0.0)
    with serving() as port:
        pass
    with pytest.raises(AssertionError, match="standalone"):
        judge(Here("pylog_zookeeper"), port)


def test_only_without_servers_the_test_is_left_out() -> None:
    with pytest.raises(pytest.skip.Exception):
        judge(Here(), 2181)
