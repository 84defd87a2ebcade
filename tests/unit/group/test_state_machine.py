"""Any sequence of what members do and fail to do, against rules that always hold."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from pylog.errors import ErrorCode
from pylog.group.state import NEVER_MS, Group, GroupConfig, State
from pylog.wire.api.groups import JoinGroupResponse, SyncGroupResponse
from pylog.wire.api.message import Message
from tests.unit.group.members import CURRENT, OLD, SESSION_MS, Table

MAX_SIZE = 6
REBALANCES_MS = (20_000, 60_000)
PROTOCOLS = ((("range", b"x"),), (("range", b"y"), ("sticky", b"y")), (("sticky", b"z"), ("range", b"z")))


class CheckedTable(Table):
    """Looks at every answer when it is given."""

    assigners: dict[int, str]

    def answered(self, response: Message) -> None:
        if isinstance(response, JoinGroupResponse) and response.error_code is ErrorCode.NONE:
            assert response.generation_id == self.group.generation
            assert response.member_id in self.group.members
            if response.members:
                assert response.leader == response.member_id == self.group.leader_id
                # A static leader that restarted is told to keep what was assigned.
                if not response.skip_assignment:
                    assert self.assigners.setdefault(response.generation_id, response.leader) == response.leader
        elif isinstance(response, SyncGroupResponse) and response.error_code is ErrorCode.NONE:
            assert self.group.state is State.STABLE
            assert response.assignment.startswith(f"{self.group.generation}:".encode()) or not response.assignment


class AnyGroup(RuleBasedStateMachine):
    """Members m1, m2, … over one group.

    Attributes:
        asked_ms: by token of a request, when it was sent.
        generation: the newest seen.
    """

    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.table = CheckedTable()
        self.table.assigners = {}
        self.asked_ms: dict[int, int] = {}
        self.generation = 0

    @initialize(delay_ms=st.sampled_from([0, 3_000]))
    def begin(self, delay_ms: int) -> None:
        self.table.group = Group("g", GroupConfig(initial_rebalance_delay_ms=delay_ms, max_size=MAX_SIZE))

    @rule(
        target=known,
        version=st.sampled_from([OLD, CURRENT]),
        instance=st.sampled_from([None, None, "a", "b"]),
        protocols=st.sampled_from(PROTOCOLS),
        rebalance_ms=st.sampled_from(REBALANCES_MS),
    )
    def come(
        self, version: int, instance: str | None, protocols: tuple[tuple[str, bytes], ...], rebalance_ms: int
    ) -> tuple[str, str | None]:
        token = self.table.join(instance_id=instance, version=version, protocols=protocols, rebalance_ms=rebalance_ms)
        self.asked_ms[token] = self.table.now_ms
        return f"m{self.table.names}", instance

    @rule(member=known, protocols=st.sampled_from(PROTOCOLS), version=st.sampled_from([OLD, CURRENT]))
    def join_again(
        self, member: tuple[str, str | None], protocols: tuple[tuple[str, bytes], ...], version: int
    ) -> None:
        member_id, instance = member
        token = self.table.join(member_id, instance_id=instance, protocols=protocols, version=version)
        self.asked_ms[token] = self.table.now_ms

    @rule(member=known, is_stale=st.booleans())
    def sync(self, member: tuple[str, str | None], is_stale: bool) -> None:
        group = self.table.group
        given = None
        if member[0] == group.leader_id:
            given = {one: f"{group.generation}:{one}".encode() for one in group.members}
        token = self.table.sync(member[0], group.generation - is_stale, instance_id=member[1], assignments=given)
        self.asked_ms[token] = self.table.now_ms

    @rule(member=known)
    def stay(self, member: tuple[str, str | None]) -> None:
        state = self.table.group.state
        code = self.table.heartbeat(member[0], instance_id=member[1])
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            assert state is State.PREPARING_REBALANCE

    @rule(member=known)
    def commit(self, member: tuple[str, str | None]) -> None:
        if self.table.commit(member[0], instance_id=member[1]) is ErrorCode.NONE:
            assert member[0] in self.table.group.members
            assert self.table.group.state in (State.STABLE, State.PREPARING_REBALANCE)

    @rule(member=consumes(known))
    def leave(self, member: tuple[str, str | None]) -> None:
        if self.table.leave(member[0], member[1]) is ErrorCode.NONE:
            assert member[0] not in self.table.group.members

    @rule(target=known, member=consumes(known))
    def crash_and_forget(self, member: tuple[str, str | None]) -> object:
        return multiple()

    @rule(duration_ms=st.sampled_from([1, 1_000, SESSION_MS - 1, SESSION_MS, max(REBALANCES_MS)]))
    def wait(self, duration_ms: int) -> None:
        self.table.pass_time(duration_ms)

    @rule(is_held=st.booleans())
    def writing_stalls_or_goes_on(self, is_held: bool) -> None:
        self.table.is_writing_held = is_held
        if not is_held:
            done, self.table.writes = self.table.writes, []
            for write in done:
                self.table.act(self.table.group.persisted(write, self.table.write_error, self.table.now_ms))

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def writing_fails(self, error: ErrorCode) -> None:
        self.table.write_error = error

    @invariant()
    def generations_never_decrease(self) -> None:
        assert self.table.group.generation >= self.generation
        self.generation = self.table.group.generation

    @invariant()
    def every_waiting_token_is_held_by_one_member(self) -> None:
        held = [
            token
            for member in self.table.group.members.values()
            for token in (member.join_token, member.sync_token)
            if token is not None
        ]
        assert sorted(held) == sorted(token for token in self.asked_ms if self.table.waits(token))

    @invariant()
    def nobody_waits_past_the_deadline(self) -> None:
        group = self.table.group
        waiting = [token for token in self.asked_ms if self.table.waits(token)]
        if waiting and not self.table.is_writing_held:
            # The group is woken no later than what it promised, and each phase lasts one rebalance time-out.
            assert group.wake_ms < NEVER_MS
            assert group.rebalance_deadline_ms <= self.table.now_ms + max(REBALANCES_MS)
            for token in waiting:
                assert self.table.now_ms - self.asked_ms[token] <= 4 * max(REBALANCES_MS) + SESSION_MS

    @invariant()
    def state_and_members_agree(self) -> None:
        group = self.table.group
        assert len(group.members) + len(group.pending) <= MAX_SIZE
        assert all(group.members[member_id].instance_id == one for one, member_id in group.instances.items())
        assert not group.members.keys() & group.pending.keys()
        if group.state is State.EMPTY:
            assert not group.members
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            assert group.leader_id in group.members
            assert all(any(name == group.protocol for name, _ in one.protocols) for one in group.members.values())
        for member in group.members.values():
            assert not (member.join_token and member.sync_token)
            assert member.sync_token is None or group.state is State.COMPLETING_REBALANCE

    def teardown(self) -> None:
        """However it went: with everybody silent, the group is empty in the end and nobody waits."""
        self.writing_stalls_or_goes_on(False)
        self.table.write_error = ErrorCode.NONE
        self.table.pass_time(8 * max(REBALANCES_MS))
        assert self.table.group.state is State.EMPTY
        assert self.table.group.wake_ms == NEVER_MS
        assert not [token for token in self.asked_ms if self.table.waits(token)]


AnyGroup.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyGroup = pytest.mark.filterwarnings("ignore::DeprecationWarning")(AnyGroup.TestCase)
