"""ZooKeeper servers that do not answer as they should hold up nobody."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.metrics import Metrics
from pylog.probe.zookeeper import MAX_ANSWER_BYTES, ZooKeeperReader, ask

WELL = b"zk_server_state\tleader\nzk_avg_latency\t0.5\nzk_sum_updatelatency\t2500\nzk_znode_count\tmany\n"


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[tuple[str, threading.Event]]:
    """A server that answers one connection so; the event says that its client went away."""
    was_left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    try:
                        connection.recv(4)  # mntr; what is unread when it closes would take the answer with it
                        answer(connection)
                    except OSError:
                        was_left.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", was_left


def test_what_it_says_is_read() -> None:
    with serving(lambda connection: connection.sendall(WELL)) as (server, _):
        assert ask(server)["zk_server_state"] == "leader"


def test_one_that_accepts_and_is_silent_is_given_up() -> None:
    ended = threading.Event()

    def wait(_: socket.socket) -> None:
        ended.wait(60)

    with serving(wait) as (server, _):
        assert ask(server, timeout_s=0.05) == {}
        ended.set()


def test_one_that_answers_byte_by_byte_is_given_up() -> None:
    def drip(connection: socket.socket) -> None:
        # Each byte comes in time; all of them would take minutes.
        while True:
            connection.sendall(b"x")
            threading.Event().wait(0.005)

    with serving(drip) as (server, was_left):
        assert ask(server, timeout_s=0.1) == {}
        assert was_left.wait(30)


def test_one_that_does_not_stop_is_no_zookeeper() -> None:
    def pour(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"x" * 65536)

    with serving(pour) as (server, was_left):
        assert len(str(ask(server))) < 2 * MAX_ANSWER_BYTES
        assert was_left.wait(30)


def test_a_silent_server_is_down_and_leaves_no_old_numbers() -> None:
    metrics = Metrics()
    reader = ZooKeeperReader(("well:1", "silent:1"), 15.0, metrics, Stop(), Notices())
    reader._found = {"well:1": {"zk_server_state": "leader", "zk_sum_updatelatency": "2500", "zk_znode_count": "many"}}
    reader._found = {**reader._found, "silent:1": {}}
    page = metrics.render()
    assert 'pylog_zookeeper_up{server="well:1"} 1' in page
    assert 'pylog_zookeeper_up{server="silent:1"} 0' in page
    assert 'pylog_zookeeper_update_seconds_total{server="well:1"} 2.5' in page
    assert "pylog_zookeeper_znode_count{" not in page, "no number"
    assert "silent:1" not in page.replace('pylog_zookeeper_up{server="silent:1"} 0', "")
