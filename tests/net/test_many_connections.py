"""Ten thousand clients that connect and say nothing."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pylog.testing import BrokerProcess
from tests.interop import frames
from tests.interop.frames import Connection

COUNT = 10_000
BYTES_EACH = 2 << 10
"""What one may cost: its object, its queues, its places in the loop; no buffer of its own."""


@contextmanager
def enough_descriptors(count: int) -> Iterator[None]:
    """Let this process and its children hold *count* files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= count, f"the test wants {count} open files, the limit is {hard}: ulimit -Hn"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) << 10


def connected(broker: BrokerProcess) -> int:
    text = str(broker.admin("GET", "/metrics")[1])
    return int(float(text.partition('pylog_connections{listener="client"} ')[2].split()[0]))


def test_t29_ten_thousand_idle_connections_cost_little_and_the_next_is_refused(tmp_path: Path) -> None:
    with enough_descriptors(COUNT + 1_000), BrokerProcess(tmp_path) as broker, ExitStack() as open_sockets:
        host, port = broker.bootstrap.rsplit(":", 1)
        with Connection(broker.bootstrap) as first:
            assert first.ask(frames.api_versions())
            before = resident_bytes(broker.pid)
            for number in range(COUNT - 1):
                open_sockets.enter_context(socket.create_connection((host, int(port)), 30))
                if not number % 100:
                    assert first.ask(frames.api_versions()), "the listener's queue is shorter than all of them"
            while connected(broker) < COUNT:
                assert first.ask(frames.api_versions())
            grown = resident_bytes(broker.pid) - before
            assert grown < COUNT * BYTES_EACH, f"{grown // COUNT} bytes a connection"
            with Connection(broker.bootstrap) as one_too_many:
                assert one_too_many.is_closed()
            while f"{COUNT} connections are open" not in broker.log:  # the line comes after the close
                assert first.ask(frames.api_versions())
            assert first.ask(frames.api_versions())
        open_sockets.close()
        with Connection(broker.bootstrap) as after:
            assert after.ask(frames.api_versions())
