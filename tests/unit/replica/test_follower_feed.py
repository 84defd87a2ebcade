"""A follower's list of partitions: named once, then only where something changed."""

from hypothesis import given
from hypothesis import strategies as st

from pylog.model import Key
from pylog.replica.follower_feed import CHECK_COUNT, CHECK_MS, FollowerFeed
from pylog.wire.fetch import Feeding, FetchPartition

A, B = ("a", 0), ("b", 0)


class Follower:
    """Logs with an end each, and the leader's copy of what was asked of them."""

    def __init__(self, **ends: int) -> None:
        self.ends: dict[Key, int | None] = {(name, 0): end for name, end in ends.items()}
        self.feed = FollowerFeed()
        self.leaders: dict[Key, FetchPartition] = {}

    def question(self, key: Key) -> FetchPartition | None:
        end = self.ends[key]
        return None if end is None else FetchPartition(*key, 1, end, 1, 0, 99)

    def ask(self, now_ms: int = 0, *, is_kept: bool = True) -> tuple[Feeding, set[Key], set[Key]]:
        feeding, named, forgotten = self.feed.request(self.ends.keys(), self.question, now_ms)
        if feeding is Feeding.BEGIN:
            self.leaders.clear()
        for key in forgotten:
            del self.leaders[key]
        self.leaders |= {(part.topic, part.partition): part for part in named}
        self.feed.answered(is_kept=is_kept)
        return feeding, {(part.topic, part.partition) for part in named}, set(forgotten)

    def is_told(self) -> bool:
        wanted = {key: part for key in self.ends if (part := self.question(key)) is not None}
        return self.leaders == wanted


def test_all_are_named_once_and_then_those_that_moved() -> None:
    follower = Follower(a=1, b=2)
    assert follower.ask() == (Feeding.BEGIN, {A, B}, set())
    follower.ends[A] = 5
    follower.feed.doubt([A])
    assert follower.ask() == (Feeding.CHANGE, {A}, set())
    assert follower.ask() == (Feeding.CHANGE, set(), set())
    assert follower.is_told()


def test_what_cannot_be_fetched_now_is_forgotten_and_named_again() -> None:
    follower = Follower(a=1, b=2)
    follower.ask()
    follower.ends[B] = None
    follower.feed.doubt([B])
    assert follower.ask() == (Feeding.CHANGE, set(), {B})
    follower.ends[B] = 2
    follower.feed.doubt([B])
    assert follower.ask() == (Feeding.CHANGE, {B}, set())


def test_an_answer_that_was_not_taken_is_asked_for_again() -> None:
    follower = Follower(a=1, b=2)
    follower.ask()
    follower.feed.repeat(A)
    assert follower.ask() == (Feeding.CHANGE, {A}, set())


def test_what_nobody_told_of_is_noticed_after_a_while() -> None:
    follower = Follower(a=1, b=2)
    follower.ask()
    follower.ends[A] = None
    assert follower.ask(CHECK_MS - 1) == (Feeding.CHANGE, set(), set())
    assert follower.ask(CHECK_MS) == (Feeding.CHANGE, set(), {A})


def test_a_new_connection_and_a_leader_that_keeps_nothing_are_told_everything() -> None:
    follower = Follower(a=1, b=2)
    follower.ask()
    follower.feed.forget()
    assert follower.ask(is_kept=False) == (Feeding.BEGIN, {A, B}, set())
    assert follower.ask() == (Feeding.BEGIN, {A, B}, set())
    assert follower.ask() == (Feeding.CHANGE, set(), set())


keys = st.sampled_from([(name, 0) for name in "abcd"])
steps = st.lists(st.one_of(
    st.tuples(st.just("end"), keys, st.one_of(st.none(), st.integers(0, 9))),
    st.tuples(st.just("gone"), keys, st.none()),
    st.tuples(st.just("lost"), st.none(), st.none()),
    st.tuples(st.just("ask"), st.booleans(), st.none()),
))  # fmt: skip


@given(steps)
def test_the_leader_always_has_what_the_follower_would_name_in_full(taken: list[tuple[str, object, object]]) -> None:
    follower = Follower(a=1)
    for step, what, value in taken:
        if step == "end":
            follower.ends[what] = value  # type: ignore[index, assignment]
            follower.feed.doubt([what])  # type: ignore[list-item]
        elif step == "gone":
            follower.ends.pop(what, None)  # type: ignore[call-overload]
            follower.feed.doubt_all()
        elif step == "lost":
            follower.feed.forget()
        else:
            follower.ask(is_kept=bool(what))
            assert follower.is_told()


def test_of_many_partitions_a_few_are_compared_each_in_its_turn() -> None:
    names = [f"p{number}" for number in range(3 * CHECK_COUNT)]
    follower = Follower(**dict.fromkeys(names, 1))
    follower.ask()
    follower.ends = dict.fromkeys(follower.ends, 2)
    found: set[Key] = set()
    for turn in range(1, 4):
        _, named, _ = follower.ask(turn * CHECK_MS)
        assert len(named) == CHECK_COUNT
        found |= named
    assert found == follower.ends.keys()


def test_what_is_not_asked_for_now_is_compared_every_time() -> None:
    names = [f"p{number}" for number in range(3 * CHECK_COUNT)]
    follower = Follower(**dict.fromkeys(names, 1))
    last = (names[-1], 0)
    follower.ends[last] = None
    follower.ask()
    follower.ends[last] = 7
    _, named, _ = follower.ask(CHECK_MS)
    assert named == {last}
