"""This instance's copy of the state: one thread reads `_schemas` from its beginning, for ever."""

import threading
import time
from dataclasses import dataclass

from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord, Consumer
from pylog.daemon.notices import Notices
from pylog.errors import ApiError, ConfigError, ErrorCode, OffsetOutOfRange, PylogError
from pylog.model import Offset, TopicPartition
from pylog.registry.records import WRITER_HEADER, Stamp, decode_key, decode_value, id_in
from pylog.registry.state import Registry

COMPACTION_LAG_MS = 3_600_000
"""What was passed over stays beside what it followed for so long, so that the primary can write the latter again."""

_READ_S = 0.2
_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Where schemas are kept."""

    cluster: Connection
    topic: str = "_schemas"
    replication_factor: int = 3


def ensure_topic(config: TopicConfig) -> None:
    """Make the topic, or see that the one that is there keeps what it is given.

    Raises:
        Unreachable: no broker answers.
        ApiError: it cannot be made; there may not be enough brokers yet.
        ConfigError: it has several partitions, or forgets old records.
    """
    admin = Admin(config.cluster)
    try:
        found = admin.topic(config.topic)
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        try:
            admin.create_topic(
                config.topic,
                partitions=1,
                replication_factor=config.replication_factor,
                config={"cleanup.policy": "compact", "min.compaction.lag.ms": str(COMPACTION_LAG_MS)},
            )
        except ApiError as again:
            if again.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return
    if len(found.partitions) != 1:
        raise ConfigError(
            f"topic {config.topic} has {len(found.partitions)} partitions; 1 is wanted, as the order of "
            "all records counts. Name another topic, or move this one's records into one partition"
        )
    policy = admin.topic_config(config.topic)["cleanup.policy"].value
    if policy != "compact":
        raise ConfigError(
            f"topic {config.topic} has cleanup.policy={policy}, which would forget schemas in use; "
            f"compact is wanted: pylog topic alter {config.topic} --set cleanup.policy=compact"
        )


class Replica:
    """The state, and how far it is.

    Attributes:
        registry: read and changed only while `changed` is held.
        changed: told of every record.
        next_offset: of the first record that is not in the state yet.
        is_loaded: whether the end that the topic had at the start is in the state.
        fault: why it cannot go on.
    """

    def __init__(self, config: TopicConfig, registry: Registry, writer: str, notices: Notices) -> None:
        self.registry = registry
        self.changed = threading.Condition()
        self.next_offset: Offset = 0
        self.is_loaded = False
        self.fault: PylogError | None = None
        self._config = config
        self._writer = writer
        self._notices = notices
        self._own: tuple[int, bool] = (-1, True)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="replica", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Read no more."""
        self._is_closed = True
        self._thread.join()

    def wait_loaded(self, timeout_s: float) -> bool:
        """Wait until the state can be served; raise what stands in the way for good."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_loaded or self.fault is not None, timeout_s)
            if self.fault is not None:
                raise self.fault
            return self.is_loaded

    def wait_offset(self, offset: Offset, timeout_s: float) -> bool:
        """Wait until every record below *offset* is in the state."""
        with self.changed:
            return self.changed.wait_for(lambda: self.next_offset >= offset, timeout_s)

    def wait_own(self, number: int, timeout_s: float) -> bool | None:
        """Wait for this instance's write *number*; return whether it counts, None if it does not come."""
        with self.changed:
            if not self.changed.wait_for(lambda: self._own[0] >= number, timeout_s):
                return None
            return self._own[1]

    def _run(self) -> None:
        while not self._is_closed and self.fault is None:
            try:
                self._read()
            except OffsetOutOfRange as error:
                self._fail(
                    ConfigError(
                        f"topic {self._config.topic} does not hold what was read from it before "
                        f"({error}): it was deleted and made again. Restart to serve what it holds now"
                    )
                )
            # Also what librdkafka has no better name for, as while a topic that was just made has no leader: whoever
            # waits for the state would wait for ever if this thread ended.
            except PylogError as error:
                self._notices.tell(time.monotonic(), "warning", "read_failed", reason=error)
                time.sleep(_PAUSE_S)

    def _read(self) -> None:
        partition = TopicPartition(self._config.topic, 0)
        start = self.next_offset or Admin(self._config.cluster).offsets([partition])[partition].start
        with Consumer(self._config.cluster) as consumer:
            consumer.assign({partition: start})
            while not self._is_closed:
                for record in consumer.read(_READ_S):
                    self._apply(record)
                if consumer.at_end and not self.is_loaded:
                    with self.changed:
                        self.is_loaded = True
                        self.changed.notify_all()

    def _apply(self, record: ConsumedRecord) -> None:
        stamp = next((Stamp.decode(value) for name, value in record.headers if name == WRITER_HEADER), None)
        with self.changed:
            try:
                key = decode_key(record.key)
                counts = self.registry.apply(key, decode_value(key, record.value), stamp)
            except (ValueError, RecursionError) as error:
                counts = False
                self.registry.note_id(id_in(record.value))
                self._notices.tell(
                    time.monotonic(),
                    "error",
                    "unreadable_record",
                    topic=record.topic,
                    offset=record.offset,
                    reason=error,
                )
            self.next_offset = record.offset + 1
            if stamp is not None and stamp.writer == self._writer:
                self._own = (stamp.number, counts)
            self.changed.notify_all()

    def _fail(self, error: PylogError) -> None:
        with self.changed:
            self.fault = error
            self.changed.notify_all()
