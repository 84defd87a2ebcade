"""What a broker knows of its own session with the store."""

import pytest

from pylog.broker.control.membership import outlasting_ms


@pytest.mark.parametrize(
    ("session_timeout_ms", "outlasting"),
    [(2_000, 666), (6_000, 2_000), (60_000, 2_000)],
    ids=["a third of a short one", "the same", "touch counts for two seconds whatever the session"],
)
def test_a_session_outlasts_its_connection_by_a_third_of_its_time(session_timeout_ms: int, outlasting: int) -> None:
    assert outlasting_ms(session_timeout_ms) == outlasting
