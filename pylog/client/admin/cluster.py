"""What a cluster looks like from outside, and the requests that change its topics."""

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection
from confluent_kafka import IsolationLevel as _IsolationLevel
from confluent_kafka import TopicPartition as _TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from pylog.client.connection import Connection, as_connection, error_of, translate
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError, Unreachable
from pylog.model import NO_LEADER, IsolationLevel, NodeAddress, Offset, TopicPartition

if TYPE_CHECKING:
    # At run time only where partitions are moved: it brings the protocol's messages, a tenth of a short command's time.
    from pylog.client.admin.reassignment import Reassignment

_METADATA_TRY_S = 0.5
_REFUSED_WAIT_S = 2.0
_ASK_AGAIN_S = 0.1
_LEADER_TRIES = 4
"""How often a leader that does not answer is asked within one call's time: by then another may lead."""

# Somebody else leads by now, or has only just begun to, or soon will.
_ASK_AGAIN = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._TIMED_OUT,
    }
)
_TIMESTAMP_MISSING = -1
_SPEC: Any = OffsetSpec  # its stub has no annotations
_ISOLATION_LEVELS = {
    IsolationLevel.READ_COMMITTED: _IsolationLevel.READ_COMMITTED,
    IsolationLevel.READ_UNCOMMITTED: _IsolationLevel.READ_UNCOMMITTED,
}


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as the metadata shows it; `leader` is `NO_LEADER` while it has none."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        """Whether some broker serves it."""
        return self.leader != NO_LEADER

    @property
    def is_in_sync(self) -> bool:
        """Whether every replica is in the ISR."""
        return set(self.isr) >= set(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as the metadata shows it, partitions in order."""

    name: str
    partitions: tuple[PartitionView, ...]

    @property
    def replication_factor(self) -> int:
        """Replicas of the partition that has most."""
        return max((len(p.replicas) for p in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Brokers and topics at one moment, as one broker knows them; `controller_id` is -1 while there is none."""

    cluster_id: str
    controller_id: int
    brokers: tuple[NodeAddress, ...]
    topics: Mapping[str, TopicView]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What a partition holds for consumers: from *start* to before *end*."""

    start: Offset
    end: Offset

    @property
    def count(self) -> int:
        """Offsets in the range; records may be fewer on a compacted topic."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One setting of a topic and whether the topic itself sets it."""

    value: str | None
    is_own: bool


class Admin:
    """Asks and changes a cluster; every call waits at most the connection's time-out.

    Every method raises `Unreachable` when no broker answers and `ApiError` when one refuses.

    Args:
        cluster: a `Connection`, or just ``host:port``.
    """

    def __init__(self, cluster: Connection | str) -> None:
        self._cluster = as_connection(cluster)
        self._errors: list[KafkaError] = []
        with self._translated():
            self._client = AdminClient(self._cluster.librdkafka(error_cb=self._errors.append))

    @property
    def timeout_s(self) -> float:
        """How long one call may take."""
        return self._cluster.timeout_s

    def cluster(self) -> ClusterView:
        """Return brokers, controller and all topics."""
        with self._translated():
            found = self._metadata()
        brokers = tuple(sorted(NodeAddress(b.id, str(b.host), b.port) for b in found.brokers.values()))
        topics = {
            name: TopicView(
                name,
                tuple(
                    PartitionView(p.id, p.leader, tuple(p.replicas), tuple(p.isrs))
                    for p in sorted(topic.partitions.values(), key=lambda p: p.id)
                ),
            )
            for name, topic in sorted(found.topics.items())
        }
        return ClusterView(found.cluster_id or "", found.controller_id, brokers, topics)

    def topic(self, name: str) -> TopicView:
        """Return one topic.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION; the topic is never created by asking.
                TOPIC_AUTHORIZATION_FAILED: the user may not describe it, and is not told whether it exists.
        """
        topic = self.cluster().topics.get(name)
        if topic is None:
            if self._is_hidden(name):
                raise ApiError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {name!r}: this user has no right to describe it"
                )
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
        return topic

    def _is_hidden(self, name: str) -> bool:
        """Whether the list of all topics leaves this one out for want of a right."""
        try:
            with self._translated():
                asked = self._client.describe_topics(TopicCollection([name]), request_timeout=self._cluster.timeout_s)
                asked[name].result(self._cluster.timeout_s + 1)
        except ApiError as error:
            return error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return False

    def check_co_partitioned(self, *names: str) -> int:
        """Return the number of partitions that all these topics have.

        Then records with one key are in equally numbered partitions of each, if all were written with one partition
        function; and the members of a group that reads all of them have the same numbers of each.

        Raises:
            ConfigError: the numbers differ.
            ApiError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        counts = {name: len(self.topic(name).partitions) for name in names}
        if len(set(counts.values())) != 1:
            found = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
            raise ConfigError(
                f"topics to join: {found} partitions; wanted as many in each: pylog topic alter NAME --partitions "
                f"{max(counts.values(), default=0)}, before anything is written"
            )
        return next(iter(counts.values()))

    def answering(self, brokers: Sequence[NodeAddress]) -> set[int]:
        """Return the ids of those *brokers* that answer a request themselves within the time-out."""
        alive: set[int] = set()
        threads = [threading.Thread(target=self._probe, args=(broker, alive), daemon=True) for broker in brokers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return alive

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        assignments: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
        is_dry_run: bool = False,
    ) -> None:
        """Create a topic, or only ask whether it could be.

        Args:
            name: of the topic.
            partitions: how many; -1 leaves it to the brokers' default.
            replication_factor: as *partitions*.
            assignments: brokers of each partition instead, the one that is to lead first.
            config: its own settings.
            is_dry_run: only ask.
        """
        if assignments is None:
            topic = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        else:
            places = [list(one) for one in assignments]
            topic = NewTopic(name, len(places), replica_assignment=places, config=dict(config or {}))
        with self._translated():
            self._client.create_topics(
                [topic],
                operation_timeout=self._cluster.timeout_s,
                request_timeout=self._cluster.timeout_s,
                validate_only=is_dry_run,
            )[name].result(self._cluster.timeout_s + 1)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        with self._translated():
            self._client.delete_topics(
                [name], operation_timeout=self._cluster.timeout_s, request_timeout=self._cluster.timeout_s
            )[name].result(self._cluster.timeout_s + 1)

    def topic_config(self, name: str) -> dict[str, ConfigValue]:
        """Return the topic's effective settings by Kafka's names."""
        return self.topic_configs([name])[name]

    def topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, ConfigValue]]:
        """Return the effective settings of several topics by Kafka's names, in one request."""
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
        if not resources:
            return {}
        with self._translated():
            answers = self._client.describe_configs(list(resources.values()), request_timeout=self._cluster.timeout_s)
            found = {name: answers[one].result(self._cluster.timeout_s + 1) for name, one in resources.items()}
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            name: {entry.name: ConfigValue(entry.value, _source(entry.source) == own) for entry in entries.values()}
            for name, entries in found.items()
        }

    def offsets(
        self,
        partitions: Sequence[TopicPartition],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetRange]:
        """Return log start offset and end of each partition; the end is that of `ends`."""
        starts = self._list_offsets(dict.fromkeys(partitions, _SPEC.earliest()))
        ends = self.ends(partitions, isolation_level)
        return {p: OffsetRange(starts[p], ends[p]) for p in partitions}

    def led(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return those of *partitions* that have a leader now: asked for the offsets of another, all would wait."""
        topics = self.cluster().topics
        led = {
            TopicPartition(name, one.partition)
            for name in {one.topic for one in partitions} & topics.keys()
            for one in topics[name].partitions
            if one.has_leader
        }
        return [one for one in partitions if one in led]

    def ends(
        self,
        partitions: Sequence[TopicPartition],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, Offset]:
        """Return the high watermark of each partition, or the last stable offset, where committed records end."""
        return self._list_offsets(dict.fromkeys(partitions, _SPEC.latest()), isolation_level)

    def offsets_at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, Offset]:
        """Return the first offset of each partition whose record is of *timestamp_ms* or later, else its end."""
        return self.offsets_at_each(dict.fromkeys(partitions, timestamp_ms))

    def offsets_at_each(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Return the first offset of each partition whose record is of its time or later, else its end."""
        found = self._list_offsets({p: _SPEC.for_timestamp(at_ms) for p, at_ms in times_ms.items()})
        missing = [p for p, offset in found.items() if offset == _TIMESTAMP_MISSING]
        return found | self.ends(missing)

    def reassign_partitions(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        """Begin to move partitions to other brokers, the preferred leader first; None calls a move off.

        Returns:
            For each partition why it was refused, or None; `reassignments` says when the moves have ended.

        Raises:
            ApiError: the cluster refuses all of it, UNSUPPORTED_VERSION before `pylog cluster finalize`.
        """
        from pylog.client.admin.reassignment import reassign

        return reassign(self._cluster, wanted)

    def reassignments(self, partitions: Sequence[TopicPartition] | None = None) -> "dict[TopicPartition, Reassignment]":
        """Return what is on the move, of these partitions or of all."""
        from pylog.client.admin.reassignment import list_reassignments

        return list_reassignments(self._cluster, partitions)

    def placements(
        self,
    ) -> "tuple[dict[TopicPartition, Reassignment], dict[TopicPartition, tuple[int, ...]]]":
        """Return what is on the move, and the replicas of every partition, of which none is from before."""
        from pylog.client.admin.reassignment import list_placements

        return list_placements(self._cluster)

    def _list_offsets(
        self,
        wanted: Mapping[TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, Offset]:
        found: dict[TopicPartition, Offset] = {}
        left = dict(wanted)
        deadline_s = time.monotonic() + self._cluster.timeout_s
        with self._translated():
            while left:
                futures = self._client.list_offsets(
                    {_TopicPartition(p.topic, p.partition): spec for p, spec in left.items()},
                    request_timeout=self._cluster.timeout_s / _LEADER_TRIES,
                    isolation_level=_ISOLATION_LEVELS[isolation_level],
                )
                for p, future in futures.items():
                    try:
                        offset = future.result(self._cluster.timeout_s + 1).offset
                    except KafkaException as exception:
                        if error_of(exception).code() not in _ASK_AGAIN or time.monotonic() > deadline_s:
                            raise
                    else:
                        # Where a leader did not answer in time, librdkafka tells of no error.
                        if offset != OFFSET_INVALID:
                            found[TopicPartition(p.topic, p.partition)] = offset
                left = {p: spec for p, spec in left.items() if p not in found}
                if left and time.monotonic() > deadline_s:
                    raise Unreachable(
                        f"{self._cluster.bootstrap}: no answer from the leader of {min(left)}"
                        f" in {self._cluster.timeout_s:g} s"
                    )
                if left:
                    time.sleep(_ASK_AGAIN_S)
                    self._metadata()  # librdkafka would ask the same broker again
        return found

    def _probe(self, broker: NodeAddress, alive: set[int]) -> None:
        """Add the broker to *alive* if it answers; runs on its own thread.

        A fresh client knows this one address only, so its first answer can come from nobody else.
        """
        alone = Connection(
            bootstrap=f"{broker.host}:{broker.port}",
            timeout_s=self._cluster.timeout_s,
            properties=self._cluster.properties,
        )
        try:
            Admin(alone).cluster()
        except PylogError:
            return
        alive.add(broker.node_id)

    def _metadata(self) -> ClusterMetadata:
        """Return librdkafka's view; gives up early where every address refuses the connection.

        Not at the first refusal: of the addresses of one name, ::1 and 127.0.0.1 say, librdkafka tries one at a time.
        """
        self._errors.clear()
        started_s = time.monotonic()
        while True:
            left_s = started_s + self._cluster.timeout_s - time.monotonic()
            try:
                # Always all topics: asking for one by name lets a broker create it.
                return self._client.list_topics(timeout=max(0.001, min(left_s, _METADATA_TRY_S)))
            except KafkaException as exception:
                self._client.poll(0)
                is_down = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in self._errors)
                is_refused = is_down and time.monotonic() > started_s + _REFUSED_WAIT_S
                if is_refused or left_s <= _METADATA_TRY_S or not _is_wait(error_of(exception)):
                    raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn librdkafka's exceptions into ours, with the cause that it reports beside the error itself."""
        try:
            yield
        except TimeoutError as exception:
            raise self._unreachable(f"no answer in {self._cluster.timeout_s:g} s") from exception
        except KafkaException as exception:
            error = translate(error_of(exception), self._cluster)
            if isinstance(error, Unreachable):
                self._client.poll(0)
                causes = [e.str() for e in self._errors if e.code() != KafkaError._ALL_BROKERS_DOWN]
                raise self._unreachable(causes[-1] if causes else error_of(exception).str()) from exception
            raise error from exception

    def _unreachable(self, cause: str) -> Unreachable:
        def find_reason() -> PylogError | None:
            from pylog.client.diagnosis import reason_of_silence  # brings the protocol's messages

            return reason_of_silence(self._cluster)

        return Unreachable(f"{self._cluster.bootstrap}: {cause}", find_reason)


def _is_wait(error: KafkaError) -> bool:
    """Return whether asking again may help."""
    return error.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


def _source(source: object) -> object:
    """Return the number of a configuration's source; confluent-kafka hands over a number or an enum member."""
    return source.value if isinstance(source, ConfigSource) else source
