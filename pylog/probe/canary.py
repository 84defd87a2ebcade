"""A record a second through each broker, with acks=all and read back: what clients feel, whatever the cause.

Its topic has a partition that each broker leads.  A record carries its run and number, so that what an earlier run sent
is not counted again.
"""

import json
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import OFFSET_END

from pylog.client.admin.partitions import PartitionAdmin
from pylog.client.consumer import Consumer
from pylog.client.producer import Producer
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.errors import ApiError, ErrorCode, PylogError
from pylog.metrics import Metrics
from pylog.probe.config import ProbeConfig

TIMEOUT_MS = 10_000
"""A record that is not acknowledged, or not read back, after so long has failed."""

_NAME = "pylog_canary_seconds"
_HELP = (
    "From sending a canary's record until it is acknowledged by all in-sync replicas (stage produce), and until it is "
    "read back (stage consume), by the broker that leads its partition."
)
_FAILED = "pylog_canary_failures_total"
_FAILED_HELP = (
    "Canary's records that were not acknowledged, or not read back, within 10 seconds; counted when those are over."
)
_LAST = "pylog_canary_last_success_timestamp_seconds"
_LAST_HELP = (
    "When a canary's record was last read back, since the Unix epoch, by broker; 0: not yet. Stands still while the "
    "broker leads none."
)
_INTERVAL = "pylog_canary_interval_seconds"
_INTERVAL_HELP = "Time between two of the canary's records to a broker; without a canary not shown."
_TOPIC_CHECK_S = 30.0
_LEADER_CHECK_S = 1.0
_READ_S = 0.05
_RETRY_S = 5.0
_MAX_VALUE_BYTES = 200  # of a canary's record; a large one of somebody else may be nested deeper than a parser bears


def assignments(brokers: list[int], replication_factor: int) -> list[list[int]]:
    """Return the replicas of a partition for each broker, the one that is to lead first."""
    count = min(replication_factor, len(brokers))
    return [[brokers[(place + step) % len(brokers)] for step in range(count)] for place in range(len(brokers))]


@dataclass(slots=True)
class Board:
    """What is in flight, and how it ended.  Times are of `time.perf_counter_ns`; used by one thread at a time.

    Attributes:
        interval_s: between two records to a broker.
        run: which run of the canary: records of another are not ours.
        sent: by number, the leader of its partition and when it was sent.
    """

    metrics: Metrics
    interval_s: float
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    _next: int = 0

    def __post_init__(self) -> None:
        for name, kind, help in ((_NAME, "histogram", _HELP), (_FAILED, "counter", _FAILED_HELP)):
            self.metrics.declare(name, kind, help)
        self.metrics.declare(_LAST, "gauge", _LAST_HELP)
        self.metrics.gauge(_INTERVAL, _INTERVAL_HELP).value = self.interval_s

    def expect(self, leader: int) -> None:
        """Show a broker from the start: one that never answered must not be missing from the page."""
        for stage in ("produce", "consume"):
            self.metrics.counter(_FAILED, _FAILED_HELP, broker=str(leader), stage=stage)
        self.metrics.gauge(_LAST, _LAST_HELP, broker=str(leader))

    def send(self, leader: int, now_ns: int) -> bytes:
        """Return the next record's value."""
        number, self._next = self._next, self._next + 1
        self.sent[number] = leader, now_ns
        return json.dumps({"run": self.run, "number": number}).encode()

    def acknowledged(self, leader: int, sent_ns: int, now_ns: int, error: PylogError | None) -> None:
        """A record was acknowledged, or not."""
        if error is not None:
            self.metrics.counter(_FAILED, _FAILED_HELP, broker=str(leader), stage="produce").add()
        else:
            self.metrics.histogram(_NAME, _HELP, broker=str(leader), stage="produce").observe_ns(now_ns - sent_ns)

    def read_back(self, value: bytes | None, now_ns: int, wall_s: float) -> None:
        """A record of the topic was read; anybody may have written it."""
        if value is None or len(value) > _MAX_VALUE_BYTES:
            return
        try:
            told = json.loads(value)
            number = told["number"] if told["run"] == self.run else None
        except (ValueError, TypeError, KeyError):
            return
        found = self.sent.pop(number, None) if isinstance(number, int) else None
        if found is not None:
            leader, sent_ns = found
            self.metrics.histogram(_NAME, _HELP, broker=str(leader), stage="consume").observe_ns(now_ns - sent_ns)
            self.metrics.gauge(_LAST, _LAST_HELP, broker=str(leader)).value = wall_s

    def expire(self, now_ns: int) -> None:
        """Give up the records that were not read back in time."""
        late = [number for number, (_, sent_ns) in self.sent.items() if now_ns - sent_ns > TIMEOUT_MS * 1_000_000]
        for number in late:
            leader, _ = self.sent.pop(number)
            self.metrics.counter(_FAILED, _FAILED_HELP, broker=str(leader), stage="consume").add()


