"""What the controller knows and decides; it neither reads nor writes the store itself.

The caller hands in what it read, writes what comes back, and confirms what was written.  So the state here is always
one that stands in the store, and an image made of it never shows a decision that may yet fail.
"""

import logging
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pylog.cluster.election import elect, elect_doubtful, elect_first, elect_preferred
from pylog.cluster.formats import level_to_finalize
from pylog.cluster.image import FIRST_LEVEL, BrokerInfo, ClusterImage, DeletedTopic, Move, PartitionImage, TopicImage
from pylog.cluster.quotas import ClientQuotas, QuotaEntity
from pylog.cluster.reassignment import begin_move, finish_move
from pylog.cluster.topics import UNCLEAN_ELECTION, ClusterConfig, NewTopic, plan_growth, plan_topic
from pylog.errors import ApiError, ErrorCode
from pylog.model import NO_LEADER, TRANSACTIONS_TOPIC, Key

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StateChange:
    """A partition's state as it should be written.

    Attributes:
        after: the new state; its `partition_epoch` is the version that the node must still have.
        is_new: the state node does not exist yet.
    """

    topic: str
    partition: int
    after: PartitionImage
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class IsrRequest:
    """A leader's wish for other in-sync replicas, or a follower's to be none of them.

    Attributes:
        leader_epoch: under which it leads.
        partition_epoch: of the state it knows; another one in the store refuses the wish.
        isr: the members, each with the broker epoch of the process that is in sync.
    """

    topic_id: uuid.UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class IsrResult:
    """What became of it, and the state that holds now; partition epoch -1 where there is none."""

    error: ErrorCode
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a broker found on its disk after an unclean stop.

    Attributes:
        ends: (last leader epoch, log end offset) of the leaderless partitions it is in the ISR of, by topic id and
            number.
        since_ms: when this controller first heard of it.
    """

    epoch: int
    ends: Mapping[tuple[uuid.UUID, int], tuple[int, int]]
    since_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a new controller has to read before it may decide or serve anything.

    Attributes:
        topics: partitions whose state node is missing are not among a topic's partitions.
        stateless: replicas of those partitions: their creation was interrupted.
        deletions: topics whose deletion was ordered and perhaps begun.
    """

    brokers: Mapping[int, BrokerInfo]
    topics: Mapping[str, TopicImage]
    stateless: Mapping[Key, tuple[int, ...]]
    deletions: Collection[str]
    deleted_topics: Mapping[uuid.UUID, DeletedTopic]
    broker_configs: Mapping[str, Mapping[str, str]]
    client_quotas: ClientQuotas = field(default_factory=dict)
    level: int = FIRST_LEVEL
    scram_credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)


MAX_ARRIVALS = 400
"""Moves of one topic that end at once: with the topic's assignment they fit into one write of the store."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Topics whose assignments change, and the states to write before them."""

    topics: Sequence[TopicImage]
    states: Sequence[StateChange]


