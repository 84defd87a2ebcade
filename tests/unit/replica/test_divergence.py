"""Two logs written under changing leaders become one after a few rounds of comparing epochs."""

from hypothesis import given
from hypothesis import strategies as st

from pylog.replica.divergence import diverging_epoch, is_unproven, truncation_offset


def end_of(log: list[int], epoch: int) -> tuple[int, int]:
    """Return (largest epoch not above, where it ends); a log is the epochs of its records."""
    known = [one for one in log if one <= epoch]
    if not known:
        return -1, 0
    largest = known[-1]
    return largest, next((at for at, one in enumerate(log) if one > largest), len(log))


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """A common prefix, then epochs that only one of them saw: an epoch has one leader, so one writer."""
    common = sorted(draw(st.lists(st.integers(0, 3), max_size=8)))
    rest = st.lists(st.integers(4, 9), max_size=8)
    leader_rest, follower_rest = sorted(draw(rest)), sorted(draw(rest))
    follower_rest = [epoch for epoch in follower_rest if epoch not in leader_rest]
    return common + leader_rest, common + follower_rest


@given(two_logs())
def test_a_follower_becomes_a_prefix_of_its_leader(logs: tuple[list[int], list[int]]) -> None:
    leader, follower = logs
    common = next((at for at, pair in enumerate(zip(leader, follower, strict=False)) if pair[0] != pair[1]), None)
    common = min(len(leader), len(follower)) if common is None else common
    for _ in range(20):
        last_epoch = follower[-1] if follower else -1
        answer = diverging_epoch(last_epoch, len(follower), *end_of(leader, last_epoch))
        if answer is None:
            break
        cut = truncation_offset(*answer, *end_of(follower, answer[0]), len(follower))
        assert cut < len(follower), "every round gets nearer"
        follower = follower[:cut]
    assert follower == leader[: len(follower)]
    assert len(follower) >= common, "nothing that both have is cut"


def test_an_empty_follower_just_fetches() -> None:
    assert diverging_epoch(-1, 0, -1, -1) is None


def test_a_longer_follower_is_cut_to_the_leaders_end() -> None:
    assert diverging_epoch(3, 10, 3, 7) == (3, 7)
    assert truncation_offset(3, 7, 3, 10, 10) == 7


def test_records_below_the_leaders_start_are_unproven_if_it_has_forgotten_their_epoch() -> None:
    def is_in_doubt(last_epoch: int, end: int, start: int = 70) -> bool:
        return is_unproven(last_epoch, end, start, oldest_epoch=4, leaders_start=77)

    assert is_in_doubt(3, 77)
    assert not is_in_doubt(4, 77), "the logs agree on an epoch, so on everything before its end"
    assert not is_in_doubt(3, 77, start=77), "it has no records"
    assert not is_in_doubt(3, 78), "the epochs show that the logs part"
    assert not is_in_doubt(-1, 77)
