"""The cluster's nodes in a store: typed reads, and writes that only the reigning controller can do."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from pylog.cluster import znodes
from pylog.cluster.controller import Rewrite, Snapshot, StateChange
from pylog.cluster.formats import NEWEST_LEVEL
from pylog.cluster.image import FIRST_LEVEL, BrokerInfo, DeletedTopic, TopicImage
from pylog.cluster.quotas import DEFAULT, QUOTA_KEYS, ClientQuotas, QuotaEntity
from pylog.errors import ApiError, ErrorCode, ProtocolError, PylogError
from pylog.model import Key
from pylog.security import acl_nodes
from pylog.security.acl import Binding, BindingFilter, Entry, Pattern, can_be_node
from pylog.security.acl_nodes import StoredAcls
from pylog.security.rules import Acls
from pylog.store.base import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    Operation,
    Result,
    Set,
    Stat,
    Store,
    Watch,
)

log = logging.getLogger(__name__)

MAX_OPERATIONS = 500
"""Operations in one multi: a ZooKeeper server syncs one log entry for all, and 500 stay far below its request limit."""

MAX_MULTI_BYTES = 512 << 10
"""Data in one multi, for topics with large assignments; the server's limit is 1 MiB."""

MAX_NODE_BYTES = (1 << 20) - 8192
"""Path and data of one node that is written.  ZooKeeper closes the connection to whoever sends a megabyte in one
request, so what is larger would never be answered.  The rest is the root of the
tree and the ACL, an entry of some hundred bytes for each identity of brokers, registries and consumers."""

MAX_ACL_CHANGES = 1_000
"""Notices of changed ACLs that are kept; a broker that misses one reads all ACLs again."""

MAX_ACLS_BYTES = 400 << 10
"""Entries of one resource pattern: about 4,000.  They are one node, which travels in one multi with its notice."""

_SETTLE_ATTEMPTS = 3


class Fence(NamedTuple):
    """A controller's claim: its epoch, and the epoch node's version that every write of its checks."""

    epoch: int
    version: int


class ControllerNode(NamedTuple):
    """Who is controller, as the store has it."""

    broker_id: int
    fence: Fence
    session_id: int


class Deposed(PylogError):
    """Another controller was elected: nothing was written, and nothing more may be."""


