"""What must hold after every step, whatever happened.

- An acknowledged record (acks=all), and whatever a consumer was served, is in the log of every member of the committed
  ISR whose disk has lost nothing: so it survives every election.
- Where two logs have the same offset of the same leader epoch, they have the same batch, after the same one.
- Replicas of a compacted topic agree on the last record of each key, and on every record that two of them have.
- At most one broker leads, and at most one acknowledges, in a leader epoch of a partition.
- The store: the ISR is never empty; leaders come from the ISR; leader epochs, controller epochs and versions only grow;
  nothing is written by a controller whose epoch is over; the ISR has nobody whom a leader of that epoch does not count.
- A leader does not let the same replica in and out again without end.
- A move ends with all its new replicas in sync, a move that is called off with those of before.
- A high watermark never moves back, but where the log is cut by a new leader's epoch.
- A topic that is deleted and made again is another one: what holds for one incarnation is not asked of the next, no
  record of a deleted one comes back, and what a leader of the deleted one acknowledged or served is not expected in the
  next.  A log begins later only where somebody asked for it, and where that was answered, every member of the ISR does.
- Retention deletes segments that are old enough, or so many bytes that enough are left (`tests.sim.retention`).
- Offsets that a group was told are committed do not go back; nothing is committed under a generation after a later one
  was handed out; a partition has one owner in a generation.
- An idempotent producer's records are there once, in order; nobody refuses it for good.
"""

import contextlib
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from pylog.broker.data.partitions import Partition
from pylog.cluster import znodes
from pylog.cluster.image import Move, PartitionImage
from pylog.cluster.znodes import Assignment
from pylog.errors import ErrorCode
from pylog.group.records import TOPIC as GROUPS_TOPIC
from pylog.log.log import Log
from pylog.model import INTERNAL_TOPICS, NO_LEADER, TRANSACTIONS_TOPIC, TopicPartition
from pylog.replica.leader import TOUCH_MS, Leader
from pylog.store.nodes import Node, NodeTree, Plan
from pylog.wire.records import Record, decode_records, iter_batches
from tests.sim import retention
from tests.sim.clients import TIMEOUT_S
from tests.sim.cluster import SESSION_TIMEOUT_S, Cluster, Host
from tests.sim.disk import read_file
from tests.sim.world import Process, Violation

STALE_S = TOUCH_MS / 1000 + TIMEOUT_S
"""How long after a change of leader a client may get an answer of the former one."""

MEMBERS_S = SESSION_TIMEOUT_S
"""For so long a controller may not know of a broker that registered, or that is gone."""

CHANGE_COUNT, CHANGES_S = 12, 2.0
"""A leader that changes who is in sync more often in so many seconds goes round in circles."""

Batch = tuple[int, int, int, int]
"""Base offset, last offset, leader epoch, CRC."""


@dataclass(slots=True)
class _Copy:
    """One replica's log, as far as it was read."""

    truncations: int
    end_offset: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)  # by base offset
    segment_base: int = -1
    position: int = 0
    verified: int = 0  # how many of the partition's promises were found in it
    last: tuple[int, int] | None = None  # offset and leader epoch at its end


NOBODY = PartitionImage(NO_LEADER, -1, (), (), -1)
"""State of a partition whose topic is deleted at the moment."""


class _States(dict[TopicPartition, PartitionImage]):
    """States of partitions as the store has them; `NOBODY` for one that does not exist."""

    def __missing__(self, key: TopicPartition) -> PartitionImage:
        return NOBODY


