import pytest

from pylog.ops.schedules import longest_gap_s

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400


@pytest.mark.parametrize(
    ("schedule", "gap_s"),
    [
        ("* * * * *", MINUTE_S),
        ("17 * * * *", HOUR_S),
        ("*/5 * * * *", 5 * MINUTE_S),
        ("0-30/10 * * * *", 30 * MINUTE_S),
        ("5,35 * * * *", 30 * MINUTE_S),
        ("37 3 * * *", DAY_S),
        ("0 8-18/2 * * *", 14 * HOUR_S),
        ("0 4 * * sun", 7 * DAY_S),
        ("0 4 * * 7", 7 * DAY_S),
        ("0 4 * * Mon-Fri", 3 * DAY_S),
        ("0 0 1 * *", 31 * DAY_S),
        ("0 0 31 * *", 61 * DAY_S),
        ("0 0 1 jan,jul *", 184 * DAY_S),
        ("0 0 29 2 *", 4 * 365 * DAY_S + DAY_S),
        # Either day is enough where both are named.
        ("0 0 1,15 * mon", 7 * DAY_S),
        ("@hourly", HOUR_S),
        (" @Daily ", DAY_S),
    ],
)
def test_the_longest_time_between_two_runs(schedule: str, gap_s: int) -> None:
    assert longest_gap_s(schedule) == gap_s


@pytest.mark.parametrize(
    "schedule",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "5/10 * * * *", "a * * * *", "*/0 * * * *", "-1 * * * *",
     "9-5 * * * *", "0 0 30 2 *", "@reboot", "* * * dec-jan *", "0 0 * * funday", "mon * * * *", "1,,2 * * * *"],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(ValueError, match=r"schedule of cron|never comes"):
        longest_gap_s(schedule)