class Controller:
    """One term as controller, from a whole snapshot on.

    Invariant: `topics` and `deleted_topics` stand in the store, written under this or an earlier controller epoch.
    """

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        cluster_id: str,
        config: ClusterConfig,
        snapshot: Snapshot,
        before: "Controller | None" = None,
    ) -> None:
        """Begin from *snapshot*; *before* is the same term's state until now, when the store had to be read again."""
        self.broker_id = broker_id
        self.epoch = epoch
        self.cluster_id = cluster_id
        self.config = config
        # Brokers known from before keep their epochs until `settle`, which sees by them who bounced meanwhile.
        self.brokers: dict[int, BrokerInfo] = dict(snapshot.brokers if before is None else before.brokers)
        self.topics = dict(snapshot.topics)
        self.deletions = set(snapshot.deletions)
        self.deleted_topics = dict(snapshot.deleted_topics)
        self.broker_configs = dict(snapshot.broker_configs)
        self.client_quotas = dict(snapshot.client_quotas)
        self.scram_credentials = dict(snapshot.scram_credentials)
        self.level = snapshot.level
        self._names = {topic.topic_id: name for name, topic in self.topics.items()}
        self._stateless = dict(snapshot.stateless)
        self._recoveries: dict[int, Recovery] = {} if before is None else before._recoveries
        self._stopping: dict[int, int] = {} if before is None else before._stopping  # broker epoch by broker
        self._version: int = 0 if before is None else before._version
        self._partition_count = sum(len(topic.partitions) for topic in self.topics.values())

    def image(self) -> ClusterImage:
        """Return the next image; a later one orders higher."""
        self._version += 1
        return ClusterImage(
            self.epoch,
            self._version,
            self.cluster_id,
            self.broker_id,
            dict(self.brokers),
            {name: topic for name, topic in self.topics.items() if name not in self.deletions},
            dict(self.deleted_topics),
            dict(self.broker_configs),
            dict(self.client_quotas),
            self.level,
            dict(self.scram_credentials),
        )

    def settle(self, brokers: Mapping[int, BrokerInfo]) -> list[StateChange]:
        """Return the partition states to write, now that these brokers are registered.

        A broker with a new epoch bounced: others take over what they can, before it is counted as live.  One that
        stopped uncleanly is in doubt (rule 3): everywhere until it has said what it found, and for partitions without
        leader until one is elected by that.
        """
        bounced = {
            broker_id
            for broker_id, broker in brokers.items()
            if broker_id in self.brokers and self.brokers[broker_id].epoch != broker.epoch
        }
        live = frozenset(brokers)
        unclean = {broker_id for broker_id, broker in brokers.items() if not broker.is_clean}
        unreported = {broker_id for broker_id in unclean if not self._has_reported(brokers[broker_id])}
        changes = [
            StateChange(name, number, elect_first(replicas, live), is_new=True)
            for (name, number), replicas in self._stateless.items()
            if name not in self.deletions
        ]
        for name, topic in self.topics.items():
            if name in self.deletions:
                continue
            may_lose = self._may_lose(topic)
            for number, partition in topic.partitions.items():
                doubtful = unclean if partition.leader == NO_LEADER else unreported
                move = topic.moves.get(number, Move())
                after = elect(partition, live, bounced=bounced, doubtful=doubtful, move=move, unclean=may_lose)
                if after is not partition:
                    changes.append(StateChange(name, number, after))
        return changes

    def _may_lose(self, topic: TopicImage) -> bool:
        """Whether somebody prefers a partition that lost records to one that waits."""
        if topic.name == TRANSACTIONS_TOPIC:
            return False  # whatever is set
        text = topic.configs.get(UNCLEAN_ELECTION)
        return self.config.unclean_elections if text is None else text.strip().lower() == "true"

    def confirm_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Take over who is registered, once all that `settle` wanted because of it is written."""
        self.brokers = dict(brokers)

    def plan_recovery(
        self, broker_id: int, broker_epoch: int, ends: Mapping[tuple[uuid.UUID, int], tuple[int, int]], now_ms: int
    ) -> list[StateChange]:
        """Return the leaders to elect by the logs that unclean stops left, now that *broker_id* says what it has.

        Raises:
            ApiError: STALE_BROKER_EPOCH; another process registered.
        """
        registered = self.brokers.get(broker_id)
        if registered is None or registered.epoch != broker_epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} of epoch {broker_epoch} is gone")
        before = self._recoveries.get(broker_id)
        since_ms = before.since_ms if before is not None and before.epoch == broker_epoch else now_ms
        self._recoveries[broker_id] = Recovery(broker_epoch, ends, since_ms)
        is_over = now_ms - since_ms >= self.config.unclean_recovery_wait_ms
        changes: list[StateChange] = []
        for topic, number, state in self._in_doubt(broker_id):
            known = {
                member: self._recoveries[member].ends[topic.topic_id, number]
                for member in state.isr
                if member in self.brokers
                and self._has_reported(self.brokers[member])
                and (topic.topic_id, number) in self._recoveries[member].ends
            }
            missing = [member for member in state.isr if member not in known]
            is_anybody_silent = any(
                member in self.brokers and not self._has_reported(self.brokers[member]) for member in missing
            )
            # Where losing is preferred to waiting nobody who is away is waited for; those who are back soon report.
            may_lose = self._may_lose(topic) and not is_anybody_silent
            # Of transactional ids nothing may be lost: epochs would be given out twice, however long the wait was.
            is_enough = is_over and topic.name != TRANSACTIONS_TOPIC
            if known and (is_enough or not missing or may_lose):
                after = elect_doubtful(state, known)
                found = (topic.name, number, after.leader, known, missing)
                if not missing and all(self.brokers[member].has_memory for member in state.isr):
                    _logger.info(
                        "elected after kills, nothing lost partition=%s-%d leader=%d ends=%s unheard=%s", *found
                    )
                else:
                    message = "possible loss after unclean stops partition=%s-%d leader=%d ends=%s unheard=%s"
                    _logger.error(message, *found)
                changes.append(StateChange(topic.name, number, after))
        return changes

    def plan_elections(
        self, wanted: Iterable[Key] | None, *, unclean: bool
    ) -> tuple[list[StateChange], dict[Key, ErrorCode]]:
        """Return the states to write for elections that an operator asked for, and the result of each.

        Args:
            wanted: partitions; None means all, of which those that need nothing are left out of the result.
            unclean: elect any live replica where nobody leads, instead of the preferred one.
        """
        asked = wanted
        if asked is None:
            asked = [(name, number) for name, topic in self.topics.items() for number in topic.partitions]
        changes: dict[Key, StateChange] = {}
        results: dict[Key, ErrorCode] = {}
        for name, number in asked:
            topic = self.topics.get(name)
            state = topic.partitions.get(number) if topic is not None and name not in self.deletions else None
            if topic is None or state is None:
                results[name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            if unclean and name == TRANSACTIONS_TOPIC and state.leader == NO_LEADER:
                after: PartitionImage | ErrorCode = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            else:
                after = self._elect_now(state, topic.moves.get(number, Move()), unclean=unclean)
            if isinstance(after, PartitionImage):
                changes[name, number] = StateChange(name, number, after)
                after = ErrorCode.NONE
            if wanted is not None or after is not ErrorCode.ELECTION_NOT_NEEDED:
                results[name, number] = after
        return list(changes.values()), results

    def _elect_now(self, state: PartitionImage, move: Move, *, unclean: bool) -> PartitionImage | ErrorCode:
        if unclean:
            if state.leader != NO_LEADER:
                return ErrorCode.ELECTION_NOT_NEEDED
            after = elect(state, self.brokers, move=move, unclean=True)
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if after.leader == NO_LEADER else after
        preferred = elect_preferred(state, self.brokers.keys() - self._doubtful(state))
        if preferred is None:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return ErrorCode.ELECTION_NOT_NEEDED if preferred is state else preferred

    def plan_shutdown(self, broker_id: int, broker_epoch: int) -> list[StateChange]:
        """Return the states in which others do what *broker_id*, which is about to stop, did; it joins no ISR again.

        What nobody else has stays with it until it is gone.

        Raises:
            ApiError: STALE_BROKER_EPOCH; another process registered.
        """
        registered = self.brokers.get(broker_id)
        if registered is None or registered.epoch != broker_epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} of epoch {broker_epoch} is gone")
        self._stopping[broker_id] = broker_epoch
        changes: list[StateChange] = []
        for name, topic in self.topics.items():
            if name in self.deletions:
                continue
            for number, partition in topic.partitions.items():
                if broker_id in partition.isr:
                    after = elect(partition, self.brokers, leaving={broker_id}, doubtful=self._doubtful(partition))
                    if broker_id not in after.isr:
                        changes.append(StateChange(name, number, after))
        return changes

    def is_recovered(self, broker_id: int) -> bool:
        """Whether no partition waits for what *broker_id* may have lost."""
        return not any(True for _ in self._in_doubt(broker_id))

    def confirm_recovery(self, broker_id: int) -> None:
        """Take over that *broker_id* is a broker like any other again."""
        self.brokers[broker_id] = replace(self.brokers[broker_id], is_clean=True)
        self._recoveries.pop(broker_id, None)

    def _doubtful(self, partition: PartitionImage) -> set[int]:
        """Return who must not be made leader of *partition*, which has none: their logs are compared first (rule 3)."""
        if partition.leader != NO_LEADER:
            return set()
        return {broker_id for broker_id, broker in self.brokers.items() if not broker.is_clean}

    def _in_doubt(self, broker_id: int) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for name, topic in self.topics.items():
            if name not in self.deletions:
                for number, state in topic.partitions.items():
                    if state.leader == NO_LEADER and broker_id in state.isr:
                        yield topic, number, state

    def _has_reported(self, broker: BrokerInfo) -> bool:
        found = self._recoveries.get(broker.broker_id)
        return found is not None and found.epoch == broker.epoch

    def _may_join(self, broker_id: int, epoch: int) -> bool:
        """Whether the process of this epoch may be in an ISR."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or self._stopping.get(broker_id) == epoch:
            return False
        return broker.is_clean or self._has_reported(broker)

    def adopt_topics(self, topics: Mapping[str, TopicImage], stateless: Mapping[Key, tuple[int, ...]]) -> None:
        """Take over topics that somebody else made in the store; `settle` gives their partitions leaders."""
        self.topics |= topics
        self._names |= {topic.topic_id: name for name, topic in topics.items()}
        self._stateless |= stateless
        self._partition_count += sum(len(topic.partitions) for topic in topics.values())

    def confirm_states(self, changes: Iterable[StateChange]) -> None:
        """Take over states that were written; each node's version has grown by one, or is 0 if it is new."""
        by_topic: defaultdict[str, dict[int, PartitionImage]] = defaultdict(dict)
        for change in changes:
            version = 0 if change.is_new else change.after.partition_epoch + 1
            by_topic[change.topic][change.partition] = replace(change.after, partition_epoch=version)
            self._stateless.pop((change.topic, change.partition), None)
        for name, written in by_topic.items():
            topic = self.topics[name]
            self.topics[name] = replace(topic, partitions=dict(sorted({**topic.partitions, **written}.items())))

    def plan_isrs(
        self, broker_id: int, broker_epoch: int, wanted: Iterable[IsrRequest]
    ) -> list[StateChange | IsrResult]:
        """Return `plan_isr` of each wish; the second one for a partition in one request is refused."""
        seen: set[tuple[uuid.UUID, int]] = set()
        plans: list[StateChange | IsrResult] = []
        for one in wanted:
            key = (one.topic_id, one.partition)
            plans.append(
                IsrResult(ErrorCode.INVALID_REQUEST) if key in seen else self.plan_isr(broker_id, broker_epoch, one)
            )
            seen.add(key)
        return plans

    def plan_isr(self, broker_id: int, broker_epoch: int, wanted: IsrRequest) -> StateChange | IsrResult:
        """Return the state to write for a leader's wish, or a follower's to be out, or why it is refused.

        A wish that is fulfilled already is answered as such: who wishes asks again when an answer was lost.
        """
        topic = self.topics.get(self._names.get(wanted.topic_id, ""))
        state = topic.partitions.get(wanted.partition) if topic is not None else None
        if topic is None or state is None or topic.name in self.deletions:
            return IsrResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        members = tuple(member for member, _ in wanted.isr)
        registered = self.brokers.get(broker_id)
        is_resigning = broker_id not in members and set(members) <= set(state.isr)
        is_follower = broker_id in state.isr and state.leader not in (broker_id, NO_LEADER)
        error = ErrorCode.NONE
        if registered is None or registered.epoch != broker_epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        elif state.leader != broker_id and not (is_follower and is_resigning):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif state.leader_epoch != wanted.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif set(state.isr) == set(members):
            return IsrResult(ErrorCode.NONE, state.isr, state.partition_epoch)
        elif state.partition_epoch != wanted.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif is_resigning:
            # Its log cannot be used: another member leads, and it is out until it has fetched everything again.
            after = elect(state, self.brokers, leaving={broker_id})
            if broker_id not in after.isr:
                return StateChange(topic.name, wanted.partition, after)
            error = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        elif broker_id not in members or not set(members) <= set(state.replicas) or len(set(members)) != len(members):
            error = ErrorCode.INVALID_REQUEST
        elif not all(self._may_join(member, epoch) for member, epoch in wanted.isr):
            error = ErrorCode.STALE_BROKER_EPOCH
        if error is not ErrorCode.NONE:
            return IsrResult(error, state.isr, state.partition_epoch)
        # In the order of the replicas, as every other writer of this node has it.
        isr = tuple(replica for replica in state.replicas if replica in members)
        return StateChange(topic.name, wanted.partition, replace(state, isr=isr))

    def plan_topics(self, wanted: Iterable[tuple[NewTopic, uuid.UUID]]) -> tuple[list[TopicImage], dict[str, ApiError]]:
        """Return the topics to write, and for each other name why it cannot be."""
        planned: list[TopicImage] = []
        refused: dict[str, ApiError] = {}
        start_index = self._partition_count
        for topic, topic_id in wanted:
            try:
                if topic.name in self.topics:
                    raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists")
                planned.append(plan_topic(topic, topic_id, self.brokers.values(), self.config, start_index))
            except ApiError as error:
                refused[topic.name] = error
                continue
            start_index += len(planned[-1].partitions)
        return planned, refused

    def plan_growth(self, name: str, count: int, assignments: Sequence[Sequence[int]] | None) -> TopicImage:
        """Return topic *name* as it will be with *count* partitions.

        Raises:
            ApiError: there is no such topic, or it cannot have so many.
        """
        topic = self.topics.get(name)
        if topic is None or name in self.deletions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        if topic.moves or any(other == name for other, _ in self._stateless):
            raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions of {name!r} are being made or moved")
        return plan_growth(topic, count, assignments, self.brokers.values(), self._partition_count)

    def confirm_growth(self, count: int) -> None:
        """Take note that *count* partitions are new; `confirm_states` brought them."""
        self._partition_count += count

    def confirm_topic(self, topic: TopicImage) -> None:
        """Take over a topic that was written with all its states."""
        self.topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        self._partition_count += len(topic.partitions)

    def confirm_intent(self, name: str) -> None:
        """Take over that a topic's deletion was ordered: images no longer have it."""
        self.deletions.add(name)

    def deletion_of(self, name: str) -> DeletedTopic | None:
        """Return what to remember of a topic when its nodes go; None for a topic that has no nodes."""
        topic = self.topics.get(name)
        if topic is None:
            return None
        pending = {broker for (other, _), replicas in self._stateless.items() if other == name for broker in replicas}
        written = {broker for partition in topic.partitions.values() for broker in partition.replicas}
        written.update(broker for brokers in topic.leaving.values() for broker in brokers)
        return DeletedTopic(name, topic.topic_id, tuple(sorted(pending | written)))

    def confirm_deletion(self, name: str, deleted: DeletedTopic | None) -> None:
        """Take over that a topic's nodes are gone."""
        self.deletions.discard(name)
        topic = self.topics.pop(name, None)
        if topic is not None:
            self._names.pop(topic.topic_id, None)
        for key in [key for key in self._stateless if key[0] == name]:
            del self._stateless[key]
        if deleted is not None:
            self.deleted_topics[deleted.topic_id] = deleted

    def plan_moves(self, wanted: Mapping[Key, Sequence[int] | None]) -> tuple[Rewrite, dict[Key, ApiError]]:
        """Return what to write for partitions to be held by these brokers, and why some cannot be.

        None calls a move off.

        Raises:
            ApiError: UNSUPPORTED_VERSION; the cluster may still have a controller that knows no moves.
        """
        planned: dict[str, TopicImage] = {}
        refused: dict[Key, ApiError] = {}
        eligible = self._eligible()
        for (name, number), replicas in wanted.items():
            try:
                topic = planned.get(name, self.topics.get(name))
                if topic is None or name in self.deletions:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
                planned[name] = begin_move(topic, number, replicas, eligible)
            except ApiError as error:
                refused[name, number] = error
        return self._rewrite(planned.values()), refused

    def plan_arrivals(self) -> Rewrite:
        """Return what to write for moves that are done, `MAX_ARRIVALS` of each topic at most; then ask again."""
        planned: dict[str, TopicImage] = {}
        eligible: set[int] | None = None
        for name, topic in self.topics.items():
            if topic.moves and name not in self.deletions:
                eligible = self._eligible() if eligible is None else eligible
                count = 0
                for number in topic.moves:
                    # Each copies the topic: those that wait for the next round would make many moves cubic.
                    if count == MAX_ARRIVALS:
                        break
                    done = finish_move(planned.get(name, topic), number, eligible)
                    if done is not None:
                        planned[name] = done
                        count += 1
        return self._rewrite(planned.values())

    def confirm_rewrite(self, rewrite: Rewrite) -> None:
        """Take over assignments and states that were written."""
        for topic in rewrite.topics:
            self.topics[topic.name] = topic
        self.confirm_states(rewrite.states)

    def after_removal(self, broker_id: int, removed: Iterable[tuple[uuid.UUID, int]]) -> list[TopicImage]:
        """Return the topics as they are once *broker_id* has deleted these partitions, which it held before a move."""
        planned: dict[str, TopicImage] = {}
        for topic_id, number in removed:
            name = self._names.get(topic_id, "")
            topic = planned.get(name, self.topics.get(name))
            if topic is not None and broker_id in topic.leaving.get(number, ()):
                left = tuple(broker for broker in topic.leaving[number] if broker != broker_id)
                leaving = {key: brokers for key, brokers in {**topic.leaving, number: left}.items() if brokers}
                planned[name] = replace(topic, leaving=leaving)
        return list(planned.values())

    def _rewrite(self, planned: Iterable[TopicImage]) -> Rewrite:
        topics = list(planned)
        states = [
            StateChange(topic.name, number, after)
            for topic in topics
            for number, after in topic.partitions.items()
            if _is_other_state(self.topics[topic.name].partitions[number], after)
        ]
        return Rewrite(topics, states)

    def _eligible(self) -> set[int]:
        """Return the brokers that may lead."""
        return {one for one, broker in self.brokers.items() if self._may_join(one, broker.epoch)}

    def plan_finalize(self) -> int:
        """Return the level to write: that of this release.

        Raises:
            ApiError: FEATURE_UPDATE_FAILED; a registered broker could not read it.
        """
        return level_to_finalize(self.brokers)

    def after_cleanup(self, broker_id: int, topic_ids: Iterable[uuid.UUID]) -> list[DeletedTopic]:
        """Return what still is to be remembered once *broker_id* has deleted its data of these topics."""
        found = [self.deleted_topics[topic_id] for topic_id in topic_ids if topic_id in self.deleted_topics]
        return [
            replace(deleted, replicas=tuple(broker for broker in deleted.replicas if broker != broker_id))
            for deleted in found
            if broker_id in deleted.replicas
        ]

    def confirm_cleanup(self, deleted: DeletedTopic) -> None:
        """Take over who still has to delete; nobody left means that it is forgotten."""
        if deleted.replicas:
            self.deleted_topics[deleted.topic_id] = deleted
        else:
            self.deleted_topics.pop(deleted.topic_id, None)

    def confirm_broker_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Take over dynamic configs of brokers that were written."""
        self.broker_configs[name] = dict(configs)

    def confirm_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Take over a topic's configs that were written."""
        self.topics[name] = replace(self.topics[name], configs=dict(configs))

    def confirm_quotas(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        """Take over the quotas of an entity that were written; without any it is forgotten."""
        if quotas:
            self.client_quotas[entity] = dict(quotas)
        else:
            self.client_quotas.pop(entity, None)

    def confirm_credentials(self, user: str, credentials: Mapping[str, str]) -> None:
        """Take over the credentials of a user that were written; without any the user is forgotten."""
        if credentials:
            self.scram_credentials[user] = dict(credentials)
        else:
            self.scram_credentials.pop(user, None)


def _is_other_state(before: PartitionImage, after: PartitionImage) -> bool:
    """Whether the state node says something else; replicas stand in the topic's."""
    return (before.leader, before.leader_epoch, before.isr) != (after.leader, after.leader_epoch, after.isr)
