"""The leader's view of its followers: high watermark, in-sync replicas, changes on their way."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pylog.replica.leader import TOUCH_MS, UNKNOWN, IsrChange, Leader

LAG_MS = 1_000


def leader(isr: tuple[int, ...] = (1, 2, 3), *, epoch_start: int = 0, min_isr: int = 1) -> Leader:
    return Leader(
        1,
        (1, 2, 3),
        isr,
        leader_epoch=5,
        partition_epoch=7,
        epoch_start=epoch_start,
        lag_ms=LAG_MS,
        min_isr=min_isr,
        now_ms=0,
    )


def test_the_high_watermark_waits_for_every_member_in_this_epoch() -> None:
    one = leader()
    assert one.high_watermark(0, 10) == 0
    one.fetched(2, 20, 10, 10, now_ms=1)
    assert one.high_watermark(0, 10) == 0, "3 has not fetched in this epoch"
    one.fetched(3, 30, 4, 10, now_ms=1)
    assert one.high_watermark(0, 10) == 4
    assert one.high_watermark(6, 10) == 6, "it never moves back"


def test_a_replica_outside_the_isr_does_not_hold_it() -> None:
    one = leader(isr=(1, 2))
    one.fetched(2, 20, 10, 10, now_ms=1)
    assert one.high_watermark(0, 10) == 10


def test_it_stands_still_below_the_minimum() -> None:
    one = leader(isr=(1,), min_isr=2)
    assert one.is_under_min_isr()
    assert one.high_watermark(3, 10) == 3


def test_what_all_in_sync_have_grows_below_the_minimum_too() -> None:
    one = leader(isr=(1, 2), min_isr=3)
    assert one.common_end_offset(10) == UNKNOWN
    one.fetched(2, 20, 8, 10, now_ms=1)
    assert one.common_end_offset(10) == 8
    assert leader(isr=(1,), min_isr=2).common_end_offset(10) == 10


def test_a_deposed_leader_told_its_successors_state_stands_still() -> None:
    one = leader(isr=(1, 2))
    one.fetched(2, 20, 8, 10, now_ms=1)
    one.answered((2, 4), 9)  # 4 came by a move of which no image has told us
    assert one.high_watermark(3, 10) == 3
    assert not one.is_in_touch(TOUCH_MS + 1, has_session=True)
    assert one.wanted_change(3, 10, LAG_MS + 2) is not None


def test_a_member_that_an_edited_assignment_lacks_leaves_the_isr() -> None:
    one = leader(isr=(1, 2, 4))
    one.fetched(2, 20, 10, 10, now_ms=1)
    assert one.high_watermark(3, 10) == 3
    assert one.has_followers
    one.fetched(2, 20, 10, 10, now_ms=LAG_MS + 1)
    assert one.wanted_change(3, 10, LAG_MS + 1) == IsrChange(((1, -1), (2, 20)), 7)


def test_a_joining_replica_counts_from_sending() -> None:
    one = leader(isr=(1, 2))
    one.fetched(2, 20, 10, 10, now_ms=1)
    one.fetched(3, 30, 8, 10, now_ms=1)
    change = one.wanted_change(8, 10, now_ms=1)
    assert change is not None
    assert change.isr == ((1, -1), (2, 20), (3, 30))
    one.sent(change)
    assert one.high_watermark(8, 10) == 8, "3 may be a member already"
    one.refused()
    assert one.high_watermark(8, 10) == 10


def test_a_leaving_member_counts_until_the_answer() -> None:
    one = leader()
    one.fetched(2, 20, 10, 10, now_ms=2_000)
    change = one.wanted_change(0, 10, now_ms=2_000)
    assert change is not None
    assert [member for member, _ in change.isr] == [1, 2]
    one.sent(change)
    assert one.high_watermark(0, 10) == 0
    one.answered([1, 2], 8)
    assert one.high_watermark(0, 10) == 10


def test_a_replica_that_comes_with_a_move_joins_and_one_that_goes_is_forgotten() -> None:
    one = leader(isr=(1, 2, 3), min_isr=3)
    one.follow((4, 2, 3, 1), 3, now_ms=5)
    one.fetched(2, 20, 10, 10, now_ms=5)
    one.fetched(3, 30, 10, 10, now_ms=5)
    one.fetched(4, 40, 10, 10, now_ms=5)
    change = one.wanted_change(10, 10, now_ms=5)
    assert change is not None
    assert [member for member, _ in change.isr] == [1, 2, 3, 4]
    one.sent(change)
    one.answered([1, 2, 3, 4], 8)
    one.follow((4, 2, 1), 3, now_ms=6)
    assert not one.is_replica(3)
    assert one.high_watermark(0, 10) == 10, "until the next state 3 still counts, and its progress is known"
    one.learned([1, 2, 4], 9)
    assert one.wanted_change(10, 10, now_ms=7) is None, "3 does not join again"


def test_a_replica_that_only_comes_does_not_raise_the_minimum() -> None:
    one = leader(isr=(1,), min_isr=9)
    one.follow((1, 4), 1, now_ms=0)
    assert not one.is_under_min_isr()


def test_a_member_that_has_everything_stays_though_it_fetched_long_ago() -> None:
    one = leader(isr=(1, 2))
    one.fetched(2, 20, 10, 10, now_ms=0)
    assert one.wanted_change(10, 10, now_ms=99_999) is None


def test_a_follower_that_always_has_what_was_there_before_is_not_late() -> None:
    one = leader(isr=(1, 2))
    end = 0
    for now_ms in range(0, 5_000, 500):
        one.fetched(2, 20, end, end + 10, now_ms)
        end += 10
        assert one.wanted_change(0, end, now_ms) is None


def test_joining_takes_the_epochs_start_and_the_high_watermark() -> None:
    one = leader(isr=(1,), epoch_start=5)
    one.fetched(2, 20, 4, 10, now_ms=1)
    assert one.wanted_change(3, 10, now_ms=1) is None
    one.fetched(2, 20, 5, 10, now_ms=2)
    change = one.wanted_change(3, 10, now_ms=2)
    assert change is not None
    assert [member for member, _ in change.isr] == [1, 2]


def test_joining_takes_a_log_that_begins_where_the_leaders_does() -> None:
    one = leader(isr=(1,))
    one.fetched(2, 20, 10, 10, now_ms=1, log_start_offset=4)
    assert one.wanted_change(10, 10, now_ms=1, log_start_offset=5) is None, "it would show what was deleted"
    one.fetched(2, 20, 10, 10, now_ms=2, log_start_offset=5)
    assert one.wanted_change(10, 10, now_ms=2, log_start_offset=5) is not None


def test_a_member_stays_while_it_has_not_heard_where_the_leaders_log_begins() -> None:
    one = leader(isr=(1, 2))
    one.fetched(2, 20, 10, 10, now_ms=1, log_start_offset=4)
    assert one.wanted_change(10, 10, now_ms=1, log_start_offset=5) is None


def test_a_follower_of_release_0_1_0_joins_wherever_its_log_begins() -> None:
    """It may refuse the leader's start for ever, and was let in by leaders of its own release."""
    one = leader(isr=(1,))
    one.fetched(2, 20, 10, 10, now_ms=1, log_start_offset=4, takes_every_start=False)
    assert one.wanted_change(10, 10, now_ms=1, log_start_offset=5) is not None


