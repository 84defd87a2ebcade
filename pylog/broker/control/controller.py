"""The active controller: writes to the store what `pylog.cluster.controller` decides, under the fence of its epoch."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pylog.broker.clock import steady_ms
from pylog.cluster.controller import Controller, Rewrite, StateChange
from pylog.cluster.image import BrokerInfo, ClusterImage
from pylog.cluster.topics import ClusterConfig
from pylog.errors import ApiError, ErrorCode
from pylog.store.base import Watch
from pylog.store.tree import ClusterTree, Fence

_logger = logging.getLogger(__name__)

_NO_ID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The result of an operation for one of its topics.

    Attributes:
        topic_id: all zero where the topic does not exist.
        partitions: number of partitions, -1 on an error.
        replication_factor: replicas of each partition, -1 on an error.
    """

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: uuid.UUID = _NO_ID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Watches:
    """What the store calls when something changes that the controller has to react to."""

    brokers: Watch
    topics: Watch
    deletions: Watch
    configs: Watch


def _readers(brokers: Mapping[int, BrokerInfo], level: int) -> dict[int, BrokerInfo]:
    """Return the brokers that read what a cluster of *level* writes.

    Another one looked at the level before it was raised, and registered after: counted in, it would lead and copy what
    it takes for something else.
    """
    for one in brokers.values():
        if one.max_level < level:
            reason = f"its release reads formats up to level {one.max_level}, and the cluster is finalized to {level}"
            _logger.error("broker_ignored broker=%d reason=%s", one.broker_id, reason)
    return {broker_id: one for broker_id, one in brokers.items() if one.max_level >= level}


