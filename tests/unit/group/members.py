"""A group and the members that talk to it, with the time handed over."""

from dataclasses import dataclass, field
from typing import TypeVar

from pylog.errors import ErrorCode
from pylog.group.state import Action, Answer, Group, GroupConfig, Joiner, Persist, State
from pylog.wire.api.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from pylog.wire.api.message import Message

SESSION_MS = 10_000
REBALANCE_MS = 60_000
OLD, CURRENT = 3, 9
"""Versions of JoinGroup: before member ids had to be known, and the newest."""

MessageT = TypeVar("MessageT", bound=Message)


@dataclass
class Table:
    """A group whose answers and writings are collected.

    Attributes:
        answers: by token; a token is answered once.
        writes: how often the group was to be written down.
        write_error: how writing ends.
    """

    group: Group = field(default_factory=lambda: Group("g", GroupConfig(initial_rebalance_delay_ms=0)))
    now_ms: int = 0
    answers: dict[int, Message] = field(default_factory=dict)
    writes: list[Persist] = field(default_factory=list)
    write_error: ErrorCode = ErrorCode.NONE
    is_writing_held: bool = False
    tokens: int = 0
    names: int = 0

    def act(self, actions: list[Action]) -> None:
        """Carry *actions* out."""
        for action in actions:
            if isinstance(action, Answer):
                assert action.token not in self.answers, f"token {action.token} answered twice"
                self.answered(action.response)
                self.answers[action.token] = action.response
            else:
                self.writes.append(action)
                if not self.is_writing_held:
                    self.act(self.group.persisted(action, self.write_error, self.now_ms))

    def answered(self, response: Message) -> None:
        """Look at an answer at the moment it is given."""

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        version: int = OLD,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"topics"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> int:
        """Send a JoinGroup and return its token."""
        self.tokens += 1
        self.names += not member_id
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        joiner = Joiner("client", "/host", version, f"m{self.names}")
        self.act(self.group.join(request, joiner, self.tokens, self.now_ms))
        return self.tokens

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        *,
        instance_id: str | None = None,
        assignments: dict[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        """Send a SyncGroup and return its token."""
        self.tokens += 1
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=to, assignment=what) for to, what in (assignments or {}).items()
            ],
        )
        self.act(self.group.sync(request, self.tokens, self.now_ms))
        return self.tokens

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        """Send a Heartbeat."""
        current = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance_id, current, self.now_ms)

    def commit(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        """Ask whether a commit is allowed."""
        current = self.group.generation if generation is None else generation
        return self.group.commit_fault(member_id, instance_id, current, self.now_ms)

    def leave(self, member_id: str = "", instance_id: str | None = None) -> ErrorCode:
        """Send a LeaveGroup."""
        error, actions = self.group.leave(member_id, instance_id, self.now_ms)
        self.act(actions)
        return error

    def pass_time(self, duration_ms: int) -> None:
        """Let *duration_ms* go by, waking the group as its coordinator would."""
        end_ms = self.now_ms + duration_ms
        while self.group.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.group.wake_ms)
            self.act(self.group.expire(self.now_ms))
            assert self.group.wake_ms > self.now_ms, "it would be woken for ever"
        self.now_ms = end_ms

    def joined(self, token: int) -> JoinGroupResponse:
        """Return the answer to a JoinGroup that must have one."""
        return self._answer(token, JoinGroupResponse)

    def synced(self, token: int) -> SyncGroupResponse:
        """Return the answer to a SyncGroup that must have one."""
        return self._answer(token, SyncGroupResponse)

    def is_in(self, state: State) -> bool:
        """Whether the group is in *state*."""
        return self.group.state is state

    def waits(self, token: int) -> bool:
        """Whether a token has no answer yet."""
        return token not in self.answers

    def _answer(self, token: int, kind: type[MessageT]) -> MessageT:
        assert token in self.answers, f"token {token} still waits"
        answer = self.answers[token]
        assert isinstance(answer, kind)
        return answer


def group_of(*sessions_ms: int, instances: tuple[str, ...] = (), config: GroupConfig | None = None) -> Table:
    """Return a stable group of members m1, m2, … that were assigned their own names; m1 leads."""
    table = Table(Group("g", config or GroupConfig(initial_rebalance_delay_ms=0)))
    named = list(instances) + [None] * (len(sessions_ms) - len(instances))
    table.join(instance_id=named[0], session_ms=sessions_ms[0])
    for instance_id, session_ms in zip(named[1:], sessions_ms[1:], strict=True):
        table.join(instance_id=instance_id, session_ms=session_ms)
        for member in list(table.group.members.values()):
            if member.join_token is None:
                table.join(member.member_id, instance_id=member.instance_id, session_ms=member.session_timeout_ms)
    members = list(table.group.members.values())
    for member in members:
        given = {one.member_id: one.member_id.encode() for one in members} if member is members[0] else None
        table.sync(member.member_id, instance_id=member.instance_id, assignments=given)
    table.writes.clear()
    return table
