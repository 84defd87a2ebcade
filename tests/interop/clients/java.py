"""Apache Kafka's own console producer and consumer (Java)."""

from collections.abc import Sequence

from tests.interop.clients.client import TIMEOUT_S, Headers, Record
from tests.servers.kafka import CONSOLE_CONSUMER, CONSOLE_PRODUCER, java_tool

# Control characters that no test record contains: between records, fields, headers, and in place of null.
# The console producer reads lines, so records end in a newline there.
_FIELD, _HEADER, _NULL = "\x1f", "\x1d", "\x18"
_RECORD = "\x1e"


class JavaConsole:
    """``kafka-console-producer`` and ``kafka-console-consumer`` of Apache Kafka 3.9."""

    name = "java"
    sets_timestamps = False

    def can_write(self, record: Record) -> bool:
        """Lines of UTF-8 whose key is separated by something."""
        fields = [record.key or b"", record.value or b"", *(value or b"" for _, value in record.headers)]
        return not any(b"\n" in field or b"\r" in field or not _is_utf8(field) for field in fields)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        """See `Client.produce`; the topic needs to have one partition, as the tool cannot be told which."""
        reader = {
            "parse.key": "true",
            "parse.headers": "true",
            "null.marker": _NULL,
            "key.separator": _FIELD,
            "headers.delimiter": _FIELD,
            "headers.separator": _HEADER,
        }
        arguments = [argument for item in reader.items() for argument in ("--property", "=".join(item))]
        idempotence = f"enable.idempotence={str(idempotent).lower()}"
        java_tool(
            CONSOLE_PRODUCER,
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--compression-codec",
            codec,
            "--request-required-acks",
            acks,
            "--producer-property",
            idempotence,
            "--max-partition-memory-bytes",
            "2000000",
            *arguments,
            stdin="".join(map(_line, records)).encode(),
            timeout_s=TIMEOUT_S,
        )

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        """See `Client.consume`."""
        writer = {
            "print.timestamp": "true",
            "print.offset": "true",
            "print.headers": "true",
            "print.key": "true",
            "key.separator": _FIELD,
            "line.separator": _RECORD,
            "headers.separator": _HEADER,
            "null.literal": _NULL,
        }
        arguments = [argument for item in writer.items() for argument in ("--property", "=".join(item))]
        output = java_tool(
            CONSOLE_CONSUMER,
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--partition",
            "0",
            "--offset",
            "earliest",
            "--max-messages",
            str(count),
            *arguments,
            timeout_s=TIMEOUT_S,
        )
        return [_parse(line) for line in output.split(_RECORD.encode())[:-1]]


def _is_utf8(field: bytes) -> bool:
    try:
        field.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(field: bytes | None) -> str:
    return _NULL if field is None else field.decode()


def _line(record: Record) -> str:
    headers = _HEADER.join(f"{key}:{_text(value)}" for key, value in record.headers) or _NULL
    return _FIELD.join((headers, _text(record.key), _text(record.value))) + "\n"


def _parse(line: bytes) -> Record:
    timestamp, offset, headers, key, value = line.split(_FIELD.encode(), 4)
    return Record(
        _field(key),
        _field(value),
        _headers(headers),
        int(timestamp.removeprefix(b"CreateTime:")),
        int(offset.removeprefix(b"Offset:")),
    )


def _field(field: bytes) -> bytes | None:
    return None if field == _NULL.encode() else field


def _headers(field: bytes) -> Headers:
    if field == b"NO_HEADERS":
        return ()
    pairs = (item.split(b":", 1) for item in field.split(_HEADER.encode()))
    return tuple((key.decode(), _field(value)) for key, value in pairs)