class ClusterTree:
    """The nodes of `pylog.cluster.znodes` in a store; every method blocks."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def prepare(self) -> None:
        """Make the paths that everything else takes for granted."""
        self.store.ensure(*znodes.BASE_PATHS)
        if self.store.exists(znodes.CONTROLLER_EPOCH) is None:
            self._create_if_missing(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))

    def cluster_id(self) -> str | None:
        """Return the cluster's id, None while nobody gave it one."""
        [found] = self.store.get_many([znodes.CLUSTER_ID])
        return None if found is None else znodes.decode_cluster_id(found[0])

    def give_cluster_id(self, cluster_id: str) -> str:
        """Set the cluster's id unless it has one; return the one it has now.

        A cluster that begins with this release has no brokers of another one to wait for.
        """
        self.store.ensure("/pylog")
        with contextlib.suppress(NodeExists):
            self.store.multi(
                [
                    Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id)),
                    Create(znodes.FORMAT_LEVEL, znodes.encode_level(NEWEST_LEVEL)),
                ]
            )
        return znodes.decode_cluster_id(self.store.get(znodes.CLUSTER_ID)[0])

    def level(self) -> int:
        """Return the newest formats that may be written."""
        [found] = self.store.get_many([znodes.FORMAT_LEVEL])
        return FIRST_LEVEL if found is None else znodes.decode_level(found[0])

    def write_level(self, fence: Fence, level: int) -> None:
        """Let formats of *level* be written from now on."""
        [found] = self.store.get_many([znodes.FORMAT_LEVEL])
        data = znodes.encode_level(level)
        operation = Create(znodes.FORMAT_LEVEL, data) if found is None else Set(znodes.FORMAT_LEVEL, data)
        self.write(fence, [operation])

    def register(self, registration: znodes.BrokerRegistration, now_ms: int) -> int:
        """Make the broker's ephemeral node and return its epoch; raise NodeExists while there is one."""
        path = znodes.broker_path(registration.broker_id)
        self.store.create(path, znodes.encode_broker(registration, now_ms), ephemeral=True)
        return self.store.get(path)[1].czxid

    def registered(self, broker_id: int, watch: Watch | None = None) -> tuple[BrokerInfo, Stat] | None:
        """Return the broker's registration, None if there is none; *watch* fires at the next change."""
        path = znodes.broker_path(broker_id)
        stat = self.store.exists(path, watch)
        found = None if stat is None else self.store.get_many([path])[0]
        if found is None:
            return None
        return znodes.decode_broker(broker_id, found[0], found[1].czxid), found[1]

    def acknowledge_recovery(self, fence: Fence, broker_id: int, epoch: int) -> None:
        """Take the mark of an unclean stop off a broker's node, unless it is of another process by now."""
        path = znodes.broker_path(broker_id)
        [found] = self.store.get_many([path])
        if found is not None and found[1].czxid == epoch:
            self.write(fence, [Set(path, znodes.without_doubt(found[0]), found[1].version)])

    def controller(self, watch: Watch | None = None) -> ControllerNode | None:
        """Return the controller, None if there is none; *watch* fires at the next change."""
        for attempt in range(_SETTLE_ATTEMPTS):
            if self.store.exists(znodes.CONTROLLER, watch) is None:
                return None
            node, epoch = self.store.get_many([znodes.CONTROLLER, znodes.CONTROLLER_EPOCH])
            if node is None or epoch is None:
                continue
            # One multi writes both; different transactions mean that the controller changed between the two reads.
            if node[1].czxid == epoch[1].mzxid or attempt == _SETTLE_ATTEMPTS - 1:
                fence = Fence(znodes.decode_controller_epoch(epoch[0]), epoch[1].version)
                return ControllerNode(znodes.decode_controller(node[0]), fence, node[1].ephemeral_owner)
        return None

    def claim_controller(self, broker_id: int, now_ms: int) -> Fence | None:
        """Become controller: claim and epoch in one multi.  None if somebody was faster."""
        data, stat = self.store.get(znodes.CONTROLLER_EPOCH)
        epoch = znodes.decode_controller_epoch(data) + 1
        try:
            _, written = self.store.multi(
                [
                    Create(znodes.CONTROLLER, znodes.encode_controller(broker_id, now_ms), ephemeral=True),
                    Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), stat.version),
                ]
            )
        except (NodeExists, BadVersion):
            return None
        assert isinstance(written, Stat), written
        return Fence(epoch, written.version)

    def resign(self) -> None:
        """Remove our own claim, so that an election follows; another session's claim stays."""
        stat = self.store.exists(znodes.CONTROLLER)
        if stat is not None and stat.ephemeral_owner == self.store.session_id:
            self.store.delete(znodes.CONTROLLER)

    def brokers(self, watch: Watch | None = None) -> dict[int, BrokerInfo]:
        """Return the registered brokers; *watch* fires when one comes or goes."""
        names = [name for name in self.store.children(znodes.BROKER_IDS, watch) if name.isdigit()]
        found: dict[int, BrokerInfo] = {}
        nodes = self.store.get_many(f"{znodes.BROKER_IDS}/{name}" for name in names)
        for broker_id, node in zip(map(int, names), nodes, strict=True):
            if node is None:
                continue
            try:
                found[broker_id] = znodes.decode_broker(broker_id, node[0], node[1].czxid)
            except ProtocolError as error:
                # One broker that writes nonsense must not take the controller from all others.
                log.error("broker_ignored broker=%d reason=%s", broker_id, error)
        return dict(sorted(found.items()))

    def topic_names(self, watch: Watch | None = None) -> set[str]:
        """Return the names of all topics; *watch* fires when one comes or goes."""
        return set(self.store.children(znodes.TOPICS, watch))

    def ordered_deletions(self, watch: Watch | None = None) -> set[str]:
        """Return the topics whose deletion was ordered; *watch* fires at the next order."""
        return set(self.store.children(znodes.DELETE_TOPICS, watch))

    def config_changes(self, watch: Watch | None = None) -> list[str]:
        """Return the names of Kafka's notices of changed configs; *watch* fires at the next one."""
        return self.store.children(znodes.CONFIG_CHANGES, watch)

    def snapshot(self, on_brokers: Watch, on_topics: Watch, on_deletions: Watch, on_configs: Watch) -> Snapshot:
        """Read everything a controller must know.

        Raises:
            ProtocolError: a topic cannot be read.  An image without it would take its data offline, so there is none.
        """
        self.config_changes(on_configs)
        deletions = self.ordered_deletions(on_deletions)
        names = sorted(self.topic_names(on_topics))
        brokers = self.brokers(on_brokers)
        topics, stateless = self.topics(names)
        ids = self.store.children(znodes.DELETED_TOPICS)
        nodes = self.store.get_many(f"{znodes.DELETED_TOPICS}/{topic_id}" for topic_id in ids)
        deleted = [
            znodes.decode_deleted_topic(topic_id, node[0])
            for topic_id, node in zip(ids, nodes, strict=True)
            if node is not None
        ]
        return Snapshot(
            brokers,
            topics,
            stateless,
            deletions,
            {one.topic_id: one for one in deleted},
            self.broker_configs(),
            self._client_quotas(),
            self.level(),
            self.scram_credentials(),
        )

    def topics(self, names: Sequence[str]) -> tuple[dict[str, TopicImage], dict[Key, tuple[int, ...]]]:
        """Return the topics of these names, and the replicas of partitions that have no state yet."""
        nodes = self.store.get_many(map(znodes.topic_path, names))
        found = {name: node for name, node in zip(names, nodes, strict=True) if node is not None}
        assignments = {name: znodes.decode_assignment(node[0]) for name, node in found.items()}
        configs = self.topic_configs(assignments)
        wanted = [
            (name, number, replicas)
            for name, assignment in assignments.items()
            for number, replicas in assignment.replicas.items()
        ]
        states = self.store.get_many(znodes.state_path(name, number) for name, number, _ in wanted)
        topics = {
            name: TopicImage(
                name,
                one.topic_id,
                {},
                configs[name],
                one.moves,
                one.leaving,
                one.created_ms or found[name][1].created_ms,
            )
            for name, one in assignments.items()
        }
        stateless: dict[Key, tuple[int, ...]] = {}
        for (name, number, replicas), node in zip(wanted, states, strict=True):
            if node is None:
                stateless[name, number] = replicas
                continue
            partitions = topics[name].partitions
            assert isinstance(partitions, dict)
            partitions[number] = znodes.decode_state(node[0], node[1].version, replicas)
        return topics, stateless

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the configs of topics; none where no node has any."""
        wanted = list(names)
        nodes = self.store.get_many(map(znodes.topic_config_path, wanted))
        return {
            name: {} if node is None else znodes.decode_configs(node[0])
            for name, node in zip(wanted, nodes, strict=True)
        }

    def write_states(self, fence: Fence, changes: Sequence[StateChange]) -> None:
        """Write partition states; raise Deposed, or BadVersion if a state is not what it was taken for."""
        parents = {
            path: None
            for change in changes
            if change.is_new
            for path in (
                f"{znodes.topic_path(change.topic)}/partitions",
                znodes.partition_path(change.topic, change.partition),
            )
        }
        missing = [path for path, found in zip(parents, self.store.get_many(parents), strict=True) if found is None]
        operations: list[Operation] = [Create(path) for path in missing]
        operations += [_state_operation(change, fence.epoch) for change in changes]
        # States of different partitions do not depend on each other, only on the nodes above them.
        self.write(fence, operations, is_ordered=bool(missing))

    def create_topics(self, fence: Fence, topics: Sequence[TopicImage]) -> dict[str, bool]:
        """Write new topics with all their states; return for each whether it is new, False where one exists already.

        A topic appears at once unless it alone needs several multis; then its first states come with it.

        Raises:
            ApiError: as `write`, and none of the topics is written.
        """
        created: dict[str, bool] = {}
        operations = self._creations(fence, topics)
        for each in operations.values():
            _check_sizes(each)
        for group in _pack([(topic, operations[topic.name]) for topic in topics]):
            try:
                self.write(fence, [operation for _, each in group for operation in each])
                created |= {topic.name: True for topic, _ in group}
            except NodeExists:
                # Somebody outside made one of them; alone, each shows whether it is that one.
                for topic, each in group:
                    created[topic.name] = self._create_alone(fence, each)
        return created

    def order_deletions(self, fence: Fence, names: Iterable[str]) -> None:
        """Write down that these topics are to go, before anything of them goes."""
        paths = [znodes.delete_topic_path(name) for name in names]
        present = self.store.get_many(paths)
        self.write(fence, [Create(path) for path, node in zip(paths, present, strict=True) if node is None])

    def delete_topic(self, fence: Fence, name: str, deleted: DeletedTopic | None) -> None:
        """Remove a topic's nodes and its order, and before the last of them write what replicas still have to delete.

        May be repeated after an interruption: what is gone already is skipped.
        """
        top = znodes.topic_path(name)
        below = f"{top}/partitions"
        numbers = self.store.children_many([below])[0]
        partitions = [f"{below}/{number}" for number in numbers]
        states = [f"{path}/state" for path in partitions]
        config, order = znodes.topic_config_path(name), znodes.delete_topic_path(name)
        memory = None if deleted is None else znodes.deleted_topic_path(deleted.topic_id)
        parts, rest = [*states, *partitions, below], [top, config, order]
        wanted = [*parts, *rest, *([memory] if memory else [])]
        present = {path for path, node in zip(wanted, self.store.get_many(wanted), strict=True) if node is not None}
        operations: list[Operation] = [Delete(path) for path in parts if path in present]
        if deleted is not None and memory is not None and memory not in present:
            operations.append(Create(memory, znodes.encode_deleted_topic(deleted)))
        operations += [Delete(path) for path in rest if path in present]
        self.write(fence, operations)

    def remember_deletion(self, fence: Fence, deleted: DeletedTopic) -> None:
        """Write which replicas still have to delete; forget it with the last."""
        path = znodes.deleted_topic_path(deleted.topic_id)
        if deleted.replicas:
            self.write(fence, [Set(path, znodes.encode_deleted_topic(deleted))])
        else:
            self.write(fence, [Delete(path)])

    def write_assignment(self, fence: Fence, topic: TopicImage) -> None:
        """Write which brokers hold the partitions of an existing topic; states of new ones come after it."""
        self.write(fence, [Set(znodes.topic_path(topic.name), znodes.encode_assignment(topic))])

    def write_rewrite(self, fence: Fence, rewrite: Rewrite) -> None:
        """Write the states and then the assignment of each topic, which a controller that ends never leaves half done.

        A topic too large for one multi is cut; whoever finds only its states written comes to the same assignment, but
        for moves to replicas that are all new: those wait.
        """
        by_topic: dict[str, list[Operation]] = {one.name: [] for one in rewrite.topics}
        for change in rewrite.states:
            by_topic[change.topic].append(_state_operation(change, fence.epoch))
        for one in rewrite.topics:
            by_topic[one.name].append(Set(znodes.topic_path(one.name), znodes.encode_assignment(one)))
        for run in _cut_groups(list(by_topic.values())):
            self.write(fence, run)

    def write_broker_configs(self, fence: Fence, name: str, configs: Mapping[str, str]) -> None:
        """Replace the dynamic configs of a broker, or of all."""
        path = znodes.broker_config_path(name)
        [found] = self.store.get_many([path])
        data = znodes.encode_configs(configs)
        self.write(fence, [Create(path, data) if found is None else Set(path, data)])

    def write_topic_configs(self, fence: Fence, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the configs of existing topics, all at once."""
        self.write(
            fence,
            [Set(znodes.topic_config_path(name), znodes.encode_configs(values)) for name, values in configs.items()],
        )

    def write_client_quotas(
        self, fence: Fence, changes: Mapping[QuotaEntity, Mapping[str, str | None]]
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Set (or, with None, remove) quotas, all at once; return what each entity has then.

        What else stands in a user's node, credentials above all, stays as it is.
        """
        paths = {entity: znodes.quota_path(entity) for entity in changes}
        parents = list(
            dict.fromkeys(
                parent
                for entity in changes
                if entity.user is not None and entity.client_id is not None
                for parent in (f"{znodes.USER_CONFIGS}/{entity.user}", f"{znodes.USER_CONFIGS}/{entity.user}/clients")
            )
        )
        found = dict(zip([*paths.values(), *parents], self.store.get_many([*paths.values(), *parents]), strict=True))
        operations: list[Operation] = [
            Create(path, znodes.encode_configs({}))
            for path in parents
            if found[path] is None and path not in paths.values()
        ]
        written: dict[QuotaEntity, dict[str, float]] = {}
        for entity, path in paths.items():
            node = found[path]
            before = {} if node is None else znodes.decode_configs(node[0])
            after = {key: value for key, value in {**before, **changes[entity]}.items() if value is not None}
            data = znodes.encode_configs(after)
            operations.append(Create(path, data) if node is None else Set(path, data, node[1].version))
            written[entity] = {key: float(value) for key, value in after.items() if key in QUOTA_KEYS}
        # A node before those below it.
        self.write(fence, sorted(operations, key=lambda operation: operation.path.count("/")))
        return written

    def write_credentials(self, fence: Fence, user: str, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Set (or, with None, remove) credentials of a user by mechanism, all at once; return those it has then.

        Quotas that stand in the same node stay as they are.
        """
        path = znodes.user_path(user)
        [node] = self.store.get_many([path])
        before = {} if node is None or not node[0] else znodes.decode_configs(node[0])
        after = {key: value for key, value in {**before, **changes}.items() if value is not None}
        data = znodes.encode_configs(after)
        self.write(fence, [Create(path, data) if node is None else Set(path, data, node[1].version)])
        return znodes.decode_credentials(data)

    # -- access control ----------------------------------------------------------------------------------------------

    def prepare_acls(self) -> None:
        """Make the paths that ACLs and their notices are kept under."""
        self.store.ensure(*acl_nodes.ACL_PATHS)

    def acl_changes(self, watch: Watch | None = None) -> dict[str, list[str]]:
        """Return the notices of changed ACLs by the node above them; *watch* fires when one comes."""
        return {root: self.store.children(root, watch) for root in acl_nodes.CHANGE_ROOTS}

    def changed_patterns(self, paths: Sequence[str]) -> list[Pattern] | None:
        """Return what the notices at *paths* are about; None if one is gone or cannot be read."""
        patterns: dict[Pattern, None] = {}
        for path, node in zip(paths, self.store.get_many(paths), strict=True):
            try:
                if node is None:
                    return None
                patterns[acl_nodes.decode_change(path, node[0])] = None
            except ProtocolError as error:
                log.error("acl_notice_unreadable path=%s reason=%s", path, error)
                return None
        return list(patterns)

    def acls(self, patterns: Sequence[Pattern]) -> dict[Pattern, tuple[Entry, ...]]:
        """Return the entries of each of *patterns*, none where there is no such node."""
        nodes = self.store.get_many(map(acl_nodes.acl_path, patterns))
        return {
            pattern: () if node is None else _readable_entries(pattern, node[0])
            for pattern, node in zip(patterns, nodes, strict=True)
        }

    def all_acls(self) -> Acls:
        """Return the entries of all patterns that have any."""
        return {pattern: entries for pattern, entries in self.acls(self._acl_patterns()).items() if entries}

    def _acl_patterns(self) -> list[Pattern]:
        below = self.store.children_many(acl_nodes.TYPE_PATHS)
        return [
            Pattern(*types, name)
            for types, names in zip(acl_nodes.TYPE_PATHS.values(), below, strict=True)
            for name in names
        ]

    def create_acls(self, fence: Fence, bindings: Iterable[Binding]) -> dict[Pattern, ApiError]:
        """Add bindings, of which some may be there already; return why those of a pattern were refused."""
        wanted: dict[Pattern, list[Entry]] = {}
        for pattern, entry in bindings:
            wanted.setdefault(pattern, []).append(entry)

        def added(pattern: Pattern, before: StoredAcls) -> StoredAcls:
            new = [entry for entry in dict.fromkeys(wanted[pattern]) if entry not in before.entries]
            return StoredAcls((*before.entries, *new), before.foreign)

        return self._rewrite_acls(fence, list(wanted), added)

    def delete_acls(
        self, fence: Fence, filters: Sequence[BindingFilter]
    ) -> tuple[list[list[Binding]], dict[Pattern, ApiError]]:
        """Remove what filters select; return what each removed, and why the entries of a pattern stay.

        What several filters select counts for the first of them.
        """
        exact = [one.exact_pattern() for one in filters]
        known = [pattern for pattern in exact if pattern is not None]
        if len(known) == len(filters):
            # Asked for a name that no node can have the store would only fail.
            patterns = [pattern for pattern in dict.fromkeys(known) if can_be_node(pattern.name)]
        else:
            patterns = self._acl_patterns()
        removed: list[list[Binding]] = [[] for _ in filters]

        def left(pattern: Pattern, before: StoredAcls) -> StoredAcls:
            kept: list[Entry] = []
            for entry in before.entries:
                binding = Binding(pattern, entry)
                hit = next((number for number, one in enumerate(filters) if one.selects(binding)), None)
                if hit is None:
                    kept.append(entry)
                else:
                    removed[hit].append(binding)
            return StoredAcls(tuple(kept), before.foreign)

        selected = [pattern for pattern in patterns if any(one.selects_pattern(pattern) for one in filters)]
        return removed, self._rewrite_acls(fence, selected, left)

    def _rewrite_acls(
        self, fence: Fence, patterns: Sequence[Pattern], rewritten: Callable[[Pattern, StoredAcls], StoredAcls]
    ) -> dict[Pattern, ApiError]:
        """Write what becomes of the entries of patterns, each in one multi with its notice."""
        self.prepare_acls()
        paths = [acl_nodes.acl_path(pattern) for pattern in patterns]
        refused: dict[Pattern, ApiError] = {}
        pairs: list[list[Operation]] = []
        for pattern, path, node in zip(patterns, paths, self.store.get_many(paths), strict=True):
            try:
                before = StoredAcls() if node is None else acl_nodes.decode_acls(node[0])
            except ProtocolError as error:
                refused[pattern] = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path}: {error}")
                continue
            after = rewritten(pattern, before)
            if after == before:
                continue
            data = after.encode()
            if len(data) > MAX_ACLS_BYTES:
                message = f"{pattern} would have {len(after.entries)} entries: {len(data)} bytes, {MAX_ACLS_BYTES} fit"
                refused[pattern] = ApiError(ErrorCode.INVALID_REQUEST, message)
                continue
            pairs.append([_acl_operation(path, node, data, is_empty=after.is_empty), _acl_notice(pattern)])
        self._forget_acl_changes(fence)
        for part in _cut_groups(pairs):
            self.write(fence, part)
        return refused

    def _forget_acl_changes(self, fence: Fence) -> None:
        """Remove notices beyond the newest: a broker that missed them reads everything."""
        stale: list[str] = []
        for root, names in self.acl_changes().items():
            numbers = acl_nodes.change_numbers(names)
            stale += [f"{root}/{numbers[number]}" for number in sorted(numbers)[:-MAX_ACL_CHANGES]]
        if stale:
            self.write(fence, [Delete(path) for path in stale])

    def take_producer_ids(self, fence: Fence, broker_id: int) -> tuple[int, int]:
        """Take the next block of producer ids; return the first and how many."""
        data, stat = self.store.get(znodes.PRODUCER_ID_BLOCK)
        first = znodes.next_producer_id(data)
        block = znodes.encode_producer_id_block(broker_id, first)
        self.write(fence, [Set(znodes.PRODUCER_ID_BLOCK, block, stat.version)])
        return first, znodes.PRODUCER_ID_BLOCK_SIZE

    def write(self, fence: Fence, operations: Sequence[Operation], *, is_ordered: bool = True) -> list[Result]:
        """Do *operations* under the fence, in as many multis as needed, each all or nothing.

        Args:
            fence: the claim that must hold.
            operations: what to do.
            is_ordered: a multi that fails stops those after it; else they are all under way together, which is faster.

        Raises:
            ApiError: INVALID_REQUEST; a node would be larger than ZooKeeper takes.  Nothing is written.
            Deposed: the epoch node has another version; this multi and those after it did nothing.
        """
        _check_sizes(operations)
        results: list[Result] = []
        check = Check(znodes.CONTROLLER_EPOCH, fence.version)
        try:
            groups = [[check, *part] for part in cut(operations)]
            for done in map(self.store.multi, groups) if is_ordered else self.store.multis(groups):
                results += done[1:]
        except BadVersion as error:
            if error.operation_index == 0:
                raise Deposed(f"controller epoch {fence.epoch} is over") from error
            raise
        return results

    def _creations(self, fence: Fence, topics: Sequence[TopicImage]) -> dict[str, list[Operation]]:
        # Configs may be left from a topic whose deletion another tool began; the new topic's replace them.
        stale = self.store.get_many(znodes.topic_config_path(topic.name) for topic in topics)
        return {
            topic.name: _creation(topic, fence.epoch, has_config=node is not None)
            for topic, node in zip(topics, stale, strict=True)
        }

    def _create_alone(self, fence: Fence, operations: Sequence[Operation]) -> bool:
        try:
            self.write(fence, operations)
        except NodeExists:
            return False
        return True

    def _create_if_missing(self, path: str, data: bytes) -> None:
        try:
            self.store.create(path, data, make_parents=True)
        except NodeExists:
            return

    def broker_configs(self) -> dict[str, dict[str, str]]:
        """Return the dynamic configs of brokers, by id as text or ``<default>``."""
        names = self.store.children(znodes.BROKER_CONFIGS)
        nodes = self.store.get_many(map(znodes.broker_config_path, names))
        return {
            znodes.entity_name(name): znodes.decode_configs(node[0])
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        }

    def scram_credentials(self) -> dict[str, dict[str, str]]:
        """Return the SCRAM credentials of all users that have one, by mechanism."""
        users = [user for user in self.store.children(znodes.USER_CONFIGS) if user != DEFAULT]
        found: dict[str, dict[str, str]] = {}
        for user, node in zip(users, self.store.get_many(f"{znodes.USER_CONFIGS}/{one}" for one in users), strict=True):
            try:
                credentials = {} if node is None or not node[0] else znodes.decode_credentials(node[0])
            except ProtocolError:
                # One user's node must not keep the others out; its bytes may be half a credential.
                log.error("credentials_ignored user=%s reason=the node cannot be read", user)
                continue
            if credentials:
                found[znodes.entity_name(user)] = credentials
        return found

    def _client_quotas(self) -> ClientQuotas:
        above = znodes.CLIENT_CONFIGS, znodes.USER_CONFIGS, znodes.IP_CONFIGS
        clients, users, ips = map(self.store.children, above)
        below = self.store.children_many([f"{znodes.USER_CONFIGS}/{user}/clients" for user in users])
        entities = [QuotaEntity(None, client) for client in clients]
        entities += [QuotaEntity(user, None) for user in users]
        entities += [QuotaEntity(user, client) for user, names in zip(users, below, strict=True) for client in names]
        entities += [QuotaEntity(None, None, ip) for ip in ips]
        quotas: dict[QuotaEntity, dict[str, float]] = {}
        for entity, node in zip(entities, self.store.get_many(map(znodes.quota_path, entities)), strict=True):
            try:
                quotas[entity] = {} if node is None or not node[0] else znodes.decode_quotas(node[0])
            except ProtocolError as error:
                # A quota nobody can read must not take the controller from everybody.
                log.error("quotas_ignored entity=%s reason=%s", entity, error)
        return {entity: found for entity, found in quotas.items() if found}


