"""A broker that coordinates transactions and groups, and leads the partitions that they are about."""

import asyncio
import itertools
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from pylog.broker.data.acks import Acknowledgements
from pylog.broker.data.partitions import Moved, Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.produce import ProduceHandler
from pylog.broker.groups.coordinator import CoordinatorConfig, GroupCoordinator
from pylog.broker.handler import Caller
from pylog.broker.settings import parse_broker_settings, typed
from pylog.broker.transactions.coordinator import TransactionCoordinator, TransactionSettings
from pylog.broker.transactions.ends import TransactionEnds
from pylog.broker.transactions.handlers import TRANSACTION_APIS
from pylog.broker.transactions.markers import MarkerSender
from pylog.broker.transactions.verifying import Verifier
from pylog.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode
from pylog.group.records import TOPIC as OFFSETS_TOPIC
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.metrics import Metrics
from pylog.model import Key, NodeAddress
from pylog.security.principal import Session
from pylog.transaction.records import TOPIC as STATE_TOPIC
from pylog.wire import records
from pylog.wire.api.message import Message, Request
from pylog.wire.primitives import write_unsigned_varint
from pylog.wire.records import CONTROL, TRANSACTIONAL, Record
from tests.unit.log.batches import content

ADDRESS = NodeAddress(1, "h1", 9092)
EPOCHS = {1: 7, 2: 8}
IDS = {STATE_TOPIC: UUID(int=5), OFFSETS_TOPIC: UUID(int=6), "t": UUID(int=7)}
VERSION = 7
EPOCH_EACH_VERSION = 12


