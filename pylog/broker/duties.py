"""The controller's duties: carry out what `pylog.cluster.controller` decides, under the fence of its epoch."""

import logging
import os
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pylog.cluster.controller import Controller, IsrRequest, IsrResult, Rewrite, StateChange
from pylog.cluster.image import BrokerInfo, ClusterImage, TopicImage
from pylog.cluster.quotas import QuotaEntity
from pylog.cluster.topics import UNCLEAN_ELECTION, ClusterConfig, NewTopic, repeated_names
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.store.base import Watch
from pylog.store.tree import ClusterTree, Fence

log = logging.getLogger(__name__)

_NO_ID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What became of one topic in a request.

    Attributes:
        topic_id: all zero where there is no such topic.
        partitions: how many it has, -1 on an error.
        replication_factor: replicas of each, -1 on an error.
    """

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: uuid.UUID = _NO_ID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None


class Growth(NamedTuple):
    """Partitions that a topic shall have in all, and where the new ones go; None lets the cluster choose."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class Watches:
    """What to call when something changes that the controller has to act on."""

    brokers: Watch
    topics: Watch
    deletions: Watch
    configs: Watch


class ControllerDuties:
    """One term as controller.

    Every method may raise Deposed, after which this object is of no use, or NotConnected and BadVersion, after which
    `reload` must come first: what was written is then unknown.
    """

    def __init__(self, tree: ClusterTree, fence: Fence, watches: Watches) -> None:
        self._tree = tree
        self._fence = fence
        self._watches = watches
        self._controller: Controller | None = None
        self._is_changed = False

    @property
    def fence(self) -> Fence:
        """The claim under which everything is written."""
        return self._fence

    @property
    def is_ready(self) -> bool:
        """Whether the whole tree was read; before that nothing is decided, answered or published."""
        return self._controller is not None

    def reload(self, broker_id: int, cluster_id: str, config: ClusterConfig) -> None:
        """Read the whole tree and bring it in order: interrupted deletions, states without leader.

        Raises:
            ProtocolError: a node cannot be read; repair it, then try again.
        """
        watches = self._watches
        snapshot = self._tree.snapshot(watches.brokers, watches.topics, watches.deletions, watches.configs)
        controller = Controller(broker_id, self._fence.epoch, cluster_id, config, snapshot, self._controller)
        self._settle(controller, snapshot.brokers)
        for name in sorted(snapshot.deletions):
            self._finish_deletion(controller, name)
        self._controller, self._is_changed = controller, True

    def take_image(self) -> ClusterImage | None:
        """Return a new image if anything changed since the last one."""
        if not self._is_changed or self._controller is None:
            return None
        self._is_changed = False
        return self._controller.image()

    def look_at_brokers(self) -> None:
        """React to brokers that came, went or bounced."""
        controller = self._office()
        brokers = self._tree.brokers(self._watches.brokers)
        if brokers != controller.brokers:
            log.info("brokers_changed before=%s now=%s", sorted(controller.brokers), sorted(brokers))
            self._settle(controller, brokers)
            self._is_changed = True

    def look_at_topics(self) -> None:
        """React to topics that another tool wrote or removed."""
        controller = self._office()
        names = self._tree.topic_names(self._watches.topics)
        for name in sorted(controller.topics.keys() - names):
            log.warning("topic_vanished topic=%s its data stays where it is", name)
            controller.confirm_deletion(name, None)
            self._is_changed = True
        found = sorted(names - controller.topics.keys())
        if found:
            controller.adopt_topics(*self._tree.topics(found))
            self._settle(controller, controller.brokers)
            self._is_changed = True

    def look_at_deletions(self) -> None:
        """Carry out deletions that were ordered in the store."""
        controller = self._office()
        for name in sorted(self._tree.ordered_deletions(self._watches.deletions)):
            controller.confirm_intent(name)
            self._finish_deletion(controller, name)
            self._is_changed = True

    def look_at_configs(self) -> None:
        """React to configs that another tool changed; it leaves a notice where Kafka's brokers look for one."""
        controller = self._office()
        self._tree.config_changes(self._watches.configs)
        for name, configs in self._tree.topic_configs(controller.topics).items():
            if configs != controller.topics[name].configs:
                controller.confirm_configs(name, configs)
                self._is_changed = True
        brokers = self._tree.broker_configs()
        if brokers != controller.broker_configs:
            controller.broker_configs = {**brokers}
            self._is_changed = True

    def create_topics(
        self, wanted: Sequence[NewTopic], topic_ids: Mapping[str, uuid.UUID], *, validate_only: bool
    ) -> list[TopicResult]:
        """Create topics and return a result for each, in order.

        Args:
            wanted: the topics, each name once.
            topic_ids: an id for each name.  After a connection loss the same call with the same ids finds by them what
                it had written already.
            validate_only: answer as if, and write nothing.
        """
        controller = self._office()
        results = {
            name: TopicResult(name, ErrorCode.INVALID_REQUEST, f"topic {name!r} is named twice in one request")
            for name in repeated_names(topic.name for topic in wanted)
        }
        for name, topic_id in topic_ids.items():
            topic = controller.topics.get(name)
            if name not in results and topic is not None and topic.topic_id == topic_id:
                results[name] = _created(topic)
        planned, refused = controller.plan_topics(
            (topic, topic_ids[topic.name]) for topic in wanted if topic.name not in results
        )
        results |= {name: TopicResult(name, error.code, str(error)) for name, error in refused.items()}
        is_new = {} if validate_only else self._tree.create_topics(self._fence, planned)
        for topic in planned:
            if is_new.get(topic.name, True):
                results[topic.name] = _created(topic)
            else:
                results[topic.name] = TopicResult(topic.name, ErrorCode.TOPIC_ALREADY_EXISTS, "made by somebody else")
            if is_new.get(topic.name):
                controller.confirm_topic(topic)
                self._is_changed = True
        return [results[topic.name] for topic in wanted]

    def grow_topics(self, wanted: Sequence[Growth], begun: dict[str, int], *, validate_only: bool) -> list[TopicResult]:
        """Add partitions to topics and return a result for each, in order.

        Args:
            wanted: the topics, each once.
            begun: what this call has begun to write; after a connection loss hand the same dictionary in again.
            validate_only: answer as if, and write nothing.
        """
        controller = self._office()
        results: list[TopicResult] = []
        for name, count, assignments in wanted:
            topic = controller.topics.get(name)
            if topic is not None and begun.get(name) == count == len(topic.partitions):
                results.append(_created(topic))
                continue
            try:
                grown = controller.plan_growth(name, count, assignments)
            except ApiError as error:
                results.append(TopicResult(name, error.code, str(error)))
                continue
            if not validate_only:
                begun[name] = count
                self._grow(controller, grown)
            results.append(_created(grown))
        return results

    def _grow(self, controller: Controller, grown: TopicImage) -> None:
        present = controller.topics[grown.name].partitions
        changes = [
            StateChange(grown.name, number, state, is_new=True)
            for number, state in grown.partitions.items()
            if number not in present
        ]
        # The assignment first: a controller that takes over in between makes the states that are missing.
        self._tree.write_assignment(self._fence, grown)
        self._tree.write_states(self._fence, changes)
        controller.confirm_states(changes)
        controller.confirm_growth(len(changes))
        self._is_changed = True

    def delete_topics(self, names: Sequence[str], begun: set[str]) -> list[TopicResult]:
        """Delete topics and return a result for each, in order.

        Args:
            names: the topics to delete.
            begun: names whose deletion this call has ordered; after a connection loss hand the same set in again.
        """
        controller = self._office()
        found = [name for name in dict.fromkeys(names) if name in controller.topics]
        ids = {name: controller.topics[name].topic_id for name in found}
        begun.update(found)
        self._tree.order_deletions(self._fence, found)
        for name in found:
            controller.confirm_intent(name)
            self._is_changed = True
            self._finish_deletion(controller, name)
        return [
            TopicResult(name, topic_id=ids.get(name, _NO_ID))
            if name in begun
            else TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            for name in names
        ]

    def confirm_cleanup(self, broker_id: int, topic_ids: Collection[uuid.UUID]) -> None:
        """Take in that a broker has deleted its data of topics that are gone."""
        controller = self._office()
        for deleted in controller.after_cleanup(broker_id, topic_ids):
            self._tree.remember_deletion(self._fence, deleted)
            controller.confirm_cleanup(deleted)
            self._is_changed = True

    def alter_isr(self, broker_id: int, broker_epoch: int, wanted: Sequence[IsrRequest]) -> list[IsrResult]:
        """Change in-sync replicas as their leader wishes; return a result for each, in order."""
        controller = self._office()
        plans = controller.plan_isrs(broker_id, broker_epoch, wanted)
        self._change_states(controller, [plan for plan in plans if isinstance(plan, StateChange)])
        self._finish_moves(controller)
        return [
            plan
            if isinstance(plan, IsrResult)
            else IsrResult(ErrorCode.NONE, plan.after.isr, plan.after.partition_epoch + 1)
            for plan in plans
        ]

    def recover(
        self, broker_id: int, broker_epoch: int, ends: Mapping[tuple[uuid.UUID, int], tuple[int, int]], now_ms: int
    ) -> None:
        """Take in what a broker found after its unclean stop; elect by it what no clean replica can lead."""
        controller = self._office()
        self._change_states(controller, controller.plan_recovery(broker_id, broker_epoch, ends, now_ms))
        if not controller.brokers[broker_id].is_clean and controller.is_recovered(broker_id):
            self._tree.acknowledge_recovery(self._fence, broker_id, broker_epoch)
            controller.confirm_recovery(broker_id)
            self._is_changed = True
            log.info("recovery_acknowledged broker=%d epoch=%d", broker_id, broker_epoch)
        self._finish_moves(controller)

    def move_partitions(
        self, wanted: Mapping[tuple[str, int], Sequence[int] | None]
    ) -> dict[tuple[str, int], ApiError | None]:
        """Let partitions be held by other brokers, or with None call that off; the result says why one cannot be."""
        controller = self._office()
        rewrite, refused = controller.plan_moves(wanted)
        self._rewrite(controller, rewrite)
        self._finish_moves(controller)
        return {key: refused.get(key) for key in wanted}

    def moves(self) -> dict[str, TopicImage]:
        """Return the topics with partitions that are being moved."""
        return {name: topic for name, topic in self._office().topics.items() if topic.moves}

    def confirm_removal(self, broker_id: int, removed: Collection[tuple[uuid.UUID, int]]) -> None:
        """Take in that a broker has deleted partitions that it held before they were moved."""
        controller = self._office()
        self._rewrite(controller, Rewrite(controller.after_removal(broker_id, removed), ()))

    def finalize(self) -> int:
        """Let the formats of this release be written from now on; return their level."""
        controller = self._office()
        level = controller.plan_finalize()
        if level != controller.level:
            self._tree.write_level(self._fence, level)
            log.info("finalized level=%d before=%d", level, controller.level)
            controller.level = level
            self._is_changed = True
        return level

    def elect_leaders(
        self, wanted: Sequence[tuple[str, int]] | None, *, unclean: bool
    ) -> dict[tuple[str, int], ErrorCode]:
        """Elect the preferred leaders, or any where nobody leads; return a result for each; None means all."""
        controller = self._office()
        changes, results = controller.plan_elections(wanted, unclean=unclean)
        self._change_states(controller, changes)
        if changes:
            log.info("elected_on_request partitions=%d unclean=%s", len(changes), unclean)
        return results

    def shut_down(self, broker_id: int, broker_epoch: int) -> int:
        """Let others take over from a broker that is about to stop; return for how many partitions they did."""
        controller = self._office()
        changes = controller.plan_shutdown(broker_id, broker_epoch)
        self._change_states(controller, changes)
        log.info("shutdown_prepared broker=%d partitions=%d", broker_id, len(changes))
        return len(changes)

    def take_producer_ids(self, broker_id: int) -> tuple[int, int]:
        """Return the first of a new block of producer ids, and how many it has."""
        self._office()
        return self._tree.take_producer_ids(self._fence, broker_id)

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool
    ) -> list[TopicResult]:
        """Set (or, with None, unset) configs of topics; return a result for each topic, in order."""
        controller = self._office()
        results: list[TopicResult] = []
        written: dict[str, dict[str, str]] = {}
        for name, change in changes.items():
            topic = controller.topics.get(name)
            if topic is None or name in controller.deletions:
                message = f"there is no topic {name!r}"
                results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
                continue
            merged = {key: value for key, value in {**topic.configs, **change}.items() if value is not None}
            try:
                controller.config.check_configs(merged)
            except ConfigError as error:
                results.append(TopicResult(name, ErrorCode.INVALID_CONFIG, str(error)))
                continue
            written[name] = merged
            results.append(TopicResult(name, topic_id=topic.topic_id, configs=merged))
        if written and not validate_only:
            self._tree.write_topic_configs(self._fence, written)
            for name, configs in written.items():
                controller.confirm_configs(name, configs)
            self._is_changed = True
            if any(UNCLEAN_ELECTION in changes[name] for name in written):
                self._settle(controller, controller.brokers)
        return results

    def alter_client_quotas(self, changes: Mapping[QuotaEntity, Mapping[str, str | None]]) -> None:
        """Set (or, with None, remove) quotas of clients."""
        controller = self._office()
        for entity, quotas in self._tree.write_client_quotas(self._fence, changes).items():
            controller.confirm_quotas(entity, quotas)
        self._is_changed = True

    def alter_broker_configs(self, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool) -> None:
        """Set (or, with None, unset) dynamic configs of brokers, by id as text or ``<default>``; checked before."""
        controller = self._office()
        for name, change in changes.items():
            merged = {**controller.broker_configs.get(name, {}), **change}
            configs = {key: value for key, value in merged.items() if value is not None}
            if configs != controller.broker_configs.get(name, {}) and not validate_only:
                self._tree.write_broker_configs(self._fence, name, configs)
                controller.confirm_broker_configs(name, configs)
                self._is_changed = True

    def _office(self) -> Controller:
        if self._controller is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this controller has not read the whole cluster yet")
        return self._controller

    def _settle(self, controller: Controller, brokers: Mapping[int, BrokerInfo]) -> None:
        changes = controller.settle(brokers)
        self._change_states(controller, changes)
        if changes:
            leaderless = sum(change.after.leader < 0 for change in changes)
            log.info("states_written partitions=%d without_leader=%d", len(changes), leaderless)
        controller.confirm_brokers(brokers)
        self._finish_moves(controller)

    def _change_states(self, controller: Controller, changes: Sequence[StateChange]) -> None:
        if changes:
            self._tree.write_states(self._fence, changes)
            controller.confirm_states(changes)
            self._is_changed = True

    def _finish_moves(self, controller: Controller) -> None:
        """Let partitions that have arrived where they were moved to leave where they were."""
        rewrite = controller.plan_arrivals()
        if rewrite.topics:
            self._rewrite(controller, rewrite)
            log.info("moves_finished topics=%s", ",".join(topic.name for topic in rewrite.topics))

    def _rewrite(self, controller: Controller, rewrite: Rewrite) -> None:
        if rewrite.topics:
            self._tree.write_rewrite(self._fence, rewrite)
            controller.confirm_rewrite(rewrite)
            self._is_changed = True

    def _finish_deletion(self, controller: Controller, name: str) -> None:
        deleted = controller.deletion_of(name)
        self._tree.delete_topic(self._fence, name, deleted)
        controller.confirm_deletion(name, deleted)
        log.info("topic_deleted topic=%s", name)


def new_topic_ids(names: Iterable[str]) -> dict[str, uuid.UUID]:
    """Return a random id for each name; none is written with a leading dash, which command lines take for an option."""
    ids: dict[str, uuid.UUID] = {}
    for name in names:
        raw = os.urandom(16)
        # A dash is the digit 62 of base64url; without its highest bit the first digit stays below 32.
        ids[name] = uuid.UUID(bytes=bytes([raw[0] & 0x7F]) + raw[1:])
    return ids


def _created(topic: TopicImage) -> TopicResult:
    return TopicResult(
        topic.name,
        topic_id=topic.topic_id,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=topic.configs,
    )