def _state_operation(change: StateChange, controller_epoch: int) -> Operation:
    path = znodes.state_path(change.topic, change.partition)
    data = znodes.encode_state(change.after, controller_epoch)
    return Create(path, data) if change.is_new else Set(path, data, change.after.partition_epoch)


def _creation(topic: TopicImage, controller_epoch: int, *, has_config: bool) -> list[Operation]:
    config_path, configs = znodes.topic_config_path(topic.name), znodes.encode_configs(topic.configs)
    operations: list[Operation] = [
        Set(config_path, configs) if has_config else Create(config_path, configs),
        Create(znodes.topic_path(topic.name), znodes.encode_assignment(topic)),
        Create(f"{znodes.topic_path(topic.name)}/partitions"),
    ]
    for number, partition in topic.partitions.items():
        operations.append(Create(znodes.partition_path(topic.name, number)))
        operations.append(_state_operation(StateChange(topic.name, number, partition, is_new=True), controller_epoch))
    return operations


def _readable_entries(pattern: Pattern, data: bytes) -> tuple[Entry, ...]:
    try:
        return acl_nodes.decode_acls(data).entries
    except ProtocolError as error:
        # It may have forbidden anything; nobody but super users gets in until somebody has repaired it.
        log.error("acls_unreadable path=%s denied=everybody reason=%s", acl_nodes.acl_path(pattern), error)
        return (acl_nodes.DENY_EVERYTHING,)


