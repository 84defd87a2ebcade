"""Where a mirror goes on when the source does not hold what comes next."""

import pytest

from pylog.client.admin.cluster import OffsetRange
from pylog.mirror.flight import Flight
from pylog.mirror.resume import Resume, resume

HELD = OffsetRange(20, 60)


@pytest.mark.parametrize(
    ("wanted", "epoch_end", "found"),
    [
        (45, None, Resume(45)),
        (45, 60, Resume(45)),
        (60, 60, Resume(60)),
        (5, None, Resume(20, forgotten=15)),
        (5, 60, Resume(20, forgotten=15)),
        (70, 55, Resume(55, cut=15)),
        (50, 40, Resume(40, cut=10)),
        (70, 10, Resume(20, forgotten=10, cut=60)),
        (70, 70, Resume(70)),
        (70, None, Resume(20, cut=10)),
        (-2, None, Resume(20)),
    ],
    ids=[
        "there",
        "there, and its epoch too",
        "at the end",
        "retention was faster",
        "retention was faster, the epoch goes on",
        "the end was cut",
        "the end was cut and written again beyond it",
        "cut, written again, and the beginning deleted",
        "the high watermark is behind",
        "beyond the end, nobody knows why: all again rather than a gap",
        "never read",
    ],
)
def test_nothing_is_skipped_and_no_more_is_sent_again_than_must_be(
    wanted: int, epoch_end: int | None, found: Resume
) -> None:
    assert resume(wanted, HELD, epoch_end) == found


def test_the_epoch_of_a_flight_is_that_of_the_last_record_that_arrived() -> None:
    flight = Flight(10, 3)
    for offset, epoch in ((10, 3), (11, 4), (12, 4), (13, 6)):
        flight.note_epoch(offset, epoch)
        flight.send(offset)
    seen = [flight.epoch]
    for target in range(4):
        flight.acknowledge(target)
        seen.append(flight.epoch)
    assert seen == [3, 3, 4, 4, 6]


def test_a_record_that_is_passed_over_has_an_epoch_too() -> None:
    flight = Flight(0)
    flight.note_epoch(0, 7)
    flight.skip(0)
    assert (flight.next_source, flight.epoch) == (1, 7)
