"""Reading partitions of a topic that is written to, up to the ends that they had when reading began."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord
from pylog.console.changes import Target
from pylog.console.records import SEARCH, Found, Left, collect, records_data, search_data
from pylog.console.sources import (
    MAX_READERS,
    MAX_READERS_OF_PERSON,
    MAX_TIMES,
    ClusterSource,
    Lags,
    TooManyReaders,
)
from pylog.errors import ApiError, ErrorCode
from pylog.model import TopicPartition


def at(partition: int, *offsets: int) -> list[ConsumedRecord]:
    return [ConsumedRecord("t", partition, offset, 0, None, b"x", []) for offset in offsets]


def ends(**offsets: int) -> Mapping[TopicPartition, int]:
    return {TopicPartition("t", int(name[1:])): offset for name, offset in offsets.items()}


def read(
    spans: Mapping[int, tuple[int, int]], *moments: tuple[Sequence[ConsumedRecord], Mapping[TopicPartition, int]]
) -> Found:
    """Return what comes of batches, each with the ends that the consumer has reached after it."""
    left = Left(spans)

    def batches() -> object:
        for batch, at_end in moments:
            yield batch
            left.note(batch, at_end)
        assert left.ends == {}

    return collect(batches(), spans, b"", SEARCH, lambda: 0.0, left.open_at)  # type: ignore[arg-type]


def test_records_past_the_end_may_come_in_the_batch_of_the_last_one() -> None:
    found = read({0: (0, 2)}, (at(0, 0, 1, 2, 3), {}))
    assert ([one.offset for one in found.records], found.next_offsets, found.ended_by) == ([0, 1], {0: 2}, "end")


def test_records_may_come_of_a_partition_that_was_done_while_another_is_read() -> None:
    found = read({0: (0, 2), 1: (0, 1)}, (at(0, 0, 1), ends(p0=2)), (at(0, 2), {}), ([*at(1, 0), *at(0, 3)], {}))
    assert [(one.partition, one.offset) for one in found.records] == [(0, 0), (0, 1), (1, 0)]
    assert found.next_offsets == {0: 2, 1: 1}


def test_the_last_offsets_may_hold_no_record() -> None:
    found = read({0: (0, 5)}, (at(0, 0, 2), ends(p0=5)))
    assert (found.ended_by, found.next_offsets) == ("end", {0: 5})


def test_a_partition_is_done_when_the_next_record_is_beyond_its_end() -> None:
    found = read({0: (3, 4)}, (at(0, 9), {}))
    assert (found.records, found.next_offsets, found.ended_by) == ([], {0: 4}, "end")


@pytest.mark.parametrize("other_end", [4, 9])
def test_what_an_open_transaction_hides_is_said_and_not_taken_for_the_end(other_end: int) -> None:
    spans = {0: (0, 9), 1: (0, 4)}
    found = read(spans, ([*at(0, 0, 1), *at(1, 3)], ends(p0=2, p1=other_end)))
    assert (found.ended_by, found.next_offsets, found.open_at) == ("transaction", {0: 2, 1: 4}, {0: 2})
    page = search_data(found, spans, "x", None)
    assert page["sentence"] == (
        "Searched 6 of 13 offsets in 2 partitions: 3 records found. "
        "Partition 0 cannot be read from offset 2 on: an open transaction begins there."
    )
    assert page["next"] == "0:2,1:4"


def test_a_page_of_records_ends_at_an_open_transaction() -> None:
    page = records_data(read({0: (0, 9)}, (at(0, 0, 1), ends(p0=2))), 0, (0, 9), "", None)
    assert page["sentence"] == (
        "Offsets 0 to 1: 2 records. Partition 0 cannot be read from offset 2 on: an open transaction begins there."
    )
    assert page["next_offset"] == 2


class Slow(ClusterSource):
    """Reads until it may end."""

    reading = threading.Semaphore(0)
    may_end = threading.Event()

    def _batches(self, topic: str, spans: object, left: object) -> Iterator[Sequence[ConsumedRecord]]:
        self.reading.release()
        assert self.may_end.wait(60.0)
        return iter([])


def test_one_person_s_searches_leave_places_for_others() -> None:
    bob, alice = (Slow(Connection(bootstrap="127.0.0.1:1"), Lags(None)) for _ in range(2))  # type: ignore[arg-type]
    found: list[str] = []
    refused = threading.Semaphore(0)

    def search(source: Slow) -> None:
        try:
            found.append(source.read("t", {0: (0, 1)}, b"x").ended_by)
        except TooManyReaders as error:
            found.append(str(error))
            refused.release()

    threads = [threading.Thread(target=search, args=(bob,)) for _ in range(MAX_READERS)]
    for one in threads:
        one.start()
    for _ in range(MAX_READERS_OF_PERSON):
        assert Slow.reading.acquire(timeout=60.0)
    for _ in range(MAX_READERS - MAX_READERS_OF_PERSON):
        assert refused.acquire(timeout=60.0)
    threads.append(threading.Thread(target=search, args=(alice,)))
    threads[-1].start()
    try:
        assert Slow.reading.acquire(timeout=60.0), "alice reads although bob has taken all that he may"
    finally:
        Slow.may_end.set()
        for one in threads:
            one.join()
    refusal = "you are reading other pages of records; try again when one has come"
    assert sorted(found) == ["end"] * (MAX_READERS_OF_PERSON + 1) + [refusal] * (MAX_READERS - MAX_READERS_OF_PERSON)


class Asked(ClusterSource):
    """Counts what is asked."""

    asked = 0

    def _when_known(self) -> Any:
        return self

    def rehearse(self, group_id: str, target: Target | None) -> Any:
        Asked.asked += 1
        self._take_time()
        return "Empty", {}, {}


def test_offsets_by_time_are_asked_so_often_in_a_minute_and_an_answer_is_kept() -> None:
    bob, alice = (Asked(Connection(bootstrap="127.0.0.1:1"), Lags(None)) for _ in range(2))  # type: ignore[arg-type]
    for _ in range(3):
        bob.rehearsal("g", Target("time", 0))
    assert Asked.asked == 1
    for number in range(1, MAX_TIMES):
        bob.rehearsal("g", Target("time", number))
    with pytest.raises(TooManyReaders, match="by time 20 times within a minute"):
        bob.rehearsal("g", Target("time", MAX_TIMES))
    with pytest.raises(TooManyReaders, match="by time 20 times within a minute"):
        bob.offset_at(TopicPartition("t", 0), 5)
    alice.rehearsal("g", Target("time", 0))


def test_visitors_without_a_login_are_many_and_share_no_limit_of_one_person() -> None:
    everybody = Asked(Connection(bootstrap="127.0.0.1:1"), Lags(None), is_everybody=True)  # type: ignore[arg-type]
    for number in range(MAX_TIMES + 1):
        assert everybody.rehearsal("g", Target("time", number)) == ("Empty", {}, {})


class Leaders:
    """Refuse what they are asked."""

    def offsets_at(self, places: Sequence[TopicPartition], timestamp_ms: int) -> Any:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours")


class Refused(ClusterSource):
    """Asks leaders that refuse."""

    def _when_known(self) -> Any:
        return Leaders()


def test_a_refusal_to_look_up_by_time_stays_what_it_is() -> None:
    bob = Refused(Connection(bootstrap="127.0.0.1:1"), Lags(None))  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ApiError, match="not yours") as caught:
            bob.offset_at(TopicPartition("t", 0), 5)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_of_several_open_transactions_the_first_is_named() -> None:
    spans = {0: (0, 9), 1: (0, 4)}
    page = search_data(read(spans, (at(0, 0), ends(p0=1, p1=0))), spans, "x", None)
    assert page["sentence"].endswith("an open transaction begins there. The same holds for 1 more partition.")
