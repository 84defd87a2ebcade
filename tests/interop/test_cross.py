"""What one client wrote, every client reads: keys, values, headers, timestamps, with every codec."""

from itertools import count

import pytest

from tests.interop.batches import compressions
from tests.interop.clients import CLIENTS, Client, Record
from tests.interop.clients.client import CODECS
from tests.interop.conftest import Broker, create_topic

_LONG = ("All work and no play makes a log a dull log. " * 100).encode()
SAMPLE = (
    Record(b"key", b"value", (), 1_500_000_000_000),
    Record(b"key", b"", (), 1_500_000_000_001),
    Record(b"", b"value", (), 1_500_000_000_002),
    Record(None, b"no key", (), 1_499_999_999_000),  # earlier than the one before: order is by offset
    Record(None, b"", (), 1_500_000_000_003),
    Record(b"tombstone", None, (), 1_500_000_000_004),
    Record(None, None, (), 1_500_000_000_005),
    Record(b"k", b"one header", (("name", b"value"),), 1_500_000_000_006),
    Record(b"k", b"twice the same", (("a", b"1"), ("b", b""), ("a", b"2")), 1_500_000_000_007),
    Record(b"k", b"null header", (("none", None),), 1_500_000_000_008),
    Record("clé".encode(), "värde ≤ 値".encode(), (("hlavička", "ž".encode()),), 1_500_000_000_009),
    Record(
        b"\x00\xff\xfe",
        bytes(range(256)).replace(b"\x1e", b"").replace(b"\x1f", b"").replace(b"\n", b""),
        (),
        1_500_000_000_010,
    ),
    Record(b"long", _LONG, (("header", _LONG),), 1_500_000_000_011),
    *(Record(b"%d" % number, b"record %d" % number, (), 1_500_000_001_000 + number) for number in range(200)),
)


def _name(value: object) -> str:
    return str(getattr(value, "name", value))


class Exchange:
    """Lets every client write the sample once, and every client read that once, however many tests ask."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._written: dict[str, tuple[str, list[Record]]] = {}
        self._read: dict[tuple[str, str], list[Record]] = {}
        # Counted, so that a writer that failed fails the same way for its next reader, not on the topic that exists.
        self._numbers = count()

    def written(self, writer: Client) -> tuple[str, list[Record]]:
        """Return the topic that *writer* filled, each codec after the other, and all it holds."""
        if writer.name not in self._written:
            topic = f"cross-{writer.name}-{next(self._numbers)}"
            create_topic(self._broker.bootstrap, topic)
            records = [record for record in SAMPLE if writer.can_write(record)]
            for codec in CODECS:
                writer.produce(self._broker.bootstrap, topic, records, codec=codec)
            self._written[writer.name] = (topic, records * len(CODECS))
        return self._written[writer.name]

    def read(self, reader: Client, writer: Client) -> list[Record]:
        """Return all that *writer* wrote as *reader* sees it."""
        names = (reader.name, writer.name)
        if names not in self._read:
            topic, records = self.written(writer)
            self._read[names] = reader.consume(self._broker.bootstrap, topic, len(records))
        return self._read[names]

    def compressions(self, writer: Client) -> list[str]:
        """Return the codecs of the batches in the segment file that *writer* filled."""
        topic, _ = self.written(writer)
        return compressions((self._broker.data_dir / f"{topic}-0" / f"{0:020d}.log").read_bytes())


@pytest.fixture(scope="module")
def exchange(broker: Broker) -> Exchange:
    """The module's one exchange over its one broker."""
    return Exchange(broker)


@pytest.mark.parametrize("writer", CLIENTS, ids=_name)
@pytest.mark.parametrize("reader", CLIENTS, ids=_name)
def test_reader_gets_what_writer_wrote(reader: Client, writer: Client, exchange: Exchange) -> None:
    got, (_, expected) = exchange.read(reader, writer), exchange.written(writer)
    assert [record.content for record in got] == [record.content for record in expected]
    assert [record.offset for record in got] == list(range(len(expected)))


@pytest.mark.parametrize("writer", [client for client in CLIENTS if client.sets_timestamps], ids=_name)
@pytest.mark.parametrize("reader", CLIENTS, ids=_name)
def test_timestamps_are_the_writers(reader: Client, writer: Client, exchange: Exchange) -> None:
    got, (_, expected) = exchange.read(reader, writer), exchange.written(writer)
    assert [record.timestamp_ms for record in got] == [record.timestamp_ms for record in expected]


@pytest.mark.parametrize("writer", [client for client in CLIENTS if not client.sets_timestamps], ids=_name)
def test_readers_agree_on_timestamps(writer: Client, exchange: Exchange) -> None:
    timestamps = {reader.name: [record.timestamp_ms for record in exchange.read(reader, writer)] for reader in CLIENTS}
    first = timestamps["confluent"]
    assert all(timestamp and timestamp > 1_600_000_000_000 for timestamp in first)
    assert {name: times == first for name, times in timestamps.items()} == dict.fromkeys(timestamps, True)


@pytest.mark.parametrize("writer", CLIENTS, ids=_name)
def test_batches_are_stored_in_the_writers_codec(writer: Client, exchange: Exchange) -> None:
    """A client that quietly stops compressing, or a broker that unpacks, would pass every other test."""
    # librdkafka leaves a batch alone that would not shrink, so a codec may be followed by single batches of none.
    assert list(dict.fromkeys(exchange.compressions(writer))) == list(CODECS)
