"""Tails: how many, how long, and what one look reads and says."""

from pylog.client.consumer import ConsumedRecord
from pylog.console.records import TAIL_PARTITIONS, TAIL_RECORDS, Found, tail_data, tail_spans
from pylog.console.tails import EVERY_S, IDLE_S, MAX_TAILS, MAX_TAILS_OF_PERSON, TAIL_S, Standing, Tails


def record(partition: int, offset: int, timestamp_ms: int = 0) -> ConsumedRecord:
    return ConsumedRecord("clicks", partition, offset, timestamp_ms, None, b"x", [])


def test_a_tail_ends_after_its_time_even_if_somebody_still_asks() -> None:
    tails, now_s = Tails(), 0.0
    while now_s < TAIL_S:
        assert tails.look("", "a", now_s) is Standing.GOES_ON
        now_s += EVERY_S
    assert tails.look("", "a", now_s) is Standing.ENDED


def test_one_more_than_there_may_be_is_refused_until_another_has_ended() -> None:
    tails = Tails()
    for number in range(MAX_TAILS):
        assert tails.look("", str(number), 0.0) is Standing.GOES_ON
    assert tails.look("", "more", 1.0) is Standing.TOO_MANY
    assert tails.look("", "0", IDLE_S - 1) is Standing.GOES_ON
    assert tails.look("", "more", IDLE_S) is Standing.GOES_ON


def test_one_person_leaves_places_for_others() -> None:
    tails = Tails()
    for number in range(MAX_TAILS_OF_PERSON):
        assert tails.look("bob", str(number), 0.0) is Standing.GOES_ON
    for number in range(9):
        assert tails.look("bob", f"more {number}", 1.0) is Standing.TOO_MANY_OF_PERSON
    assert tails.look("alice", "0", 1.0) is Standing.GOES_ON
    assert tails.look("bob", "0", 2.0) is Standing.GOES_ON
    assert tails.look("bob", "more", IDLE_S + 1) is Standing.GOES_ON


def test_a_look_reads_the_latest_of_each_partition() -> None:
    assert tail_spans({0: (0, 1_000), 1: (5, 7)}, {}) == {0: (975, 1_000), 1: (5, 7)}
    assert tail_spans({}, {}) == {}


def test_of_many_partitions_those_that_grew_most_are_read() -> None:
    ends = dict.fromkeys(range(1000), (0, 10))
    seen = dict.fromkeys(ends, 10) | {700: 3}
    spans = tail_spans(ends, seen)
    assert len(spans) == TAIL_PARTITIONS
    assert 700 in spans
    assert sum(end - start for start, end in spans.values()) <= max(TAIL_RECORDS, TAIL_PARTITIONS)


def test_the_newest_comes_first_and_what_came_since_is_marked() -> None:
    found = Found({}, [record(0, 8, 5), record(0, 9, 9), record(1, 3, 7)])
    model = tail_data(found, {0: (0, 10), 1: (0, 4)}, {0: 9, 1: 4}, None)
    assert [(row["partition"], row["offset"], row["is_new"]) for row in model["records"]] == [
        (0, 9, True),
        (1, 3, False),
        (0, 8, False),
    ]
    assert model["sentence"] == "1 offset was written since the last look; all are shown."
    assert model["seen"] == "0:10,1:4"


def test_a_topic_that_is_faster_than_a_page_says_what_it_left_out() -> None:
    found = Found({}, [record(0, offset) for offset in range(950, 1_000)])
    model = tail_data(found, {0: (0, 1_000)}, {0: 100}, None)
    assert model["sentence"] == "900 offsets were written since the last look; the latest 50 records of them are shown."


def test_the_first_look_and_a_quiet_one_say_so() -> None:
    assert tail_data(Found({}), {0: (0, 3)}, {}, None)["sentence"] == "These are the latest records."
    assert tail_data(Found({}), {0: (0, 3)}, {0: 3}, None)["sentence"] == ("Nothing was written since the last look.")
