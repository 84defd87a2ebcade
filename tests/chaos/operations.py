"""What an operator does to topics while clients work: create, delete and create again, trim, move; and reading logs."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.client.admin.cluster import Admin
from pylog.client.raw import RawClient, RawConfig
from pylog.errors import PylogError
from pylog.model import TopicPartition as Moved
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from tests.chaos.history import Row, parse_value

_METADATA_VERSION = 10
_ASK_S = 2.0
_REQUEST_S = 15.0
_ANSWER_S = 20.0
"""How long a client waits for an answer: longer than the broker takes to say that it could not do it."""
_PATIENCE = {"operation_timeout": _REQUEST_S, "request_timeout": _ANSWER_S}
_RETRY_S = 0.3
_READ_S = 240.0
_CHANGE_S = 120.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the run; *keys* is 0 where records have none."""

    name: str
    partitions: int
    keys: int = 0
    configs: tuple[tuple[str, str], ...] = ()

    @property
    def spec(self) -> str:
        """How a producer is told of it."""
        return f"{self.name}:{self.partitions}:{self.keys}"


class NotSettled(Exception):
    """What had to become so within a time did not: the cluster does not come to rest by itself."""


class Operator:
    """Asks the brokers in *bootstraps*, each of them directly where what it knows matters."""

    def __init__(self, bootstraps: Sequence[str]) -> None:
        self._bootstraps = list(bootstraps)
        self.bootstrap = ",".join(bootstraps)
        # Kept for the whole run: librdkafka may crash where a client ends while brokers still owe it an answer.
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 6000, "log_level": 0})
        self._offsets = Admin(self.bootstrap)

    def create(self, topic: Topic, *, other_than: UUID | None = None, within_s: float = 2 * _CHANGE_S) -> None:
        """Create a topic, whatever it takes; the one of this name with the id *other_than* may still be on its way out.

        Raises:
            NotSettled: it could not be created in time.
        """
        wanted = NewTopic(topic.name, topic.partitions, 3, config=dict(topic.configs))

        def attempt() -> None:
            try:
                self._admin.create_topics([wanted], **_PATIENCE)[topic.name].result(2 * _ANSWER_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or not self._exists(topic, other_than):
                    raise

        self._retry(f"create {topic.name}", attempt, within_s)

    def _exists(self, topic: Topic, other_than: UUID | None) -> bool:
        # An attempt without an answer may have succeeded.
        views = [self._view(bootstrap, topic) for bootstrap in self._bootstraps]
        return any(view is not None and view.partitions and view.topic_id != other_than for view in views)

    def delete(self, topic: Topic, within_s: float = 2 * _CHANGE_S) -> None:
        """Delete a topic, whatever it takes.

        Raises:
            NotSettled: it could not be deleted in time.
        """

        def attempt() -> None:
            try:
                self._admin.delete_topics([topic.name], **_PATIENCE)[topic.name].result(2 * _ANSWER_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

        self._retry(f"delete {topic.name}", attempt, within_s)

    def wait_known(self, topic: Topic, *, other_than: UUID | None = None, within_s: float = 120.0) -> UUID:
        """Wait until every broker knows the topic under one id, which is not *other_than*; return the id.

        Raises:
            NotSettled: not in time.
        """
        deadline_s = time.monotonic() + within_s
        while True:
            views = [self._view(bootstrap, topic) for bootstrap in self._bootstraps]
            ids = {view.topic_id if view is not None and view.partitions else None for view in views}
            if len(ids) == 1 and (found := ids.pop()) is not None and found != other_than:
                return found
            if time.monotonic() > deadline_s:
                raise NotSettled(f"not every broker knew {topic.name} within {within_s:.0f} s: {ids}")
            time.sleep(_RETRY_S)

    def wait_in_sync(self, topics: Iterable[Topic], within_s: float) -> None:
        """Wait until every broker sees every replica of *topics* in sync.

        Raises:
            NotSettled: not in time.
        """
        deadline_s = time.monotonic() + within_s
        for topic in topics:
            while missing := self._out_of_sync(topic):
                if time.monotonic() > deadline_s:
                    raise NotSettled(f"{topic.name} was not in sync within {within_s:.0f} s: {missing}")
                time.sleep(_RETRY_S)

    def _out_of_sync(self, topic: Topic) -> str:
        for bootstrap in self._bootstraps:
            view = self._view(bootstrap, topic)
            if view is None:
                return f"{bootstrap} does not answer"
            for one in view.partitions:
                if one.leader_id < 0 or set(one.isr_nodes) != set(one.replica_nodes):
                    return f"{bootstrap} says partition {one.partition_index}: {one}"
            if len(view.partitions) != topic.partitions:
                return f"{bootstrap} knows {len(view.partitions)} partitions"
        return ""

    def _view(self, bootstrap: str, topic: Topic) -> MetadataResponseTopic | None:
        patience = RawConfig(request_timeout_ms=int(_ASK_S * 1000), retry_ms=int(_ASK_S * 1000))
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False)
        try:
            with RawClient(bootstrap, patience) as client:
                answer = MetadataResponse.decode(_METADATA_VERSION, client.ask(request, _METADATA_VERSION))
        except (PylogError, OSError):
            return None
        return answer.topics[0]

    def trim(self, topic: Topic, thousandths: int, begins: dict[int, int]) -> None:
        """Delete so much of each partition's records.

        Args:
            topic: whose records go.
            thousandths: of the records from start to high watermark.
            begins: by partition the highest offset below which records may be gone, raised before it is asked for.

        Raises:
            NotSettled: it could not be done in time.
        """

        def attempt() -> None:
            found = self._offsets.offsets([Moved(topic.name, number) for number in range(topic.partitions)])
            wanted = []
            for key, offsets in found.items():
                upto = offsets.start + (offsets.end - offsets.start) * thousandths // 1000
                begins[key.partition] = max(upto, begins.get(key.partition, 0))
                wanted.append(TopicPartition(topic.name, key.partition, upto))
            # It would ask whom it last knew as leaders.
            self._admin.list_topics(topic.name, _REQUEST_S)
            for future in self._admin.delete_records(wanted, **_PATIENCE).values():
                future.result(2 * _ANSWER_S)

        self._retry(f"trim {topic.name}", attempt, _CHANGE_S)

    def move(self, topic: Topic, partition: int, brokers: Sequence[int]) -> None:
        """Begin to move one partition.

        Raises:
            NotSettled: it was refused, or nobody answered in time.
        """

        def attempt() -> None:
            refusal = self._offsets.reassign_partitions({Moved(topic.name, partition): list(brokers)})
            for error in refusal.values():
                if error is not None:
                    raise error

        self._retry(f"move {topic.name}-{partition}", attempt, _CHANGE_S)

    def read(self, topic: Topic, begins: dict[int, int]) -> tuple[dict[int, list[Row]], dict[int, int]]:
        """Read every partition from its start to the high watermark it has now.

        Args:
            topic: what to read.
            begins: where the log may begin later than at 0.

        Returns:
            Rows and ends by partition.

        Raises:
            NotSettled: the ends were not reached in time.
        """
        ends = self._ends(topic)
        rows: dict[int, list[Row]] = {number: [] for number in range(topic.partitions)}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "log-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest" if begins else "error",
                "check.crcs": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic.name, number, begins.get(number, 0)) for number in ends])
        waiting = {number for number, end in ends.items() if end > begins.get(number, 0)}
        deadline_s = time.monotonic() + _READ_S
        while waiting:
            if time.monotonic() > deadline_s:
                raise NotSettled(f"{topic.name} could not be read to {ends}: {sorted(waiting)} are missing")
            for message in consumer.consume(2000, 1.0):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if partition is None or offset is None or partition not in rows:
                    continue
                if error is not None:
                    # A compacted log may end before its end offset.
                    if error.code() == KafkaError._PARTITION_EOF and offset >= ends[partition]:
                        waiting.discard(partition)
                    continue
                if offset < ends[partition]:
                    rows[partition].append(Row(offset, *parse_value(message.value())))
        consumer.close()
        return rows, ends

    def _ends(self, topic: Topic) -> dict[int, int]:
        found: dict[int, int] = {}

        def attempt() -> None:
            ends = self._offsets.ends([Moved(topic.name, number) for number in range(topic.partitions)])
            found.update({key.partition: end for key, end in ends.items()})

        self._retry(f"find the end of {topic.name}", attempt, 120.0)
        return found

    def wait_committed(self, group: str, ends: dict[tuple[str, int], int], within_s: float) -> None:
        """Wait until *group* has committed these offsets.

        Raises:
            NotSettled: not in time.
        """
        deadline_s = time.monotonic() + within_s
        while behind := self._behind(group, ends):
            if time.monotonic() > deadline_s:
                raise NotSettled(f"group {group} did not come to the end within {within_s:.0f} s: {behind}")
            time.sleep(1.0)

    def _behind(self, group: str, ends: dict[tuple[str, int], int]) -> dict[tuple[str, int], str]:
        wanted = [TopicPartition(topic, number) for topic, number in ends]
        try:
            question = ConsumerGroupTopicPartitions(group, wanted)
            answer = self._admin.list_consumer_group_offsets([question])[group].result(_REQUEST_S)
        except KafkaException as error:
            return {("", 0): str(error)}
        committed = {(one.topic, one.partition): one.offset for one in answer.topic_partitions or []}
        return {
            key: f"{committed.get(key)} of {end}" for key, end in ends.items() if end and committed.get(key, 0) < end
        }

    def _retry(self, what: str, attempt: Callable[[], None], within_s: float) -> None:
        deadline_s = time.monotonic() + within_s
        while True:
            try:
                return attempt()
            except (KafkaException, PylogError, OSError, TimeoutError) as error:
                if time.monotonic() > deadline_s:
                    raise NotSettled(f"{what}: not within {within_s:.0f} s: {error}") from error
                time.sleep(_RETRY_S)
