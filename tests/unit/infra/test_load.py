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
