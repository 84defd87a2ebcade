"""Up to when a reader has everything."""

from pylog.audit.reader import EndWatch


def test_a_reader_has_everything_once_it_reached_the_ends_that_it_asked_for() -> None:
    watch = EndWatch()
    watch.ask({0: 10, 1: 5}, 1_000)
    watch.reach({0: 10, 1: 4})
    assert (watch.complete_ms, watch.is_waiting) == (0, True)
    watch.reach({0: 10, 1: 5})
    assert (watch.complete_ms, watch.is_waiting) == (1_000, False)


def test_the_last_offsets_of_a_partition_may_hold_no_record() -> None:
    watch = EndWatch()
    watch.ask({0: 10}, 1_000)
    watch.reach({0: 8}, {0: 10})
    assert watch.complete_ms == 1_000


def test_behind_the_beginning_of_an_open_transaction_nothing_was_read_yet() -> None:
    watch = EndWatch()
    watch.ask({0: 10}, 1_000)
    # A reader of committed records is told that 7 is the end.
    watch.reach({0: 7}, {0: 7})
    assert (watch.complete_ms, watch.is_waiting) == (0, True)
    watch.reach({0: 9}, {0: 11})
    assert watch.complete_ms == 1_000