class Node:
    """See the module.  Every topic has two partitions, and broker 1, which this is, as its only replica at first.

    Attributes:
        now_ms: the steady clock, and that on the wall while nobody sets it.
        set_ahead_ms: how far somebody has set the one on the wall ahead.
        leaders: the broker that leads all partitions of a topic, and its leader epoch.
        topic_ids: of the topics that exist.
        has_ids: whether the controller gives producer ids.
        most_bytes: that a batch of a coordinator's topic may have, by that topic's settings.
    """

    def __init__(self, directory: Path, level: int = 4) -> None:
        settings = parse_broker_settings({"transactional.id.expiration.ms": "3600000"})
        self.now_ms, self.version, self.level = 1_000_000, 0, level
        self.set_ahead_ms = 0
        self.leaders: dict[str, tuple[int, int]] = dict.fromkeys(IDS, (1, 1))
        self.topic_ids = dict(IDS)
        self.isr: tuple[int, ...] = (1,)
        self.has_ids = True
        self.most_bytes = 1_048_588
        self.partitions = Partitions(LogDirectory.open(directory, broker_id=1), 1, settings)
        self.partitions.registered_epoch = lambda: EPOCHS[1]
        self.partitions.now_ms = lambda: self.now_ms
        self.acknowledgements = acknowledgements = Acknowledgements(lambda: self.now_ms)
        self.partitions.subscribe(acknowledgements.moved, Moved.HIGH_WATERMARK, Moved.LEADER)
        metrics, keys = Metrics(), PeerKeys(b"secret")
        clocks: Any = {"wall_ms": lambda: self.now_ms + self.set_ahead_ms, "acknowledgements": acknowledgements}
        config = typed(CoordinatorConfig, settings)
        self.groups = GroupCoordinator(self.partitions, config, metrics, now_ms=lambda: self.now_ms, **clocks)
        ends = TransactionEnds(self.partitions, self.groups, acknowledgements, lambda: self.now_ms)
        self.ends = ends
        self.markers = MarkerSender(1, keys, self.partitions, ends, metrics)
        producer_ids = itertools.count(4_000)

        async def fill() -> None:
            if not self.has_ids:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no controller")

        self.transactions = TransactionCoordinator(
            self.partitions,
            typed(TransactionSettings, settings),
            metrics,
            fill_ids=fill,
            new_producer_id=lambda: next(producer_ids) if self.has_ids else None,
            markers=self.markers,
            steady_ms=lambda: self.now_ms,
            **clocks,
        )
        self.verifier = Verifier(1, keys, self.partitions, self.transactions)
        self.produce = ProduceHandler(
            self.partitions, metrics, now_ms=lambda: self.now_ms, acknowledgements=acknowledgements
        )
        self.produce.verifier = self.verifier
        self.cluster: Any = self

    # -- images ----------------------------------------------------------------------------------------------------

    def image(self) -> ClusterImage:
        topics = {}
        for name, topic_id in self.topic_ids.items():
            leader, epoch = self.leaders[name]
            isr = self.isr if leader in self.isr else (leader, *self.isr)
            state = PartitionImage(leader, epoch, isr, (1, 2), self.version)
            configs = {"min.insync.replicas": "1"}
            if name in (STATE_TOPIC, OFFSETS_TOPIC):
                configs["max.message.bytes"] = str(self.most_bytes)
            topics[name] = TopicImage(name, topic_id, {0: state, 1: state}, configs)
        brokers = {one: BrokerInfo(one, epoch, None, ADDRESS, ADDRESS) for one, epoch in EPOCHS.items()}
        return ClusterImage(1, self.version, "c", 2, brokers, topics, level=self.level)

    async def apply(self) -> None:
        """Apply the next image, and let what follows from it happen."""
        self.version += 1
        image = self.image()
        gone = self.partitions.retire(image)
        changed = gone + self.partitions.switch(image, self.partitions.prepare(image))
        self.groups.image_applied(changed)
        self.transactions.image_applied(changed)
        await asyncio.gather(*self.groups._tasks._running, *self.transactions._tasks._running)
        await self.settle()

    async def lead_again(self, *topics: str) -> None:
        """Let the other broker lead *topics* for a moment, which writes nothing."""
        for leader in (2, 1):
            for topic in topics:
                self.leaders[topic] = (leader, self.leaders[topic][1] + 1)
            await self.apply()

    def fetched(self, key: Key) -> None:
        """Let broker 2 fetch a partition to its end."""
        partition = self.partitions.get(*key)
        assert partition is not None
        assert partition.leading is not None
        end = self.log(key).log_end_offset
        partition.leading.fetched(2, EPOCHS[2], end, end, self.now_ms)
        self.partitions.advance(partition)

    async def settle(self) -> None:
        """Let everything happen that waits for no time."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        for part in (self.groups, self.transactions, self.markers):
            await part.stop()
        await self.produce.close()

    # -- requests --------------------------------------------------------------------------------------------------

    async def ask(self, request: Request, version: int = 3) -> Any:
        """Return the answer to a request, an error also as the answer that a client gets."""
        _, handler = TRANSACTION_APIS[request.api_key]
        caller = Caller("c", Session(client_host="h", listener_name="client"), version)
        try:
            answer = handler(self.cluster, request, caller)
            return answer if isinstance(answer, Message) else await answer
        except ApiError as error:
            return request.error_response(error.code, str(error))

    async def send(
        self,
        transactional_id: str | None,
        producer: tuple[int, int],
        sequence: int = 0,
        *,
        partition: int = 0,
        acks: int = -1,
        attributes: int = TRANSACTIONAL,
        version: int = VERSION,
    ) -> ErrorCode:
        """Produce one record by version 7 or 12; return the error of the answer."""
        replies: list[Any] = []
        slot = SimpleNamespace(read_ns=0, complete=replies.extend)
        connection: Any = SlottedConnection(slot)
        header: Any = SimpleNamespace(api_version=version, correlation_id=1, body_offset=0)
        row = [Record(0, self.now_ms, b"k", b"v")]
        fields: Mapping[str, Any] = {"producer_id": producer[0], "producer_epoch": producer[1]}
        batch = records.encode_batch(row, attributes=attributes, base_sequence=sequence, **fields)
        name = b"" if transactional_id is None else transactional_id.encode()
        if version == EPOCH_EACH_VERSION:
            size = bytearray()
            write_unsigned_varint(size, len(batch) + 1)
            body = bytes([0 if transactional_id is None else len(name) + 1]) + name
            body += struct.pack(">hi", acks, 1_000) + b"\2\2t\2" + struct.pack(">i", partition)
            body += size + batch + b"\0\0\0"
            error_at = 4 + 4 + 1 + 1 + 2 + 1 + 4
        else:
            body = struct.pack(">h", -1 if transactional_id is None else len(name)) + name
            body += struct.pack(">hiih", acks, 1_000, 1, 1) + b"t" + struct.pack(">iii", 1, partition, len(batch))
            body += batch
            error_at = 4 + 4 + 4 + 2 + 1 + 4 + 4
        replies += self.produce.handle(connection, header, memoryview(bytearray(body))) or []
        await self.settle()
        async with asyncio.timeout(60):
            while not replies:  # the coordinator lets it wait for the end of the transaction before
                await asyncio.sleep(0.001)
        [reply] = replies
        return ErrorCode(struct.unpack_from(">h", reply, error_at)[0])

    # -- what is there ---------------------------------------------------------------------------------------------

    def log(self, key: Key) -> Log:
        found = self.partitions.get(*key)
        assert found is not None
        assert found.log is not None
        return found.log

    def history(self, key: Key) -> Sequence[str]:
        """Return what the log of a partition has: `data`, `commit` or `abort` of each batch."""
        log = self.log(key)
        part = log.read(log.log_start_offset, 1 << 20, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        if part is None:
            return []
        data = memoryview(content(part))
        found = []
        for position, header in records.iter_batches(data):
            if not header.attributes & CONTROL:
                found.append("data")
                continue
            [row] = records.decode_records(data, header, position)
            found.append("commit" if row.key == b"\0\0\0\1" else "abort")
        return found

    def committed(self, group_id: str) -> Mapping[Key, int]:
        return {key: one.offset for key, one in self.groups.offsets(group_id).items()}


class SlottedConnection:
    """A connection whose replies all come into one slot."""

    def __init__(self, slot: object) -> None:
        self.answered: list[object] = []
        self.peer = "p"
        self._slot = slot

    def open_slot(self) -> object:
        return self._slot

    def close(self, reason: str) -> None:
        raise AssertionError(reason)