def _acl_operation(path: str, node: tuple[bytes, Stat] | None, data: bytes, *, is_empty: bool) -> Operation:
    if node is None:
        return Create(path, data)
    return Delete(path, node[1].version) if is_empty else Set(path, data, node[1].version)


def _acl_notice(pattern: Pattern) -> Operation:
    path, data = acl_nodes.encode_change(pattern)
    return Create(path, data, sequence=True)


def _cut_groups(groups: Sequence[list[Operation]]) -> list[list[Operation]]:
    """Return *groups* in runs that each fit a multi: what belongs together, as a change and its notice, stays so."""
    runs: list[list[Operation]] = []
    size_bytes = 0
    for group in groups:
        group_bytes = sum(map(_size, group))
        size_bytes += group_bytes
        if not runs or len(runs[-1]) + len(group) > MAX_OPERATIONS or size_bytes > MAX_MULTI_BYTES:
            runs.append([])
            size_bytes = group_bytes
        runs[-1] += group
    return runs


def _size(operation: Operation) -> int:
    data_bytes = len(operation.data) if isinstance(operation, Create | Set) else 0
    return len(operation.path) + data_bytes


def _check_sizes(operations: Iterable[Operation]) -> None:
    for operation in operations:
        size_bytes = _size(operation)
        if size_bytes > MAX_NODE_BYTES:
            message = (
                f"{operation.path[:100]} would have {size_bytes} bytes in the cluster's store; {MAX_NODE_BYTES} fit"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, message)


def cut(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Return *operations* in runs that each fit a multi."""
    parts: list[list[Operation]] = []
    size_bytes = 0
    for operation in operations:
        size_bytes += _size(operation)
        if not parts or len(parts[-1]) == MAX_OPERATIONS or size_bytes > MAX_MULTI_BYTES:
            parts.append([])
            size_bytes = _size(operation)
        parts[-1].append(operation)
    return parts


_Creation = tuple[TopicImage, list[Operation]]


def _pack(creations: Sequence[_Creation]) -> list[list[_Creation]]:
    """Return whole topics in runs that each fit a multi; a topic too large for one stands alone."""
    groups: list[list[_Creation]] = []
    count = size_bytes = 0
    for creation in creations:
        size = sum(map(_size, creation[1]))
        count, size_bytes = count + len(creation[1]), size_bytes + size
        if not groups or count > MAX_OPERATIONS or size_bytes > MAX_MULTI_BYTES:
            groups.append([])
            count, size_bytes = len(creation[1]), size
        groups[-1].append(creation)
    return groups
