"""Hosts with Spark: the timer, and one run of the job that lands the journals in the lake."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host
from testinfra.utils.ansible_runner import AnsibleRunner

from tests.infra.conftest import members, setting

LAKE = "/var/lib/pylog/lake"
PYTHON = "/opt/pylog/spark/current/bin/python"
COUNT = """
import glob, sys
import pyarrow.parquet
print(sum(pyarrow.parquet.read_metadata(path).num_rows for path in glob.glob(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def spark_hosts(runner: AnsibleRunner) -> list[Host]:
    """Return the hosts that load the lake; an inventory without one is skipped."""
    return [runner.get_host(name) for name in members(runner, "pylog_spark")]


def landed(host: Host) -> int:
    """Return how many journal records lie in the lake."""
    return int(host.check_output("%s -c %s %s", PYTHON, COUNT, f"{LAKE}/topic=host.journal/*/*/*.parquet"))


@pytest.mark.readonly
def test_the_job_runs_or_its_timer_does_now_and_at_boot(
    runner: AnsibleRunner, variables: Callable[[str], dict[str, Any]]
) -> None:
    for name in members(runner, "pylog_spark"):
        kind = "service" if setting(variables(name), "ingest", "ingest_continuous") else "timer"
        unit = runner.get_host(name).service(f"pylog-ingest.{kind}")
        assert (unit.is_running, unit.is_enabled) == (True, True)


@pytest.mark.readonly
def test_spark_has_an_environment_of_its_own(spark_hosts: list[Host]) -> None:
    for host in spark_hosts:
        current = host.check_output("readlink --canonicalize /opt/pylog/spark/current")
        assert current.startswith("/opt/pylog/spark/releases/")
        assert host.run("%s -c 'import pyspark, pyspark_pylog, pyarrow'", PYTHON).rc == 0


def test_a_run_of_the_job_lands_the_journals(spark_hosts: list[Host], runner: AnsibleRunner) -> None:
    [mirror, *_] = [runner.get_host(name) for name in runner.get_hosts("pylog_mirror")]
    for host in spark_hosts:
        before = landed(host)
        host.check_output("logger -t pylog-infra %s", f"ingest {time.time_ns()}")
        mirror.check_output("pylog mirror status --config /etc/pylog/mirror.yml --wait 60")
        run = host.run("systemctl start pylog-ingest.service")
        assert run.rc == 0, host.run("journalctl --no-pager --lines 40 --unit pylog-ingest.service").stdout
        assert landed(host) > before
