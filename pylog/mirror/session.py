"""One consumer in the source, one producer in the target, the records between them.

Whatever goes wrong ends the session; the next one begins where the last commit says, so records come twice rather
than not at all.  Order in a partition is kept: one consumer reads it, an idempotent producer writes it, and before a
partition is given away everything under way has arrived or the wait for it was given up.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message
from confluent_kafka import Consumer as _Consumer
from confluent_kafka import Producer as _Producer
from confluent_kafka import TopicPartition as _TopicPartition

from pylog.audit.places import ORIGIN_HEADER, ORIGIN_ID_HEADER, ORIGIN_OFFSET_HEADER, offset_of
from pylog.client.admin.cluster import Admin
from pylog.client.connection import error_of, translate
from pylog.client.consumer import QUEUE_BACKOFF_MS
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.errors import PylogError
from pylog.mirror import follow
from pylog.mirror.config import MirrorConfig
from pylog.mirror.flight import Flight
from pylog.mirror.meters import Meters
from pylog.mirror.offsets import MapKey, OffsetMap
from pylog.mirror.parking import REFUSALS, Suspects, parked_mark, refusal_name
from pylog.mirror.plan import PARKED_HEADER
from pylog.mirror.resume import Resume, resume
from pylog.mirror.scout import Scout
from pylog.model import IsolationLevel, TopicPartition

Headers: TypeAlias = list[tuple[str, str | bytes | None]]  # a text, because the stub of `produce` wants it so

_READ = 1000
_READ_S = 0.1
_ANSWER_S = 20.0
_CLOSE_S = 10.0
_TRIED_FLUSH_S = 0.2
_MAX_RECORD_BYTES = 1_000_000_000
"""Of one record, unpacked: the most that librdkafka's `message.max.bytes` allows."""
_WIDE_KBYTES = (1 << 21) - 1
"""Buffer of the producer for single records that are larger than `buffered_bytes`: librdkafka's limit."""
_MARKS = (ORIGIN_HEADER, ORIGIN_ID_HEADER, ORIGIN_OFFSET_HEADER)
_NO_COMMIT = (
    KafkaError._NO_OFFSET,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._ASSIGNMENT_LOST,
)


class SessionFailed(PylogError):
    """Records cannot be delivered as things are; begin again from what was committed."""


class RecordRefused(SessionFailed):
    """The target refused a batch for what is in it; the next session sends its records one by one."""


class Relay:
    """What becomes of a record on its way: which copies go out, with which headers.

    Args:
        source: the cluster that records come from.
        target: the cluster they go to.
    """

    def __init__(self, source: str, target: str) -> None:
        self._origin = (ORIGIN_HEADER, source.encode())
        self._source, self._target = source.encode(), target.encode()
        self._ids: dict[str, dict[bytes, bytes]] = {}

    def learn(self, topic: str, source_id: str, target_id: str) -> None:
        """Take the ids that a topic has in both clusters, before its first record."""
        self._ids[topic] = {self._source: source_id.encode(), self._target: target_id.encode()}

    def outgoing(self, record: Message) -> Sequence[Headers]:
        """Return the headers of each copy that goes out: one, or none for a record that was first written there."""
        headers: Headers = record.headers() or []  # type: ignore[assignment]  # the stub says what `produce` takes
        ids = self._ids[str(record.topic())]
        if headers:
            marks = {name: value for name, value in headers if name in _MARKS}
            if marks and self._is_true(marks, ids):
                return () if marks.get(ORIGIN_HEADER) == self._target else (headers,)
            if marks:
                # Whoever wrote this record kept the headers of the one that it was made of.
                headers = [one for one in headers if one[0] not in _MARKS]
        offset = b"%d" % int(record.offset() or 0)
        headers += [self._origin, (ORIGIN_ID_HEADER, ids[self._source]), (ORIGIN_OFFSET_HEADER, offset)]
        return (headers,)

    def _is_true(self, marks: Mapping[str, str | bytes | None], ids: Mapping[bytes, bytes]) -> bool:
        """Return whether a record was first written where its headers say; only of these two clusters that is known."""
        origin, topic_id = marks.get(ORIGIN_HEADER), marks.get(ORIGIN_ID_HEADER)
        if not isinstance(origin, bytes):
            return False
        # The release before wrote no id.
        return topic_id is None or origin not in ids or topic_id == ids[origin]


