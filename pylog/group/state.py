"""One consumer group as a state machine.

Every method takes the time and what a member asked, and returns what the coordinator has to do: answer somebody, write
something down.  Members that wait hold a token, which is whatever the coordinator needs to answer them later.

A rebalance: members join (PreparingRebalance) until all are back or time is up; then a generation begins, its leader
brings the assignments (CompletingRebalance), they are written down, and everybody gets theirs (Stable).

Source: Kafka protocol guide, "Group membership"; KIP-62, KIP-134, KIP-345 (static members), KIP-394 (member ids).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from pylog.errors import ErrorCode
from pylog.group.subscription import is_same_subscription
from pylog.wire.api.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pylog.wire.api.message import Message

MEMBER_ID_REQUIRED_FROM_VERSION = 4
SKIP_ASSIGNMENT_FROM_VERSION = 9

NEVER_MS = 2**63 - 1


class Cause(Enum):
    """Why a group rebalances."""

    JOINED = "joined"
    """A member came."""
    REJOINED = "rejoined"
    """A member asked for it: it reads other topics, or is the leader and wants to assign anew."""
    LEFT = "left"
    """A member said that it goes."""
    EXPIRED = "expired"
    """A member was silent for longer than its session."""
    EXPELLED = "expelled"
    """This broker ended the sessions of members that read a topic that was deleted."""
    UNWRITTEN = "unwritten"
    """The assignment could not be written to the log."""


class State(Enum):
    """Where a group is; the values are what DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_NEXT: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}

Token: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Send *response* to whoever left *token*."""

    token: Token
    response: Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the group down as it is now, then call `Group.persisted` with this.

    Attributes:
        generation: the one it is in.
        member_id: who waits for this to be written; None: the whole generation, or nobody.
    """

    generation: int
    member_id: str | None = None


Action: TypeAlias = Answer | Persist


@dataclass(slots=True)
class Member:
    """One member.

    Attributes:
        protocols: assignors it can run, the best first, each with its subscription.
        join_token: it waits for the next generation.
        sync_token: it waits for its assignment.
        replaced_id: of the static member whose place it took.
        can_skip_assignment: it can be told that it leads a generation that is assigned already.
        has_synced: it asked for its assignment of this generation.
        session_deadline_ms: when it is taken for dead; not counted while it waits for us.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    join_token: Token = None
    sync_token: Token = None
    has_synced: bool = True
    replaced_id: str = ""
    can_skip_assignment: bool = False
    session_deadline_ms: int = 0

    @property
    def is_waiting(self) -> bool:
        """Whether the next word is ours, so that its silence means nothing."""
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Return its subscription under *protocol*."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(frozen=True, slots=True)
class Joiner:
    """Who sends a JoinGroup, beside what the request says."""

    client_id: str
    client_host: str
    version: int
    new_member_id: str
    """What to call it if it has no id yet; made outside, because nothing here is random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Bounds of all groups."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000