def test_an_earlier_process_does_not_say_where_a_log_begins() -> None:
    one = leader(isr=(1,))
    one.fetched(2, 21, 10, 10, now_ms=1, log_start_offset=0)
    one.fetched(2, 20, 10, 10, now_ms=2, log_start_offset=5)
    assert one.wanted_change(10, 10, now_ms=2, log_start_offset=5) is None


def test_the_low_watermark_is_that_of_live_replicas_and_of_all_that_may_be_in_sync() -> None:
    one = leader(isr=(1, 2))
    assert one.low_watermark(5, live=(1,)) == UNKNOWN, "2 is in sync and has not said where it begins"
    one.fetched(2, 20, 10, 10, now_ms=1, log_start_offset=4)
    one.fetched(3, 30, 10, 10, now_ms=1, log_start_offset=3)
    assert one.low_watermark(5, live=(1,)) == 4
    assert one.low_watermark(5, live=(1, 3)) == 3
    change = one.wanted_change(10, 10, now_ms=1)
    assert change is not None
    one.sent(change)
    assert one.low_watermark(5, live=(1,)) == 3, "3 may be a member already"


def test_a_broker_that_has_given_its_replica_away_holds_up_no_deletion() -> None:
    """An image brings both at once: other replicas, and an ISR without the one that went."""
    one = leader()
    one.fetched(2, 20, 10, 10, now_ms=1, log_start_offset=5)
    one.fetched(3, 30, 10, 10, now_ms=1, log_start_offset=0)
    one.follow((1, 2), 2, now_ms=2)
    assert one.low_watermark(5, live=(1, 2, 3)) == 0, "the ISR that it is in may still hold"
    one.learned((1, 2), partition_epoch=8)
    assert one.low_watermark(5, live=(1, 2, 3)) == 5
    assert not one.is_alone
    one.follow((1,), 1, now_ms=3)
    one.answered((1,), partition_epoch=9)
    assert one.is_alone


