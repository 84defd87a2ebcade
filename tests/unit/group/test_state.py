import struct

import pytest

from pylog.errors import ErrorCode
from pylog.group.state import NEVER_MS, Group, GroupConfig, State
from pylog.group.subscription import assigned_partitions, is_assigned, is_same_subscription, subscribed_topics
from pylog.model import TopicPartition
from pylog.wire.api.groups import JoinGroupRequest
from tests.unit.group.members import CURRENT, REBALANCE_MS, SESSION_MS, Table, group_of

NONE = ErrorCode.NONE


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + owned


class TestRebalance:
    def test_one_member_becomes_stable(self) -> None:
        table = Table()
        joined = table.joined(table.join())
        assert (joined.error_code, joined.generation_id, joined.leader, joined.member_id) == (NONE, 1, "m1", "m1")
        assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
        assert [(one.member_id, one.metadata) for one in joined.members] == [("m1", b"topics")]
        assert table.is_in(State.COMPLETING_REBALANCE)
        assert table.synced(table.sync("m1", assignments={"m1": b"all"})).assignment == b"all"
        assert table.is_in(State.STABLE)

    def test_only_the_leader_is_told_the_members(self) -> None:
        table = group_of(SESSION_MS)
        second = table.join()
        assert table.waits(second)
        leader = table.joined(table.join("m1"))
        assert [one.member_id for one in leader.members] == ["m1", "m2"]
        assert table.joined(second).members == []
        assert table.joined(second).leader == "m1"
        assert leader.generation_id == table.joined(second).generation_id == 2

    def test_assignments_wait_for_the_leader(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        table.join("m1", protocols=(("range", b"other"),))
        table.join("m2")
        early = table.sync("m2")
        assert table.waits(early)
        table.sync("m1", assignments={"m1": b"1", "m2": b"2"})
        assert table.synced(early).assignment == b"2"
        late = table.sync("m2")
        assert table.synced(late).assignment == b"2"

    def test_a_member_without_work_gets_nothing(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        table.join("m1")
        table.join("m2")
        waiting = table.sync("m2")
        table.sync("m1", assignments={"m1": b"1"})
        assert (table.synced(waiting).error_code, table.synced(waiting).assignment) == (NONE, b"")

    def test_assignments_are_handed_out_only_once_written(self) -> None:
        table = Table(is_writing_held=True)
        table.join()
        waiting = table.sync("m1", assignments={"m1": b"1"})
        assert table.waits(waiting)
        assert table.is_in(State.COMPLETING_REBALANCE)
        table.act(table.group.persisted(table.writes[-1], NONE, 0))
        assert table.synced(waiting).assignment == b"1"

    def test_members_join_again_when_writing_failed(self) -> None:
        table = Table(write_error=ErrorCode.NOT_COORDINATOR)
        table.join()
        assert table.synced(table.sync("m1", assignments={})).error_code is ErrorCode.REBALANCE_IN_PROGRESS
        assert table.is_in(State.PREPARING_REBALANCE)

    def test_a_write_that_ends_after_its_generation_changes_nothing(self) -> None:
        table = Table(is_writing_held=True)
        table.join()
        table.sync("m1", assignments={"m1": b"old"})
        table.join()
        table.join("m1")
        assert table.group.generation == 2
        table.act(table.group.persisted(table.writes[0], NONE, 0))
        assert table.is_in(State.COMPLETING_REBALANCE)

    def test_waiting_syncs_end_when_a_rebalance_begins(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        table.join("m1")
        table.join("m2")
        waiting = table.sync("m2")
        table.join()
        assert table.synced(waiting).error_code is ErrorCode.REBALANCE_IN_PROGRESS
        assert table.is_in(State.PREPARING_REBALANCE)

    def test_sync_while_members_join_is_refused(self) -> None:
        table = group_of(SESSION_MS)
        table.join()
        assert table.synced(table.sync("m1")).error_code is ErrorCode.REBALANCE_IN_PROGRESS

    @pytest.mark.parametrize(
        ("said", "code"),
        [
            ({"protocol_type": "consumer", "protocol": "range"}, NONE),
            ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol": "roundrobin"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"generation": 7}, ErrorCode.ILLEGAL_GENERATION),
        ],
    )
    def test_sync_names_what_it_joined(self, said: dict[str, object], code: ErrorCode) -> None:
        table = group_of(SESSION_MS)
        assert table.synced(table.sync("m1", **said)).error_code is code  # type: ignore[arg-type]

    def test_the_leader_of_a_stable_group_starts_a_rebalance_by_joining(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        assert table.waits(table.join("m1"))
        assert table.is_in(State.PREPARING_REBALANCE)

    def test_a_follower_that_joins_again_unchanged_is_told_the_running_generation(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        again = table.joined(table.join("m2"))
        assert (again.generation_id, again.leader, table.group.state) == (table.group.generation, "m1", State.STABLE)

    def test_a_follower_with_another_subscription_starts_a_rebalance(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        assert table.waits(table.join("m2", protocols=(("range", b"more topics"),)))
        assert table.is_in(State.PREPARING_REBALANCE)

    def test_a_member_that_missed_its_answer_gets_it_again(self) -> None:
        table = Table()
        table.join()
        again = table.joined(table.join("m1"))
        assert (again.generation_id, len(again.members)) == (1, 1)
        assert table.is_in(State.COMPLETING_REBALANCE)

    def test_a_second_join_of_a_waiting_member_ends_the_first(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        first = table.join("m1")
        second = table.join("m1")
        assert table.joined(first).error_code is ErrorCode.REBALANCE_IN_PROGRESS
        assert table.waits(second)


class TestTimeouts:
    def test_a_member_that_misses_its_session_is_dropped(self) -> None:
        table = group_of(SESSION_MS, 2 * SESSION_MS)
        table.pass_time(SESSION_MS - 1)
        assert table.is_in(State.STABLE)
        table.pass_time(1)
        assert list(table.group.members) == ["m2"]
        assert table.is_in(State.PREPARING_REBALANCE)
        assert table.joined(table.join("m2")).leader == "m2"

    def test_heartbeats_commits_and_syncs_prolong_a_session(self) -> None:
        table = group_of(SESSION_MS)
        for prolong in (table.heartbeat, table.commit):
            table.pass_time(SESSION_MS - 1)
            assert prolong("m1") is NONE
        table.pass_time(SESSION_MS - 1)
        table.sync("m1")
        table.pass_time(SESSION_MS - 1)
        assert table.is_in(State.STABLE)

    def test_an_empty_group_is_written_down_and_sleeps(self) -> None:
        table = group_of(SESSION_MS)
        table.pass_time(SESSION_MS)
        assert (table.group.state, table.group.generation, table.group.wake_ms) == (State.EMPTY, 2, NEVER_MS)
        assert (table.group.protocol, table.group.leader_id, len(table.writes)) == (None, None, 1)

    def test_who_does_not_come_back_in_time_is_given_up(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        waiting = table.join()
        for _ in range(REBALANCE_MS // 5000):
            assert table.waits(waiting)
            assert table.heartbeat("m1") is table.heartbeat("m2") is ErrorCode.REBALANCE_IN_PROGRESS
            table.pass_time(5000)
        assert list(table.group.members) == ["m3"]
        assert table.joined(waiting).leader == "m3"

    def test_the_slowest_member_says_how_long_to_wait(self) -> None:
        table = group_of(SESSION_MS)
        table.join(rebalance_ms=3 * REBALANCE_MS)
        assert table.group.rebalance_deadline_ms == 3 * REBALANCE_MS

    def test_version_0_waits_as_long_as_a_session(self) -> None:
        # The codec fills the time-out in, so that the group need not know versions.
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=7, member_id="", protocol_type="consumer", protocols=[]
        )
        request._fold(0)
        assert request.rebalance_timeout_ms == 7

    def test_members_that_wait_for_us_do_not_expire(self) -> None:
        table = group_of(SESSION_MS, 3 * REBALANCE_MS)
        waiting = table.join("m1")
        table.pass_time(REBALANCE_MS - 1)
        assert table.waits(waiting)
        assert "m1" in table.group.members

    def test_a_leader_that_never_brings_assignments_is_given_up(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        table.join("m1")
        table.join("m2")
        waiting = table.sync("m2")
        for _ in range(REBALANCE_MS // 5000):
            assert table.heartbeat("m1") is NONE
            table.pass_time(5000)
        assert table.synced(waiting).error_code is ErrorCode.REBALANCE_IN_PROGRESS
        assert list(table.group.members) == ["m2"]

    def test_a_member_that_never_fetches_its_assignment_is_given_up(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        table.join("m1")
        table.join("m2")
        table.sync("m1", assignments={"m1": b"1", "m2": b"2"})
        assert table.is_in(State.STABLE)
        for _ in range(REBALANCE_MS // 5000):
            assert table.heartbeat("m1") is table.heartbeat("m2") is NONE
            table.pass_time(5000)
        assert list(table.group.members) == ["m1"]
        assert table.is_in(State.PREPARING_REBALANCE)

    @pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1])
    def test_a_session_out_of_bounds_is_refused(self, session_ms: int) -> None:
        table = Table()
        assert table.joined(table.join(session_ms=session_ms)).error_code is ErrorCode.INVALID_SESSION_TIMEOUT


class TestInitialDelay:
    def table(self, rebalance_ms: int = 10_000) -> tuple[Table, int]:
        table = Table(Group("g", GroupConfig(initial_rebalance_delay_ms=3_000)))
        return table, table.join(rebalance_ms=rebalance_ms)

    def test_the_first_member_waits_for_others(self) -> None:
        table, token = self.table()
        table.pass_time(2_999)
        assert table.waits(token)
        table.pass_time(1)
        assert table.joined(token).generation_id == 1

    def test_newcomers_extend_the_wait_up_to_the_rebalance_timeout(self) -> None:
        table, token = self.table()
        for _ in range(3):
            table.pass_time(2_900)
            table.join()
            assert table.waits(token)
        table.pass_time(1_299)
        assert table.waits(token)
        table.pass_time(1)
        assert len(table.joined(token).members) == 4
        assert table.group.generation == 1

    def test_a_short_rebalance_timeout_bounds_the_delay(self) -> None:
        table, token = self.table(rebalance_ms=1_000)
        table.pass_time(1_000)
        assert table.joined(token).error_code is NONE

    def test_a_group_that_everybody_left_meanwhile_is_empty(self) -> None:
        table, token = self.table()
        table.leave("m1")
        assert table.joined(token).error_code is ErrorCode.REBALANCE_IN_PROGRESS
        table.pass_time(3_000)
        assert table.is_in(State.EMPTY)

    def test_later_rebalances_do_not_wait(self) -> None:
        table, _ = self.table()
        table.pass_time(3_000)
        table.sync("m1", assignments={})
        table.join()
        assert table.joined(table.join("m1")).generation_id == 2


class TestMemberIds:
    def test_a_new_member_is_given_an_id_to_come_back_with(self) -> None:
        table = Table()
        refused = table.joined(table.join(version=CURRENT))
        assert (refused.error_code, refused.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m1")
        assert table.is_in(State.EMPTY)
        assert table.joined(table.join("m1", version=CURRENT)).error_code is NONE

    def test_old_clients_join_without(self) -> None:
        table = Table()
        assert table.joined(table.join(version=3)).error_code is NONE

    def test_static_members_join_without(self) -> None:
        table = Table()
        assert table.joined(table.join(version=CURRENT, instance_id="i")).error_code is NONE

    def test_a_generation_waits_for_ids_that_were_handed_out(self) -> None:
        table = group_of(SESSION_MS)
        table.join(version=CURRENT)
        waiting = table.join("m1")
        assert table.waits(waiting)
        table.join("m2", version=CURRENT)
        assert len(table.joined(waiting).members) == 2

    def test_ids_nobody_comes_back_with_expire(self) -> None:
        table = group_of(SESSION_MS)
        table.join(version=CURRENT)
        waiting = table.join("m1")
        table.pass_time(SESSION_MS)
        assert table.joined(waiting).error_code is NONE
        assert table.joined(table.join("m2")).error_code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_giving_an_id_back_lets_the_others_go_on(self) -> None:
        table = group_of(SESSION_MS)
        table.join(version=CURRENT)
        waiting = table.join("m1")
        assert table.leave("m2") is NONE
        assert table.joined(waiting).error_code is NONE

    def test_an_id_that_was_never_given_is_unknown(self) -> None:
        table = group_of(SESSION_MS)
        for answer in (table.joined(table.join("m9")), table.synced(table.sync("m9"))):
            assert answer.error_code is ErrorCode.UNKNOWN_MEMBER_ID
        assert table.heartbeat("m9") is table.commit("m9") is table.leave("m9") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_ids_handed_out_may_do_nothing_but_join(self) -> None:
        table = group_of(SESSION_MS)
        table.join(version=CURRENT)
        assert table.heartbeat("m2") is table.commit("m2") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_full_group_takes_nobody(self) -> None:
        table = group_of(SESSION_MS, config=GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
        table.join(version=CURRENT)
        for version in (3, CURRENT):
            assert table.joined(table.join(version=version)).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert table.waits(table.join("m1"))
        assert table.joined(table.join("m2")).error_code is NONE

    def test_a_group_nobody_joined_need_not_be_remembered(self) -> None:
        table = Table()
        assert table.group.is_forgettable
        table.join(version=CURRENT)
        assert not table.group.is_forgettable
        table.pass_time(SESSION_MS)
        assert table.group.is_forgettable
        assert not group_of(SESSION_MS).group.is_forgettable


class TestProtocols:
    @pytest.mark.parametrize(
        ("preferences", "elected"),
        [
            ((("a", "b"), ("b", "a"), ("b", "a")), "b"),
            ((("a", "b"), ("b", "a")), "a"),
            ((("a", "b", "c"), ("c", "b"), ("b", "c", "a")), "b"),
            ((("a", "b"), ("b",)), "b"),
        ],
    )
    def test_the_protocol_all_know_and_most_prefer_is_elected(
        self, preferences: tuple[tuple[str, ...], ...], elected: str
    ) -> None:
        table = Table(Group("g", GroupConfig(initial_rebalance_delay_ms=1_000)))
        tokens = [table.join(protocols=tuple((name, name.encode()) for name in names)) for names in preferences]
        table.pass_time(REBALANCE_MS)
        leader = table.joined(tokens[0])
        assert {table.joined(token).protocol_name for token in tokens} == {elected}
        assert {one.metadata for one in leader.members} == {elected.encode()}

    @pytest.mark.parametrize(
        "said",
        [
            {"protocols": (("other", b""),)},
            {"protocol_type": "connect"},
            {"protocols": ()},
            {"protocol_type": ""},
        ],
    )
    def test_a_member_that_understands_nobody_is_refused(self, said: dict[str, object]) -> None:
        table = group_of(SESSION_MS)
        refused = table.joined(table.join(**said))  # type: ignore[arg-type]
        assert refused.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert table.is_in(State.STABLE)

    def test_a_lone_member_may_change_its_protocol_but_not_its_kind(self) -> None:
        table = group_of(SESSION_MS)
        changed = table.joined(table.join("m1", protocols=(("sticky", b""),)))
        assert (changed.error_code, changed.protocol_name) == (NONE, "sticky")
        refused = table.joined(table.join("m1", protocol_type="connect"))
        assert refused.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_an_empty_group_takes_any_kind(self) -> None:
        table = group_of(SESSION_MS)
        table.leave("m1")
        assert table.joined(table.join(protocol_type="connect")).protocol_type == "connect"


class TestStaticMembers:
    def test_a_restarted_member_takes_its_place_without_a_rebalance(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS, instances=("a", "b"))
        again = table.joined(table.join(instance_id="b", version=CURRENT))
        assert (again.error_code, again.generation_id, again.member_id) == (NONE, table.group.generation, "m3")
        assert table.is_in(State.STABLE)
        assert list(table.group.members) == ["m1", "m3"]
        assert table.synced(table.sync("m3", instance_id="b")).assignment == b"m2"
        assert len(table.writes) == 1

    def test_it_need_not_fetch_again_what_was_fetched_before(self) -> None:
        table = group_of(3 * REBALANCE_MS, instances=("a",))
        table.pass_time(REBALANCE_MS + 1)
        table.join(instance_id="a", session_ms=3 * REBALANCE_MS)
        table.act(table.group.expire(table.now_ms))
        assert table.is_in(State.STABLE)

    def test_it_is_told_only_once_its_new_id_is_written(self) -> None:
        table = group_of(SESSION_MS, instances=("a",))
        table.is_writing_held = True
        token = table.join(instance_id="a", version=CURRENT)
        assert table.waits(token)
        table.pass_time(SESSION_MS)
        assert "m2" in table.group.members
        table.act(table.group.persisted(table.writes[-1], NONE, table.now_ms))
        assert table.joined(token).error_code is NONE

    def test_it_tries_again_when_writing_failed(self) -> None:
        table = group_of(SESSION_MS, instances=("a",))
        table.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert table.joined(table.join(instance_id="a")).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        table.write_error = NONE
        assert table.joined(table.join(instance_id="a")).error_code is NONE

    def test_a_rebalance_meanwhile_takes_it_along(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS, instances=("a", "b"))
        table.is_writing_held = True
        token = table.join(instance_id="b", version=CURRENT)
        table.join("m1", instance_id="a")
        joined = table.joined(token)
        assert (joined.generation_id, table.group.state) == (3, State.COMPLETING_REBALANCE)
        table.act(table.group.persisted(table.writes[0], NONE, 0))

    def test_the_old_id_is_fenced(self) -> None:
        table = group_of(SESSION_MS, instances=("a",))
        table.join(instance_id="a")
        assert table.heartbeat("m1", instance_id="a") is ErrorCode.FENCED_INSTANCE_ID
        assert table.commit("m1", instance_id="a") is ErrorCode.FENCED_INSTANCE_ID
        assert table.leave("m1", "a") is ErrorCode.FENCED_INSTANCE_ID
        assert table.synced(table.sync("m1", instance_id="a")).error_code is ErrorCode.FENCED_INSTANCE_ID
        assert table.joined(table.join("m1", instance_id="a")).error_code is ErrorCode.FENCED_INSTANCE_ID
        assert table.heartbeat("m1") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_what_the_old_one_waits_for_ends_fenced(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS, instances=("a", "b"))
        joining = table.join("m1", instance_id="a")
        table.join(instance_id="a")
        assert table.joined(joining).error_code is ErrorCode.FENCED_INSTANCE_ID
        table.join("m2", instance_id="b")
        syncing = table.sync("m2", instance_id="b")
        table.join(instance_id="b")
        assert table.synced(syncing).error_code is ErrorCode.FENCED_INSTANCE_ID

    def test_an_instance_nobody_has_is_unknown(self) -> None:
        table = group_of(SESSION_MS, instances=("a",))
        assert table.joined(table.join("m1", instance_id="z")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
        assert table.heartbeat("m1", instance_id="z") is ErrorCode.UNKNOWN_MEMBER_ID
        assert table.leave("", "z") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_leader_that_restarts_does_not_assign_anew(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS, instances=("a", "b"))
        new = table.joined(table.join(instance_id="a", version=CURRENT))
        assert (new.leader, new.skip_assignment, len(new.members)) == ("m3", True, 2)
        old = table.joined(table.join(instance_id="a", version=8))
        assert (old.leader, old.skip_assignment, old.members) == ("m3", False, [])
        assert (old.member_id, table.group.leader_id) == ("m4", "m4")

    @pytest.mark.parametrize(
        ("protocols", "is_stable"),
        [
            ((("range", subscription("x", owned=b"partitions")),), True),
            ((("range", subscription("x", "y")),), False),
            ((("other", subscription("x")),), False),
        ],
    )
    def test_only_another_subscription_starts_a_rebalance(
        self, protocols: tuple[tuple[str, bytes], ...], is_stable: bool
    ) -> None:
        table = group_of(SESSION_MS, SESSION_MS, instances=("a", "b"))
        for member in table.group.members.values():
            member.protocols = [("range", subscription("x")), ("other", subscription("x"))]
        table.join(instance_id="b", protocols=protocols)
        assert (table.is_in(State.STABLE)) == is_stable

    def test_a_late_static_member_keeps_its_place_until_its_session_is_over(self) -> None:
        table = group_of(3 * REBALANCE_MS, SESSION_MS, instances=("a",))
        waiting = table.join("m2", protocols=(("range", b"more"),))
        table.pass_time(REBALANCE_MS)
        assert table.joined(waiting).leader == "m2"
        assert len(table.joined(waiting).members) == 2

    def test_static_members_that_are_all_late_are_waited_for(self) -> None:
        table = group_of(3 * REBALANCE_MS, SESSION_MS, instances=("a",))
        table.leave("m2")
        generation = table.group.generation
        table.pass_time(2 * REBALANCE_MS)
        assert (table.group.state, table.group.generation) == (State.PREPARING_REBALANCE, generation)
        assert table.joined(table.join("m1", instance_id="a")).generation_id == generation + 1

    def test_all_late_beyond_their_sessions_leave_an_empty_group(self) -> None:
        table = group_of(3 * REBALANCE_MS, SESSION_MS, instances=("a",))
        table.leave("m2")
        table.pass_time(3 * REBALANCE_MS)
        assert table.is_in(State.EMPTY)
        assert table.group.instances == {}

    @pytest.mark.parametrize("member_id", ["", "m1"])
    def test_it_leaves_by_its_instance(self, member_id: str) -> None:
        table = group_of(SESSION_MS, instances=("a",))
        assert table.leave(member_id, "a") is NONE
        assert (table.group.members, table.group.instances) == ({}, {})


class TestLeaving:
    def test_the_others_rebalance(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        assert table.leave("m1") is NONE
        assert table.heartbeat("m2") is ErrorCode.REBALANCE_IN_PROGRESS
        assert table.joined(table.join("m2")).leader == "m2"

    def test_the_last_one_leaves_an_empty_group(self) -> None:
        table = group_of(SESSION_MS)
        table.leave("m1")
        assert table.is_in(State.EMPTY)

    def test_the_one_all_waited_for_leaves(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        waiting = table.join("m1")
        table.leave("m2")
        assert table.joined(waiting).error_code is NONE


class TestFencing:
    def test_a_stale_generation_may_do_nothing(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        for stale in (table.group.generation - 1, table.group.generation + 1):
            assert table.heartbeat("m1", stale) is ErrorCode.ILLEGAL_GENERATION
            assert table.commit("m1", stale) is ErrorCode.ILLEGAL_GENERATION
            assert table.synced(table.sync("m1", stale)).error_code is ErrorCode.ILLEGAL_GENERATION

    def test_commits_while_members_join_but_not_while_the_leader_assigns(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        table.join("m1")
        assert table.commit("m2") is NONE
        table.join("m2")
        assert table.is_in(State.COMPLETING_REBALANCE)
        assert table.commit("m1") is ErrorCode.REBALANCE_IN_PROGRESS
        assert table.heartbeat("m1") is NONE

    def test_tools_commit_only_in_an_empty_group(self) -> None:
        table = group_of(SESSION_MS)
        assert table.commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert table.commit("m1", -1) is ErrorCode.ILLEGAL_GENERATION
        table.leave("m1")
        assert table.commit("", -1) is NONE
        assert table.commit("", 5) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_dead_group_answers_that_it_moved(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS)
        joining = table.join("m1")
        table.act(table.group.kill())
        assert table.joined(joining).error_code is ErrorCode.NOT_COORDINATOR
        gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert table.heartbeat("m1") is table.commit("m1") is table.leave("m1") is gone
        assert table.commit("", -1) is gone
        assert table.joined(table.join()).error_code is table.synced(table.sync("m1")).error_code is gone


class TestRestore:
    def test_members_have_one_session_to_show_that_they_live(self) -> None:
        table = group_of(SESSION_MS, SESSION_MS, instances=("a",))
        restored = Group("g", table.group.config)
        restored.members, restored.generation = table.group.members, table.group.generation
        restored.protocol_type, restored.protocol = table.group.protocol_type, table.group.protocol
        restored.leader_id = table.group.leader_id
        restored.restore(1_000_000)
        table = Table(restored, now_ms=1_000_000)
        table.pass_time(SESSION_MS - 1)
        assert table.heartbeat("m1", instance_id="a") is NONE
        table.pass_time(1)
        assert list(restored.members) == ["m1"]


ASSIGNMENT = bytes.fromhex("0001 00000002 0001 61 00000002 00000000 00000007 0002 6263 00000001 00000003 ffffffff")
"""Version 1: partitions 0 and 7 of a, and 3 of bc."""


def test_an_assignment_is_read_as_far_as_it_goes() -> None:
    given = {(topic, one) for topic in ("a", "bc", "d") for one in range(9) if is_assigned(ASSIGNMENT, topic, one)}
    assert given == {("a", 0), ("a", 7), ("bc", 3)}
    for end in range(len(ASSIGNMENT) - 8):
        assert not is_assigned(ASSIGNMENT[:end], "bc", 3)
    for place in range(len(ASSIGNMENT)):  # lengths and counts that lie
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            assert is_assigned(ASSIGNMENT[:place] + bytes([byte]) + ASSIGNMENT[place + 1 :], "d", 3) is False


def test_the_partitions_of_an_assignment_are_read_whole_or_not_at_all() -> None:
    whole = [TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("bc", 3)]
    assert assigned_partitions(ASSIGNMENT) == whole
    assert assigned_partitions(bytes.fromhex("0001 00000000 ffffffff")) == []
    for end in range(len(ASSIGNMENT) - 4):  # the last four bytes are the user data's size
        assert assigned_partitions(ASSIGNMENT[:end]) is None
    for place in range(2, len(ASSIGNMENT) - 4):
        changed = ASSIGNMENT[:place] + b"\xff" + ASSIGNMENT[place + 1 :]
        assert assigned_partitions(changed) != whole


def test_subscriptions_are_read_as_far_as_they_go() -> None:
    assert subscribed_topics(subscription("a", "bc", owned=b"rest")) == frozenset({"a", "bc"})
    for cut in (b"", b"\0\1", subscription("abc")[:-1], subscription("abc")[:-4], b"\0\0\xff\xff\xff\xff"[:5]):
        assert subscribed_topics(cut) is None
    assert subscribed_topics(b"\0\0\0\0\0\1\0\1\xff") is None
    assert subscribed_topics(b"\0\0\x7f\xff\xff\xff") is None


def test_subscriptions_of_other_kinds_are_compared_as_bytes() -> None:
    assert is_same_subscription("connect", b"x", b"x")
    assert not is_same_subscription("connect", subscription("x"), subscription("x", owned=b"more"))
    assert not is_same_subscription("consumer", b"", b"\0")
