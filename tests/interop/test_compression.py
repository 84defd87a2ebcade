"""`compression.type` of a topic, and records that unpack to more than anybody asked for."""

from pathlib import Path

import cramjam
import pytest

from tests.interop import frames
from tests.interop.batches import Batch, compressions, record
from tests.interop.clients import Confluent, Record
from tests.interop.clients.client import CODECS
from tests.interop.conftest import PEER, Broker, create_topic
from tests.interop.frames import Connection
from tests.servers.dump import COMPLAINT, dump

RECORDS = [Record(b"key", b"value " * 50, (("header", b"1"),), 1_500_000_000_000 + number) for number in range(20)]


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_in_the_topic_s_codec_and_read_back(broker: Broker, wanted: str) -> None:
    name = f"as-{wanted}"
    create_topic(broker.bootstrap, name, compression_type=wanted)
    client = Confluent()
    for codec in CODECS:
        client.produce(broker.bootstrap, name, RECORDS, codec=codec, idempotent=True)
    [segment] = (broker.data_dir / f"{name}-0").glob("*.log")
    assert set(compressions(segment.read_bytes())) == {"none" if wanted == "uncompressed" else wanted}
    assert not COMPLAINT.search(dump([segment], "--deep-iteration").replace("isvalid: true", "")), "Java cannot read it"
    read = client.consume(broker.bootstrap, name, count=len(RECORDS) * len(CODECS))
    assert [(one.key, one.value, one.headers, one.timestamp_ms) for one in read] == [
        (one.key, one.value, one.headers, one.timestamp_ms) for _ in CODECS for one in RECORDS
    ]


BOMB_BYTES = 150 << 20
"""More than a broker unpacks of anything, and with any codec a frame that it takes."""

_PACKERS = {"gzip": cramjam.gzip, "snappy": cramjam.snappy, "lz4": cramjam.lz4, "zstd": cramjam.zstd}


def resident_bytes(pid: int) -> int:
    """Return the most memory the process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.skipif(PEER != "pylog", reason="Apache Kafka unpacks whatever comes")
def test_t32_a_bomb_is_refused_and_costs_the_cap_at_most(broker: Broker, codec: str) -> None:
    name = f"bombed-by-{codec}"
    create_topic(broker.bootstrap, name, compression_type="uncompressed", max_message_bytes="20000000")
    packed = bytes(_PACKERS[codec].compress(record(0, None, bytes(BOMB_BYTES))))
    bomb = Batch(records=packed, attributes=CODECS.index(codec)).encode()
    before = resident_bytes(broker.pid)
    with Connection(broker.bootstrap) as connection:
        error, _ = frames.produce_result(connection.ask(frames.produce(name, bomb)))
        assert error == frames.CORRUPT_MESSAGE
        assert frames.listed_offset(connection.ask(frames.list_offsets(name))) == 0
    assert resident_bytes(broker.pid) - before < 200 << 20