def original_offset(record: Message) -> int:
    """Return the offset that a copy's headers say it has where it was first written; 0, the lowest, if they do not."""
    marks: Headers = record.headers() or []  # type: ignore[assignment]  # the stub says what `produce` takes
    found = dict(marks).get(ORIGIN_OFFSET_HEADER)
    return (offset_of(found) if isinstance(found, bytes) else None) or 0


class Session:
    """Mirrors what its group gives it, until it is stopped or fails.

    Args:
        config: what and where.
        relay: says what goes out.
        scout: knows which topics there are.
        meters: told of everything.
        notices: told what an operator should know.
        suspects: records of batches that an earlier session saw refused.
    """

    def __init__(
        self,
        config: MirrorConfig,
        relay: Relay,
        scout: Scout,
        meters: Meters,
        notices: Notices,
        suspects: Suspects | None = None,
    ) -> None:
        self._config, self._relay, self._meters, self._notices = config, relay, meters, notices
        self._flights: dict[TopicPartition, Flight] = {}
        self._maps: dict[TopicPartition, tuple[MapKey, OffsetMap]] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._ids: dict[str, str] = {}
        self._target_ids: dict[str, str] = {}
        self._suspects = Suspects() if suspects is None else suspects
        self._waiting: deque[tuple[Message, Headers | None]] = deque()
        self._failure: PylogError | None = None
        self._topics: list[str] = []
        self._is_paused = False
        self._checkpoint_s = time.monotonic()
        self._scout = scout
        self._batch_bytes = scout.batch_bytes
        self._producer = self._new_producer(max(1, config.buffered_bytes >> 10))
        self._wide: _Producer | None = None
        self._passed: dict[TopicPartition, int] = {}
        self._consumer = _Consumer(
            config.source.connection.librdkafka(
                group__id=config.group,
                enable__auto__commit=False,
                enable__auto__offset__store=False,
                auto__offset__reset="error",
                # What is aborted later cannot be taken back in the target.
                isolation__level=IsolationLevel.READ_COMMITTED.value,
                enable__partition__eof=True,
                fetch__queue__backoff__ms=QUEUE_BACKOFF_MS,
                # Range gives every topic's first partition to the same instance.  It is named so that instances of a
                # release that knew only it can be in the group; the coordinator takes what all of them know.
                partition__assignment__strategy="roundrobin,range",
                session__timeout__ms=15_000,
                # Its only use is a rebalance while the target is away: waiting for acknowledgements is worth it.
                max__poll__interval__ms=int(config.flush_s * 1000) + 180_000,
                fetch__wait__max__ms=100,
                queued__max__messages__kbytes=max(1024, config.buffered_bytes >> 10),
                check__crcs=True,
                **config.properties,
            )
        )

    def run(self, stop: Stop) -> None:
        """Mirror until *stop*, then wait for what is under way and commit.

        Raises:
            PylogError: this session cannot go on; another may.
        """
        try:
            while not stop.is_wanted:
                self._subscribe()
                self._pump()
                if time.monotonic() - self._checkpoint_s >= self._config.commit_s:
                    self._checkpoint(asynchronous=True)
            self._let_go(list(self._flights), flush_s=min(20.0, self._config.flush_s))
        except KafkaException as exception:
            raise translate(error_of(exception), self._config.source.connection) from exception
        finally:
            self._forget(list(self._flights))
            # What is still under way may arrive: it is sent again, and counted as a copy.
            self._producer.purge()
            if self._wide is not None:
                self._wide.purge()
            self._close()

    def _new_producer(self, buffered_kbytes: int) -> _Producer:
        return _Producer(
            self._config.target.connection.librdkafka(
                acks="all",
                enable__idempotence=True,
                compression__type="lz4",
                linger__ms=20,
                message__timeout__ms=0,
                batch__size=self._batch_bytes,
                queue__buffering__max__kbytes=buffered_kbytes,
                queue__buffering__max__messages=200_000,
                message__max__bytes=_MAX_RECORD_BYTES,
                on_delivery=self._delivered,
            )
        )

    def _close(self) -> None:
        """Leave the group, without waiting for ever for a source that does not answer: librdkafka would."""
        leaving = threading.Thread(target=self._consumer.close, name="leaving", daemon=True)
        leaving.start()
        leaving.join(_CLOSE_S)

    # --- records ------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Move some records, or wait a moment for them."""
        self._producer.poll(0)
        if isinstance(self._failure, RecordRefused):
            raise self._failure
        if self._failure is not None:
            raise SessionFailed(str(self._failure))
        self._tell()
        self._send_waiting()
        self._pause(bool(self._waiting))
        for record in self._consumer.consume(_READ, _READ_S):
            error = record.error()
            if error is None:
                self._take(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._reach_end(record)
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self._jump(TopicPartition(str(record.topic()), int(record.partition() or 0)))
            elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                pass  # deleted at the source; the scout tells when the list changes
            elif error.code() == KafkaError._BAD_COMPRESSION:
                self._leave_out(record)
            elif error.fatal() or not error.retriable():
                raise translate(error, self._config.source.connection)

    def _take(self, record: Message) -> None:
        partition = TopicPartition(str(record.topic()), int(record.partition() or 0))
        flight = self._flights.get(partition)
        if flight is None:
            return  # given away since it was fetched
        flight.note_epoch(int(record.offset() or 0), record.leader_epoch())
        copies = self._relay.outgoing(record)
        if not copies:
            self._meters.skipped(partition.topic)
            flight.note_original(int(record.offset() or 0), original_offset(record))
        # One that is not to go waits its turn too: it must not stand for records before it that have not gone yet.
        for headers in copies or (None,):
            if self._waiting or not self._send(record, headers):
                self._waiting.append((record, headers))

    def _reach_end(self, end: Message) -> None:
        """Pass over what holds no record before the end: markers of transactions, what compaction took."""
        if TopicPartition(str(end.topic()), int(end.partition() or 0)) not in self._flights:
            return
        if self._waiting or not self._send(end, None):
            self._waiting.append((end, None))

    def _leave_out(self, failed: Message) -> None:
        """Leave out a batch that cannot be unpacked, or unpacks to more than librdkafka takes; it never will be.

        It would keep every topic of this mirror waiting, and whoever may write one of them can write such a batch.
        """
        partition, offset = TopicPartition(str(failed.topic()), int(failed.partition() or 0)), int(failed.offset() or 0)
        error = failed.error()
        assert error is not None
        flight = self._flights.get(partition)
        if flight is None or offset < self._passed.get(partition, 0):
            return  # told again before the consumer went on
        # The error names the batch's first offset, of which the log start may have passed some.
        first = max(offset, flight.next_source)
        last = follow.last_offset_of_batch(self._config.source, partition, first)
        if last is None:
            raise translate(error, self._config.source.connection)
        self._tell_left_out(partition, first, last, error.str())
        self._passed[partition] = last + 1
        self._consumer.seek(_TopicPartition(*partition, last + 1))
        passed = KafkaError(KafkaError._PARTITION_EOF)
        self._reach_end(Message(topic=partition.topic, partition=partition.partition, offset=last + 1, error=passed))

    def _tell_left_out(self, partition: TopicPartition, first: int, last: int, reason: str) -> None:
        self._meters.left_out(partition.topic, last + 1 - first)
        self._notices.tell(
            time.monotonic(),
            "error",
            "left_out",
            about=str(partition),
            partition=partition,
            first=first,
            last=last,
            reason=reason,
        )

    def _send(self, record: Message, headers: Headers | None) -> bool:
        """Hand one record over, or pass it over if it has no headers; return False while the buffer is full."""
        topic, partition, offset = str(record.topic()), int(record.partition() or 0), int(record.offset() or 0)
        if headers is None:
            flight = self._flights[TopicPartition(topic, partition)]
            if record.error() is None:
                flight.skip(offset)
            else:
                flight.reach_end(offset)
            return True
        if self._suspects and (TopicPartition(topic, partition), offset) in self._suspects:
            return self._send_alone(record, headers)
        try:
            self._producer.produce(
                topic, record.value(), record.key(), partition, headers=headers, timestamp=max(0, record.timestamp()[1])
            )
        except BufferError:
            if any(len(flight) for flight in self._flights.values()):
                return False
            # Nothing is under way that could make room: it is larger than the whole buffer.
            return self._send_alone(record, headers)
        except KafkaException as exception:
            _check_too_large(exception)
            return self._send_alone(record, headers)
        self._flights[TopicPartition(topic, partition)].send(offset)
        return True

    def _send_alone(self, record: Message, headers: Headers) -> bool:
        """Send a record by itself and wait for the answer: one of a refused batch, or larger than the buffer.

        Park it if it is refused, and leave it out if it is refused there too: nothing else would ever come of it.
        """
        partition, offset = TopicPartition(str(record.topic()), int(record.partition() or 0)), int(record.offset() or 0)
        flight = self._flights[partition]
        if len(flight):
            return False
        error, target = self._produce_alone(partition, record, headers)
        if error is None:
            flight.send(offset)
            flight.acknowledge(target)
        else:
            follow.ensure_parked_topic(self._config)
            mark: Headers = [(PARKED_HEADER, parked_mark(partition, offset, error.str()))]
            parked, _ = self._produce_alone(TopicPartition(self._config.parked_topic, 0), record, [*headers, *mark])
            if parked is None:
                self._tell_parked(partition, offset, error)
            else:
                reason = f"{error.str()}; it cannot be parked: {parked.str()}"
                self._tell_left_out(partition, offset, offset, reason)
            flight.skip(offset)
        self._suspects.discard(partition, offset)
        return True

    def _tell_parked(self, partition: TopicPartition, offset: int, error: KafkaError) -> None:
        self._meters.parked(partition.topic, refusal_name(error))
        self._notices.tell(
            time.monotonic(),
            "error",
            "parked",
            about=partition.topic,
            partition=partition,
            offset=offset,
            reason=error.str(),
            topic=self._config.parked_topic,
        )

    def _alone(self, record: Message, headers: Headers) -> _Producer:
        """Return the producer for one record that nothing else is sent beside."""
        size = len(record.value() or b"") + len(record.key() or b"")
        size += sum(len(name) + len(value or b"") for name, value in headers)
        if size <= self._config.buffered_bytes >> 1:
            return self._producer
        self._wide = self._wide or self._new_producer(_WIDE_KBYTES)
        return self._wide

    def _produce_alone(self, place: TopicPartition, record: Message, headers: Headers) -> tuple[KafkaError | None, int]:
        """Send one record and wait; return why it is refused, or the offset that it has.

        Raises:
            PylogError: the target did not say, or something else than the record is the cause.
        """
        answers: list[tuple[KafkaError | None, int]] = []
        is_sent = False
        producer = self._alone(record, headers)
        deadline = time.monotonic() + self._config.flush_s
        while not answers and time.monotonic() < deadline:
            with contextlib.suppress(BufferError):  # until those of other partitions have made room
                if not is_sent:
                    try:
                        producer.produce(
                            place.topic,
                            record.value(),
                            record.key(),
                            place.partition,
                            headers=headers,
                            timestamp=max(0, record.timestamp()[1]),
                            on_delivery=lambda error, sent: answers.append((error, int(sent.offset() or 0))),
                        )
                    except KafkaException as exception:
                        return _check_too_large(exception), 0
                    is_sent = True
            producer.flush(_TRIED_FLUSH_S)
        if not answers:
            raise SessionFailed(f"the target took nothing for {self._config.flush_s:g} s")
        error, offset = answers[0]
        if error is not None and error.code() not in REFUSALS:
            raise translate(error, self._config.target.connection)
        return error, offset

    def _tell(self) -> None:
        """Tell the meters what has arrived since the last time: a thousand records at once, not one by one."""
        for partition, flight in self._flights.items():
            self._meters.reached(partition, flight.next_source, flight.take_arrived())

    def _send_waiting(self) -> None:
        while self._waiting and self._send(*self._waiting[0]):
            self._waiting.popleft()

    def _pause(self, is_wanted: bool) -> None:
        """Read nothing while the producer takes nothing; its answers still come, and so do rebalances."""
        if is_wanted == self._is_paused:
            return
        self._is_paused = is_wanted
        assignment = self._consumer.assignment()
        (self._consumer.pause if is_wanted else self._consumer.resume)(assignment)

    def _delivered(self, error: KafkaError | None, record: Message) -> None:
        partition = TopicPartition(str(record.topic()), int(record.partition() or 0))
        flight = self._flights.get(partition)
        if error is None:
            if flight is not None:
                flight.acknowledge(-1 if (target := record.offset()) is None else target)
            return
        if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return
        offset = None if flight is None else flight.fail()
        if error.code() in REFUSALS and offset is not None and self._suspects.add(partition, offset):
            self._failure = self._failure or RecordRefused(f"{partition} offset {offset}: {error.str()}")
        else:
            self._failure = self._failure or translate(error, self._config.target.connection)

    def _jump(self, refused: TopicPartition) -> None:
        """Have the next session go on wherever the source forgot or lost what comes next: said and counted.

        Args:
            refused: what the source does not have at the wanted offset; others may be like it.
        """
        self._flush(list(self._flights), self._config.flush_s)
        self._tell()
        self._checkpoint(asynchronous=False)
        admin = Admin(self._config.source.connection)
        begun = admin.offsets(admin.led(self._flights.keys()))
        epochs = {p: epoch for p in begun if (epoch := self._flights[p].epoch) is not None}
        cuts = follow.epoch_ends(self._config.source, epochs)
        goes_on = []
        for partition, held in sorted(begun.items()):
            wanted = self._flights[partition].next_source
            # A leader that was just elected may not know yet that what its log holds can be read.
            is_ahead = wanted > held.end and partition not in cuts and partition != refused
            at = resume(wanted, held, cuts.get(partition))
            if at.offset == wanted or is_ahead:
                continue
            self._meters.lost(partition.topic, at.forgotten)
            self._tell_gap(partition, wanted, at)
            if at.cut:
                self._cut(partition, at.offset)
            goes_on.append(_TopicPartition(*partition, at.offset, self._ids[partition.topic]))
        if goes_on:
            self._consumer.commit(offsets=goes_on, asynchronous=False)
        raise SessionFailed(f"{len(goes_on)} partitions are to go on outside what the source holds")

    def _cut(self, partition: TopicPartition, end: int) -> None:
        """Drop the pairs of what the source lost above *end*, in the target too before anything is committed."""
        if self._maps[partition][1].cut(end):
            self._note_maps([partition])

    def _tell_gap(self, partition: TopicPartition, wanted: int, at: Resume) -> None:
        event = "source_lost_its_end" if at.cut else "source_forgot"
        self._notices.tell(
            time.monotonic(),
            "error",
            event,
            about=str(partition),
            partition=partition,
            wanted=wanted,
            missing=at.forgotten,
            goes_on_at=at.offset,
            lost=at.cut,
        )

    # --- partitions ---------------------------------------------------------------------------------------------

    def _subscribe(self) -> None:
        """Take the scout's news: other topics, or topics that were made again."""
        if self._scout.batch_bytes < self._batch_bytes:
            raise SessionFailed(f"a topic takes only {self._scout.batch_bytes} bytes in one batch")
        topics, ids = self._scout.topics, self._scout.ids
        again = [name for name in self._ids if ids.get(name, self._ids[name]) != self._ids[name]]
        if again:
            # Its offsets begin at 0 once more, and what is committed belongs to the one that is gone.
            raise SessionFailed(f"topic {', '.join(again)} was deleted and made again at the source")
        there = self._scout.target_ids
        again = [name for name, known in self._target_ids.items() if there.get(name, known) != known]
        if again:
            # Its offsets begin at 0 once more, and the pairs are of the one that is gone.
            raise SessionFailed(f"topic {', '.join(again)} was deleted and made again at the target")
        if topics != self._topics:
            self._topics = list(topics)
            if topics:
                self._consumer.subscribe(
                    self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
                )
            else:
                self._consumer.unsubscribe()

    def _assigned(self, consumer: _Consumer, partitions: list[_TopicPartition]) -> None:
        """Begin with partitions: the target has them, and where to begin is known."""
        self._is_paused = False
        self._meters.keep({TopicPartition(one.topic, one.partition) for one in partitions})
        names = sorted({one.topic for one in partitions})
        if not names:
            return
        follow.follow(self._config, names)  # partitions that were added a moment ago
        self._ids |= follow.topic_ids(self._config.source, names)
        # The scout's last look may be of before a topic was made again: it must not end this session for it.
        self._scout.ids = {**self._scout.ids, **self._ids}
        target_ids = follow.topic_ids(self._config.target, names)
        if missing := [name for name in names if name not in self._ids or name not in target_ids]:
            raise SessionFailed(f"topic {', '.join(missing)} is not in both clusters any more")
        self._target_ids |= target_ids
        self._scout.target_ids = {**self._scout.target_ids, **self._target_ids}
        for name in names:
            self._relay.learn(name, self._ids[name], target_ids[name])
        maps = follow.load_maps(self._config)
        committed = consumer.committed(partitions, timeout=_ANSWER_S)
        epochs = {
            TopicPartition(one.topic, one.partition): one.leader_epoch
            for one in committed
            if one.offset >= 0 and one.leader_epoch is not None and one.leader_epoch >= 0
        }
        # One without a leader begins where it stood, and holds up no other.
        led = Admin(self._config.source.connection).led(epochs.keys()) if epochs else ()
        cuts = follow.epoch_ends(self._config.source, {one: epochs[one] for one in led})
        starts = []
        for one in committed:
            partition, topic_id = TopicPartition(one.topic, one.partition), self._ids[one.topic]
            is_same = one.offset >= 0 and one.metadata in (None, "", topic_id)
            key = MapKey(topic_id, one.partition)
            found = maps.get(key)
            if found is None or found.target_id != target_ids[one.topic]:
                found = OffsetMap(one.topic, target_ids[one.topic])
            self._maps[partition] = key, found
            start: int = one.offset
            epoch: int | None = one.leader_epoch
            if not is_same:
                epoch = None
                start = self._log_start(consumer, partition)
            elif (cut := cuts.get(partition, start)) < start:
                self._tell_gap(partition, start, Resume(cut, cut=start - cut))
                self._cut(partition, cut)
                start = cut
            self._begin(partition, start, found.complete_ms if is_same else None, epoch)
            starts.append(_TopicPartition(one.topic, one.partition, start))
        consumer.assign(starts)
        self._notices.tell(time.monotonic(), "info", "assigned", partitions=len(starts))

    def _log_start(self, consumer: _Consumer, partition: TopicPartition) -> int:
        found = consumer.get_watermark_offsets(_TopicPartition(*partition), timeout=_ANSWER_S)
        return int(found[0]) if found is not None and found[0] >= 0 else OFFSET_BEGINNING

    def _begin(self, partition: TopicPartition, start: int, complete_ms: int | None, epoch: int | None = None) -> None:
        self._flights[partition] = Flight(start, epoch)
        self._passed.pop(partition, None)
        self._committed[partition] = start
        self._meters.begin(partition, start, complete_ms)

    def _revoked(self, consumer: _Consumer, partitions: list[_TopicPartition]) -> None:
        self._let_go([TopicPartition(one.topic, one.partition) for one in partitions], flush_s=self._config.flush_s)

    def _lost(self, consumer: _Consumer, partitions: list[_TopicPartition]) -> None:
        """End the session: another may have the partitions now, and what is under way must not come after its records.

        Their lag goes on being told: where the link to the source is cut, nobody else has them.
        """
        self._forget([TopicPartition(one.topic, one.partition) for one in partitions])
        self._failure = self._failure or SessionFailed("the group in the source gave this instance's partitions away")

    def _let_go(self, partitions: list[TopicPartition], flush_s: float) -> None:
        """Wait for what is under way, commit what arrived, then give up the partitions."""
        self._waiting.clear()
        self._flush(partitions, flush_s)
        self._tell()
        self._checkpoint(asynchronous=False)
        if self._producer.flush(_ANSWER_S):
            # Whoever has the partitions next sends these again; a late copy must not come after what follows them.
            self._failure = self._failure or SessionFailed(f"the target took nothing for {flush_s + _ANSWER_S:g} s")
        self._forget(partitions)

    def _flush(self, partitions: list[TopicPartition], flush_s: float) -> None:
        deadline = time.monotonic() + flush_s
        while any(len(self._flights[one]) for one in partitions if one in self._flights):
            if time.monotonic() > deadline or self._failure is not None:
                break
            self._producer.flush(_TRIED_FLUSH_S)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for one in partitions:
            self._flights.pop(one, None)
            self._maps.pop(one, None)
            self._committed.pop(one, None)
        self._waiting = deque(
            (record, headers)
            for record, headers in self._waiting
            if TopicPartition(str(record.topic()), int(record.partition() or 0)) in self._flights
        )

    # --- progress -----------------------------------------------------------------------------------------------

    def _checkpoint(self, *, asynchronous: bool) -> None:
        """Write down what has arrived: the pairs of offsets in the target, then the offsets in the source."""
        self._checkpoint_s = time.monotonic()
        self._pass_over()
        offsets = []
        for partition, flight in self._flights.items():
            key, found = self._maps[partition]
            complete_ms = self._meters.complete_ms(partition)
            has_moved = flight.next_source > self._committed[partition]
            if has_moved and flight.next_target is not None:
                found.note(flight.next_source, flight.next_target, flight.take_lowest_target())
            if found.pairs and (has_moved or (found.complete_ms is None and complete_ms is not None)):
                found.complete_ms = complete_ms
                self._note(self._config.map_topic, key.encode(), found.encode())
            if has_moved:
                self._committed[partition] = flight.next_source
                offsets.append(self._position(partition, flight))
        if self._config.audit_topic is not None and self._scout.has_audit:
            for key_, value in self._meters.progress(self._config.source.name):
                self._note(self._config.audit_topic, key_, value)
        if offsets:
            try:
                if asynchronous:
                    self._consumer.commit(offsets=offsets, asynchronous=True)
                else:
                    self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as exception:
                if error_of(exception).code() not in _NO_COMMIT:
                    raise

    def _pass_over(self) -> None:
        """Drop the pairs that would lead a group past a record that came from the target.

        Raises:
            SessionFailed: the target did not take it; the next session must meet these records again.
        """
        self._note_maps(
            partition
            for partition, flight in self._flights.items()
            if (passed := flight.take_passed()) is not None and self._maps[partition][1].pass_over(*passed)
        )

    def _position(self, partition: TopicPartition, flight: Flight) -> _TopicPartition:
        """Return what is committed of a partition: the topic's id and leader epoch say what the offset belongs to."""
        epoch = -1 if flight.epoch is None else flight.epoch
        return _TopicPartition(*partition, flight.next_source, self._ids[partition.topic], epoch)

    def _note(self, topic: str, key: bytes, value: bytes) -> None:
        with contextlib.suppress(BufferError):  # the next checkpoint says more
            self._producer.produce(topic, value, key, 0, on_delivery=self._noted)

    def _note_maps(self, partitions: Iterable[TopicPartition]) -> None:
        """Write maps and wait until the target has them: pairs that mislead must not outlive this session.

        Raises:
            SessionFailed: the target did not take them.
        """
        waiting = {self._maps[one][0].encode(): self._maps[one][1].encode() for one in partitions}
        sent_count, answers = len(waiting), list[KafkaError | None]()
        deadline = time.monotonic() + _ANSWER_S
        while len(answers) < sent_count and time.monotonic() < deadline:
            with contextlib.suppress(BufferError):  # until records under way have made room
                for key, value in list(waiting.items()):
                    self._producer.produce(
                        self._config.map_topic, value, key, 0, on_delivery=lambda error, _: answers.append(error)
                    )
                    del waiting[key]
            self._producer.poll(_READ_S)
        errors = [error.str() for error in answers if error is not None]
        if errors or len(answers) < sent_count:
            reason = errors[0] if errors else f"no answer for {_ANSWER_S:g} s"
            raise SessionFailed(f"{self._config.map_topic} cannot be written: {reason}")

    def _noted(self, error: KafkaError | None, _record: Message) -> None:
        if error is not None:
            self._notices.tell(time.monotonic(), "warning", "not_noted", reason=error.str())


def _check_too_large(exception: KafkaException) -> KafkaError:
    """Return why librdkafka did not take a record that is larger than it can send.

    Raises:
        KafkaException: that is not the reason.
    """
    error = error_of(exception)
    if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        raise exception
    return error