class ActiveController:
    """One term as controller; only the agent's thread uses it.

    The operations that clients and brokers ask for stand with their subjects (`topics`, `configs`, …).  Each plans with
    `state`, writes with `tree` under `fence`, confirms to `state` what was written, and calls `mark_changed`.

    Every method and operation may raise Deposed, after which this object is of no use, or NotConnected and BadVersion,
    after which `reload` must come first: nobody knows what was written.

    Attributes:
        tree: the cluster's state in the store.
        fence: the claim under which everything is written.
        elected_ms: steady time of the election.
    """

    def __init__(self, tree: ClusterTree, fence: Fence, watches: Watches) -> None:
        self.tree = tree
        self.fence = fence
        self.elected_ms = steady_ms()
        self._watches = watches
        self._state: Controller | None = None
        self._is_changed = False

    @property
    def is_ready(self) -> bool:
        """Whether the whole tree was read; before that nothing is decided, answered or published."""
        return self._state is not None

    @property
    def state(self) -> Controller:
        """The cluster as it stands in the store, and the decisions that follow from it.

        Raises:
            ApiError: NOT_CONTROLLER; the tree was not read yet.
        """
        if self._state is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this controller has not read the whole cluster yet")
        return self._state

    def reload(self, broker_id: int, cluster_id: str, config: ClusterConfig) -> None:
        """Read the whole tree and repair it: finish interrupted deletions, elect leaders where there is none.

        Raises:
            ProtocolError: a node cannot be read; repair it, then try again.
        """
        watches = self._watches
        snapshot = self.tree.snapshot(watches.brokers, watches.topics, watches.deletions, watches.configs)
        snapshot = replace(snapshot, brokers=_readers(snapshot.brokers, snapshot.level))
        state = Controller(broker_id, self.fence.epoch, cluster_id, config, snapshot, self._state)
        self._update_brokers(state, snapshot.brokers)
        for name in sorted(snapshot.deletions):
            self._finish_deletion(state, name)
        self._state, self._is_changed = state, True

    def take_image(self) -> ClusterImage | None:
        """Return a new image if anything changed since the last one."""
        if not self._is_changed or self._state is None:
            return None
        self._is_changed = False
        return self._state.image()

    # -- reactions to changes in the store ---------------------------------------------------------------------------

    def read_brokers(self) -> None:
        """React to brokers that registered, went away or bounced."""
        state = self.state
        brokers = _readers(self.tree.brokers(self._watches.brokers), state.level)
        if brokers != state.brokers:
            _logger.info("brokers_changed before=%s now=%s", sorted(state.brokers), sorted(brokers))
            self._update_brokers(state, brokers)
            self.mark_changed()

    def read_topics(self) -> None:
        """React to topics that another tool wrote or removed."""
        state = self.state
        names = self.tree.topic_names(self._watches.topics)
        for name in sorted(state.topics.keys() - names):
            _logger.warning("topic_vanished topic=%s its data stays where it is", name)
            state.confirm_deletion(name, None)
            self.mark_changed()
        new = sorted(names - state.topics.keys())
        if new:
            state.adopt_topics(*self.tree.topics(new))
            self.elect_leaders()
            self.mark_changed()

    def read_deletions(self) -> None:
        """Carry out deletions that were ordered in the store."""
        for name in sorted(self.tree.ordered_deletions(self._watches.deletions)):
            self.delete_topic(name)

    def read_configs(self) -> None:
        """React to configs that another tool changed; it leaves a notice where Kafka's brokers look for one."""
        state = self.state
        self.tree.config_changes(self._watches.configs)
        for name, configs in self.tree.topic_configs(state.topics).items():
            if configs != state.topics[name].configs:
                state.confirm_configs(name, configs)
                self.mark_changed()
        brokers = self.tree.broker_configs()
        if brokers != state.broker_configs:
            state.broker_configs = {**brokers}
            self.mark_changed()
        credentials = self.tree.scram_credentials()
        if credentials != state.scram_credentials:
            state.scram_credentials = {**credentials}
            self.mark_changed()

    # -- steps of operations -----------------------------------------------------------------------------------------

    def mark_changed(self) -> None:
        """Publish a new image after this operation."""
        self._is_changed = True

    def write_states(self, changes: Sequence[StateChange]) -> None:
        """Write partition states and confirm them."""
        self._write_states(self.state, changes)

    def write_assignments(self, rewrite: Rewrite) -> None:
        """Write assignments of topics, and the states that come before them, and confirm both."""
        self._write_assignments(self.state, rewrite)

    def finish_reassignments(self) -> None:
        """End the reassignments whose new replicas are all in sync."""
        self._finish_reassignments(self.state)

    def elect_leaders(self) -> None:
        """Elect leaders where the registered brokers and the settings of topics allow another one."""
        self._update_brokers(self.state, self.state.brokers)

    def delete_topic(self, name: str) -> None:
        """Delete a topic whose deletion stands in the store as ordered."""
        state = self.state
        state.confirm_intent(name)
        self.mark_changed()
        self._finish_deletion(state, name)

    # The steps take the state as an argument because `reload` repairs a state that is not in force yet.

    def _update_brokers(self, state: Controller, brokers: Mapping[int, BrokerInfo]) -> None:
        changes = state.settle(brokers)
        self._write_states(state, changes)
        if changes:
            leaderless = sum(change.after.leader < 0 for change in changes)
            _logger.info("states_written partitions=%d without_leader=%d", len(changes), leaderless)
        state.confirm_brokers(brokers)
        self._finish_reassignments(state)

    def _write_states(self, state: Controller, changes: Sequence[StateChange]) -> None:
        if changes:
            self.tree.write_states(self.fence, changes)
            state.confirm_states(changes)
            self.mark_changed()

    def _finish_reassignments(self, state: Controller) -> None:
        while (rewrite := state.plan_arrivals()).topics:
            self._write_assignments(state, rewrite)
            _logger.info("moves_finished topics=%s", ",".join(topic.name for topic in rewrite.topics))

    def _write_assignments(self, state: Controller, rewrite: Rewrite) -> None:
        if rewrite.topics:
            self.tree.write_rewrite(self.fence, rewrite)
            state.confirm_rewrite(rewrite)
            self.mark_changed()

    def _finish_deletion(self, state: Controller, name: str) -> None:
        deleted = state.deletion_of(name)
        self.tree.delete_topic(self.fence, name, deleted)
        state.confirm_deletion(name, deleted)
        _logger.info("topic_deleted topic=%s", name)
