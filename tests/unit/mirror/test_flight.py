"""Records on their way: what has arrived, and what never will."""

from pylog.mirror.flight import Flight


def test_what_arrives_after_a_record_that_failed_is_not_taken_for_it() -> None:
    """It would be committed, and a restart would begin behind it."""
    flight = Flight(0)
    for offset in range(4):
        flight.send(offset)
    flight.acknowledge(100)
    assert flight.fail() == 1
    flight.acknowledge(101)
    assert flight.fail() == 3
    assert (flight.next_source, len(flight)) == (1, 0)


def test_a_record_that_is_passed_over_behind_one_that_failed_is_not_passed_over() -> None:
    flight = Flight(0)
    flight.send(0)
    flight.skip(1)
    flight.send(2)
    assert flight.fail() == 0
    flight.acknowledge(100)
    flight.skip(3)
    assert (flight.next_source, len(flight)) == (0, 0)
