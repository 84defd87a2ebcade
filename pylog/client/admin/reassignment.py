"""Moving partitions to other brokers; librdkafka has no call for it, so this asks the brokers itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pylog.client.connection import Connection
from pylog.client.raw import METADATA_VERSION, RawClient, RawConfig, raise_for
from pylog.errors import ApiError, ErrorCode
from pylog.model import TopicPartition
from pylog.wire.api.metadata import MetadataRequest, MetadataResponse
from pylog.wire.api.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)

MAX_MOVES_OF_REQUEST = 4_096
"""A broker takes 65,536 elements in one request: topic, partition and each replica are one, so a move may name 14."""

_VERSION = 0


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition on the move.

    Attributes:
        replicas: all it has now: those that come and stay, then those that go.
        adding: brokers that come.
        removing: brokers that go.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The brokers that shall hold it, the preferred leader first."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


def reassign(
    cluster: Connection, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, ApiError | None]:
    """Begin to move partitions; return for each why it was refused, or None."""
    results: dict[TopicPartition, ApiError | None] = {}
    moves = iter(wanted.items())
    with _client(cluster) as client:
        while part := list(islice(moves, MAX_MOVES_OF_REQUEST)):
            request = _request(part, int(cluster.timeout_s * 1000))
            answer = AlterPartitionReassignmentsResponse.decode(_VERSION, client.ask(request, _VERSION))
            raise_for(answer.error_code, answer.error_message or "reassignment")
            for topic in answer.responses:
                for one in topic.partitions:
                    results[TopicPartition(topic.name, one.partition_index)] = _error(one.error_code, one.error_message)
    return results


def _request(
    moves: Iterable[tuple[TopicPartition, Sequence[int] | None]], timeout_ms: int
) -> AlterPartitionReassignmentsRequest:
    rows: dict[str, list[ReassignablePartition]] = {}
    for (topic, partition), replicas in moves:
        row = ReassignablePartition(partition_index=partition, replicas=None if replicas is None else list(replicas))
        rows.setdefault(topic, []).append(row)
    topics = [ReassignableTopic(name=name, partitions=partitions) for name, partitions in rows.items()]
    return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)


def list_reassignments(
    cluster: Connection, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, Reassignment]:
    """Return what is on the move, of these partitions or of all."""
    with _client(cluster) as client:
        return _list_from(client, partitions, cluster.timeout_s)


def list_placements(
    cluster: Connection,
) -> tuple[dict[TopicPartition, Reassignment], dict[TopicPartition, tuple[int, ...]]]:
    """Return what is on the move, and all replicas of every partition.

    Both from one broker, in this order: a broker that was told by the controller that a move is over does not show the
    replicas of the way any more.  Another one may for a while.
    """
    with _client(cluster) as client:
        moving = _list_from(client, None, cluster.timeout_s)
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        found = MetadataResponse.decode(METADATA_VERSION, client.ask(request, METADATA_VERSION))
    placed = {
        TopicPartition(topic.name or "", one.partition_index): tuple(one.replica_nodes)
        for topic in found.topics
        for one in topic.partitions
    }
    return moving, placed


def _list_from(
    client: RawClient, partitions: Iterable[TopicPartition] | None, timeout_s: float
) -> dict[TopicPartition, Reassignment]:
    rows: dict[str, list[int]] | None = None
    if partitions is not None:
        rows = {}
        for topic, partition in partitions:
            rows.setdefault(topic, []).append(partition)
    topics = None
    if rows is not None:
        topics = [ListPartitionReassignmentsTopics(name=name, partition_indexes=one) for name, one in rows.items()]
    request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=int(timeout_s * 1000))
    answer = ListPartitionReassignmentsResponse.decode(_VERSION, client.ask(request, _VERSION))
    raise_for(answer.error_code, answer.error_message or "list of reassignments")
    return {
        TopicPartition(topic.name, one.partition_index): Reassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def _client(cluster: Connection) -> RawClient:
    timeout_ms = int(cluster.timeout_s * 1000)
    return RawClient(
        cluster.bootstrap, RawConfig(request_timeout_ms=timeout_ms, retry_ms=timeout_ms), cluster.security()
    )


def _error(code: int, message: str | None) -> ApiError | None:
    if code == ErrorCode.NONE:
        return None
    known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
    return ApiError(known, message or known.name)
