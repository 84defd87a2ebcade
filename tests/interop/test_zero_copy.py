"""What the kernel says of reading: records go from file to socket unread, from memory where they are, at any pace."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.testing import BrokerProcess
from tests.interop import frames
from tests.interop.batches import Batch
from tests.interop.conftest import PEER, create_topic
from tests.interop.frames import Connection

pytestmark = pytest.mark.skipif(PEER != "pylog", reason="looks into pylog's process")

BATCH = Batch(values=(b"x" * 100_000,)).encode()
COUNT = 160
TOTAL_BYTES = COUNT * len(BATCH)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with 16 MB in one partition of several segments."""
    with BrokerProcess(tmp_path, config={"log.segment.bytes": 4 << 20}) as running:
        create_topic(running.bootstrap, "bulk")
        write(running, COUNT)
        yield running


def write(broker: BrokerProcess, count: int) -> None:
    with Connection(broker.bootstrap) as connection:
        for _ in range(count):
            error, _ = frames.produce_result(connection.ask(frames.produce("bulk", BATCH)))
            assert error == frames.NONE


def read_all(broker: BrokerProcess, offset: int = 0, end: int = COUNT) -> int:
    """Fetch up to *end* and return the bytes of records that came."""
    size = 0
    with Connection(broker.bootstrap) as connection:
        while offset < end:
            body = connection.ask(frames.fetch("bulk", offset, max_bytes=4 << 20))
            records = len(body) - (8 + 2 + 4 + 8 + 26)
            assert records > 0
            size += records
            offset += records // len(BATCH)
    return size


def io_of(pid: int, name: str) -> int:
    found = re.search(rf"^{name}: (\d+)$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def resident_bytes(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


def test_a_fetch_is_sent_by_the_kernel_and_its_records_are_not_read(broker: BrokerProcess, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    calls = "sendfile,read,pread64,readv,preadv,preadv2,mmap,splice,copy_file_range"
    strace = subprocess.Popen(
        ["strace", "-f", "-y", "-e", f"trace={calls}", "-o", str(trace), "-p", str(broker.pid)],
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert strace.stderr is not None
        said = strace.stderr.readline()
        assert b"attached" in said, said
        assert read_all(broker) == TOTAL_BYTES
    finally:
        strace.send_signal(signal.SIGINT)
        strace.wait(30)
    lines = [line for line in trace.read_text().splitlines() if ".log>" in line and "bulk-0" in line]
    sent = sum(int(line.rpartition("= ")[2]) for line in lines if "sendfile(" in line)
    read = sum(max(int(line.rpartition("= ")[2].split()[0]), 0) for line in lines if "sendfile(" not in line)
    assert sent == TOTAL_BYTES
    # The headers by which the first batch is found, and one byte here and there to see that it is in memory: where the
    # file system cannot tell that without waiting, as tmpfs cannot, a thread reads all of it first.
    assert not is_on_a_disk(broker.data_dir) or read <= 32 * (16 << 10) < TOTAL_BYTES // 10


def test_after_a_warm_restart_a_full_read_causes_no_block_reads(broker: BrokerProcess) -> None:
    broker.restart()
    assert read_all(broker, COUNT - 1) == len(BATCH)  # now the code for it is there too
    before = io_of(broker.pid, "read_bytes")
    assert read_all(broker) == TOTAL_BYTES
    # A machine may drop clean pages for reasons of its own: on a virtual one with 19 GB free, 2 % of a file were gone a
    # second after a plain program had written and synced it.  A broker that does not use the cache reads all of it.
    assert io_of(broker.pid, "read_bytes") - before < TOTAL_BYTES // 10, "it came from the disk"


def test_a_cold_read_is_seen_as_such_and_complete(broker: BrokerProcess) -> None:
    """The counter of the test before does count: without the page cache the same read shows."""
    broker.restart()
    for path in (broker.data_dir / "bulk-0").glob("*.log"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = io_of(broker.pid, "read_bytes")
    assert read_all(broker) == TOTAL_BYTES
    if is_on_a_disk(broker.data_dir):
        assert io_of(broker.pid, "read_bytes") > before


def is_on_a_disk(path: Path) -> bool:
    return subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, check=True).stdout != b"tmpfs\n"


def test_readers_a_thousand_times_slower_than_the_writer_cost_no_memory(broker: BrokerProcess) -> None:
    readers = [Connection(broker.bootstrap) for _ in range(20)]
    try:
        before = resident_bytes(broker.pid)
        for reader in readers:
            reader.send(frames.fetch("bulk", 0, max_bytes=4 << 20) * 50)  # 160 MB are on their way to each
        for _ in range(10):
            write(broker, 16)  # 16 MB, while each reader takes 16 kB
            for reader in readers:
                assert reader.socket.recv(1600)
        assert resident_bytes(broker.pid) - before < 16 << 20
        assert read_all(broker) >= TOTAL_BYTES, "others do not read on"
    finally:
        for reader in readers:
            reader.socket.close()
