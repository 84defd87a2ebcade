"""Produce, from frame to frame: the write half of the hot path.

A batch is checked by its header and CRC, gets its offset and leader epoch patched in place, and is written from the
receive buffer itself.  Records inside are not decoded.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.held_back import HeldBack
from pylog.broker.data.partitions import Appended, Partition, Partitions
from pylog.broker.data.topic_bytes import TopicBytes
from pylog.broker.error_counts import ErrorCounts
from pylog.broker.handler import topic_denied
from pylog.broker.large import PART_ELEMENTS, RESULT_BYTES, Workshop
from pylog.broker.latency import Latency, now_ns
from pylog.broker.places import RoomHolder
from pylog.broker.quotas import Meter
from pylog.broker.tasks import Tasks
from pylog.errors import ApiError, ErrorCode, InvalidRecords, ProtocolError, StorageError, TooManyElements
from pylog.log.intake import Allowance, take_in
from pylog.log.log import Log
from pylog.log.producers import MAX_PRODUCER_ID, NO_PROGRESS, ProducerProgress
from pylog.metrics import Metrics
from pylog.model import INTERNAL_TOPICS, MAX_TOPIC_NAME_LENGTH, Key, Offset
from pylog.net.connection import Connection, Part, Slot
from pylog.security.acl import Operation, ResourceType
from pylog.security.authorizer import Subject
from pylog.security.principal import Session
from pylog.wire import records
from pylog.wire.api import ApiKey, RequestHeader
from pylog.wire.compression import CODECS
from pylog.wire.produce import ProduceRequest, ProduceResult, RefusedBatch, encode_reply, parse_request

_logger = logging.getLogger(__name__)

_ALLOWED_ACKS = (-1, 0, 1)
_ABORTABLE_FROM_VERSION = 11
_ADDING_FROM_VERSION = 12
"""Of requests whose transactions have an epoch each: leaders add their partitions, and sequences begin at 0."""
_MAX_ASKED = 3
"""How often the coordinator is asked while markers of the transaction before come."""
_ZSTD_FROM_VERSION = 7
_ZSTD = CODECS["zstd"]
_LZ4 = CODECS["lz4"]
_NONE = ErrorCode.NONE
_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
"""Success without an offset: clients take it for that, and so it is answered only when the batch is as safe as any."""

_FOR_A_MOMENT = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Refusals that may be over before the next batch of the same producer comes."""

_PRODUCE = int(ApiKey.PRODUCE)


_REFUSED_HELP = (
    "Record batches answered with an error, also those that were appended and not acknowledged by the replicas."
)


