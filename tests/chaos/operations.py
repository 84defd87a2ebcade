"""What an operator does to topics while clients work: create, delete and create again, trim, move; and reading logs."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError as PythonError
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from pylog.client.admin.reassignment import reassign
from pylog.client.connection import Connection
from pylog.client.raw import RawClient, RawConfig
from pylog.errors import PylogError
from pylog.model import TopicPartition as RawPartition
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tests.chaos.history import Row, parse_value

_METADATA_VERSION = 10
_ASK_S = 2.0
_REQUEST_S = 15.0
_REQUEST_MS = int(_REQUEST_S * 1000)
_ANSWER_MS = 20_000
"""How long a client waits for an answer: longer than the broker takes to say that it could not do it."""
_RAW_PATIENCE = RawConfig(request_timeout_ms=6_000, retry_ms=int(_REQUEST_S * 1000))
_RETRY_S = 0.3
_READ_S = 240.0
_CHANGE_S = 120.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the run; *keys* is 0 where records have none, *value_bytes* where values are no longer than needed."""

    name: str
    partitions: int
    keys: int = 0
    configs: tuple[tuple[str, str], ...] = ()
    value_bytes: int = 0

    @property
    def spec(self) -> str:
        """How a producer is told of it."""
        return f"{self.name}:{self.partitions}:{self.keys}:{self.value_bytes}"


class NotSettled(Exception):
    """What had to become so within a time did not: the cluster does not come to rest by itself."""


class Operator:
    """Asks the brokers in *bootstraps*, each of them directly where what it knows matters."""

    def __init__(self, bootstraps: Sequence[str]) -> None:
        self._bootstraps = list(bootstraps)
        self.bootstrap = ",".join(bootstraps)

    def create(self, topic: Topic, *, other_than: UUID | None = None, within_s: float = 2 * _CHANGE_S) -> None:
        """Create a topic, whatever it takes; the one of this name with the id *other_than* may still be on its way out.

        Raises:
            NotSettled: it could not be created in time.
        """
        wanted = {"num_partitions": topic.partitions, "replication_factor": 3, "configs": dict(topic.configs)}

        def attempt() -> None:
            try:
                with self._admin() as admin:
                    admin.create_topics({topic.name: wanted}, timeout_ms=_REQUEST_MS)
            except TopicAlreadyExistsError:
                if not self._exists(topic, other_than):
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
            with suppress(UnknownTopicOrPartitionError), self._admin() as admin:
                admin.delete_topics([topic.name], timeout_ms=_REQUEST_MS)

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

    def trim(self, topic: Topic, thousandths: int, begins: dict[int, int]) -> dict[int, int]:
        """Delete so much of each partition's records.

        Args:
            topic: whose records go.
            thousandths: of the records from start to high watermark.
            begins: by partition the highest offset below which records may be gone, raised before it is asked for.

        Returns:
            By partition the offset below which all records must be gone.

        Raises:
            NotSettled: it could not be done in time.
        """

        trimmed: dict[int, int] = {}

        def attempt() -> None:
            starts, ends = self._list(topic, EARLIEST_TIMESTAMP), self._list(topic, LATEST_TIMESTAMP)
            wanted = {}
            for number, end in ends.items():
                upto = starts[number] + (end - starts[number]) * thousandths // 1000
                begins[number] = max(upto, begins.get(number, 0))
                wanted[PythonPartition(topic.name, number)] = upto
            with self._admin() as admin:
                admin.delete_records(wanted, timeout_ms=_REQUEST_MS)
            trimmed.update({key.partition: upto for key, upto in wanted.items()})

        self._retry(f"trim {topic.name}", attempt, _CHANGE_S)
        return trimmed

    def starts(self, topic: Topic) -> dict[int, int]:
        """Return by partition where its log begins.

        Raises:
            NotSettled: nobody answered in time.
        """
        return self._places(topic, EARLIEST_TIMESTAMP)

    def move(self, topic: Topic, partition: int, brokers: Sequence[int]) -> None:
        """Begin to move one partition.

        Raises:
            NotSettled: it was refused, or nobody answered in time.
        """

        def attempt() -> None:
            cluster = Connection(bootstrap=self.bootstrap, timeout_s=_REQUEST_S)
            refusal = reassign(cluster, {RawPartition(topic.name, partition): list(brokers)})
            for error in refusal.values():
                if error is not None:
                    raise error

        self._retry(f"move {topic.name}-{partition}", attempt, _CHANGE_S)

    def read(
        self, topic: Topic, begins: dict[int, int], within_s: float = _READ_S
    ) -> tuple[dict[int, list[Row]], dict[int, int]]:
        """Read every partition from its start to the high watermark it has now.

        Args:
            topic: what to read.
            begins: where the log may begin later than at 0.
            within_s: so long may it take.

        Returns:
            Rows and ends by partition.

        Raises:
            NotSettled: the ends were not reached in time.
        """
        ends = self._places(topic, LATEST_TIMESTAMP)
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
        errors: dict[int, str] = {}
        deadline_s = time.monotonic() + within_s
        while waiting:
            if time.monotonic() > deadline_s:
                last = {number: errors.get(number, "no error") for number in sorted(waiting)}
                raise NotSettled(f"{topic.name} could not be read to {ends}; missing, with their last error: {last}")
            for message in consumer.consume(2000, 1.0):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if partition is None or offset is None or partition not in rows:
                    continue
                if error is not None:
                    # A compacted log may end before its end offset.
                    if error.code() == KafkaError._PARTITION_EOF and offset >= ends[partition]:
                        waiting.discard(partition)
                    errors[partition] = f"{error.str()} at {offset}"
                    continue
                if offset < ends[partition]:
                    rows[partition].append(Row(offset, *parse_value(message.value())))
        consumer.close()
        return rows, ends

    def _places(self, topic: Topic, timestamp: int) -> dict[int, int]:
        found: dict[int, int] = {}
        self._retry(f"find the ends of {topic.name}", lambda: found.update(self._list(topic, timestamp)), _CHANGE_S)
        return found

    def _list(self, topic: Topic, timestamp: int) -> dict[int, int]:
        partitions = [RawPartition(topic.name, number) for number in range(topic.partitions)]
        with RawClient(self.bootstrap, _RAW_PATIENCE) as client:
            return {key.partition: offset for key, offset in client.list_offsets(partitions, timestamp).items()}

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
        try:
            with self._admin() as admin:
                answer = admin.list_group_offsets({group: [PythonPartition(*key) for key in ends]})[group]
        except (PythonError, OSError) as error:
            return {("", 0): str(error)}
        committed = {(key.topic, key.partition): found.offset for key, found in answer.items()}
        return {
            key: f"{committed.get(key)} of {end}" for key, end in ends.items() if end and committed.get(key, 0) < end
        }

    @contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        # librdkafka's ends the process now and then where brokers do not answer or leaders change.
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap.split(","), request_timeout_ms=_ANSWER_MS)
        with closing(admin):
            yield admin

    def _retry(self, what: str, attempt: Callable[[], None], within_s: float) -> None:
        deadline_s = time.monotonic() + within_s
        while True:
            try:
                return attempt()
            except (KafkaException, PythonError, PylogError, OSError, TimeoutError) as error:
                if time.monotonic() > deadline_s:
                    raise NotSettled(f"{what}: not within {within_s:.0f} s: {error}") from error
                time.sleep(_RETRY_S)
