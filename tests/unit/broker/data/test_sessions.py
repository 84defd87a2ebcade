"""Fetch sessions: what a request means, what an answer leaves out, and what clients cannot make us keep."""

from collections.abc import Sequence

import pytest

from pylog.broker.data import sessions
from pylog.broker.data.sessions import FetchSession, FetchSessions
from pylog.errors import ApiError, ErrorCode
from pylog.log.segment import FileSlice
from pylog.security.principal import USER, Principal
from pylog.wire.fetch import FetchPartition, FetchRequest, FetchResult


def part(number: int, offset: int = 0) -> FetchPartition:
    return FetchPartition("t", number, -1, offset, -1, -1, 1 << 20)


def request(
    session_id: int,
    epoch: int,
    parts: Sequence[FetchPartition] = (),
    forgotten: Sequence[tuple[str, int]] = (),
    version: int = 12,
) -> FetchRequest:
    return FetchRequest(-1, 500, 1, 1 << 20, 0, session_id, epoch, list(parts), list(forgotten), version=version)


def begin(found: FetchSessions, count: int = 3, now_ms: int = 0) -> FetchSession:
    session = found.apply(request(0, 0, [part(number) for number in range(count)]), now_ms)
    assert session is not None
    return session


def result(number: int, high_watermark: int = 0, records_bytes: int = 0) -> FetchResult[FileSlice]:
    return FetchResult("t", number, high_watermark=high_watermark, log_start_offset=0, records_bytes=records_bytes)


def numbers(found: Sequence[FetchResult[FileSlice]]) -> list[int]:
    return [one.partition for one in found]


def counting() -> FetchSessions:
    ids = iter(range(7, 100_000))
    return FetchSessions(lambda: next(ids))


def test_a_request_changes_the_list_and_is_about_all_of_it() -> None:
    found = counting()
    session = begin(found)
    assert session.session_id == 7
    asked = request(7, 1, [part(1, offset=5), part(9)], [("t", 0)])
    assert found.apply(asked, 1) is session
    assert [(one.partition, one.fetch_offset) for one in asked.partitions] == [(1, 5), (2, 0), (9, 0)]
    again = request(7, 2)
    found.apply(again, 2)
    assert again.partitions == asked.partitions