@dataclass(slots=True)
class Group:
    """See the module.

    Attributes:
        members: by id, in the order they came.
        pending: ids handed out whose owners have not joined with them yet, and until when they may.
        leader_id: the member that assigns.
        written_ms: wall clock when the record was written that the group was read from, -1 if it was not read.
        topic_ids: of the topics that members read, by name, as the coordinator that wrote that record knew them; None
            if the group was not read, or the record has none.
        rebalance_deadline_ms: when the members that are not back, or did not fetch their assignments, are given up.
        wake_ms: before this, `expire` has nothing to do.
        rebalances_for: why a rebalance began that nobody has counted yet.

    Invariant: every static instance names a member.
    """

    group_id: str
    config: GroupConfig
    state: State = State.EMPTY
    generation: int = 0
    written_ms: int = -1
    topic_ids: Mapping[str, UUID] | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    rebalance_deadline_ms: int = 0
    wake_ms: int = NEVER_MS
    rebalances_for: Cause | None = None
    _initial_left_ms: int = 0
    _is_initial: bool = False
    _has_newcomer: bool = False
    _is_persisting: bool = False

    # -- joining ---------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, joiner: Joiner, token: Token, now_ms: int) -> list[Action]:
        """Take a member into the next generation."""
        fault = self._join_fault(request)
        if fault is not ErrorCode.NONE:
            return [Answer(token, request.error_response(fault))]
        if not request.member_id:
            return self._join_new(request, joiner, token, now_ms)
        if request.group_instance_id is not None:
            known = self.instances.get(request.group_instance_id)
            if known is None:
                return [Answer(token, request.error_response(ErrorCode.UNKNOWN_MEMBER_ID))]
            if known != request.member_id:
                return [Answer(token, request.error_response(ErrorCode.FENCED_INSTANCE_ID))]
        if request.member_id in self.pending:
            del self.pending[request.member_id]
            return self._add(request, joiner, request.member_id, token, now_ms)
        member = self.members.get(request.member_id)
        if member is None:
            return [Answer(token, request.error_response(ErrorCode.UNKNOWN_MEMBER_ID))]
        return self._rejoin(member, request, token, now_ms)

    def _join_fault(self, request: JoinGroupRequest) -> ErrorCode:
        config = self.config
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_known = request.member_id in self.members or request.member_id in self.pending
        is_static = request.group_instance_id in self.instances
        if not is_known and not is_static and len(self.members) + len(self.pending) >= config.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if self.members and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        others = [member for member in self.members.values() if member.member_id != request.member_id]
        if others:
            supported = set.intersection(*({name for name, _ in member.protocols} for member in others))
            if supported.isdisjoint(protocol.name for protocol in request.protocols):
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _join_new(self, request: JoinGroupRequest, joiner: Joiner, token: Token, now_ms: int) -> list[Action]:
        instance_id = request.group_instance_id
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is not None:
                return self._replace_static(self.members[known], request, joiner, token, now_ms)
        elif joiner.version >= MEMBER_ID_REQUIRED_FROM_VERSION:
            # A client that gives up and comes again would leave a ghost member behind each time (KIP-394).
            self.pending[joiner.new_member_id] = now_ms + request.session_timeout_ms
            self._wake_by(now_ms + request.session_timeout_ms)
            response = request.error_response(ErrorCode.MEMBER_ID_REQUIRED)
            assert isinstance(response, JoinGroupResponse)
            response.member_id = joiner.new_member_id
            return [Answer(token, response)]
        return self._add(request, joiner, joiner.new_member_id, token, now_ms)

    def _add(
        self, request: JoinGroupRequest, joiner: Joiner, member_id: str, token: Token, now_ms: int
    ) -> list[Action]:
        member = Member(
            member_id,
            request.group_instance_id,
            joiner.client_id,
            joiner.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            [(protocol.name, protocol.metadata) for protocol in request.protocols],
            join_token=token,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id
        self.leader_id = self.leader_id or member_id
        self._has_newcomer = True
        return self._prepare_rebalance(Cause.JOINED, now_ms)

    def _rejoin(self, member: Member, request: JoinGroupRequest, token: Token, now_ms: int) -> list[Action]:
        protocols = [(protocol.name, protocol.metadata) for protocol in request.protocols]
        is_same = protocols == member.protocols
        actions = self._supersede(member)
        member.protocols = protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._touch(member, now_ms)
        if self.state is State.COMPLETING_REBALANCE and is_same:
            # It missed our answer: the generation it asks for is the one that is being completed.
            return [*actions, Answer(token, self._join_response(member))]
        if self.state is State.STABLE and is_same and member.member_id != self.leader_id:
            return [*actions, Answer(token, self._join_response(member))]
        member.join_token = token
        return actions + self._prepare_rebalance(Cause.REJOINED, now_ms)

    def _replace_static(
        self, old: Member, request: JoinGroupRequest, joiner: Joiner, token: Token, now_ms: int
    ) -> list[Action]:
        """Let a restarted static member take its own place, under a new id (KIP-345)."""
        protocols = [(protocol.name, protocol.metadata) for protocol in request.protocols]
        offered = dict(protocols).get(self.protocol or "")
        is_same = offered is not None and is_same_subscription(self.protocol_type, old.metadata(self.protocol), offered)
        was_leader = self.leader_id == old.member_id
        actions = self._fence(old)
        member = Member(
            joiner.new_member_id,
            old.instance_id,
            joiner.client_id,
            joiner.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            protocols,
            assignment=old.assignment,
            join_token=token,
            has_synced=old.has_synced,
        )
        # In the old one's place, so that the order of members stays what assignors saw.
        self.members = {
            (member.member_id if one is old else one.member_id): (member if one is old else one)
            for one in self.members.values()
        }
        assert member.instance_id is not None
        self.instances[member.instance_id] = member.member_id
        if was_leader:
            self.leader_id = member.member_id
        if self.state is State.STABLE and is_same:
            # Told only once the new id is written: the next coordinator would fence it otherwise.
            member.can_skip_assignment = joiner.version >= SKIP_ASSIGNMENT_FROM_VERSION
            member.replaced_id = old.member_id
            return [*actions, Persist(self.generation, member.member_id)]
        return actions + self._prepare_rebalance(Cause.JOINED, now_ms)

    def _replaced(self, member: Member, error: ErrorCode, now_ms: int) -> list[Action]:
        """Let a static member that took its own place go on in the running generation."""
        token, member.join_token = member.join_token, None
        self._touch(member, now_ms)
        if error is not ErrorCode.NONE:
            return [Answer(token, JoinGroupResponse(error_code=error))]
        response = self._join_response(member)
        if member.member_id == self.leader_id:
            if member.can_skip_assignment:
                response.skip_assignment = True
            else:
                # An old client that is told it leads would assign anew; the old id leads nobody.
                response.leader, response.members = member.replaced_id, []
        return [Answer(token, response)]

    def _prepare_rebalance(self, cause: Cause, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        if self.state is State.PREPARING_REBALANCE:
            return self._maybe_complete(now_ms)
        for member in self.members.values():
            if member.sync_token is not None:
                actions.append(Answer(member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
                member.sync_token = None
                self._touch(member, now_ms)
        was_empty = self.state is State.EMPTY
        self._become(State.PREPARING_REBALANCE)
        self.rebalances_for = cause
        self._is_persisting = False
        timeout_ms = self._rebalance_timeout_ms()
        self._is_initial = was_empty and self.config.initial_rebalance_delay_ms > 0
        if self._is_initial:
            # The first member waits a moment: a group that starts up would rebalance once for every member else.
            delay_ms = self.config.initial_rebalance_delay_ms
            self._give_up_at(now_ms + min(delay_ms, timeout_ms))
            self._initial_left_ms = max(timeout_ms - delay_ms, 0)
            self._has_newcomer = False
            return actions
        self._give_up_at(now_ms + timeout_ms)
        return actions + self._maybe_complete(now_ms)

    def _maybe_complete(self, now_ms: int) -> list[Action]:
        is_everybody_back = all(member.join_token is not None for member in self.members.values())
        if self._is_initial or self.pending or not is_everybody_back:
            return []
        return self._begin_generation(now_ms)

    def _begin_generation(self, now_ms: int) -> list[Action]:
        for member in list(self.members.values()):
            # A static member that is late keeps its place until its session is over.
            if member.join_token is None and member.instance_id is None:
                self._drop(member)
        self._is_initial = False
        joined = [member for member in self.members.values() if member.join_token is not None]
        if self.members and not joined:
            # Only static members, all late: wait on, until one comes or their sessions are over.
            self._give_up_at(now_ms + self._rebalance_timeout_ms())
            return []
        self.generation += 1
        if not joined:
            return self._become_empty()
        if self.leader_id not in self.members or self.members[self.leader_id].join_token is None:
            self.leader_id = joined[0].member_id
        self.protocol = self._elect_protocol()
        self._become(State.COMPLETING_REBALANCE)
        # Members that never bring or fetch an assignment must not hold the group, or their partitions, for ever.
        self._give_up_at(now_ms + self._rebalance_timeout_ms())
        for member in self.members.values():
            member.has_synced = False
        actions: list[Action] = []
        for member in joined:
            actions.append(Answer(member.join_token, self._join_response(member)))
            member.join_token = None
            self._touch(member, now_ms)
        return actions

    def _become_empty(self) -> list[Action]:
        self.protocol = self.leader_id = None
        self._become(State.EMPTY)
        return [Persist(self.generation)]

    def _elect_protocol(self) -> str:
        supported = set.intersection(*({name for name, _ in one.protocols} for one in self.members.values()))
        votes = Counter(next(name for name, _ in one.protocols if name in supported) for one in self.members.values())
        # Ties go to the name, so that every coordinator would choose the same.
        return min(votes, key=lambda name: (-votes[name], name))

    def _join_response(self, member: Member) -> JoinGroupResponse:
        is_leader = member.member_id == self.leader_id
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader_id or "",
            member_id=member.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata(self.protocol)
                )
                for one in (self.members.values() if is_leader else ())
            ],
        )

    # -- syncing ---------------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, token: Token, now_ms: int) -> list[Action]:
        """Give a member its assignment, once the leader has brought all."""
        fault = self.member_fault(request.member_id, request.group_instance_id, request.generation_id)
        if fault is ErrorCode.NONE and (
            (request.protocol_type or self.protocol_type) != self.protocol_type
            or (request.protocol_name or self.protocol) != self.protocol
        ):
            fault = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if fault is ErrorCode.NONE and self.state is State.PREPARING_REBALANCE:
            fault = ErrorCode.REBALANCE_IN_PROGRESS
        if fault is not ErrorCode.NONE:
            return [Answer(token, request.error_response(fault))]
        member = self.members[request.member_id]
        member.has_synced = True
        self._touch(member, now_ms)
        if self.state is State.STABLE:
            return [Answer(token, self._sync_response(member))]
        assert self.state is State.COMPLETING_REBALANCE, self.state
        actions = self._supersede(member)
        member.sync_token = token
        if member.member_id == self.leader_id and not self._is_persisting:
            given = {row.member_id: row.assignment for row in request.assignments}
            for one in self.members.values():
                one.assignment = given.get(one.member_id, b"")
            self._is_persisting = True
            actions.append(Persist(self.generation))
        return actions

    def persisted(self, done: Persist, error: ErrorCode, now_ms: int) -> list[Action]:
        """Go on after a `Persist`: hand out the assignments, or let everybody join again when it failed."""
        if done.member_id is not None:
            member = self.members.get(done.member_id)
            # When a rebalance began meanwhile, it waits for that like everybody.
            is_due = member is not None and member.join_token is not None and self.state is State.STABLE
            return self._replaced(member, error, now_ms) if member is not None and is_due else []
        is_due = self.state is State.COMPLETING_REBALANCE and self._is_persisting
        if not is_due or done.generation != self.generation:
            return []
        self._is_persisting = False
        if error is not ErrorCode.NONE:
            return self._prepare_rebalance(Cause.UNWRITTEN, now_ms)
        self._become(State.STABLE)
        actions: list[Action] = []
        for member in self.members.values():
            if member.sync_token is not None:
                actions.append(Answer(member.sync_token, self._sync_response(member)))
                member.sync_token = None
                self._touch(member, now_ms)
        return actions

    def _sync_response(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    # -- staying and leaving ---------------------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Prolong a member's session; REBALANCE_IN_PROGRESS tells it to join again."""
        fault = self.member_fault(member_id, instance_id, generation)
        if fault is ErrorCode.NONE:
            self._touch(self.members[member_id], now_ms)
            if self.state is State.PREPARING_REBALANCE:
                return ErrorCode.REBALANCE_IN_PROGRESS
        return fault

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> tuple[ErrorCode, list[Action]]:
        """Take a member out; a static one may be named by its instance alone."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if member_id in self.pending and instance_id is None:
            del self.pending[member_id]
            return ErrorCode.NONE, self._maybe_complete(now_ms) if self._is_preparing else []
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, []
            if member_id not in ("", known):
                return ErrorCode.FENCED_INSTANCE_ID, []
            member_id = known
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        return ErrorCode.NONE, self._remove([member], Cause.LEFT, now_ms)

    def expire(self, now_ms: int) -> list[Action]:
        """Drop members whose session is over at *now_ms*, and end what has waited too long."""
        self.pending = {member_id: until_ms for member_id, until_ms in self.pending.items() if until_ms > now_ms}
        late = [one for one in self.members.values() if not one.is_waiting and one.session_deadline_ms <= now_ms]
        actions = self._remove(late, Cause.EXPIRED, now_ms) if late else []
        if self._is_preparing:
            if self.rebalance_deadline_ms <= now_ms:
                actions += self._time_is_up(now_ms)
            else:
                actions += self._maybe_complete(now_ms)
        elif self.rebalance_deadline_ms <= now_ms:
            silent = [one for one in self.members.values() if not one.has_synced]
            actions += self._remove(silent, Cause.EXPIRED, now_ms) if silent else []
        self.wake_ms = self._next_deadline_ms()
        return actions

    def _next_deadline_ms(self) -> int:
        deadlines = [one.session_deadline_ms for one in self.members.values() if not one.is_waiting]
        deadlines += self.pending.values()
        if self._is_preparing or not all(one.has_synced for one in self.members.values()):
            deadlines.append(self.rebalance_deadline_ms)
        return min(deadlines, default=NEVER_MS)

    def _time_is_up(self, now_ms: int) -> list[Action]:
        if self._is_initial and self._has_newcomer and self._initial_left_ms > 0:
            delay_ms = min(self.config.initial_rebalance_delay_ms, self._initial_left_ms)
            self._initial_left_ms -= delay_ms
            self._has_newcomer = False
            self._give_up_at(now_ms + delay_ms)
            return []
        return self._begin_generation(now_ms)

    def expel(self, members: Iterable[Member], now_ms: int) -> list[Action]:
        """End the sessions of *members*: they may commit nothing more of what they have read.

        Every client then drops the partitions it had and its positions in them, also those that it would have kept
        in a cooperative rebalance, and joins anew.
        """
        expelled = list(members)
        actions: list[Action] = []
        for member in expelled:
            actions += self._supersede(member, ErrorCode.UNKNOWN_MEMBER_ID)
        return actions + self._remove(expelled, Cause.EXPELLED, now_ms)

    def _remove(self, members: Iterable[Member], cause: Cause, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        for member in members:
            actions += self._supersede(member)
            self._drop(member)
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            return actions + self._prepare_rebalance(cause, now_ms)
        if self._is_preparing:
            return actions + self._maybe_complete(now_ms)
        return actions

    # -- everything else -------------------------------------------------------------------------------------------

    def member_fault(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return why this is not a member of the running generation, or NONE."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def commit_fault(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Return why this may not commit offsets, or NONE, which also prolongs the member's session (trap 47)."""
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE  # a tool, or a consumer that assigns itself
        if generation < 0 and not member_id and instance_id is None and self.state is not State.DEAD:
            return ErrorCode.UNKNOWN_MEMBER_ID  # it must not write under a group that lives
        fault = self.member_fault(member_id, instance_id, generation)
        if fault is ErrorCode.NONE:
            if self.state is State.COMPLETING_REBALANCE:
                return ErrorCode.REBALANCE_IN_PROGRESS
            self._touch(self.members[member_id], now_ms)
        return fault

    def transaction_fault(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return why a transaction may not commit offsets in the name of this member, or NONE (KIP-447).

        A producer that names neither member nor generation is not looked at: it is fenced by its own epoch.  While a
        rebalance is being completed the members of the new generation may commit, unlike outside of transactions.
        """
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE
        return self.member_fault(member_id, instance_id, generation)

    def kill(self) -> list[Action]:
        """End the group: it was deleted, or another broker coordinates it now."""
        actions: list[Action] = []
        for member in self.members.values():
            actions += self._supersede(member, ErrorCode.NOT_COORDINATOR)
        self.members.clear()
        self.instances.clear()
        self.pending.clear()
        self._become(State.DEAD)
        return actions

    def restore(self, now_ms: int) -> None:
        """Begin after the group was read from the log: members have one session to show that they live."""
        for member in self.members.values():
            self._touch(member, now_ms)
            if member.instance_id is not None:
                self.instances[member.instance_id] = member.member_id
        self.state = State.STABLE if self.members else State.EMPTY

    @property
    def is_forgettable(self) -> bool:
        """Whether nobody ever was a member, so that there is nothing to remember but offsets."""
        return self.state is State.EMPTY and not self.generation and not self.pending

    @property
    def _is_preparing(self) -> bool:
        return self.state is State.PREPARING_REBALANCE

    def _become(self, state: State) -> None:
        assert state in _NEXT[self.state], f"{self.state} -> {state}"
        self.state = state

    def _touch(self, member: Member, now_ms: int) -> None:
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        self._wake_by(member.session_deadline_ms)

    def _give_up_at(self, deadline_ms: int) -> None:
        self.rebalance_deadline_ms = deadline_ms
        self._wake_by(deadline_ms)

    def _wake_by(self, deadline_ms: int) -> None:
        if deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _drop(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None and self.instances.get(member.instance_id) == member.member_id:
            del self.instances[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def _fence(self, member: Member) -> list[Action]:
        return self._supersede(member, ErrorCode.FENCED_INSTANCE_ID)

    @staticmethod
    def _supersede(member: Member, code: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> list[Action]:
        """Answer what a member still waits for: it asks again, or somebody else is it now."""
        actions: list[Action] = []
        if member.join_token is not None:
            actions.append(Answer(member.join_token, JoinGroupResponse(error_code=code, member_id=member.member_id)))
            member.join_token = None
        if member.sync_token is not None:
            actions.append(Answer(member.sync_token, SyncGroupResponse(error_code=code)))
            member.sync_token = None
        return actions
