"""How one partition's log behaves; `pylog.config` fills it from Kafka's names for the same settings."""

from dataclasses import dataclass, fields

from pylog.errors import ConfigError
from pylog.wire.compression import CODECS

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")

MAX_UNSYNCED_MS = 1_000
"""Longest wait for a sync under `flush.messages` alone: consumers and acknowledgements wait for it, and the records
that would fill the number may never come."""

NO_LIMIT = -1
"""Value of a retention setting that deletes nothing."""

_HOUR_MS = 3_600_000
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log, all bounds checked.

    Source: Kafka's topic configs of the same names, with `.` for `_`; the defaults are Kafka's.
    """

    segment_bytes: int = 1 << 30
    """Size at which the active segment is rolled; 1 KiB to 2 GiB, since positions are 32 bits."""
    segment_ms: int = 7 * 24 * _HOUR_MS
    """Age of the first batch at which the active segment is rolled."""
    index_interval_bytes: int = 4096
    """Bytes of log between two index entries."""
    segment_index_bytes: int = 10 << 20
    """Size of an index at which the active segment is rolled."""
    retention_ms: int = 7 * 24 * _HOUR_MS
    """Age of its newest batch at which a closed segment is deleted; -1 keeps all."""
    retention_bytes: int = NO_LIMIT
    """Size of the log above which its oldest closed segments are deleted; -1 keeps all."""
    max_message_bytes: int = 1_048_588
    """Largest batch a producer may send, header included."""
    flush_messages: int = _INT64_MAX
    """Records after which the log asks for a sync."""
    flush_ms: int = _INT64_MAX
    """Time since the first unsynced record after which the log asks for a sync."""
    message_timestamp_type: str = "CreateTime"
    """`CreateTime` keeps the producer's time, `LogAppendTime` puts the broker's."""
    message_timestamp_before_max_ms: int = _INT64_MAX
    """How far behind the broker's clock a batch may be."""
    message_timestamp_after_max_ms: int = _INT64_MAX
    """How far ahead of the broker's clock a batch may be."""
    cleanup_policy: str = "delete"
    """`delete`, `compact` or `compact,delete`."""
    min_cleanable_dirty_ratio: float = 0.5
    """Share of bytes never compacted from which on a compaction is worth it."""
    min_compaction_lag_ms: int = 0
    """Age of its newest record before which a segment is not compacted."""
    max_compaction_lag_ms: int = _INT64_MAX
    """Age of a record at which it is compacted, however little of its log is dirty."""
    delete_retention_ms: int = 24 * _HOUR_MS
    """How long compaction leaves a record that deletes a key, so that readers learn of it."""
    compression_type: str = "producer"
    """Codec of stored batches; `producer` keeps what came, `uncompressed` means none."""
    validate_records: bool = False
    """Look at every record of a batch before it is stored, not only at its header and CRC."""
    producer_id_expiration_ms: int = 24 * _HOUR_MS
    """Time without a batch after which an idempotent producer is forgotten."""

    def __post_init__(self) -> None:
        """Refuse values outside their bounds, naming setting, value and range."""
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name.replace('_', '.')}={value} is outside [{low}, {high}]")
        if self.message_timestamp_type not in ("CreateTime", "LogAppendTime"):
            raise ConfigError(f"message.timestamp.type={self.message_timestamp_type}: CreateTime or LogAppendTime")
        if self.compression_type not in COMPRESSION_TYPES:
            raise ConfigError(f"compression.type={self.compression_type}: wanted {', '.join(COMPRESSION_TYPES)}")
        policies = self.cleanup_policy.split(",") if self.cleanup_policy else []
        if not set(policies) <= {"delete", "compact"} or len(set(policies)) != len(policies):
            raise ConfigError(f"cleanup.policy={self.cleanup_policy}: delete, compact, compact,delete or nothing")

    @property
    def is_deleting(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def is_compacting(self) -> bool:
        """Whether only the last record of each key stays."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age at which the active segment is closed: only closed segments are compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacting else self.segment_ms

    @property
    def is_flushing(self) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for syncs."""
        return self.flush_messages < _INT64_MAX or self.flush_ms < _INT64_MAX

    @property
    def max_unsynced_ms(self) -> int:
        """How long a record may wait for its sync."""
        return self.flush_ms if self.flush_ms < _INT64_MAX else MAX_UNSYNCED_MS

    @property
    def codec(self) -> int | None:
        """Codec number that stored batches have, None where the producer's stays."""
        if self.compression_type == "producer":
            return None
        return CODECS["none" if self.compression_type == "uncompressed" else self.compression_type]

    @property
    def is_looking_inside(self) -> bool:
        """Whether the header of a producer's batch is not enough to store it; see `pylog.log.intake`."""
        return self.is_compacting or self.validate_records or self.compression_type != "producer"

    @property
    def is_log_append_time(self) -> bool:
        """Whether batches get the broker's time."""
        return self.message_timestamp_type == "LogAppendTime"


_RANGES: dict[str, tuple[int, int]] = {
    "min_cleanable_dirty_ratio": (0, 1),
    "min_compaction_lag_ms": (0, _INT64_MAX),
    "max_compaction_lag_ms": (1, _INT64_MAX),
    "delete_retention_ms": (0, _INT64_MAX),
    "segment_bytes": (1024, _INT32_MAX),
    "segment_ms": (1, _INT64_MAX),
    "index_interval_bytes": (0, _INT32_MAX),
    "segment_index_bytes": (12, _INT32_MAX),
    "retention_ms": (NO_LIMIT, _INT64_MAX),
    "retention_bytes": (NO_LIMIT, _INT64_MAX),
    "max_message_bytes": (0, _INT32_MAX),
    "flush_messages": (1, _INT64_MAX),
    "flush_ms": (0, _INT64_MAX),
    "message_timestamp_before_max_ms": (0, _INT64_MAX),
    "message_timestamp_after_max_ms": (0, _INT64_MAX),
    "producer_id_expiration_ms": (1, _INT64_MAX),
}
assert set(_RANGES) <= {field.name for field in fields(LogConfig)}
