"""A fault raises the alerts that are listed for it, and no others: real brokers, ZooKeeper, probe, mirror, Prometheus.

`make night` does the same with faults whose alerts tests/infra raises on deployed hosts.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.night import BREAKAGES, ENSEMBLE, Breakage, Night, hastened, raise_alerts


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    with Night(tmp_path_factory.mktemp("night")) as found:
        yield found


@pytest.mark.parametrize("breakage", [one for one in BREAKAGES if not one.is_raised_on_hosts], ids=lambda one: one.name)
def test_each_breakage_raises_its_alerts_and_no_others(breakage: Breakage, night: Night, tmp_path: Path) -> None:
    raise_alerts(night, breakage, tmp_path / "evidence")
    evidence = tmp_path / "evidence"
    told = (evidence / "alerts.txt").read_text()
    assert "alertname=" in told
    if breakage.name == "no-zookeeper":
        [server] = re.findall(r"alertname=PylogZooKeeperServerDown, .*\bhost=([\w-]+)", told)
        assert server == ENSEMBLE, "its own host, not the probe's"
    if breakage.name == "throttle-left-behind":
        assert "broker 3 last had everything" in " ".join(told.split())
        rows = (evidence / "after" / "broker-1.prom").read_text()
        assert float(re.findall(r'pylog_follower_lag_seconds\{follower="3"\} (\S+)', rows)[0]) > 0
    if breakage.name == "stalled-group":
        assert "partition 0 stands at offset 10, read by rdkafka-" in " ".join(told.split())
        assert "at 127.0.0.1" in told


def test_a_minute_of_a_rule_is_a_second_here() -> None:
    assert hastened("rate(x[10m]) for: 5m [5m] [2h] for: 0s") == "rate(x[10s]) for: 5s [6s] [120s] for: 0s"
    assert hastened("predict_linear(x[6h], 86400) > 1") == "predict_linear(x[360s], 1440) > 1"
