"""What operators of the simulated cluster do to topics while everything else goes on.

Each run draws which of these an operator likes.  An operator asks for one thing after the other, and ends what was
begun: a topic that was deleted is made again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pylog.errors import ErrorCode
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
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from pylog.wire.api.topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.sim import clients, groups
from tests.sim.checks import Checks
from tests.sim.clients import Client, Unanswered

HASTES_S = ((0.1, 2.5), (0.02, 0.6))
"""Between two things that an operator does; each run has its own pace."""

NEAR_END_SHARE = 0.5
"""How often records are deleted up to the high watermark, and not up to some offset before it."""


MAX_PARTITIONS = 4

THROTTLES = ("20000", "200000")
"""Bytes a second for replicas that are not in sync."""

CONFIGS: Mapping[str, tuple[str, ...]] = {
    "min.insync.replicas": ("1", "2"),
    "segment.bytes": ("1024", "4096", "16384"),
    "segment.ms": ("500", "3000", "60000"),
    "index.interval.bytes": ("0", "256", "4096"),
    "flush.messages": ("1", "5"),
    "retention.bytes": ("2048", "8192"),
    "retention.ms": ("1000", "4000"),
    "leader.replication.throttled.replicas": ("*",),
    "follower.replication.throttled.replicas": ("*",),
}
"""What an operator changes, and to which values; nothing that changes the bytes of a batch: they tell
whose it is."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What there is to operate.

    Attributes:
        topic: name of the topic that producers write to.
        keys: its partitions; everybody who works with them has this very list, to which new ones are appended.
        replicas: of each partition.
        configs: with which it is made, and made again.
        broker_ids: that partitions may be moved to; empty if nothing is moved.
        is_calm: nothing is done to the topic but moves and elections.
        is_unfinished: formats of the level before are written until an operator finalizes this one.
        on_grown: called with a partition that is new.
        finalize: asks a broker, on its host, to finalize; returns whether it did.
    """

    topic: str
    keys: list[TopicPartition]
    replicas: int
    configs: Mapping[str, str]
    broker_ids: list[int]
    is_calm: bool = False
    is_unfinished: bool = False
    on_grown: Callable[[TopicPartition], None] = lambda key: None
    finalize: Callable[[], Awaitable[bool]]


class Operator:
    """See the module."""

    def __init__(self, client: Client, checks: Checks, plan: Plan) -> None:
        self._client = client
        self._world = client.world
        self._checks = checks
        self._plan = plan
        self._before: dict[TopicPartition, list[int]] = {}
        chance = self._world.random
        likes = partial(chance.choice, (0,) if plan.is_calm else (0, 1, 1))
        loves = partial(chance.choice, (0,) if plan.is_calm else (0, 0, 1))
        actions: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (2, self._elect_preferred),
            (3 if plan.broker_ids else 0, self._move),
            (2 * likes(), self._trim),
            (1 * loves(), self._remake),
            (0.5 * likes(), self._grow),
            (1 * loves(), self._configure),
            (0.5 * loves(), self._throttle),
            (0.5 * loves(), self._delete_group),
            (2 * plan.is_unfinished, self._finalize),
        ]
        self._actions = [action for _, action in actions]
        self._weights = [weight for weight, _ in actions]

    async def operate(self, may_go_on: Callable[[], bool]) -> None:
        """Do one thing after the other until told to stop."""
        chance = self._world.random
        rest_s = chance.choice(HASTES_S)
        while may_go_on():
            await asyncio.sleep(chance.uniform(*rest_s))
            (action,) = chance.choices(self._actions, self._weights)
            try:
                await action()
            except Unanswered:
                await self._client.pause()

    def _some_key(self) -> TopicPartition:
        return self._world.random.choice(self._plan.keys)

    async def _elect_preferred(self) -> None:
        """Give preferred leaders back."""
        wish = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=500)
        self._world.happened("preferred election")
        await self._client.call(self._client.some_broker(), wish, ElectLeadersResponse)

    async def _move(self) -> None:
        """Move a partition to other brokers; now and then call the move off, or send the partition back."""
        chance, client, key = self._world.random, self._client, self._some_key()
        wanted: list[int] | None = chance.sample(self._plan.broker_ids, 3)
        if await clients.move(client, client.some_broker(), key, wanted):
            self._world.happened("move")
            if chance.random() < 0.5:
                # Perhaps before it has gone.
                await asyncio.sleep(chance.uniform(0.0, 0.4))
                wanted = chance.choice((None, self._before.get(key, self._plan.broker_ids[:3])))
                if await clients.move(client, client.some_broker(), key, wanted) and wanted is None:
                    self._world.happened("move called off")
        if wanted is not None:
            self._before[key] = wanted

    async def _trim(self) -> None:
        """Delete records up to the high watermark, or up to one of the last offsets that were acknowledged."""
        chance, key = self._world.random, self._some_key()
        newest = self._checks.newest.get(key, 0)
        before = -1 if chance.random() < NEAR_END_SHARE else max(newest - chance.randint(0, 20), 0)
        if await clients.delete_records(self._client, self._checks, key, before) is ErrorCode.NONE:
            self._world.happened("trim")

    async def _grow(self) -> None:
        """Give the topic one partition more."""
        plan, number = self._plan, len(self._plan.keys)
        if number >= MAX_PARTITIONS:
            return
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=plan.topic, count=number + 1)], timeout_ms=500
        )
        is_done = False
        self._checks.is_growing = True
        while not is_done:
            try:
                broker_id = self._client.some_broker()
                (row,) = (await self._client.call(broker_id, request, CreatePartitionsResponse)).results
                # Refused where it has as many, since an answer was lost.
                is_done = row.error_code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
            except Unanswered:
                pass
            await self._client.pause()
        self._checks.is_growing = False
        self._world.happened("more partitions")
        plan.keys.append(TopicPartition(plan.topic, number))
        plan.on_grown(plan.keys[-1])

    async def _configure(self) -> None:
        """Set one of the topic's configurations to some value, or back to its default."""
        chance, plan = self._world.random, self._plan
        name = chance.choice(list(CONFIGS))
        value = chance.choice((None, *CONFIGS[name]))
        if value is not None and name.startswith("retention"):
            self._checks.expiring.add(plan.topic)
        if await self._set(ResourceType.TOPIC, plan.topic, name, value):
            self._world.happened("configuration changed")

    async def _throttle(self) -> None:
        """Limit what replicas out of sync get, which the topic has to name for that."""
        chance = self._world.random
        for side in ("leader", "follower"):
            await self._set(ResourceType.TOPIC, self._plan.topic, f"{side}.replication.throttled.replicas", "*")
            rate = chance.choice(THROTTLES)
            if await self._set(ResourceType.BROKER, "", f"{side}.replication.throttled.rate", rate):
                self._world.happened("throttle")

    async def _set(self, kind: ResourceType, resource_name: str, name: str, value: str | None) -> bool:
        """Set one configuration, or its default for None; return whether that was accepted."""
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        change = IncrementallyAlterableConfig(name=name, config_operation=operation, value=value)
        resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=resource_name, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await self._client.call(self._client.some_broker(), request, IncrementalAlterConfigsResponse)
        self._world.note("configure", resource_name, name, value, ErrorCode(answer.responses[0].error_code).name)
        return answer.responses[0].error_code == ErrorCode.NONE

    async def _delete_group(self) -> None:
        """Delete a group that has offsets and no members."""
        await groups.delete_group(self._client, self._checks, groups.READERS)

    async def _finalize(self) -> None:
        """Let the formats of this release be written, if all brokers are there."""
        if await self._plan.finalize():
            self._world.happened("formats finalized")
            self._weights[-1] = 0

    async def _remake(self) -> None:
        """Delete the topic and make it again under the same name, at once or a while later.

        By its id: a repetition that a broker still carries about must not delete what was made since.
        """
        chance, client, plan = self._world.random, self._client, self._plan
        topic_id, is_gone = None, False
        while not is_gone:
            with contextlib.suppress(Unanswered):
                topic_id = topic_id or await client.topic_id(plan.topic)
                topic = DeleteTopicState(name=None, topic_id=topic_id)
                request = DeleteTopicsRequest(topics=[topic], timeout_ms=500)
                (row,) = (await client.call(client.some_broker(), request, DeleteTopicsResponse)).responses
                is_gone = row.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)
            await client.pause()
        self._world.happened("topic deleted")
        await asyncio.sleep(chance.choice((0.0, 0.0, chance.uniform(0.0, 1.0))))
        await clients.create_topics(client, {plan.topic: (len(plan.keys), plan.replicas, plan.configs)})
        self._world.happened("topic made again")
