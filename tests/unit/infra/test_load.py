"""What a client of a roll's load says of its acknowledgements."""

from tests.infra.load import Tally


def test_the_99th_percentile_is_of_the_time_from_send_to_acknowledgement() -> None:
    tally = Tally()
    for number in range(200):
        tally.send(number, number)
        tally.ack(number, number + number / 1000)
    assert tally.percentile_ms(99) == 197, "of 0 to 199 ms"
    assert tally.percentile_ms(100) == 199


def test_without_an_acknowledgement_there_is_no_percentile() -> None:
    tally = Tally()
    tally.send(1, 0.0)
    tally.fail("gone")
    assert tally.percentile_ms(99) == 0


def test_a_lap_has_its_own_longest_pause_and_the_one_that_lasts() -> None:
    tally = Tally()
    for number, now_s in enumerate((10.0, 10.5, 13.5, 14.0)):
        tally.send(number, now_s)
        tally.ack(number, now_s)
    assert tally.lap_ms(14.5) == 3000
    tally.send(4, 14.6)
    tally.ack(4, 14.8)
    assert tally.lap_ms(15.0) == 800, "not that of the lap before"
    assert tally.lap_ms(19.0) == 4200, "it lasts"
    assert tally.longest_s == 3.0