class Verify(Protocol):
    """Asks the coordinators of transactions; see `pylog.broker.transactions.verifying`."""

    @property
    def is_on(self) -> bool:
        """Whether the cluster's formats allow transactions."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Partition],
        *,
        is_adding: bool = False,
    ) -> Sequence[ErrorCode]:
        """Return for each partition NONE if it belongs to the open transaction of a producer, or why not.

        With *is_adding* those that do not are added.
        """


class _Verified(NamedTuple):
    """What the coordinator said of a partition, and how things stood there when it was asked.

    Attributes:
        progress: of the producer in the partition; a batch or marker that came meanwhile makes it another one, and what
            the coordinator said may be about the transaction before.
    """

    code: ErrorCode
    partition: Partition
    leading_since: int
    producer_id: int
    producer_epoch: int
    progress: ProducerProgress


_Verdicts: TypeAlias = Mapping[tuple[Key, int, int], _Verified]
"""By partition, producer id and epoch: one request may name a partition twice."""

_MAX_WAITING = 64
"""Requests of one connection that wait for a verification; producers have five in flight."""


class ProduceHandler:
    """Appends what producers send.

    A batch of a transaction that its partition does not know yet waits until the coordinator says that it belongs to
    one.  What the connection sends meanwhile in transactions waits behind it: a producer's batches are in order.

    Attributes:
        verifier: asks coordinators; None where there are no transactions.
        workshop: where requests of many partitions are worked on; None handles them whole.
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
        self.verifier: Verify | None = None
        self.workshop: Workshop | None = None
        self._tasks = Tasks()
        self._held_back = HeldBack(lambda: partitions.now_ms())
        self._verifying: dict[Connection, deque[asyncio.Future[None]]] = {}
        self._batches = metrics.counter("pylog_produce_batches_total", "Record batches appended.")
        self._records = metrics.counter("pylog_produce_records_total", "Records appended.")
        self._bytes = metrics.counter("pylog_produce_bytes_total", "Bytes of record batches appended.")
        help = "Bytes of record batches that producers appended here, by topic."
        self._topic_bytes = TopicBytes("pylog_topic_produce_bytes_total", help, partitions, metrics).counts
        help = "Record batches refused for their time, by topic."
        self._bad_timestamps = TopicBytes("pylog_produce_bad_timestamps_total", help, partitions, metrics).counts
        self._refused = metrics.counter("pylog_produce_refused_total", _REFUSED_HELP)

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
        try:
            request = parse_request(frame, version, header.body_offset, PART_ELEMENTS)
        except TooManyElements:
            if self.workshop is not None:
                work = self._handle_many(self.workshop, connection, header, connection.hold(frame), meter, subject)
                self._tasks.spawn(work)
                return None
            request = parse_request(frame, version, header.body_offset)
        if request.transactional_id is not None:
            if subject is not None:
                id_name = request.transactional_id
                if not subject.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, id_name, "produce"):
                    return self._refuse_all(header, request)
            if self.verifier is not None and request.acks == -1 and self.verifier.is_on:
                unverified = self._unverified(request, subject)
                if unverified or connection in self._verifying:
                    # The receive buffer is used again before this is appended.
                    copied = parse_request(memoryview(bytearray(frame)), version, header.body_offset)
                    throttle_ms = 0 if meter is None else meter.produced(len(frame))
                    self._verify_first(connection, header, copied, subject, throttle_ms)
                    return None
        waits: dict[Key, Appended] = {}
        results = self._append_all(version, request, waits, subject)
        throttle_ms = 0 if meter is None else meter.produced(len(frame))
        if request.acks == 0:
            for result in results:
                if result.error and result.error is not _DUPLICATE:
                    # The producer waits for no reply, so closing is the only way to tell it (trap 6).
                    raise ProtocolError(f"{result.topic}-{result.partition}: {result.error.name}: {result.message}")
            connection.answered.append(self._latency.produce[0])
            return None
        if waits:
            self._answer_slot_later(connection.open_slot(), header, request.timeout_ms, results, waits, throttle_ms)
            return None
        reply = encode_reply(version, header.correlation_id, results, throttle_ms)
        histogram = self._latency.produce.get(request.acks)
        if histogram is not None:  # other acks were refused
            connection.answered.append(histogram)
        return [reply]

    def _append_all(
        self,
        version: int,
        request: ProduceRequest,
        waits: dict[Key, Appended],
        subject: Subject | None,
        verdicts: _Verdicts | None = None,
        allowance: Allowance | None = None,
    ) -> list[ProduceResult]:
        """Append what may be appended; return the answers, and add to *waits* what they have to wait for."""
        results: list[ProduceResult] = []
        if allowance is None and len(request.parts) > 1:
            allowance = Allowance()
        for topic, partition, batch in request.parts:
            if subject is not None and topic not in subject.writable and not subject.may_write(topic):
                results.append(self._refuse(topic, partition, topic_denied(Operation.WRITE)))
                continue
            try:
                result = self._append(request, version, topic, partition, batch, waits, allowance, verdicts)
            except (ApiError, StorageError) as error:
                self._note_refusal(topic, partition, batch, request.transactional_id, error)
                result = self._refuse(topic, partition, error)
            results.append(result)
        return results

    def _note_refusal(
        self,
        topic: str,
        number: int,
        batch: memoryview | None,
        name: str | None,
        error: ApiError | StorageError,
    ) -> None:
        """Hold back what its producer has sent behind a refused batch, until that one comes again."""
        code = error.code if isinstance(error, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR
        if batch is None or code is ErrorCode.CORRUPT_MESSAGE or len(topic) > MAX_TOPIC_NAME_LENGTH:
            return  # nobody knows whose batch it is, or no topic has that name
        try:
            header = records.check_batch(batch)
        except ApiError:
            return
        if not 0 <= header.producer_id < MAX_PRODUCER_ID or header.base_sequence < 0:
            return
        key = (topic, number)
        if code not in _FOR_A_MOMENT:
            self._held_back.settled(key, header, name)
            return
        partition = self._partitions.get(topic, number)
        log = None if partition is None else partition.log
        if partition is None or log is None:
            known = self._partitions.image.topics.get(topic)
            if known is None or number in known.partitions:
                self._held_back.refused(key, header, name, None, NO_PROGRESS, is_known=known is not None)
            return
        progress: ProducerProgress | None = log.producers.progress(header.producer_id)
        try:
            if log.producers.check(header) is not None:
                return  # it is stored
        except ApiError as unsure:
            if unsure.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return  # it is not what may come next: perhaps somebody else has made it up
            progress = None  # its batches are still being read
        leading_since = None if partition.leading is None else partition.leading_since
        self._held_back.refused(key, header, name, leading_since, progress)

    # -- thousands of partitions -------------------------------------------------------------------------------------

    async def _handle_many(
        self,
        workshop: Workshop,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        meter: Meter | None,
        subject: Subject | None,
    ) -> None:
        """Append as `handle` does, some partitions in a turn; the connection is held, and so no batch overtakes."""
        version, session = header.api_version, connection.session
        results: list[ProduceResult] = []
        waits: dict[Key, Appended] = {}
        async with workshop.working(connection, len(frame), "produce") as holder:
            request = await workshop.in_thread(session, parse_request, frame, version, header.body_offset)
            before = self._verifying.get(connection)
            if before:
                async with holder.outside():
                    await asyncio.shield(before[-1])
            busy_ns = await self._append_many(workshop, holder, session, version, request, results, waits, subject)
            throttle_ms = 0
            if meter is not None:
                throttle_ms = max(meter.produced(len(frame)), meter.worked_on(busy_ns / 1e9))
            if request.acks:
                slot = connection.open_slot()
                self._answer_slot_later(slot, header, request.timeout_ms, results, waits, throttle_ms)
                return
            refused = [result for result in results if result.error and result.error is not _DUPLICATE]
            if refused:  # as in `handle`
                connection.close(f"{len(refused)} partitions refused, the first with {refused[0].error.name}")

    async def _append_many(
        self,
        workshop: Workshop,
        holder: RoomHolder,
        session: Session,
        version: int,
        request: ProduceRequest,
        results: list[ProduceResult],
        waits: dict[Key, Appended],
        subject: Subject | None,
    ) -> int:
        """Fill *results* and *waits* as `_append_all` does; return for how many ns that took the loop."""
        name, busy_ns, allowance = request.transactional_id, 0, Allowance()
        kind = ResourceType.TRANSACTIONAL_ID
        if name is not None and subject is not None and not subject.may(Operation.WRITE, kind, name, "produce"):
            results += [self._refuse(topic, number, _id_denied()) for topic, number, _ in request.parts]
            return busy_ns
        for at in range(0, len(request.parts), PART_ELEMENTS):
            part = replace(request, parts=request.parts[at : at + PART_ELEMENTS])
            verdicts: _Verdicts | None = None
            if name is not None and request.acks == -1 and self.verifier is not None and self.verifier.is_on:
                verdicts = {}
                if self._unverified(part, subject):
                    async with holder.outside():
                        verdicts = await self._verify(part, version, subject)
            async with workshop.places.hold(session):
                began_ns = now_ns()
                results += self._append_all(version, part, waits, subject, verdicts, allowance)
                busy_ns += now_ns() - began_ns
            await asyncio.sleep(0)
        return busy_ns

    # -- transactions ----------------------------------------------------------------------------------------------

    def _unverified(self, request: ProduceRequest, subject: Subject | None) -> list[_Verified]:
        """Return the partitions of *request* that do not know its transaction yet."""
        found = []
        for topic, number, batch in request.parts:
            partition = self._partitions.get(topic, number)
            if batch is None or partition is None or partition.leading is None or partition.log is None:
                continue  # refused when it is appended
            if topic in INTERNAL_TOPICS:
                continue  # as above
            if subject is not None and topic not in subject.writable and not subject.may_write(topic):
                continue  # as above
            try:
                header = records.parse_header(batch)
            except ApiError:
                continue  # as above
            if header.attributes & records.TRANSACTIONAL:
                progress = partition.log.producers.progress(header.producer_id)
                if not progress.is_open or progress.epoch != header.producer_epoch:
                    known = (partition, partition.leading_since, header.producer_id, header.producer_epoch, progress)
                    found.append(_Verified(ErrorCode.INVALID_TXN_STATE, *known))
        return found

    def _verify_first(
        self,
        connection: Connection,
        header: RequestHeader,
        request: ProduceRequest,
        subject: Subject | None,
        throttle_ms: int,
    ) -> None:
        """Carry *request* out once those before it are, and the coordinator has said what it knows of it.

        Raises:
            ProtocolError: too many wait on this connection.
        """
        queue = self._verifying.setdefault(connection, deque())
        if len(queue) >= _MAX_WAITING:
            raise ProtocolError(f"{len(queue)} transactional requests wait on this connection")
        before = queue[-1] if queue else None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(done)
        slot = connection.open_slot()
        self._tasks.spawn(self._carry_out(connection, slot, header, request, subject, throttle_ms, before, done))

    async def _carry_out(
        self,
        connection: Connection,
        slot: Slot,
        header: RequestHeader,
        request: ProduceRequest,
        subject: Subject | None,
        throttle_ms: int,
        before: asyncio.Future[None] | None,
        done: asyncio.Future[None],
    ) -> None:
        version = header.api_version
        waits: dict[Key, Appended] = {}
        try:
            if before is not None:
                await before
            verdicts = await self._verify(request, version, subject)
            results = self._append_all(version, request, waits, subject, verdicts)
        except Exception:  # a bug of ours: one client's connection, as for every request
            _logger.exception("bug in a transactional produce peer=%s", connection.peer)
            connection.close("request failed here")
            return
        finally:
            done.set_result(None)
            queue = self._verifying[connection]
            queue.popleft()
            if not queue:
                del self._verifying[connection]
        if waits:
            self._answer_slot_later(slot, header, request.timeout_ms, results, waits, throttle_ms)
            return
        slot.complete([encode_reply(version, header.correlation_id, results, throttle_ms)])
        self._latency.produce[-1].observe_ns(now_ns() - slot.read_ns)

    async def _verify(self, request: ProduceRequest, version: int, subject: Subject | None) -> _Verdicts:
        """Return what the coordinator says of the partitions that do not know the transaction yet."""
        if version < _ADDING_FROM_VERSION:
            return await self._ask_coordinator(request, version, subject)
        verdicts: _Verdicts = {}
        for _ in range(_MAX_ASKED):
            verdicts = await self._ask_coordinator(request, version, subject)
            if not any(map(_is_outdated, verdicts.values())):
                break  # else the transaction before ended meanwhile, as its client knew already
        return verdicts

    async def _ask_coordinator(self, request: ProduceRequest, version: int, subject: Subject | None) -> _Verdicts:
        asked = self._unverified(request, subject)
        if not asked or self.verifier is None or request.transactional_id is None:
            return {}
        is_adding = version >= _ADDING_FROM_VERSION
        verdicts: dict[tuple[Key, int, int], _Verified] = {}
        by_producer: dict[tuple[int, int], list[_Verified]] = {}
        for one in asked:
            by_producer.setdefault((one.producer_id, one.producer_epoch), []).append(one)
        for (producer_id, epoch), rows in by_producer.items():
            codes = await self.verifier.verify(
                request.transactional_id, producer_id, epoch, [row.partition for row in rows], is_adding=is_adding
            )
            for row, code in zip(rows, codes, strict=True):
                if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM_VERSION:
                    code = ErrorCode.INVALID_TXN_STATE
                verdicts[row.partition.key, producer_id, epoch] = row._replace(code=code)
        return verdicts

    def _check_transaction(
        self,
        request: ProduceRequest,
        version: int,
        header: records.BatchHeader,
        partition: Partition,
        log: Log,
        verdicts: _Verdicts,
    ) -> None:
        """Refuse a batch that belongs to no transaction of its producer, or perhaps to none.

        Raises:
            ApiError: why; NOT_ENOUGH_REPLICAS if the producer shall send it again.
        """
        if self.verifier is None or not self.verifier.is_on:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "transactions are not allowed in this cluster")
        if request.transactional_id is None:
            message = "a transactional batch in a request without transactional id"
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
        if request.acks != -1:
            # Its records could be lost below a marker that says that they are committed.
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {request.acks} in a transaction; it must be all")
        progress = log.producers.progress(header.producer_id)
        if progress.is_open and progress.epoch == header.producer_epoch:
            return
        verdict = verdicts.get((partition.key, header.producer_id, header.producer_epoch))
        _check_verdict(verdict, header, partition, progress)
        if version >= _ADDING_FROM_VERSION and header.base_sequence:
            message = f"producer {header.producer_id} begins with sequence {header.base_sequence} in a new epoch"
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    def _check_turn(self, partition: Partition, log: Log, header: records.BatchHeader, name: str | None) -> None:
        """Refuse a batch before which another one has to come, unless it is stored already.

        Raises:
            ApiError: NOT_ENOUGH_REPLICAS; the producer sends it again, behind that one.
        """
        progress = log.producers.progress(header.producer_id)
        if (
            self._held_back.must_wait(partition.key, header, name, partition.leading_since, progress)
            and log.find_stored(header) is None
        ):
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "an earlier batch was refused, and has to come first")

    async def close(self) -> None:
        """End what is still being verified."""
        await self._tasks.stop()

    # -- answers ---------------------------------------------------------------------------------------------------

    def _answer_slot_later(
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
                    self._refused.value += 1
                    self._errors.note(_PRODUCE, error)
            acknowledged_ns = now_ns()
            if len(results) > PART_ELEMENTS and self.workshop is not None:
                self._tasks.spawn(self._answer_many(self.workshop, slot, header, results, throttle_ms))
            else:
                slot.complete([encode_reply(header.api_version, header.correlation_id, results, throttle_ms)])
                self._latency.produce[-1].observe_ns(now_ns() - slot.read_ns)
            if waits:
                self._latency.replicas.observe_ns(acknowledged_ns - appended_ns)

        self._acknowledgements.wait(waits, timeout_ms, done)

    async def _answer_many(
        self,
        workshop: Workshop,
        slot: Slot,
        header: RequestHeader,
        results: list[ProduceResult],
        throttle_ms: int,
    ) -> None:
        session = slot.connection.session
        async with workshop.room.hold(session, len(results) * RESULT_BYTES):
            reply = await workshop.in_thread(
                session, encode_reply, header.api_version, header.correlation_id, results, throttle_ms
            )
        slot.complete([reply])
        self._latency.produce[-1].observe_ns(now_ns() - slot.read_ns)

    def _refuse_all(self, header: RequestHeader, request: ProduceRequest) -> list[Part] | None:
        error = _id_denied()
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
            self._bad_timestamps[topic] += 1
        record_errors = error.record_errors if isinstance(error, InvalidRecords) else ()
        return RefusedBatch(topic, partition, error.code, message=str(error), record_errors=record_errors)

    def _append(
        self,
        request: ProduceRequest,
        version: int,
        topic: str,
        number: int,
        batch: memoryview | None,
        waits: dict[Key, Appended],
        allowance: Allowance | None,
        verdicts: _Verdicts | None,
    ) -> ProduceResult:
        acks = request.acks
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
            if self._held_back.first and header.producer_id >= 0:
                self._check_turn(partition, log, header, request.transactional_id)
            if header.attributes & records.TRANSACTIONAL:
                self._check_transaction(request, version, header, partition, log, verdicts or {})
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
        if self._held_back.first and header.producer_id >= 0:
            self._held_back.settled(partition.key, header, request.transactional_id)
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


def _id_denied() -> ApiError:
    return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the transactional id is not allowed")


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
    elif attributes & records.TRANSACTIONAL and header.producer_id < 0:
        raise InvalidRecords("a transactional batch without producer id")
    else:
        codec = attributes & records.COMPRESSION_MASK
    if codec > _ZSTD or (codec == _ZSTD and version < _ZSTD_FROM_VERSION):
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in version {version}")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecords(f"producer {header.producer_id} without sequence or epoch")
    if header.producer_id >= MAX_PRODUCER_ID:
        raise InvalidRecords(f"producer id {header.producer_id}; below {MAX_PRODUCER_ID} is possible")


def _is_outdated(verdict: _Verified) -> bool:
    """Whether the producer, or a marker of it, has written since the coordinator was asked, which said yes."""
    log = verdict.partition.log
    is_changed = log is not None and log.producers.progress(verdict.producer_id) != verdict.progress
    return verdict.code is ErrorCode.NONE and is_changed


def _check_verdict(
    verdict: _Verified | None, header: records.BatchHeader, partition: Partition, progress: ProducerProgress
) -> None:
    """Refuse a batch unless its coordinator knows its transaction, and nothing has changed since it was asked.

    Raises:
        ApiError: as `ProduceHandler._check_transaction`.
    """
    if (
        verdict is None
        or verdict.partition is not partition
        or verdict.leading_since != partition.leading_since
        or (verdict.producer_id, verdict.producer_epoch) != (header.producer_id, header.producer_epoch)
        or verdict.progress != progress
    ):
        message = "its transaction may have ended while it was looked for"
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
    if verdict.code is not ErrorCode.NONE:
        message = f"producer {header.producer_id} has no transaction with {partition.key}, or it is not known yet"
        raise ApiError(verdict.code, message)
