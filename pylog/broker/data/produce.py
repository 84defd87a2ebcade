"""Produce, from frame to frame: the write half of the hot path.

A batch is checked by its header and CRC, gets its offset and leader epoch patched in place, and is written from the
receive buffer itself.  Records inside are not decoded.
"""

import logging
from collections.abc import Callable, Mapping

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Appended, Partitions
from pylog.broker.data.topic_bytes import TopicBytes
from pylog.broker.error_counts import ErrorCounts
from pylog.broker.handler import topic_denied
from pylog.broker.latency import Latency, now_ns
from pylog.broker.quotas import Meter
from pylog.errors import ApiError, ErrorCode, InvalidRecords, ProtocolError, StorageError
from pylog.log.intake import Allowance, take_in
from pylog.metrics import Metrics
from pylog.model import INTERNAL_TOPICS, Key, Offset
from pylog.net.connection import Connection, Part, Slot
from pylog.security.acl import Operation, ResourceType
from pylog.security.authorizer import Subject
from pylog.wire import records
from pylog.wire.api import ApiKey, RequestHeader
from pylog.wire.compression import CODECS
from pylog.wire.produce import ProduceRequest, ProduceResult, RefusedBatch, encode_reply, parse_request

_logger = logging.getLogger(__name__)

_ALLOWED_ACKS = (-1, 0, 1)
_ZSTD_FROM_VERSION = 7
_ZSTD = CODECS["zstd"]
_LZ4 = CODECS["lz4"]
_NONE = ErrorCode.NONE
_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
"""Success without an offset: clients take it for that, and so it is answered only when the batch is as safe as any."""

_PRODUCE = int(ApiKey.PRODUCE)


_BAD_TIMESTAMPS = "pylog_produce_bad_timestamps_total"
_BAD_TIMESTAMPS_HELP = "Record batches refused for their time, by topic."


