"""How Spark is started, and when its executors are there."""

import pytest

from pylog.ingest.spark import Arrivals, _conf


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "PYLOG_SPARK_UI"):
        monkeypatch.delenv(name, raising=False)


def test_without_spark_submit_tasks_run_in_this_process() -> None:
    conf = _conf(None, "load")
    assert (conf.get("spark.master"), conf.get("spark.ui.enabled")) == ("local[2]", "false")


def test_under_spark_submit_its_own_settings_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    conf = _conf(None, "load")
    assert not any(conf.contains(name) for name in ("spark.master", "spark.ui.enabled", "spark.driver.host"))
    assert _conf("spark://h:7077", "load").get("spark.master") == "spark://h:7077"


def test_the_ui_is_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYLOG_SPARK_UI", "1")
    assert _conf("spark://h:7077", "load").get("spark.ui.enabled") == "true"


def test_executors_are_there_once_no_more_come() -> None:
    arrivals = Arrivals(100)
    assert not arrivals.is_over(0, 120)
    assert not arrivals.is_over(1, 120.5)
    assert not arrivals.is_over(2, 121.4), "another one has come"
    assert not arrivals.is_over(2, 122.3)
    assert arrivals.is_over(2, 122.4)


def test_the_wait_for_executors_ends_where_none_comes() -> None:
    arrivals = Arrivals(100)
    assert not arrivals.is_over(0, 129.9)
    assert arrivals.is_over(0, 130)