@dataclass(frozen=True, slots=True)
class Places:
    """Where records go.

    Attributes:
        partitions: all of the canary's topic.
        leaders: by partition, the broker that leads it; one partition of each broker.
    """

    partitions: frozenset[int] = frozenset()
    leaders: Mapping[int, int] = field(default_factory=dict)


class Scout(threading.Thread):
    """Makes the canary's topic and keeps an eye on its leaders.

    Apart from the canary, which must not wait for an answer about one broker while it measures the others, and often:
    a record that another broker took must not count for the leader that died.

    Attributes:
        places: as last heard; replaced, never changed.
    """

    def __init__(self, config: ProbeConfig, stop: Stop, notices: Notices) -> None:
        super().__init__(name="scout", daemon=True)
        self._config = config
        self._admin = PartitionAdmin(config.cluster)
        self._stop_asked = stop
        self._notices = notices
        self.places = Places()

    def run(self) -> None:
        """Go on through every failure of the cluster; what was heard last stays."""
        next_check_s = time.monotonic()
        while not self._stop_asked.is_wanted:
            try:
                if time.monotonic() >= next_check_s:
                    self._prepare()
                    next_check_s = time.monotonic() + _TOPIC_CHECK_S
                self.places = self._look()
            except PylogError as error:
                self._notices.tell(time.monotonic(), "warning", "canary_topic_unknown", reason=error)
            self._stop_asked.wait(_LEADER_CHECK_S)

    def _prepare(self) -> None:
        """Make the topic, or more partitions of it, so that every broker can lead one."""
        view = self._admin.cluster()
        wanted = assignments(sorted(one.node_id for one in view.brokers), self._config.replication_factor)
        topic = view.topics.get(self._config.canary_topic)
        if topic is None:
            config = {"retention.ms": "3600000", "segment.ms": "3600000", "min.insync.replicas": "1"}
            try:
                self._admin.create_topic(self._config.canary_topic, assignments=wanted, config=config)
            except ApiError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        elif len(topic.partitions) < len(wanted):
            led = {one.replicas[0] for one in topic.partitions if one.replicas}
            added = [replicas for replicas in wanted if replicas[0] not in led]
            if added:
                count = len(topic.partitions) + len(added)
                self._admin.add_partitions(self._config.canary_topic, count, assignments=added)

    def _look(self) -> Places:
        view = self._admin.topic(self._config.canary_topic)
        by_broker = {one.leader: one.partition for one in reversed(view.partitions) if one.has_leader}
        return Places(
            frozenset(one.partition for one in view.partitions),
            {partition: leader for leader, partition in by_broker.items()},
        )


class Canary(threading.Thread):
    """Sends and reads back until it is stopped."""

    def __init__(self, config: ProbeConfig, metrics: Metrics, scout: Scout, stop: Stop, notices: Notices) -> None:
        super().__init__(name="canary", daemon=True)
        self._config = config
        self._scout = scout
        self._stop_asked = stop
        self._notices = notices
        self._board = Board(metrics, config.canary_interval_s)

    def run(self) -> None:
        """Go on through every failure of the cluster."""
        while not self._stop_asked.is_wanted:
            try:
                self._sing()
            except PylogError as error:
                self._notices.tell(time.monotonic(), "warning", "canary_failed", reason=error)
                self._board.expire(time.perf_counter_ns())
                self._stop_asked.wait(_RETRY_S)

    def _sing(self) -> None:
        topic, board = self._config.canary_topic, self._board
        next_s = time.monotonic()
        assigned: frozenset[int] = frozenset()
        with (
            Producer(
                self._config.cluster, linger_ms=0, delivery_timeout_ms=TIMEOUT_MS, reports_success=True
            ) as producer,
            Consumer(self._config.cluster) as consumer,
        ):
            while not self._stop_asked.is_wanted:
                places = self._scout.places
                if not places.partitions <= assigned:
                    consumer.assign_topic(topic, OFFSET_END)
                    assigned = places.partitions
                now_s = time.monotonic()
                if now_s >= next_s:
                    next_s = max(next_s + self._config.canary_interval_s, now_s)
                    for partition, leader in places.leaders.items():
                        board.expect(leader)
                        sent_ns = time.perf_counter_ns()
                        heard = partial(self._heard, leader, sent_ns)
                        producer.send(topic, board.send(leader, sent_ns), partition=partition, on_delivery=heard)
                producer.poll(0)
                for record in consumer.read(_READ_S):
                    board.read_back(record.value, time.perf_counter_ns(), time.time())
                board.expire(time.perf_counter_ns())

    def _heard(self, leader: int, sent_ns: int, error: PylogError | None) -> None:
        self._board.acknowledged(leader, sent_ns, time.perf_counter_ns(), error)
