"""Which replica a consumer is sent to (KIP-392)."""

from pylog.replica.selector import Candidate, nearer_replica

FOLLOWERS = [
    Candidate(2, "b", 0, 10),
    Candidate(3, "b", 5, 12),
    Candidate(4, "c", 0, 12),
    Candidate(5, None, 0, 12),
]


def test_the_one_in_the_same_rack_that_has_most() -> None:
    assert nearer_replica("b", "a", FOLLOWERS, 5) == 3


def test_the_leader_where_it_is_in_that_rack_or_nobody_is() -> None:
    assert nearer_replica("a", "a", FOLLOWERS, 5) is None
    assert nearer_replica("x", "a", FOLLOWERS, 5) is None


def test_nobody_who_lacks_what_is_asked_for() -> None:
    assert nearer_replica("b", "a", FOLLOWERS, 11) == 3
    assert nearer_replica("b", "a", FOLLOWERS, 13) is None


def test_nobody_whose_log_begins_later() -> None:
    assert nearer_replica("b", "a", FOLLOWERS, 4) == 2
    assert nearer_replica("c", "a", [Candidate(4, "c", 5, 12)], 4) is None