class ProduceHandler:
    """Appends what producers send.

    Attributes:
        is_disk_full: set while the data disk is above `log.disk.high.watermark.percent`; writes are refused then.
    """

    def __init__(
        self,
        partitions: Partitions,
        metrics: Metrics,
        *,
        now_ms: Callable[[], int],
        acknowledgements: Acknowledgements,
    ) -> None:
        """Make it; *now_ms* is the clock on the wall."""
        self._latency = Latency(metrics)
        self._errors = ErrorCounts(metrics)
        self._partitions = partitions
        self._acknowledgements = acknowledgements
        self._now_ms = now_ms
        self.is_disk_full = False
        self._batches = metrics.counter("pylog_produce_batches_total", "Record batches appended.")
        self._records = metrics.counter("pylog_produce_records_total", "Records appended.")
        self._bytes = metrics.counter("pylog_produce_bytes_total", "Bytes of record batches appended.")
        help = "Bytes of record batches that producers appended here, by topic."
        self._topic_bytes = TopicBytes("pylog_topic_produce_bytes_total", help, partitions, metrics).counts
        self._metrics = metrics
        metrics.declare(_BAD_TIMESTAMPS, "counter", _BAD_TIMESTAMPS_HELP)
        self._refused = metrics.counter("pylog_produce_refused_total", "Record batches answered with an error.")

    def handle(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        meter: Meter | None = None,
        subject: Subject | None = None,
    ) -> list[Part] | None:
        """Append and answer; with acks 0 there is no answer, and an error closes the connection."""
        version = header.api_version
        request = parse_request(frame, version, header.body_offset)
        waits: dict[Key, Appended] = {}
        results: list[ProduceResult] = []
        allowance = Allowance() if len(request.parts) > 1 else None
        if subject is not None and request.transactional_id is not None:
            may_write = subject.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id, "produce")
            if not may_write:
                return self._refuse_all(header, request)
        for topic, partition, batch in request.parts:
            try:
                if subject is not None and topic not in subject.writable and not subject.may_write(topic):
                    raise topic_denied(Operation.WRITE)
                result = self._append(request.acks, version, topic, partition, batch, waits, allowance)
            except (ApiError, StorageError) as error:
                result = self._refuse(topic, partition, error)
            results.append(result)
        throttle_ms = 0 if meter is None else meter.produced(len(frame))
        if request.acks == 0:
            for result in results:
                if result.error and result.error is not _DUPLICATE:
                    # The producer waits for no reply, so closing is the only way to tell it (trap 6).
                    raise ProtocolError(f"{result.topic}-{result.partition}: {result.error.name}: {result.message}")
            connection.answered.append(self._latency.produce[0])
            return None
        if waits:
            self._answer_later(connection.open_slot(), header, request.timeout_ms, results, waits, throttle_ms)
            return None
        reply = encode_reply(version, header.correlation_id, results, throttle_ms)
        histogram = self._latency.produce.get(request.acks)
        if histogram is not None:  # other acks were refused
            connection.answered.append(histogram)
        return [reply]

    def _answer_later(
        self,
        slot: Slot,
        header: RequestHeader,
        timeout_ms: int,
        results: list[ProduceResult],
        waits: Mapping[Key, Appended],
        throttle_ms: int,
    ) -> None:
        appended_ns = now_ns()

        def done(errors: Mapping[Key, ErrorCode]) -> None:
            for result in results:
                error = errors.get((result.topic, result.partition), _NONE)
                if error is not _NONE and (result.error is _NONE or result.error is _DUPLICATE):
                    result.error, result.base_offset = error, -1
                    self._errors.note(_PRODUCE, error)
            slot.complete([encode_reply(header.api_version, header.correlation_id, results, throttle_ms)])
            answered_ns = now_ns()
            self._latency.replicas.observe_ns(answered_ns - appended_ns)
            self._latency.produce[-1].observe_ns(answered_ns - slot.read_ns)

        self._acknowledgements.wait(waits, timeout_ms, done)

    def _refuse_all(self, header: RequestHeader, request: ProduceRequest) -> list[Part] | None:
        error = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the transactional id is not allowed")
        if request.acks == 0:
            raise ProtocolError(f"{error.code.name}: {error}")  # as above
        refused = [self._refuse(topic, partition, error) for topic, partition, _ in request.parts]
        return [encode_reply(header.api_version, header.correlation_id, refused)]

    def _refuse(self, topic: str, partition: int, error: ApiError | StorageError) -> ProduceResult:
        self._refused.value += 1
        self._errors.note(_PRODUCE, error.code if isinstance(error, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR)
        if isinstance(error, StorageError):
            _logger.error("append failed partition=%s-%d reason=%s", topic, partition, error)
            return ProduceResult(topic, partition, ErrorCode.KAFKA_STORAGE_ERROR, message=str(error))
        if error.code is ErrorCode.INVALID_TIMESTAMP:
            # Somebody's clock is wrong, and whoever reads the topic wants to know whose records are missing.
            self._metrics.counter(_BAD_TIMESTAMPS, _BAD_TIMESTAMPS_HELP, topic=topic).value += 1
        record_errors = error.record_errors if isinstance(error, InvalidRecords) else ()
        return RefusedBatch(topic, partition, error.code, message=str(error), record_errors=record_errors)

    def _append(
        self,
        acks: int,
        version: int,
        topic: str,
        number: int,
        batch: memoryview | None,
        waits: dict[Key, Appended],
        allowance: Allowance | None,
    ) -> ProduceResult:
        if acks not in _ALLOWED_ACKS:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {acks}; -1, 0 and 1 are known")
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by brokers only")
        partition, log = self._partitions.leader(topic, number)
        if self.is_disk_full:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the data disk is above its high watermark")
        if batch is None:
            raise InvalidRecords("no records")
        header, size_bytes = records.check_batch(batch), len(batch)
        if (
            not 0 <= header.attributes <= _LZ4
            or header.producer_id >= 0
            or header.base_offset
            or header.batch_length + records.LENGTH_OVERHEAD != size_bytes
        ):
            _check(header, size_bytes, version)  # most have no codec or an old one, and nothing else to be looked at
        if log.is_looking_inside:
            log.check_size(size_bytes)  # before anything is unpacked
            batch, header = take_in(batch, header, log.config, allowance)
        try:
            result, wait = self._partitions.append(partition, log, batch, header, self._now_ms(), acks)
        except ApiError as error:
            if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self._partitions.is_in_touch(partition):
                # A producer gives up at that error.  What we lack another leader may have, after a pause of ours.
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not in touch with the replicas; {error}") from error
            raise
        if not result.is_duplicate:
            self._batches.value += 1
            self._records.value += header.record_count
            stored_bytes = len(batch)  # as it is after the intake
            self._bytes.value += stored_bytes
            self._topic_bytes[topic] += stored_bytes
        if wait is not None:
            other = waits.get(partition.key)  # named twice in one request, and one batch may be a duplicate
            waits[partition.key] = wait if other is None else max(other, wait, key=_last_offset)
        error_code = _NONE if result.base_offset >= 0 else _DUPLICATE
        return ProduceResult(
            topic, number, error_code, result.base_offset, result.log_append_time_ms, log.log_start_offset
        )


def _last_offset(wait: Appended) -> Offset:
    return wait.last_offset


def _check(header: records.BatchHeader, size_bytes: int, version: int) -> None:
    """Refuse what a producer may not send (trap 13)."""
    if header.batch_length + records.LENGTH_OVERHEAD != size_bytes:
        raise InvalidRecords(f"one batch a partition: it ends at {header.size_bytes} of {size_bytes} bytes")
    if header.base_offset != 0:
        raise InvalidRecords(f"base offset {header.base_offset}; a producer's is 0")
    attributes = header.attributes
    if not attributes & ~records.COMPRESSION_MASK:
        codec = attributes
    elif attributes & (records.CONTROL | records.LOG_APPEND_TIME):
        raise InvalidRecords(f"attributes {attributes:#x}: control batches and append time are the broker's")
    elif attributes & records.TRANSACTIONAL:
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "transactions are not built")
    else:
        codec = attributes & records.COMPRESSION_MASK
    if codec > _ZSTD or (codec == _ZSTD and version < _ZSTD_FROM_VERSION):
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in version {version}")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecords(f"producer {header.producer_id} without sequence or epoch")