def test_a_follower_that_fetches_no_more_does_not_join() -> None:
    """Found by the simulator: the controller refuses a change that names a dead process, and with it whoever lives."""
    one = leader(isr=(1,), min_isr=2)
    one.fetched(3, 30, 10, 10, now_ms=1)
    one.fetched(2, 20, 10, 10, now_ms=LAG_MS + 2)
    change = one.wanted_change(0, 10, now_ms=LAG_MS + 2)
    assert change is not None
    assert change.isr == ((1, -1), (2, 20))


def test_a_follower_that_would_leave_again_at_once_does_not_join() -> None:
    one = leader(isr=(1,), min_isr=2)
    assert one.high_watermark(5, 8) == 5, "it stands still below the minimum"
    one.fetched(2, 20, 6, 8, now_ms=1)
    late_ms = LAG_MS + 1
    one.fetched(2, 20, 6, 8, now_ms=late_ms)
    assert one.wanted_change(5, 8, late_ms) is None, "its disk takes nothing"
    one.fetched(2, 20, 8, 9, now_ms=late_ms + 1)
    change = one.wanted_change(5, 9, late_ms + 1)
    assert change is not None
    assert change.isr == ((1, -1), (2, 20)), "it has what was there when it asked last"


def test_a_leader_whose_followers_are_silent_is_not_in_touch() -> None:
    """Found by the simulator: after a pause a deposed leader told producers that they had skipped a batch."""
    one = leader(isr=(1, 2))
    assert not one.is_in_touch(TOUCH_MS + 1, has_session=True)
    one.fetched(2, 20, 0, 10, now_ms=5_000)
    assert not one.is_in_touch(5_000, has_session=True), "it may have lain in the socket for an hour"
    one.fetched(2, 20, 0, 10, now_ms=5_500)
    assert one.is_in_touch(5_000 + TOUCH_MS, has_session=False), "the second was sent after the first was answered"
    assert not one.is_in_touch(5_001 + TOUCH_MS, has_session=True)


def test_a_leader_alone_in_sync_is_in_touch_while_its_session_lasts() -> None:
    one = leader(isr=(1,))
    assert one.is_in_touch(TOUCH_MS + 1, has_session=True)
    assert not one.is_in_touch(TOUCH_MS + 1, has_session=False)


def test_whoever_may_have_joined_may_be_the_successor() -> None:
    one = leader(isr=(1,))
    one.fetched(2, 20, 10, 10, now_ms=0)
    one.sent(IsrChange(((1, -1), (2, 20)), 7))
    assert not one.is_in_touch(TOUCH_MS + 1, has_session=True), "the wish may be fulfilled, and 2 lead by now"


