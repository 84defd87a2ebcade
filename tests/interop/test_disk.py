"""Apache Kafka's own tools read what lies on disk: segments, offset index, time index."""

import re
from pathlib import Path

import pytest

from tests.interop.clients import CLIENTS, Confluent, Record
from tests.interop.clients.client import CODECS
from tests.interop.conftest import Broker, create_topic, run_broker
from tests.servers.dump import COMPLAINT, dump

RECORDS = [
    Record(b"key %d" % number, b"value %d " % number * 30, (("header", b"%d" % number),), 1_500_000_000_000 + number)
    for number in range(300)
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a partition that every client wrote to with every codec, over many segments."""
    with run_broker(tmp_path_factory.mktemp("broker"), {"log.segment.bytes": 32 << 10}) as broker:
        return _fill(broker)


def _fill(broker: Broker) -> Path:
    create_topic(broker.bootstrap, "dumped")
    for codec in CODECS:
        for client in CLIENTS:
            # A Java machine takes seconds to start; what its batches look like does not depend on the codec.
            if client.name != "java" or codec == "zstd":
                client.produce(broker.bootstrap, "dumped", RECORDS[:10], codec=codec)
        # Many batches, so that the sparse indexes get entries and segments roll.
        for first in range(0, len(RECORDS), 30):
            Confluent().produce(broker.bootstrap, "dumped", RECORDS[first : first + 30], codec=codec, idempotent=True)
    broker.restart()  # closes the files and trims their indexes
    return broker.data_dir / "dumped-0"


def _files(directory: Path, suffix: str) -> list[Path]:
    files = sorted(directory.glob(f"*.{suffix}"))
    assert len(files) > 2, f"the test wants several segments: {files}"
    return files


def test_segments_read_to_their_end(directory: Path) -> None:
    files = _files(directory, "log")
    output = dump(files, "--deep-iteration", "--print-data-log")
    assert not COMPLAINT.search(output.replace("isvalid: true", "")), output[-3000:]
    batches = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* size: (\d+) ", output)
    assert [int(first) for first, *_ in batches] == [0, *(int(last) + 1 for _, last, *_ in batches[:-1])]
    assert sum(int(size) for *_, size in batches) == sum(path.stat().st_size for path in files)
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", output, re.M)]
    assert offsets == list(range(int(batches[-1][1]) + 1))
    assert set(re.findall(r"compresscodec: (\w+)", output)) == set(CODECS)
    for number in (0, 9, 299):
        assert f"headerKeys: [header] key: key {number} payload: value {number} " in output


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_indexes_are_sound(directory: Path, suffix: str, check: str) -> None:
    files = _files(directory, suffix)
    filled = sum(path.stat().st_size > 0 for path in files)
    assert filled > 2, "empty indexes would be sound and useless"
    output = dump(files, check)
    if check == "--index-sanity-check":
        assert (output.count("passed sanity check."), output.count("is empty.")) == (filled, len(files) - filled)
    else:
        assert not COMPLAINT.search(output), output


def test_index_entries_point_at_batches(directory: Path) -> None:
    """Printed in full: each entry's position is where a batch with that last offset starts."""
    segment = _files(directory, "log")[0]
    batches = dict(re.findall(r"lastOffset: (\d+) .* position: (\d+) ", dump([segment])))
    entries = re.findall(r"^offset: (\d+) position: (\d+)$", dump([segment.with_suffix(".index")]), re.M)
    assert len(entries) > 2
    assert {offset: batches.get(offset) for offset, _ in entries} == dict(entries)
