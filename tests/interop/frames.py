"""Requests and answers by hand over a plain socket, independent of pylog's codec.

frame    => size: int32 (of what follows), payload
request  => api_key: int16, api_version: int16, correlation_id: int32, client_id: nullable string, body
answer   => correlation_id: int32, body

Only old versions are spoken here, those without tagged fields.
"""

import socket
import struct
from types import TracebackType

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 10, 18, 19
NONE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE = 0, 2, 3, 10
COORDINATOR_NOT_AVAILABLE, INVALID_TOPIC_EXCEPTION, INVALID_TIMESTAMP, UNSUPPORTED_VERSION = 15, 17, 32, 35
OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, INVALID_TXN_STATE = 45, 46, 48
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD = 76, 87
EARLIEST, LATEST = -2, -1


class Closed(Exception):
    """The broker closed the connection instead of answering."""


class Connection:
    """One plain connection to a broker.

    Args:
        bootstrap: ``host:port``.
        timeout_s: how long to wait for a byte; longer means the broker hangs.
    """

    def __init__(self, bootstrap: str, timeout_s: float = 30.0) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Send *data* as it is.

        Raises:
            Closed: the broker is gone.
        """
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def answer(self) -> tuple[int, bytes]:
        """Return the next answer's correlation id and body.

        Raises:
            Closed: the broker closed the connection.
        """
        (size,) = struct.unpack(">i", self._exactly(4))
        payload = self._exactly(size)
        return struct.unpack_from(">i", payload)[0], payload[4:]

    def ask(self, request: bytes) -> bytes:
        """Send one request and return the body of its answer."""
        self.send(request)
        return self.answer()[1]

    def is_closed(self) -> bool:
        """Wait for the broker to close the connection; False if it sends anything."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError as error:
                raise Closed from error
            if not part:
                raise Closed
            data += part
        return bytes(data)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """Return one request as it travels."""
    payload = struct.pack(">hhi", api_key, version, correlation_id) + string(b"bad-input") + body
    return struct.pack(">i", len(payload)) + payload


def string(value: bytes) -> bytes:
    """Return a string: its length as int16, then its bytes."""
    return struct.pack(">h", len(value)) + value


def api_versions(version: int = 0, correlation_id: int = 1) -> bytes:
    """Ask which APIs the broker serves."""
    return frame(API_VERSIONS, version, b"", correlation_id)


def metadata(topic: bytes, correlation_id: int = 1) -> bytes:
    """Ask about one topic (Metadata v4, auto-creation allowed)."""
    return frame(METADATA, 4, struct.pack(">i", 1) + string(topic) + b"\x01", correlation_id)


def metadata_error(body: bytes) -> int:
    """Return the error code of the one topic in a Metadata v4 answer."""
    (brokers,) = struct.unpack_from(">i", body, 4)
    position = 8
    for _ in range(brokers):
        position = _skip_string(body, position + 4) + 4  # node, host, port
        position = _skip_string(body, position)  # rack
    position = _skip_string(body, position)  # cluster id
    _, topics, error = struct.unpack_from(">iih", body, position)  # controller
    assert topics == 1, f"{topics} topics in the answer, asked for one"
    return int(error)


def create_topics(topic: bytes, correlation_id: int = 1) -> bytes:
    """Create one topic with one partition (CreateTopics v2)."""
    wanted = string(topic) + struct.pack(">ihii", 1, 1, 0, 0)
    return frame(CREATE_TOPICS, 2, struct.pack(">i", 1) + wanted + struct.pack(">ib", 10_000, 0), correlation_id)


def create_topics_error(body: bytes) -> int:
    """Return the error code of the one topic in a CreateTopics v2 answer."""
    return int(struct.unpack_from(">h", body, _skip_string(body, 8))[0])


def produce(
    topic: str,
    records: bytes,
    *,
    acks: int = 1,
    partition: int = 0,
    correlation_id: int = 1,
    claimed_bytes: int | None = None,
) -> bytes:
    """Write *records* to one partition (Produce v7)."""
    size = len(records) if claimed_bytes is None else claimed_bytes
    body = struct.pack(">hhii", -1, acks, 10_000, 1) + string(topic.encode()) + struct.pack(">iii", 1, partition, size)
    return frame(PRODUCE, 7, body + records, correlation_id)


def produce_result(body: bytes) -> tuple[int, int]:
    """Return error code and base offset of the one partition in a Produce v7 answer."""
    error, base_offset = struct.unpack_from(">hq", body, _skip_string(body, 4) + 8)
    return int(error), int(base_offset)


def list_offsets(topic: str, timestamp_ms: int = LATEST, *, partition: int = 0, correlation_id: int = 1) -> bytes:
    """Ask for an offset of one partition (ListOffsets v1)."""
    body = struct.pack(">ii", -1, 1) + string(topic.encode()) + struct.pack(">iiq", 1, partition, timestamp_ms)
    return frame(LIST_OFFSETS, 1, body, correlation_id)


def listed_error(body: bytes) -> int:
    """Return the error code in a ListOffsets v1 answer."""
    return int(struct.unpack_from(">h", body, _skip_string(body, 4) + 8)[0])


def listed_offset(body: bytes) -> int:
    """Return the offset in a ListOffsets v1 answer that has no error."""
    error, _, offset = struct.unpack_from(">hqq", body, _skip_string(body, 4) + 8)
    assert error == NONE, f"ListOffsets answered error {error}"
    return int(offset)


def fetch(topic: str, offset: int = 0, *, max_bytes: int = 1 << 20, correlation_id: int = 1) -> bytes:
    """Read partition 0 without waiting (Fetch v4)."""
    body = struct.pack(">iiiib", -1, 0, 0, max_bytes, 0) + struct.pack(">i", 1) + string(topic.encode())
    return frame(FETCH, 4, body + struct.pack(">iiqi", 1, 0, offset, max_bytes), correlation_id)


def _skip_string(body: bytes, position: int) -> int:
    (length,) = struct.unpack_from(">h", body, position)
    return int(position + 2 + max(length, 0))
