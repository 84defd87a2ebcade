"""kcat: librdkafka behind a command line (Debian's, so librdkafka of 2023 with its exact-version habits)."""

import subprocess
from collections.abc import Iterator, Sequence
from itertools import groupby

from tests.interop.clients.client import TIMEOUT_S, Headers, Record

_RECORD, _KEY = b"\x1e", b"\x1f"
# Sizes come first, so keys and values may hold any byte; -1 stands for null.
_FORMAT = "%o %T %K %S %h\\n%k%s"


class Kcat:
    """``kcat -P`` and ``kcat -C``."""

    name = "kcat"
    sets_timestamps = False

    def can_write(self, record: Record) -> bool:
        """All but a record with one empty and one null field: its null switch turns both into null."""
        fields = (record.key, record.value)
        return not (b"" in fields and None in fields) and all(_KEY not in (field or b"") for field in fields)

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
        """See `Client.produce`; one call a run of records, since headers and nulls are switches of the command."""
        switches = (
            "-X",
            f"compression.codec={codec}",
            "-X",
            f"acks={acks}",
            "-X",
            "linger.ms=20",
            "-X",
            f"enable.idempotence={str(idempotent).lower()}",
            "-X",
            "message.max.bytes=100000000",
        )
        for (headers, has_null), group in groupby(records, key=lambda each: (each.headers, _has_null(each))):
            null = ("-Z",) if has_null else ()
            _kcat(
                "-P",
                "-b",
                bootstrap,
                "-t",
                topic,
                "-p",
                "0",
                "-D",
                "\\x1e",
                "-K",
                "\\x1f",
                *null,
                *switches,
                *_header_switches(headers),
                stdin=b"".join(_line(record) + _RECORD for record in group),
            )

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        """See `Client.consume`."""
        output = _kcat(
            "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-q", "-f", _FORMAT
        )
        return list(_parse(output))


def metadata(bootstrap: str) -> bytes:
    """Return what ``kcat -L -J`` prints."""
    return _kcat("-L", "-J", "-b", bootstrap)


def offset_for_time(bootstrap: str, topic: str, timestamp_ms: int) -> int:
    """Return what ``kcat -Q`` says: the first offset at or after *timestamp_ms*."""
    output = _kcat("-Q", "-b", bootstrap, "-t", f"{topic}:0:{timestamp_ms}")
    return int(output.split()[-1])


def _kcat(*arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(["kcat", *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"kcat ended with {done.returncode}: {done.stderr.decode(errors='replace')}"
    return done.stdout


def _has_null(record: Record) -> bool:
    # A null key before a value needs no switch: it is a line without the key delimiter.
    return record.value is None


def _header_switches(headers: Headers) -> list[str]:
    return [
        argument for key, value in headers for argument in ("-H", key if value is None else f"{key}={value.decode()}")
    ]


def _line(record: Record) -> bytes:
    # An empty line would not be sent at all; with the null switch an empty key before the delimiter is null as well.
    if record.value is None:
        return (record.key or b"") + _KEY
    return (b"" if record.key is None else record.key + _KEY) + record.value


def _parse(output: bytes) -> Iterator[Record]:
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        offset, timestamp, key_size, value_size, headers = output[position:end].split(b" ", 4)
        position = end + 1
        key, position = _field(output, position, int(key_size))
        value, position = _field(output, position, int(value_size))
        yield Record(key, value, _headers(headers), int(timestamp), int(offset))


def _field(output: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, position
    return output[position : position + size], position + size


def _headers(field: bytes) -> Headers:
    if not field:
        return ()
    pairs = (item.split(b"=", 1) for item in field.split(b","))
    return tuple((key.decode(), None if value == b"NULL" else value) for key, value in pairs)