def test_an_unknown_session_and_a_request_out_of_order_are_refused() -> None:
    found = counting()
    begin(found)
    for session_id, epoch, code in (
        (8, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (7, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ):
        with pytest.raises(ApiError) as caught:
            found.apply(request(session_id, epoch), 0)
        assert caught.value.code is code
    assert found.apply(request(7, 1), 0) is not None


def test_a_final_request_ends_the_session_and_is_answered_in_full() -> None:
    found = counting()
    begin(found)
    asked = request(7, -1, [part(5)])
    assert found.apply(asked, 0) is None
    assert [one.partition for one in asked.partitions] == [5]
    assert len(found) == 0


def test_a_full_request_replaces_the_session() -> None:
    found = counting()
    begin(found)
    session = found.apply(request(7, 0, [part(1)]), 0)
    assert session is not None
    assert (session.session_id, len(found)) == (8, 1)


def test_an_answer_has_only_what_is_new() -> None:
    session = begin(counting())
    assert numbers(session.news([result(0), result(1), result(2)])) == [0, 1, 2]
    assert numbers(session.news([result(0), result(1), result(2)])) == []
    assert numbers(session.news([result(0), result(1, high_watermark=4), result(2, records_bytes=9)])) == [1, 2]
    assert numbers(session.news([result(0), result(1, high_watermark=4), result(2)])) == []


def test_an_error_is_told_until_it_is_over_and_so_is_its_end() -> None:
    session = begin(counting())
    bad: FetchResult[FileSlice] = FetchResult("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    session.news([result(0)])
    assert numbers(session.news([bad])) == numbers(session.news([bad])) == [0]
    assert numbers(session.news([result(0)])) == [0]
    assert numbers(session.news([result(0)])) == []


def test_a_partition_that_had_records_is_read_last_next_time() -> None:
    found = counting()
    session = begin(found)
    session.news([result(0, records_bytes=9), result(1), result(2)])
    asked = request(7, 1)
    found.apply(asked, 0)
    assert [one.partition for one in asked.partitions] == [1, 2, 0]


def test_a_forgotten_partition_is_told_again_when_it_comes_back() -> None:
    found = counting()
    session = begin(found)
    session.news([result(0), result(1), result(2)])
    found.apply(request(7, 1, (), [("t", 0)]), 0)
    found.apply(request(7, 2, [part(0)]), 0)
    assert numbers(session.news([result(1), result(2), result(0)])) == [0]


def test_places_are_limited_and_only_idle_sessions_give_theirs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    found = counting()
    begin(found, now_ms=0)
    begin(found, now_ms=0)
    found.apply(request(7, 1), 100_000)
    assert found.apply(request(0, 0, [part(0)]), 119_999) is None
    begin(found, now_ms=120_000)
    with pytest.raises(ApiError):
        found.apply(request(8, 1), 120_000)
    assert found.apply(request(7, 2), 120_000) is not None


def test_memory_is_limited_in_one_session_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_PARTITIONS", 4)
    monkeypatch.setattr(sessions, "MAX_PARTITIONS_IN_ALL", 6)
    found = counting()
    assert found.apply(request(0, 0, [part(number) for number in range(5)]), 0) is None
    begin(found, 3)
    assert found.apply(request(0, 0, [part(number) for number in range(4)]), 0) is None
    with pytest.raises(ApiError) as caught:
        found.apply(request(7, 1, [part(8), part(9)]), 0)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(found) == 0


def test_a_session_that_grows_beyond_the_memory_of_all_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_PARTITIONS_IN_ALL", 6)
    found = counting()
    begin(found, 3)
    begin(found, 2)
    assert found.apply(request(7, 1, [part(8)]), 0) is not None, "six in all"
    assert found.apply(request(7, 2, [part(9)], [("t", 8)]), 0) is not None, "still six"
    with pytest.raises(ApiError) as caught:
        found.apply(request(8, 1, [part(9)]), 0)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(found) == 1
    assert found.apply(request(7, 3), 0) is not None, "which is another's"


def test_a_session_that_grows_takes_the_place_of_idle_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_PARTITIONS_IN_ALL", 6)
    found = counting()
    begin(found, 3)
    begin(found, 3)
    found.apply(request(7, 1), 100_000)
    assert found.apply(request(7, 2, [part(8)]), 120_000) is not None
    assert len(found) == 1


def test_no_session_has_names_that_are_too_long_for_topics() -> None:
    def named(length: int) -> FetchPartition:
        return FetchPartition("x" * length, 0, -1, 0, -1, -1, 1)

    found = counting()
    assert found.apply(request(0, 0, [part(0), named(250)]), 0) is None
    assert found.apply(request(0, 0, [part(0), named(249)]), 0) is not None
    with pytest.raises(ApiError) as caught:
        found.apply(request(7, 1, [named(250)]), 0)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(found) == 0


def test_epochs_begin_again_after_the_last() -> None:
    found = counting()
    begin(found).next_epoch = 2**31 - 1
    assert found.apply(request(7, 2**31 - 1), 0) is not None
    assert found.apply(request(7, 1), 0) is not None


def test_a_session_by_topic_ids_keeps_incarnations_apart_and_forgets_by_id() -> None:
    old, new = b"\x01" * 16, b"\x02" * 16

    def of(topic_id: bytes) -> FetchPartition:
        return FetchPartition("", 0, -1, 5, -1, -1, 1 << 20, topic_id)

    found = counting()
    session = found.apply(request(0, 0, [of(old)], version=13), 0)
    assert session is not None
    [known] = session.partitions.values()
    known.topic = "t"  # as the reader looks it up
    assert len(session.news([FetchResult("t", 0, topic_id=old)])) == 1
    asked = request(7, 1, [of(new)], [(old.hex(), 0)], version=13)
    found.apply(asked, 0)
    assert [one.topic_id for one in asked.partitions] == [new]
    assert len(session.news([FetchResult("t", 0, topic_id=new)])) == 1, "nothing was told of this one"


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
def test_a_session_goes_on_as_it_began_by_name_or_by_id(first: int, then: int) -> None:
    found = counting()
    found.apply(request(0, 0, [FetchPartition("t", 0, -1, 0, -1, -1, 1, b"i" * 16)], version=first), 0)
    with pytest.raises(ApiError) as caught:
        found.apply(request(7, 1, version=then), 0)
    assert caught.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert found.apply(request(7, 1, version=first), 0) is not None


ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")


def test_nobody_goes_on_with_the_session_of_another() -> None:
    found = counting()
    session = found.apply(request(0, 0, [part(0)]), 0, ALICE)
    assert session is not None
    for epoch in (1, 2):
        with pytest.raises(ApiError) as refused:
            found.apply(request(session.session_id, epoch), 0, BOB)
        assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "as for a number that nobody has"
    assert found.apply(request(session.session_id, -1), 0, BOB) is None
    assert found.apply(request(session.session_id, 1), 0, ALICE) is session, "nor does anybody end it"


def test_one_user_has_half_of_all_sessions_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 6)
    monkeypatch.setattr(sessions, "MAX_SESSIONS_OF_ONE", 3)
    found = counting()
    began = [found.apply(request(0, 0, [part(0)]), 0, BOB) for _ in range(4)]
    assert [one is not None for one in began] == [True, True, True, False]
    assert found.apply(request(0, 0, [part(0)]), 0, ALICE) is not None
    assert found.apply(request(0, 0, [part(0)]), sessions.MIN_IDLE_MS, BOB) is not None, "in the place of an idle one"
    assert len(found) == 4
