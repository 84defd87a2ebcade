"""Who leads, when brokers come, go and bounce."""

from hypothesis import given
from hypothesis import strategies as st

from pylog.cluster.election import elect, elect_doubtful, elect_first, elect_preferred
from pylog.cluster.image import Move, PartitionImage
from pylog.model import NO_LEADER


def partition(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionImage:
    return PartitionImage(leader, 5, isr, replicas, partition_epoch=7)


def summary(state: PartitionImage) -> tuple[int, tuple[int, ...], int]:
    return state.leader, state.isr, state.leader_epoch


def test_nothing_changes_while_all_live() -> None:
    state = partition(1, (1, 2, 3))
    assert elect(state, {1, 2, 3}) is state


def test_a_dead_leader_is_followed_by_the_first_replica_in_sync() -> None:
    assert summary(elect(partition(1, (1, 3)), {2, 3})) == (3, (3,), 6)
    assert summary(elect(partition(1, (3, 2, 1)), {2, 3})) == (2, (3, 2), 6), "replica order counts, not ISR order"


def test_a_dead_follower_leaves_the_isr_and_the_leader_stays() -> None:
    assert summary(elect(partition(1, (1, 2, 3)), {1, 3})) == (1, (1, 3), 5)


def test_the_last_member_stays_in_the_isr_and_nobody_leads() -> None:
    state = elect(partition(1, (1,)), {2, 3})
    assert summary(state) == (NO_LEADER, (1,), 6)
    assert elect(state, {2, 3}) is state, "an epoch is not used up by every further look"


def test_all_members_dead_keep_their_isr() -> None:
    assert summary(elect(partition(1, (1, 2)), {3})) == (NO_LEADER, (1, 2), 6)


def test_a_returning_member_of_the_isr_leads() -> None:
    assert summary(elect(partition(NO_LEADER, (2, 1)), {2, 3})) == (2, (2,), 6)


def test_a_replica_out_of_sync_does_not_lead() -> None:
    state = partition(NO_LEADER, (1,))
    assert elect(state, {2, 3}) is state


def test_an_unclean_election_takes_any_live_replica_but_only_without_a_clean_one() -> None:
    assert summary(elect(partition(1, (1,)), {3}, unclean=True)) == (3, (3,), 6)
    assert summary(elect(partition(1, (1, 3)), {2, 3}, unclean=True)) == (3, (3,), 6)
    state = partition(NO_LEADER, (1,))
    assert elect(state, set(), unclean=True) is state


def test_an_unclean_election_takes_who_a_move_adds_last_and_who_it_removes_first() -> None:
    """What is added may be empty; what is removed is deleted with what it has."""
    moving, move = partition(3, (3,), (4, 1, 2, 3)), Move(adding=(4,), removing=(2, 3))
    assert summary(elect(moving, {1, 2, 4}, move=move, unclean=True)) == (2, (2,), 6)
    assert summary(elect(moving, {1, 4}, move=move, unclean=True)) == (1, (1,), 6)
    assert summary(elect(moving, {4}, move=move, unclean=True)) == (4, (4,), 6), "losing is preferred to waiting"


def test_an_unclean_election_waits_for_a_live_member_of_the_isr_to_say_what_it_lost() -> None:
    """Leading on in its old epoch it would write other records at offsets where replicas have those that it lost."""
    assert summary(elect(partition(1, (1,)), {1, 2}, doubtful={1}, unclean=True)) == (NO_LEADER, (1,), 6)


def test_rule_3_a_doubtful_replica_leaves_every_isr_that_has_a_clean_member() -> None:
    assert summary(elect(partition(1, (1, 2)), {1, 2}, doubtful={1})) == (2, (2,), 6)
    assert summary(elect(partition(1, (1, 2)), {1, 2}, doubtful={2})) == (1, (1,), 6), "its progress is unknown now"
    assert summary(elect(partition(NO_LEADER, (1, 2)), {1, 2}, doubtful={1})) == (2, (2,), 6)


def test_rule_3_where_none_is_clean_nobody_leads_and_the_isr_stays() -> None:
    state = elect(partition(1, (1, 2)), {1, 2, 3}, doubtful={1, 2})
    assert summary(state) == (NO_LEADER, (1, 2), 6)
    assert elect(state, {1, 2, 3}, doubtful={1, 2}) is state
    assert summary(elect(partition(1, (1,)), {1, 3}, doubtful={1})) == (NO_LEADER, (1,), 6)


def test_rule_3_a_doubtful_member_waits_for_a_dead_one_that_may_be_clean() -> None:
    state = partition(NO_LEADER, (1, 2))
    assert elect(state, {1}, doubtful={1}) is state


def test_rule_3_a_clean_member_that_bounced_leads_before_a_doubtful_one() -> None:
    assert summary(elect(partition(1, (1, 2)), {1, 2}, leaving={2}, doubtful={1})) == (2, (2,), 6)


def test_rule_3_the_longest_log_of_the_latest_epoch_leads_alone() -> None:
    state = partition(NO_LEADER, (1, 2, 3))
    assert summary(elect_doubtful(state, {1: (4, 90), 2: (5, 10), 3: (5, 12)})) == (3, (3,), 6)
    assert summary(elect_doubtful(state, {3: (5, 12), 1: (5, 12)})) == (1, (1,), 6), "replica order decides a tie"


def test_rule_3_an_emptied_log_without_an_epoch_is_compared_by_its_end() -> None:
    """What was deleted had been committed: a log that ends below lacks some of it, whatever its epoch."""
    state = partition(NO_LEADER, (1, 2, 3))
    assert summary(elect_doubtful(state, {1: (-1, 100), 2: (5, 90), 3: (-1, 100)})) == (1, (1,), 6)
    assert summary(elect_doubtful(state, {1: (-1, 100), 2: (5, 101), 3: (6, 99)})) == (2, (2,), 6)
    assert summary(elect_doubtful(state, {1: (-1, 0), 2: (5, 1)})) == (2, (2,), 6)


def test_a_bounced_leader_hands_over() -> None:
    assert summary(elect(partition(1, (1, 2)), {1, 2, 3}, leaving={1})) == (2, (2,), 6)


def test_a_bounced_leader_alone_leads_again_in_a_new_epoch() -> None:
    assert summary(elect(partition(1, (1,)), {1, 2}, bounced={1})) == (1, (1,), 6)


def test_a_bounced_follower_leaves_the_isr() -> None:
    assert summary(elect(partition(1, (1, 2)), {1, 2, 3}, leaving={2})) == (1, (1,), 5)


def test_the_preferred_leader_takes_over_only_in_sync_and_alive() -> None:
    assert elect_preferred(partition(2, (1, 2)), {1, 2}) == PartitionImage(1, 6, (1, 2), (1, 2, 3), 7)
    assert elect_preferred(partition(2, (2,)), {1, 2}) is None
    assert elect_preferred(partition(2, (1, 2)), {2}) is None
    leading = partition(1, (1, 2))
    assert elect_preferred(leading, {1, 2}) is leading


def test_a_new_partition_has_all_live_replicas_in_sync() -> None:
    assert elect_first((2, 1, 3), {1, 2, 3}) == PartitionImage(2, 0, (2, 1, 3), (2, 1, 3), 0)
    assert elect_first((2, 1, 3), {1, 3}) == PartitionImage(1, 0, (1, 3), (2, 1, 3), 0)
    assert elect_first((2, 1), set()) == PartitionImage(NO_LEADER, 0, (2,), (2, 1), 0)


brokers = st.sets(st.integers(1, 5))


@st.composite
def states(draw: st.DrawFn) -> PartitionImage:
    replicas = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True))
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    return PartitionImage(leader, draw(st.integers(0, 9)), tuple(isr), tuple(replicas), 0)


@given(states(), brokers, brokers, st.booleans())
def test_what_holds_in_every_election(before: PartitionImage, live: set[int], leaving: set[int], unclean: bool) -> None:
    after = elect(before, live, leaving=leaving, unclean=unclean)
    assert after.isr, "the ISR never becomes empty"
    assert after.leader == NO_LEADER or after.leader in after.isr
    assert after.leader == NO_LEADER or after.leader in live
    assert after.replicas == before.replicas
    if after.leader != before.leader:
        assert after.leader_epoch == before.leader_epoch + 1
    if not unclean:
        assert set(after.isr) <= set(before.isr), "nobody comes into the ISR by an election"
    if set(before.isr) & live:
        assert set(after.isr) <= set(before.isr), "a clean election loses nothing"
        assert after.leader != NO_LEADER
    if not leaving:
        assert elect(after, live, unclean=unclean) is after, "a second look finds nothing to do"


def test_a_leader_that_leaves_and_is_alone_in_sync_stays_as_it_is() -> None:
    before = partition(1, (1,))
    assert elect(before, {1, 2}, leaving={1}) is before, "asking again must not begin a new epoch each time"