class Checks:
    """Remembers what was promised, and compares.

    Attributes:
        values: of acknowledged records, by partition and offset.
        counts: how many were acknowledged, served, committed; what a run is worth.
        on_moved: called with a partition whose move has just been written as done.
        newest: highest base offset of what was acknowledged or served, by partition.
        ids: of the present incarnations of topics.
        topics: that there must be at the end.
        is_growing: a topic is to have more partitions, and has not yet.
        expiring: those of which retention deletes records.
        compacted: those of which only the last record of each key stays.
        unclean: those that may be led by a replica that was not in sync, or that lost what it had not synced while
            others are away, and lose records then.
        kept: offset and value of the last acknowledged record of each key of the compacted ones.
    """

    def __init__(self, cluster: Cluster, replicas: int = 3) -> None:
        """Watch *cluster*, whose partitions have that many replicas but while they move."""
        self._cluster = cluster
        self._replica_count: int | None = replicas
        self.values: dict[TopicPartition, dict[int, bytes]] = {}
        self.counts = dict.fromkeys(
            ("acknowledged", "served", "committed", "elections", "generations", "moves", "of_deleted", "transfers"), 0
        )
        self.topics: list[str] = []
        self.is_growing = False
        self.expiring: set[str] = set()
        self.compacted = {GROUPS_TOPIC, TRANSACTIONS_TOPIC}
        self.unclean: set[str] = set()
        self.kept: dict[TopicPartition, dict[bytes, tuple[int, bytes | None]]] = {}
        self._deletions: Counter[str] = Counter()  # of groups, that were asked for
        self._deleting: Counter[str] = Counter()  # and not answered
        self._half_deleted: set[str] = set()  # the answer leaves open whether the next coordinator still has them
        self.on_moved: Callable[[TopicPartition, Move], None] = lambda key, move: None
        self.states = _States()
        self.newest: dict[TopicPartition, int] = {}
        self.ids: dict[str, UUID] = {}
        self._trimmed: dict[TopicPartition, float] = {}
        self._deleted: dict[TopicPartition, int] = {}  # before these, as was answered
        self._trims: dict[TopicPartition, list[float]] = {}  # asked for and not answered; they outlive incarnations
        self._placed: dict[TopicPartition, set[tuple[int, int]]] = {}  # base offset and CRC of each batch in some log
        self._changes_s: dict[TopicPartition, deque[float]] = {}  # when in-sync replicas changed last, under one leader
        self._registered_s: dict[int, float] = {}  # since when a broker is
        self._deposed_s: dict[tuple[TopicPartition, int], float] = {}  # when a broker led last
        self._buried: dict[TopicPartition, set[int]] = {}  # CRCs of the batches of earlier incarnations
        self._replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self._moving: dict[str, dict[int, Move]] = {}
        self._highest_controller_epoch = 0
        self._promised: dict[TopicPartition, dict[int, Batch | None]] = {}
        self._promises: dict[TopicPartition, list[int]] = {}  # their base offsets, as they came
        self._unseen: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._by_epoch: dict[tuple[TopicPartition, int, int], int] = {}
        self._before: dict[tuple[TopicPartition, int, int], tuple[int, int]] = {}
        self._acknowledgers: dict[tuple[TopicPartition, int], int] = {}
        self._copies: dict[Log, _Copy] = {}
        self._marks: dict[Log, tuple[int, int]] = {}
        # By broker; empty when what must hold has changed, and every log is to be looked at.
        self._signatures: dict[int, dict[TopicPartition, tuple[object, ...]]] = {}
        self._commits: dict[tuple[str, TopicPartition], tuple[int, int]] = {}  # generation and offset
        self._confirmed: dict[tuple[str, TopicPartition], set[int]] = {}  # offsets said to be safe in this incarnation
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._generations: dict[str, int] = {}
        self._doubtful: dict[tuple[str, TopicPartition], set[int]] = {}
        cluster.on_tree(self._watch)
        retention.watch(lambda: cluster.world.true_ms)

    # -- what clients were told ---------------------------------------------------------------------------------------

    def acknowledged(
        self,
        key: TopicPartition,
        broker_id: int,
        base_offset: int,
        values: list[bytes],
        *,
        is_first: bool,
        crc: int | None = None,
    ) -> None:
        """See `tests.sim.clients.Witness`."""
        if crc is not None and not self._is_present(key, base_offset, crc, "acknowledged"):
            return
        if key.topic in self.unclean and self.states[key].leader != broker_id:
            return
        self.counts["acknowledged"] += len(values)
        known = self.values.setdefault(key, {})
        for number, value in enumerate(values):
            offset = base_offset + number
            if known.setdefault(offset, value) != value:
                detail = f"{key} {offset} was acknowledged as {known[offset]!r}, now as {value!r}"
                raise Violation("one record an offset", detail)
        if base_offset not in self._promised.setdefault(key, {}):
            self._promise(key, base_offset, None)
        if is_first:
            self._unseen.setdefault(key, []).append((base_offset, broker_id))

    def refused_for_good(self, key: TopicPartition, broker_id: int, error: ErrorCode) -> bool:
        """See `tests.sim.clients.Witness`."""
        if self.states[key].leader != broker_id or self.known_incarnation(key.topic, broker_id) is None:
            return True  # a deposed leader that does not know it yet lacks what its successor has
        if key.topic in self.unclean:
            return False
        raise Violation("idempotence", f"{key}: a producer that lost nothing is told {error.name}")

    def served(self, key: TopicPartition, broker_id: int, high_watermark: int, records: bytes) -> None:
        """See `tests.sim.clients.Witness`."""
        promised = self._promised.setdefault(key, {})
        for _, header in iter_batches(records):
            batch = (header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc)
            if header.last_offset >= high_watermark:
                raise Violation("high watermark", f"{key}: {batch} served above {high_watermark}")
            if not self._is_present(key, header.base_offset, header.crc, "served"):
                continue
            if key.topic in self.unclean and self.states[key].leader != broker_id:
                continue
            self.counts["served"] += header.record_count
            known = promised.get(header.base_offset)
            if known is None:
                self._promise(key, header.base_offset, batch)
            elif known != batch:
                raise Violation("served records stay", f"{key}: {known} was served before, now {batch}")

    def _is_present(self, key: TopicPartition, base_offset: int, crc: int, what: str) -> bool:
        """Return whether a batch is one of the present incarnation and of no other, which a client cannot tell.

        Raises:
            Violation: it is in no log of any.
        """
        is_buried = crc in self._buried.get(key, ())
        if (base_offset, crc) in self._placed.get(key, ()):
            return not is_buried
        if not is_buried:
            raise Violation("only what was written", f"{key}: offset {base_offset}, CRC {crc:#x} was {what}")
        self.counts["of_deleted"] += 1
        return False

    def known_incarnation(self, topic: str, broker_id: int) -> UUID | None:
        """Return the id of the present incarnation if a broker knows that one, else None."""
        broker = self._cluster.hosts[broker_id].broker
        known = broker.partitions.image.topics.get(topic) if broker is not None else None
        return known.topic_id if known is not None and known.topic_id == self.ids.get(topic) else None

    def kept_value(self, key: TopicPartition, record_key: bytes, offset: int, value: bytes | None) -> None:
        """See `tests.sim.clients.Witness`."""
        kept = self.kept.setdefault(key, {})
        kept[record_key] = max(kept.get(record_key, (-1, None)), (offset, value), key=lambda one: one[0])

    def deletions(self, group_id: str) -> int | None:
        """See `tests.sim.clients.Witness`."""
        is_unknown = self._deleting[group_id] or group_id in self._half_deleted
        return None if is_unknown else self._deletions[group_id]

    def deleting(self, group_id: str) -> None:
        """See `tests.sim.clients.Witness`."""
        self._deleting[group_id] += 1
        self._deletions[group_id] += 1
        self._commits = {place: one for place, one in self._commits.items() if place[0] != group_id}

    def deleted(self, group_id: str, error: ErrorCode) -> None:
        """See `tests.sim.clients.Witness`."""
        self._deleting[group_id] -= 1
        if error is ErrorCode.NONE:
            self._half_deleted.discard(group_id)  # what earlier ones wrote lies before this one, or is lost
        elif error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
            self._half_deleted.add(group_id)

    def in_doubt(self, group_id: str, key: TopicPartition, offset: int) -> None:
        """See `tests.sim.clients.Witness`."""
        self._doubtful.setdefault((group_id, key), set()).add(offset)

    def newest_generation(self, group_id: str) -> int:
        """See `tests.sim.clients.Witness`."""
        return self._generations.get(group_id, -1)

    def assigned(self, group_id: str, generation: int, member_id: str, keys: Iterable[TopicPartition]) -> None:
        """See `tests.sim.clients.Witness`."""
        if generation > self.newest_generation(group_id):
            self._generations[group_id] = generation
            self.counts["generations"] += 1
        for key in keys:
            known = self._owners.setdefault((group_id, generation, key), member_id)
            if known != member_id:
                detail = f"{group_id} generation {generation}: {key} is of {known} and of {member_id}"
                raise Violation("one owner a generation", detail)

    def committed(
        self,
        group_id: str,
        key: TopicPartition,
        offset: int,
        incarnation: UUID | None,
        deletions: int | None,
        generation: int = -1,
        newest_generation: int = -1,
    ) -> None:
        """See `tests.sim.clients.Witness`."""
        self.counts["committed"] += 1
        if generation < newest_generation:
            detail = f"{group_id} {key}: committed in generation {generation} after {newest_generation} was handed out"
            raise Violation("stale generations", detail)
        if incarnation is None or incarnation != self.ids.get(key.topic):
            return  # committed for one that is deleted: it may be kept for as long as the coordinator knows no other
        if deletions is None or deletions != self.deletions(group_id):
            return  # it may have been deleted since, with its group
        self._doubtful.setdefault((group_id, key), set()).discard(offset)
        self._confirmed.setdefault((group_id, key), set()).add(offset)
        self._commits[group_id, key] = max(self._commits.get((group_id, key), (-1, -1)), (generation, offset))

    def committed_offset(self, group_id: str, key: TopicPartition) -> int:
        """See `tests.sim.clients.Witness`."""
        return self._commits.get((group_id, key), (-1, -1))[1]

    def fetched_offset(
        self,
        group_id: str,
        key: TopicPartition,
        broker_id: int,
        offset: int,
        least: int,
        incarnation: UUID | None,
        deletions: int | None,
    ) -> None:
        """See `tests.sim.clients.Witness`."""
        state = self.states.get(TopicPartition(GROUPS_TOPIC, 0))
        if state is None or state.leader != broker_id:
            deposed_s = self._deposed_s.get((TopicPartition(GROUPS_TOPIC, 0), broker_id))
            if deposed_s is None or self._cluster.world.now_s - deposed_s <= STALE_S:
                return  # a deposed coordinator may tell for a while what held once
        if incarnation is None or incarnation != self.known_incarnation(key.topic, broker_id):
            return  # and so may one that has not heard that the topic was deleted
        if deletions is None or deletions != self.deletions(group_id):
            return
        least = min(least, self.committed_offset(group_id, key))  # fewer if the topic was made again meanwhile
        if offset < least and offset not in self._doubtful.get((group_id, key), ()):
            raise Violation("committed offsets", f"{group_id} {key}: {least} was committed, {offset} is told")
        place = (group_id, key)
        if offset >= 0 and offset not in self._doubtful.get(place, ()) and offset not in self._confirmed.get(place, ()):
            raise Violation(
                "committed offsets", f"{group_id} {key}: {offset} is told, committed for another incarnation"
            )
        generation, known = self._commits.get((group_id, key), (-1, -1))
        self._commits[group_id, key] = (generation, max(known, offset))

    def _promise(self, key: TopicPartition, base_offset: int, batch: Batch | None) -> None:
        self._promised[key][base_offset] = batch
        self._promises.setdefault(key, []).append(base_offset)
        self.newest[key] = max(base_offset, self.newest.get(key, -1))
        self._signatures.clear()

    # -- what clients asked to be taken away ---------------------------------------------------------------------------

    def may_trim(self, key: TopicPartition, before: int) -> None:
        """Let the log begin as late as *before*, with -1 anywhere: somebody asks for that, and may be heard later."""
        self._trims.setdefault(key, []).append(before if before >= 0 else math.inf)

    def trimmed(self, key: TopicPartition, before: int, start: int, incarnation: UUID | None) -> None:
        """Note that what `may_trim` was told of was done, and the log began at *start* then; -1 if it was refused."""
        self._trims[key].remove(before if before >= 0 else math.inf)
        self._trimmed[key] = max(self._trimmed.get(key, 0), start, before)
        if incarnation is not None and incarnation == self.ids.get(key.topic) and key.topic not in self.unclean:
            self._deleted[key] = max(self._deleted.get(key, 0), start)
            self._signatures.clear()

    def forget_promises(self, key: TopicPartition) -> None:
        """Hold nobody to what was promised of *key*: all its replicas have lost what they had not synced."""
        for by_key in (self.values, self.newest, self._promised, self._promises, self._unseen):
            by_key.pop(key, None)
        for copy in self._copies.values():
            copy.verified = 0
        self._acknowledgers = {place: one for place, one in self._acknowledgers.items() if place[0] != key}

    def forget_deletions(self, key: TopicPartition) -> None:
        """Hold nobody to what was deleted of *key*: somebody has taken from the disks where its log begins."""
        self._deleted.pop(key, None)

    def _forget_incarnation(self, topic: str) -> None:
        """Expect nothing of a topic's next incarnation that held for this one, but that it is another."""
        self.ids.pop(topic, None)
        self._moving.pop(topic, None)
        for key in [key for key in self._replicas if key.topic == topic]:
            self.forget_promises(key)
            buried = self._buried.setdefault(key, set())
            buried |= {crc for (one, offset, _), crc in self._by_epoch.items() if one == key and offset >= 0}
            for by_key in (self.states, self._replicas, self._trimmed, self._deleted, self._placed):
                by_key.pop(key, None)
            for host in self._cluster.hosts.values():
                host.damaged.discard(key)
        self._by_epoch = {place: one for place, one in self._by_epoch.items() if place[0].topic != topic}
        self._before = {place: one for place, one in self._before.items() if place[0].topic != topic}
        self._commits = {place: one for place, one in self._commits.items() if place[1].topic != topic}
        self._confirmed = {place: one for place, one in self._confirmed.items() if place[1].topic != topic}
        self._signatures.clear()

    # -- the store ----------------------------------------------------------------------------------------------------

    def _watch(self, tree: NodeTree) -> None:
        # A topic may be on the disk although its creation failed: the sync did, and the broker ended itself.
        for path, node in sorted(tree.nodes.items()):
            if path.startswith(znodes.topic_path("")) and path.count("/") == znodes.topic_path("").count("/"):
                self._written(path, node)
        adopt: Callable[[Plan], None] = tree.adopt

        def seen(plan: Plan) -> None:
            adopt(plan)
            try:
                for path, node in plan.changes.items():
                    if path.startswith(f"{znodes.BROKER_IDS}/"):
                        self._note_broker(int(path.rpartition("/")[2]), node)
                    elif node is not None:
                        self._written(path, node)
                    elif path.startswith(znodes.topic_path("")) and path.count("/") == znodes.topic_path("").count("/"):
                        self._forget_incarnation(path.rpartition("/")[2])
            except Violation as violation:  # who writes is a broker, which would take it for its own trouble
                self._cluster.world.fail(violation)

        tree.adopt = seen  # type: ignore[method-assign]

    def _note_broker(self, broker_id: int, node: Node | None) -> None:
        if node is None:
            self._registered_s.pop(broker_id, None)
        elif node.version == 0:
            self._registered_s[broker_id] = self._cluster.world.now_s

    def _written(self, path: str, node: Node) -> None:
        if path == znodes.CONTROLLER_EPOCH:
            epoch = znodes.decode_controller_epoch(node.data)
            if epoch < self._highest_controller_epoch:
                raise Violation("controller epochs grow", f"{epoch} after {self._highest_controller_epoch}")
            self._highest_controller_epoch = epoch
            return
        parts = path.split("/")
        if parts[1:3] != ["brokers", "topics"]:
            return
        if len(parts) == 4:
            self._assigned(parts[3], znodes.decode_assignment(node.data))
        if parts[-1] != "state":
            return
        key = TopicPartition(parts[3], int(parts[5]))
        raw = json.loads(node.data)
        state = znodes.decode_state(node.data, node.version, self._replicas[key])
        if raw["controller_epoch"] < self._highest_controller_epoch:
            detail = f"{key}: controller {raw['controller_epoch']} writes, {self._highest_controller_epoch} rules"
            raise Violation("fencing", detail)
        self._cluster.world.note("state", key, state.leader, state.leader_epoch, state.isr)
        before = self.states.get(key)
        self._compare(key, before, state)
        for host in self._cluster.hosts.values():
            if host.broker_id not in state.isr or state.isr == (host.broker_id,):
                host.damaged.discard(key)  # it has to fetch what it lost, or is the one that lost nothing
        if before is not None and before.leader != state.leader:
            self._deposed_s[key, before.leader] = self._cluster.world.now_s
        self.states[key] = state
        self._signatures.clear()

    def _assigned(self, topic: str, assignment: Assignment) -> None:
        if self.ids.get(topic) != assignment.topic_id:
            self._forget_incarnation(topic)
            self.ids[topic] = assignment.topic_id
        for number, move in self._moving.get(topic, {}).items():
            if number not in assignment.moves:
                self._arrived(TopicPartition(topic, number), move, assignment.replicas[number])
        self._moving[topic] = dict(assignment.moves)
        for number, replicas in assignment.replicas.items():
            self._replicas[TopicPartition(topic, number)] = replicas
            if number not in assignment.moves and self._replica_count not in (len(replicas), None):
                detail = f"{topic}-{number} does not move and has {replicas}, not {self._replica_count}"
                raise Violation("moves end where they go or began", detail)

    def expect_any_replica_count(self) -> None:
        """Let partitions have as many replicas as a story gives them."""
        self._replica_count = None

    def _arrived(self, key: TopicPartition, move: Move, replicas: tuple[int, ...]) -> None:
        """Look at a move that is over; the state that goes with it is written first."""
        before, state = self._replicas[key], self.states[key]
        is_done = set(replicas) == set(before) - set(move.removing)
        is_called_off = set(replicas) == set(before) - set(move.adding)
        if not is_done and not is_called_off:
            detail = f"{key}: {before} on the way by {move} became {replicas}"
            raise Violation("moves end where they go or began", detail)
        if is_done and not is_called_off and not set(replicas) <= set(state.isr):
            raise Violation("moves end in sync", f"{key}: {replicas} hold it, {state.isr} are in sync")
        self.counts["moves"] += 1
        if is_done:
            self.on_moved(key, move)

    def _compare(self, key: TopicPartition, before: PartitionImage | None, after: PartitionImage) -> None:
        if not after.isr:
            raise Violation("the ISR is never empty", f"{key}: {after}")
        if after.leader != NO_LEADER and after.leader not in after.isr:
            raise Violation("the leader is in sync", f"{key}: {after}")
        if before is None:
            return
        if after.leader not in (before.leader, NO_LEADER):
            self.counts["elections"] += 1
        if key.topic in self.unclean and self._may_lose(key, before, after):
            self._cluster.world.happened("unclean election")
            self.forget_promises(key)
            return
        if after.leader != NO_LEADER and after.leader not in before.isr:
            raise Violation("leaders come from the ISR", f"{key}: {before} -> {after}")
        is_same = after.leader == before.leader
        if after.leader_epoch < before.leader_epoch or (not is_same and after.leader_epoch == before.leader_epoch):
            raise Violation("leader epochs grow", f"{key}: {before} -> {after}")
        if after.leader_epoch != before.leader_epoch and not set(after.isr) <= set(before.isr):
            raise Violation("elections take nobody in", f"{key}: {before} -> {after}")
        self._count_change(key, before, after)
        leading = self._leading(key, after)
        if leading is not None:
            pending = () if leading.pending is None else (member for member, _ in leading.pending.isr)
            if not set(after.isr) <= leading.isr.union(pending):
                raise Violation("the leader counts who is in sync", f"{key}: {sorted(leading.isr)} -> {after}")

    def _may_lose(self, key: TopicPartition, before: PartitionImage, after: PartitionImage) -> bool:
        """Whether a topic that waits for nobody who is away got a leader that may lack what was promised."""
        if after.leader == NO_LEADER:
            return False
        if after.leader not in before.isr:
            return True
        if before.leader != NO_LEADER or key not in self._cluster.hosts[after.leader].damaged:
            return False
        return not all(self._is_there(key, member) for member in before.isr if member != after.leader)

    def _is_there(self, key: TopicPartition, broker_id: int) -> bool:
        """Whether a controller must have known of a broker, and the broker can say what it has of a partition."""
        registered_s, now_s = self._registered_s.get(broker_id, math.inf), self._cluster.world.now_s
        broker = self._cluster.hosts[broker_id].broker
        partition = broker.partitions.get(*key) if broker is not None else None
        is_readable = partition is not None and partition.log is not None and partition.log.offline is None
        return is_readable and now_s - registered_s >= MEMBERS_S

    def _count_change(self, key: TopicPartition, before: PartitionImage, after: PartitionImage) -> None:
        changes_s, now_s = self._changes_s.setdefault(key, deque(maxlen=CHANGE_COUNT)), self._cluster.world.now_s
        if after.leader_epoch != before.leader_epoch:
            changes_s.clear()
        elif set(after.isr) != set(before.isr):
            if len(changes_s) == CHANGE_COUNT and now_s - changes_s[0] < CHANGES_S:
                detail = (
                    f"{key}: {CHANGE_COUNT} changes in {now_s - changes_s[0]:.1f} s, now {before.isr} -> {after.isr}"
                )
                raise Violation("in-sync replicas come to rest", detail)
            changes_s.append(now_s)

    def _leading(self, key: TopicPartition, state: PartitionImage) -> Leader | None:
        """Return what the leader of a state's very epoch knows, if it leads already and still.

        A broker that has not heard that the topic was made again leads the deleted one, perhaps in an epoch of the
        same number: what that one counts says nothing of the new one.
        """
        host = self._cluster.hosts.get(state.leader)
        partition = host.broker.partitions.get(*key) if host is not None and host.broker is not None else None
        is_present = partition is not None and partition.topic_id == self.ids.get(key.topic)
        leading = partition.leading if partition is not None and is_present else None
        return leading if leading is not None and leading.leader_epoch == state.leader_epoch else None

    # -- the logs -----------------------------------------------------------------------------------------------------

    def look(self, process: Process | None) -> None:
        """Compare what changed in a step of *process*, or everywhere if what must hold has changed."""
        if not self._signatures:
            for host in self._cluster.hosts.values():
                self._look_at_host(host)
            self._signatures[0] = {}
        elif process is not None and process.is_broker:
            for host in self._cluster.hosts.values():
                if host.process is process:
                    self._look_at_host(host)

    def _look_at_host(self, host: Host) -> None:
        if host.broker is None:
            return
        signatures = self._signatures.setdefault(host.broker_id, {})
        for partition in host.broker.partitions:
            log = partition.log
            if log is None or log.offline is not None:
                continue
            signature = (
                log, log.log_end_offset, log.high_watermark, log.log_start_offset, log.truncation_count,
                partition.leading,
            )  # fmt: skip
            if signatures.get(partition.key) != signature:
                signatures[partition.key] = signature
                if partition.topic_id == self.ids.get(partition.key.topic):
                    self._look_at(host, partition, log)
                else:
                    self._bury(partition, log)

    def _look_at(self, host: Host, partition: Partition, log: Log) -> None:
        key = partition.key
        leading = partition.leading
        if leading is not None:
            self._leads(key, leading.leader_epoch, host.broker_id)
        self._check_mark(host, key, log)
        if key.topic in self.compacted and key.topic not in INTERNAL_TOPICS:
            return  # its batches change; what must be in them is looked for at the end
        copy = self._read(host, partition, log)
        state = self.states.get(key)
        if state is None or host.broker_id not in state.isr:
            return
        deleted = self._deleted.get(key, 0)
        if log.log_start_offset < deleted:
            detail = (
                f"{key} at {host.broker_id}, in the ISR {state.isr}, begins at {log.log_start_offset}; "
                f"a deletion of all before {deleted} was answered"
            )
            raise Violation("deleted records stay deleted", detail)
        if key in host.damaged:
            return
        trimmed = max(self._trimmed.get(key, 0), *self._trims.get(key, ()), 0)
        if log.log_start_offset > trimmed and key.topic not in self.expiring:
            detail = f"{key} at {host.broker_id} begins at {log.log_start_offset}, nobody asked for more than {trimmed}"
            raise Violation("logs begin where they were trimmed", detail)
        promised, promises = self._promised.get(key, {}), self._promises.get(key, [])
        for offset in promises[copy.verified :]:
            found, batch = copy.batches.get(offset), promised[offset]
            if offset >= log.log_start_offset and (found is None or (batch is not None and found != batch)):
                wanted = batch or self.values[key].get(offset)
                raise Violation(
                    "promised records survive",
                    f"{key}: broker {host.broker_id}, in the ISR {state.isr} of epoch {state.leader_epoch}, "
                    f"has {found} at {offset}, not {wanted!r}; its log ends at {log.log_end_offset}",
                )
            if batch is None:
                promised[offset] = found
        copy.verified = len(promises)
        self._check_acknowledgers(key, copy)

    def _bury(self, partition: Partition, log: Log) -> None:
        """Note what a broker that has not heard of it has of an incarnation that was deleted."""
        buried = self._buried.setdefault(partition.key, set())
        with contextlib.suppress(FileNotFoundError):  # it is just being deleted
            for segment in log.segments:
                buried.update(header.crc for _, header in iter_batches(segment.path.read_bytes()[: segment.size_bytes]))

    def _leads(self, key: TopicPartition, leader_epoch: int, broker_id: int) -> None:
        known = self._by_epoch.setdefault((key, -1, leader_epoch), broker_id)
        if known != broker_id:
            raise Violation("one leader an epoch", f"{key}: brokers {known} and {broker_id} lead in {leader_epoch}")

    def _check_mark(self, host: Host, key: TopicPartition, log: Log) -> None:
        if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
            raise Violation(
                "offsets",
                f"{key} at {host.broker_id}: {log.log_start_offset}, {log.high_watermark}, {log.log_end_offset}",
            )
        mark, truncations = self._marks.get(log, (0, 0))
        if log.high_watermark < mark and truncations == log.truncation_count:
            raise Violation("high watermark", f"{key} at {host.broker_id}: {log.high_watermark} after {mark}")
        self._marks[log] = (log.high_watermark, log.truncation_count)

    def _check_acknowledgers(self, key: TopicPartition, copy: _Copy) -> None:
        left = []
        for base_offset, broker_id in self._unseen.get(key, ()):
            batch = copy.batches.get(base_offset)
            if batch is None:
                left.append((base_offset, broker_id))
                continue
            known = self._acknowledgers.setdefault((key, batch[2]), broker_id)
            if known != broker_id:
                raise Violation("one leader acknowledges", f"{key} epoch {batch[2]}: brokers {known} and {broker_id}")
        self._unseen[key] = left

    def _read(self, host: Host, partition: Partition, log: Log) -> _Copy:
        """Bring what is known of a log up to its end."""
        copy = self._copies.get(log)
        if copy is None or copy.truncations != log.truncation_count or copy.end_offset > log.log_end_offset:
            copy = self._copies[log] = _Copy(log.truncation_count)
        if copy.end_offset == log.log_end_offset and copy.segment_base >= 0:
            return copy
        for segment in log.segments:
            if segment.base_offset < copy.segment_base:
                continue
            if segment.base_offset > copy.segment_base:
                copy.segment_base, copy.position = segment.base_offset, 0
            size = segment.size_bytes
            if size <= copy.position:
                continue
            for _, header in iter_batches(read_file(segment.path, copy.position, size - copy.position)):
                self._take(
                    host,
                    partition,
                    copy,
                    (header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc),
                )
            copy.position = size
        copy.end_offset = log.log_end_offset
        return copy

    def _take(self, host: Host, partition: Partition, copy: _Copy, batch: Batch) -> None:
        key = partition.key
        base_offset, last_offset, epoch, crc = batch
        copy.batches[base_offset] = batch
        before, copy.last = copy.last, (last_offset, epoch)
        if key.topic in self.compacted:
            return
        leading = partition.leading
        is_appended = leading is not None and leading.leader_epoch == epoch
        place = (key, base_offset, epoch)
        # A producer may send a batch again that it sent to the incarnation before; then a leader appends it.
        if place not in self._by_epoch and not is_appended and crc in self._buried.get(key, ()):
            detail = f"{key} at {host.broker_id}: {batch} is of an incarnation that was deleted"
            raise Violation("deleted records stay away", detail)
        self._placed.setdefault(key, set()).add((base_offset, crc))
        known = self._by_epoch.setdefault(place, crc)
        if known != crc:
            raise Violation(
                "logs match",
                f"{key} at {host.broker_id}: offset {base_offset} of epoch {epoch} has CRC "
                f"{crc:#x}, elsewhere {known:#x}",
            )
        if before is not None and self._before.setdefault((key, base_offset, epoch), before) != before:
            raise Violation(
                "logs match",
                f"{key} at {host.broker_id}: before offset {base_offset} of epoch {epoch} ends (offset, epoch) "
                f"{before}, elsewhere {self._before[key, base_offset, epoch]}",
            )

    # -- at the end ---------------------------------------------------------------------------------------------------

    def is_settled(self) -> bool:
        """Whether every partition has a leader, all replicas in sync, and equal logs."""
        for key, state in self.states.items():
            if state.leader == NO_LEADER or set(state.isr) != set(self._replicas[key]) or self._moving[key.topic]:
                return False
            ends, starts = set(), {}
            for broker_id in state.isr:
                host = self._cluster.hosts[broker_id]
                partition = host.broker.partitions.get(*key) if host.broker is not None else None
                if partition is None or partition.log is None or partition.log.offline is not None:
                    return False
                if partition.topic_id != self.ids[key.topic]:
                    return False
                log = partition.log
                ends |= {log.log_end_offset, log.high_watermark}
                starts[broker_id] = log.log_start_offset
            # A leader that was elected before it heard of a deletion begins earlier than its followers, for good.
            if len(ends) != 1 or min(starts.values()) < starts[state.leader]:
                return False
        return bool(self.states) and self.has_topics

    @property
    def has_topics(self) -> bool:
        """Whether no topic is deleted at the moment that is to be made again."""
        return set(self.topics) <= set(self.ids)

    def check_end(self) -> None:
        """Read every log from start to end and compare with all that was acknowledged."""
        self._signatures.clear()
        for host in self._cluster.hosts.values():
            host.damaged.clear()
        self.look(None)
        for key, known in self.values.items():
            for broker_id in self.states[key].isr:
                host = self._cluster.hosts[broker_id]
                assert host.broker is not None
                partition = host.broker.partitions.get(*key)
                assert partition is not None
                assert partition.log is not None
                self._check_values(host, key, partition.log, known)
        for key, state in self.states.items():
            if key.topic not in self.compacted:
                continue
            logs: dict[int, Log] = {}
            for broker_id in state.isr:
                broker = self._cluster.hosts[broker_id].broker
                held = broker.partitions.get(*key) if broker is not None else None
                assert held is not None
                assert held.log is not None
                logs[broker_id] = held.log
                self._check_kept(broker_id, key, held.log, self.kept.get(key, {}))
            self._check_copies(key, logs)

    @staticmethod
    def _check_kept(broker_id: int, key: TopicPartition, log: Log, kept: dict[bytes, tuple[int, bytes | None]]) -> None:
        """Find the last acknowledged record of each key, or nothing of the key if that deletes it."""
        last: dict[bytes | None, tuple[int, bytes | None]] = {}
        for record in _records(log):
            last[record.key] = (record.offset, record.value)
        for record_key, (offset, value) in kept.items():
            found = last.get(record_key)
            if found != (offset, value) and (found is not None or value is not None):
                detail = f"{key} at {broker_id}: {record_key!r} is {found}, not {(offset, value)}"
                raise Violation("compaction keeps the last of each key", detail)

    @staticmethod
    def _check_copies(key: TopicPartition, logs: Mapping[int, Log]) -> None:
        """Compare the logs of replicas, each of which is compacted when its broker likes.

        One may lack a tombstone that another has, but not the record that it deletes.  What transactions wrote is left
        out: one log may still have records of an aborted one that another has not.
        """
        start = max(log.log_start_offset for log in logs.values())
        by_offset: dict[int, tuple[bytes | None, bytes | None]] = {}
        last: dict[bytes, dict[int, tuple[int, bytes]]] = {}  # by broker, without those that are deleted
        for broker_id, log in logs.items():
            for record in _records(log, transactional=False):
                if record.offset < start:
                    continue
                known = by_offset.setdefault(record.offset, (record.key, record.value))
                if known != (record.key, record.value):
                    detail = f"{key} at {broker_id}: {record} is elsewhere {known}"
                    raise Violation("compacted logs match", detail)
                if record.key is None:
                    continue
                rows = last.setdefault(record.key, {})
                rows.pop(broker_id, None)
                if record.value is not None:
                    rows[broker_id] = (record.offset, record.value)
        for record_key, rows in last.items():
            if len({rows.get(broker_id) for broker_id in logs}) > 1:
                raise Violation("compacted logs match", f"{key}: {record_key!r} is, by broker of {[*logs]}, {rows}")

    def _check_values(self, host: Host, key: TopicPartition, log: Log, known: dict[int, bytes]) -> None:
        found: dict[int, bytes] = {}
        for record in _records(log):
            found[record.offset] = record.value or b""
        for offset, value in known.items():
            if offset >= log.log_start_offset and found.get(offset) != value:
                raise Violation(
                    "acknowledged records survive",
                    f"{key} at {host.broker_id}: offset {offset} is {found.get(offset)!r}, not {value!r}",
                )
        order: dict[bytes, int] = {}
        # Not what lies below the start, which is deleted: a replica that began anew there does not know its producers,
        # and as a leader stores a batch again whose first copy was deleted before it was acknowledged.
        for _, value in sorted(row for row in found.items() if row[0] >= log.log_start_offset):
            name, _, number = value.rpartition(b":")
            if name.startswith(b"once") and order.get(name, -1) >= int(number):
                raise Violation("once and in order", f"{key} at {host.broker_id}: {value!r} after {order[name]}")
            order[name] = int(number)


def _records(log: Log, *, transactional: bool = True) -> Iterator[Record]:
    """Yield the records of clients that a log has, in order, with or without those of transactions."""
    for segment in log.segments:
        data = segment.path.read_bytes()[: segment.size_bytes]
        for position, header in iter_batches(data):
            if not header.is_control and (transactional or not header.is_transactional):
                yield from decode_records(data, header, position)
