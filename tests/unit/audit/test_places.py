"""Every record followed from tier to tier, stamped or not, whatever clocks and readers do."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.audit.judge import Finding, Kind, judge
from pylog.audit.ledger import Ledger
from pylog.audit.places import MAX_RANGES, MAX_TOPIC_IDS, ORIGIN_HEADER, ORIGIN_ID_HEADER, Places
from pylog.audit.reader import TopicCounter
from pylog.audit.reports import Progress, Report, Round, Tier, decode
from pylog.audit.sequences import Sequences
from tests.unit.audit.test_day import (
    IDS,
    LATENESS_MS,
    REPORT_MS,
    STEP_MS,
    WINDOW_MS,
    Day,
    Record,
    found,
    headers_of,
    reader_of,
    run_until_judged,
    stamped,
)


def write(day: Day, count: int, value: bytes = b"v") -> None:
    """Have a client that knows nothing of audits write to partition 0."""
    day.live.partitions[0] += [((0, None, value), None) for _ in range(count)]


def steps(day: Day, count: int) -> None:
    for _ in range(count):
        day.step(sends=False)


def lost(day: Day) -> list[tuple[Tier, str, int, tuple[tuple[int, int], ...]]]:
    return [(one.tier, one.topic_id, one.partition, one.ranges) for one in found(day.judge(), Kind.LOST)]


def test_the_places_of_many_partitions_with_holes_fit_into_a_report() -> None:
    places = Places()
    for partition in range(100):
        for n in range(MAX_RANGES if partition else 3):
            places.add("id", partition, 10**12 + 3 * n, 10**12 + 3 * n + 1)
    places.fit()
    kept = [places.of("id", partition) for partition in range(100)]
    assert kept[0] == (10**12, Sequences((10**12 + 3 * n, 10**12 + 3 * n + 1) for n in range(3)))
    for one in kept[1:]:
        assert one is not None
        floor, seen = one
        assert floor == next(iter(seen.ranges()))[0] > 10**12, "nothing below is followed, nor missed"
        assert (10**12 + 3 * MAX_RANGES - 2) in seen
    assert len(json.dumps(places.to_json())) < 1_200_000
    before = places.copy()
    places.fit()
    assert places == before


@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 32), gone=st.sets(st.integers(0, 99), min_size=1, max_size=3))
def test_records_that_nobody_stamped_are_named_where_they_are_lost(seed: int, gone: set[int]) -> None:
    numbers = iter(range(1 << 30))

    def relay(record: Record) -> list[Record]:
        return [record] if record[1] is not None or int(record[2]) not in gone else []

    day = Day(seed, relay)
    day.live.partitions[0] += [((0, None, b"%d" % next(numbers)), None) for _ in range(100)]
    for _ in range(60):
        day.step()
    named = {
        number
        for tier, topic_id, partition, ranges in lost(day)
        if (tier, topic_id, partition) == (Tier.MIRROR, "live-id", 0)
        for first, last in ranges
        for number in range(first, last + 1)
    }
    assert named == gone
    assert all(one.tier is Tier.MIRROR for one in day.judge().alarms), "the lake has all that the mirror brought"
    passage = day.judge().passages["clicks"]
    assert passage.due[Tier.MIRROR] - passage.seen[Tier.MIRROR] == len(gone)


@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 32))
def test_no_false_alarm_over_cuts_and_repeats_without_stamps(seed: int) -> None:
    day = Day(seed)
    for step in range(150):
        day.is_cut = 40 <= step < 90
        write(day, day.chance.randrange(4))
        day.step(sends=bool(step % 2))
        if step % 8 == 0:
            assert day.judge().alarms == []
    steps(day, 40)
    passage = day.judge().passages["clicks"]
    assert passage.seen == passage.due
    assert passage.due[Tier.MIRROR] > 150


def test_what_is_first_written_in_the_mirrors_cluster_is_followed_from_there() -> None:
    day = Day(5)
    write(day, 3)
    day.offline.partitions[1] += [((1, None, b"local"), None) for _ in range(4)]
    steps(day, 40)
    assert day.judge().alarms == []
    assert day.judge().passages["clicks"].due == {Tier.MIRROR: 3, Tier.LAKE: 7}


def test_a_mirror_of_the_release_before_tells_no_offsets_and_loses_nothing_by_it() -> None:
    live, mirror = reader_of(Tier.LIVE), reader_of(Tier.MIRROR)
    ledger = Ledger()
    for offset in range(10):
        live.counter.add(0, offset, [], b"v")
    old: list[tuple[str, bytes | None]] = [(ORIGIN_HEADER, b"live"), (ORIGIN_ID_HEADER, b"live-id")]
    for offset in range(6):
        mirror.counter.add(0, offset, old, b"v")
    for offset in range(6, 10):
        mirror.counter.add(0, offset, headers_of(((0, None, b"v"), offset)), b"v")
    for reader in (live, mirror):
        ledger.add(reader.counter.report(0, 10 * WINDOW_MS), 0)
    ledger.add(Progress("clicks", 0, 20 * WINDOW_MS), 0)
    ledger.add(Progress("clicks", 1, 20 * WINDOW_MS), 0)
    assert judge(ledger, 10 * WINDOW_MS, WINDOW_MS, LATENESS_MS).alarms == []
    # From the first on that told its place all are followed.
    live.counter.add(0, 10, [], b"v")
    live.counter.add(0, 11, [], b"v")
    mirror.counter.add(0, 10, headers_of(((0, None, b"v"), 11)), b"v")
    for reader in (live, mirror):
        ledger.add(reader.counter.report(WINDOW_MS, 20 * WINDOW_MS), WINDOW_MS)
    assert [one.ranges for one in judge(ledger, 20 * WINDOW_MS, WINDOW_MS, LATENESS_MS).alarms] == [((10, 10),)]


def test_a_reader_that_counts_beside_another_by_mistake_makes_nothing_lost() -> None:
    """Both begin where the last report ended, and report by turns."""
    day = Day(6)
    for _ in range(20):
        day.step()
    live = day.readers[Tier.LIVE]
    last = decode(live.counter.report(day.now_ms, live.watch.complete_ms).encode())
    assert isinstance(last, Report)
    day.ledger.add(last, day.now_ms)
    second = TopicCounter(Tier.LIVE, "clicks", Tier.LIVE, WINDOW_MS, last, by="second")
    second.take_up(IDS[Tier.LIVE])
    for step in range(80):
        day.step()
        if step % 3 == 0:
            for partition, records in day.live.partitions.items():
                for offset, entry in enumerate(records):
                    second.add(partition, offset, headers_of(entry), entry[0][2])
            day.note(second.report(day.now_ms, day.now_ms))
            day.note(Round(tier=Tier.LIVE, who="live", by="second", at_ms=day.now_ms, complete_ms=day.now_ms))
        if step % 10 == 0:
            assert day.judge().alarms == []
    run_until_judged(day)
    assert day.judge().alarms == []
    rows = [row for row in day.judge().rows["clicks"] if not row.pending]
    assert len(rows) > 5
    assert all(row.arrived[Tier.LIVE] == row.produced and row.doubled[Tier.LIVE] == 0 for row in rows)


@pytest.mark.parametrize("off_ms", [-3_600_000, -365 * 86_400_000, 3_600_000, 365 * 86_400_000])
def test_a_producer_whose_clock_is_off_loses_nothing(off_ms: int) -> None:
    """Its report says a time of its own; the reader is seconds behind."""
    day = Day(8)
    account = day.producers.pop("p1")
    for step in range(60):
        stamp = stamped(account, "clicks", b"v", day.now_ms + off_ms)
        if step % 2 == 0:
            for report in account.reports(day.now_ms + off_ms + WINDOW_MS):
                day.note(report)
            # It was acknowledged before; the readers come to it only now.
        day.live.partitions[0].append(((0, stamp, b"v"), None))
        day.step()
        assert day.judge().alarms == []


def test_a_compacted_topic_loses_nothing_by_its_compaction() -> None:
    day = Day(9)
    day.send("p2", 30)
    steps(day, 4)
    day.is_cut = True
    stamps = day.send("p1", 20)
    write(day, 10)
    steps(day, 10)
    # While the link is cut, the log drops what later records replace.
    kept = [entry for entry in day.live.partitions[0] if entry[0][1] not in stamps[::2]]
    assert len(kept) < len(day.live.partitions[0])
    dropped = {at for at, entry in enumerate(day.live.partitions[0]) if entry not in kept or at % 7 == 6}
    original = day.mirror
    assert original is not None
    mirrored = day.mirrored[0]

    def mirror() -> None:
        """Bring what is left, as a mirror reads a compacted log."""
        for at in range(day.mirrored[0], len(day.live.partitions[0])):
            if at not in dropped or at < mirrored:
                day.offline.partitions[0].append((day.live.partitions[0][at][0], at))
        for at in range(day.mirrored[1], len(day.live.partitions[1])):
            day.offline.partitions[1].append((day.live.partitions[1][at][0], at))
        day.mirrored = day.live.ends()
        day.mirror_ends = None
        for partition in (0, 1):
            day.note(Progress("clicks", partition, day.now_ms))

    day.mirror = mirror  # type: ignore[method-assign]
    day.is_cut = False
    for reader in day.readers.values():
        reader.counter.is_compacted = True
    run_until_judged(day)
    judgement = day.judge()
    assert judgement.alarms == []
    assert {one.tier for one in found(judgement, Kind.COMPACTED)} == {Tier.MIRROR}


def test_a_lake_that_has_not_loaded_what_came_after_a_cut_is_late_and_has_lost_nothing() -> None:
    day = Day(10)
    day.lake_every_ms = 100 * REPORT_MS
    day.is_cut = True
    for _ in range(3 * WINDOW_MS // STEP_MS):
        write(day, 1)
        day.step()
    day.note(day.lake())  # it has everything that its cluster has
    day.is_cut = False
    for _ in range(WINDOW_MS // STEP_MS):
        day.step(sends=False)
        assert day.judge().alarms == []
    assert Tier.LAKE in day.judge().passages["clicks"].pending
    day.note(day.lake())
    steps(day, 2)
    assert day.judge().alarms == []


def test_a_topic_of_which_nothing_comes_is_reported_once_an_hour_and_judged_all_the_same() -> None:
    day = Day(11)
    day.send("p1", 10)
    steps(day, 60)
    written: list[Report] = []
    real = day.note

    def note(report: Report | Progress | Round) -> None:
        if isinstance(report, Report):
            written.append(report)
        real(report)

    day.note = note  # type: ignore[method-assign]
    steps(day, 3_600_000 // STEP_MS + 1)
    assert sum(one.tier is Tier.LIVE for one in written) == 1
    assert [row for row in day.judge().rows["clicks"] if row.pending] == []


def test_of_too_many_pieces_the_lower_half_is_no_longer_followed() -> None:
    places = Places()
    for number in range(MAX_RANGES + 1):
        places.add("id", 0, 2 * number, 2 * number, floor=0)
    found_ = places.of("id", 0)
    assert found_ is not None
    floor, seen = found_
    assert floor == next(seen.ranges())[0] == MAX_RANGES
    assert Places.from_json(places.to_json()) == places
    places.add("id", 0, 0, 10)  # comes again
    assert places.of("id", 0) == (floor, seen)


def test_of_too_many_topics_the_one_of_which_nothing_came_for_longest_is_forgotten() -> None:
    places = Places()
    names = [f"id {number}" for number in range(MAX_TOPIC_IDS, 0, -1)]  # not in the order of the alphabet
    for name in names:
        places.add(name, 0, 0, 9)
        places = places.copy()  # as between two reports, and when they are kept
    places.add(names[0], 0, 10, 19)
    places.copy().begin(names[0], 0, 0)
    places.add("new", 0, 0, 9)
    assert list(places.topic_ids()) == [*names[2:], names[0], "new"]
    assert Places.from_json(json.loads(json.dumps(places.to_json()))) == places


def test_findings_are_told_apart_by_where_the_offsets_are_of() -> None:
    one = Finding(0, "t", Tier.MIRROR, "", "", Kind.LOST, 1, ((1, 1),), "id", 3, Tier.LIVE)
    assert one.is_alarm
    assert not replace(one, kind=Kind.COMPACTED).is_alarm
