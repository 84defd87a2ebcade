"""The stage of a story: a cluster of three brokers, the checks of every run, and hands to do something with both."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pylog.broker.data.partitions import Partition
from pylog.errors import ErrorCode
from pylog.log.log import Log
from pylog.model import TopicPartition
from pylog.wire.api.configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
    ResourceType,
)
from pylog.wire.api.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from pylog.wire.records import Record, encode_batch
from tests.sim import clients
from tests.sim.checks import Checks
from tests.sim.clients import Client, Unanswered
from tests.sim.cluster import CLIENT_PORT, Cluster, Host
from tests.sim.run import watch_logs
from tests.sim.world import Violation, World

CONTROLLER, LEADER, FOLLOWER = 3, 1, 2
"""Who is what: the broker that starts first is the controller, the first replica leads."""

TOPIC = "orders"
KEY = TopicPartition(TOPIC, 0)
LIMIT_S = 300.0
PATIENCE_S = 30.0
DELETION_MS = 60_000
LOOK_S = 0.02


class Stage:
    """A cluster of three brokers, and hands to do something with it.

    Attributes:
        world: the run.
        cluster: of brokers 1 to 3; broker 3 is the controller.
        checks: what must hold.
        client: speaks the protocol to the brokers.
    """

    def __init__(self, directory: Path, *, trace: bool = False) -> None:
        self.world = World(1, trace=trace)
        watch_logs(self.world)
        self.cluster = Cluster(self.world, directory, 3, {})
        self.checks = Checks(self.cluster)
        brokers = {host.broker_id: (host.name, CLIENT_PORT) for host in self.cluster.hosts.values()}
        self.client = Client(self.world, "client", brokers)

    # -- brokers and partitions -----------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start the brokers, the controller first, and create `TOPIC`, led by `LEADER`."""
        self.cluster.start(self.host(CONTROLLER))
        await self.until(lambda: self.host(CONTROLLER).is_running, "the controller has started")
        for broker_id in (LEADER, FOLLOWER):
            self.cluster.start(self.host(broker_id))
        await self.until(lambda: all(host.is_running for host in self.cluster.hosts.values()), "all have started")
        await self.create()
        await self.until(self.checks.is_settled, "the topic is there")

    async def create(self) -> None:
        """Create `TOPIC` with one partition on all brokers, led by `LEADER`."""
        await clients.create_assigned(self.client, CONTROLLER, TOPIC, [LEADER, FOLLOWER, CONTROLLER])

    async def delete(self) -> None:
        """Delete `TOPIC`."""
        await clients.delete_topic(self.client, CONTROLLER, TOPIC)

    def host(self, broker_id: int) -> Host:
        """Return a broker's host."""
        return self.cluster.hosts[broker_id]

    def partition(self, broker_id: int) -> Partition | None:
        """Return a broker's replica of `KEY`, None without one."""
        broker = self.host(broker_id).broker
        return broker.partitions.get(*KEY) if broker is not None else None

    def log(self, broker_id: int) -> Log | None:
        """Return the log of a broker's replica of `KEY`."""
        found = self.partition(broker_id)
        return found.log if found is not None else None

    def has_incarnation(self, *broker_ids: int) -> bool:
        """Whether brokers have heard of the present incarnation of `TOPIC`."""
        found = [self.partition(one) for one in broker_ids]
        return all(one is not None and one.topic_id == self.checks.ids.get(TOPIC) for one in found)

    def is_registered(self, broker_id: int) -> bool:
        """Whether the broker runs, and the store has its process."""
        return self.cluster.is_registered(self.host(broker_id))

    def leader(self) -> int:
        """Return the leader as the store has it."""
        return self.checks.states[KEY].leader

    # -- what is done -----------------------------------------------------------------------------------------------

    async def write(
        self, count: int, word: str = "record", *, batch_size: int = 1, seconds: float = PATIENCE_S
    ) -> None:
        """Write batches of records one after the other with acks=all; each is tried again until it is acknowledged.

        Raises:
            Violation: the time is up.
        """
        deadline_s = self.world.now_s + seconds
        for number in range(count):
            values = [f"{word}:{KEY}:{number * batch_size + one}".encode() for one in range(batch_size)]
            timestamp = self.world.wall_ns() // 1_000_000
            batch = encode_batch([Record(one, timestamp, None, value) for one, value in enumerate(values)])
            error: object = None
            while error is not ErrorCode.NONE:
                if self.world.now_s > deadline_s:
                    raise Violation("progress", f"{values} not acknowledged after {seconds:g} s: {error}")
                try:
                    leader = await self.client.find_leader(KEY)
                    error, offset = await self.client.produce(leader, KEY, batch, -1)
                except Unanswered as fault:
                    error = fault
                if error is not ErrorCode.NONE:
                    self.client.leaders.clear()
                    await self.client.pause()
            self.checks.acknowledged(KEY, leader, offset, values, is_first=False)

    async def delete_records(self, before: int) -> None:
        """Have the leader's log begin at an offset, at the high watermark for -1.

        Raises:
            Violation: it is refused.
        """
        error = await self.try_to_delete_records(before, timeout_ms=DELETION_MS)
        if error is not ErrorCode.NONE:
            raise Violation("progress", f"records before {before} are not deleted: {error.name}")

    async def try_to_delete_records(self, before: int, *, timeout_ms: int) -> ErrorCode:
        """Ask the leader once to begin at an offset, at the high watermark for -1; return what it answers."""
        part = DeleteRecordsPartition(partition_index=KEY.partition, offset=before)
        wish = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[part])], timeout_ms=timeout_ms)
        incarnation = self.checks.known_incarnation(TOPIC, self.leader())
        self.checks.may_trim(KEY, before)
        answer = await self.client.call(self.leader(), wish, DeleteRecordsResponse)
        row = answer.topics[0].partitions[0]
        error = ErrorCode(row.error_code)
        self.world.note("deleted_records", KEY, row.low_watermark, error.name)
        if error is ErrorCode.NONE:
            self.checks.trimmed(KEY, before, row.low_watermark, incarnation)
        return error

    async def set_config(self, topic: str, name: str, value: str) -> None:
        """Change a topic's configuration.

        Raises:
            Violation: it is refused.
        """
        change = IncrementallyAlterableConfig(name=name, config_operation=ConfigOperation.SET, value=value)
        resource = IncrementalAlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=topic, configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        client = Client(self.world, "admin", self.client._brokers)
        answer = await client.call(CONTROLLER, request, IncrementalAlterConfigsResponse)
        if answer.responses[0].error_code:
            raise Violation("progress", f"{topic}: {name} is not set: {answer.responses[0]}")

    def kill(self, broker_id: int) -> None:
        """Kill a broker's process."""
        self.cluster.kill(self.host(broker_id))

    def start(self, broker_id: int) -> None:
        """Start a broker."""
        self.cluster.start(self.host(broker_id))

    @contextmanager
    def cutting(self, one: int, other: int) -> Iterator[None]:
        """Let nothing pass between two brokers."""
        names = [(self.host(one).name, self.host(other).name), (self.host(other).name, self.host(one).name)]
        for pair in names:
            self.cluster.network.cut(*pair)
        try:
            yield
        finally:
            for pair in names:
                self.cluster.network.uncut(*pair)

    async def until(self, is_so: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        """Wait until something holds.

        Raises:
            Violation: it does not in time.
        """
        deadline_s = self.world.now_s + seconds
        while not is_so():
            if self.world.now_s > deadline_s:
                raise Violation("progress", f"after {seconds:g} s it is not so that {what}: {self._describe()}")
            await asyncio.sleep(LOOK_S)

    async def settle(self) -> None:
        """Wait until all replicas are in sync and agree."""
        for host in self.cluster.hosts.values():
            self.cluster.start(host)
        await self.until(self.checks.is_settled, "all replicas agree")

    def _describe(self) -> str:
        found = []
        for broker_id in self.cluster.hosts:
            log = self.log(broker_id)
            ends = (log.log_start_offset, log.high_watermark, log.log_end_offset) if log is not None else None
            found.append(f"{broker_id}: {ends}")
        return f"{self.checks.states.get(KEY)}; start, high watermark and end by broker: {', '.join(found)}"