def test_a_replica_that_comes_again_begins_anew() -> None:
    """Found by the simulator: it had deleted its data when it went, and was in sync at once when it came back."""
    one = leader(isr=(1, 2, 3))
    one.fetched(2, 20, 10, 10, now_ms=1)
    one.fetched(3, 30, 10, 10, now_ms=1)
    one.follow((1, 2), 2, now_ms=2)
    one.learned((1, 2), 8)
    one.follow((1, 2, 3), 3, now_ms=3)
    assert one.wanted_change(10, 10, now_ms=3) is None
    one.fetched(3, 30, 0, 10, now_ms=4)
    assert one.wanted_change(10, 10, now_ms=4) is None


def test_who_left_the_isr_shows_by_its_next_fetch_what_it_has() -> None:
    """Between two images it may have been taken from the replicas, and made one again."""
    one = leader(isr=(1, 2, 3))
    one.fetched(2, 20, 10, 10, now_ms=1)
    one.fetched(3, 30, 10, 10, now_ms=1)
    one.learned((1, 2), 8)
    assert one.wanted_change(10, 10, now_ms=1) is None
    one.fetched(3, 30, 10, 10, now_ms=2)
    assert one.wanted_change(10, 10, now_ms=2) is not None


def test_a_resignation_names_the_others_in_sync() -> None:
    one = leader(isr=(1, 3))
    one.fetched(3, 30, 4, 10, now_ms=1)
    assert one.resignation() == IsrChange(((3, 30),), 7)
    assert leader(isr=(1,)).resignation() is None


def test_an_answer_from_before_is_dropped() -> None:
    one = leader()
    one.answered([1, 2], 9)
    one.answered([1, 2, 3], 8)
    assert (one.isr, one.partition_epoch) == ({1, 2}, 9)


def test_an_earlier_process_of_a_follower_says_nothing() -> None:
    one = leader(isr=(1, 2))
    one.fetched(2, 20, 10, 10, now_ms=1)
    one.fetched(2, 19, 99, 10, now_ms=2)
    assert one.progress(2).log_end_offset == 10


class LeaderMachine(RuleBasedStateMachine):
    """Followers fetch, ISR changes are sent and answered in any order: nothing exposed is lacked by a member."""

    def __init__(self) -> None:
        super().__init__()
        self.leader = leader()
        self.end = self.high = self.now = 0
        self.held = {2: 0, 3: 0}  # what each follower really has
        self.possible = [frozenset({1, 2, 3})]  # every ISR that may hold at the controller

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end += count

    @rule(follower=st.sampled_from([2, 3]), count=st.integers(0, 5), wait=st.integers(0, 1500))
    def fetch(self, follower: int, count: int, wait: int) -> None:
        self.now += wait
        self.leader.fetched(follower, 10, self.held[follower], self.end, self.now)
        self.held[follower] = min(self.end, self.held[follower] + count)

    @precondition(lambda self: self.leader.pending is None)
    @rule()
    def send(self) -> None:
        change = self.leader.wanted_change(self.high, self.end, self.now)
        if change is not None:
            self.leader.sent(change)
            self.possible.append(frozenset(member for member, _ in change.isr))

    @precondition(lambda self: self.leader.pending is not None)
    @rule(is_taken=st.booleans())
    def answer(self, is_taken: bool) -> None:
        isr = self.possible[-1] if is_taken else self.possible[0]
        self.possible = [isr]
        self.leader.answered(isr, self.leader.partition_epoch + is_taken)

    @invariant()
    def nothing_exposed_is_lacked_by_a_possible_member(self) -> None:
        high = self.leader.high_watermark(self.high, self.end)
        assert high >= self.high
        self.high = high
        for isr in self.possible:
            for member in isr - {1}:
                assert self.held[member] >= self.high


LeaderMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_machine = LeaderMachine.TestCase


def test_a_log_is_copied_as_far_as_all_who_fetch_now_have_come() -> None:
    one = leader(isr=(1,))
    assert one.copied_offset(1) is None
    one.fetched(2, 20, 4, 10, now_ms=1)
    assert one.copied_offset(1) == 4, "3 has not fetched: nobody knows where it ends"
    one.fetched(3, 30, 7, 10, now_ms=LAG_MS)
    assert one.copied_offset(LAG_MS) == 4
    assert one.copied_offset(LAG_MS + 2) == 7, "2 fetches no more"
