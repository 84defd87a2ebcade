"""`pylog audit report` of a time: what is missing, and what nobody can tell, against a real broker."""

import time
from collections.abc import Iterator

import pytest

from pylog.audit.load import ensure_topic
from pylog.audit.producer import AuditedProducer
from pylog.client.connection import Connection
from pylog.testing import BrokerProcess
from tests.command import Command


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


def test_a_cluster_without_an_account_is_no_cluster_with_losses(broker: BrokerProcess) -> None:
    pylog = Command(broker.bootstrap)
    ended = pylog("audit", "report", "--ledger", broker.bootstrap, exit_code=4)
    assert "[PYLOG-0313]" in ended.notes
    assert "wanted: the topic _audit" in ended.notes


def test_a_time_that_nobody_counted_cannot_be_judged(broker: BrokerProcess) -> None:
    pylog = Command(broker.bootstrap)
    pylog("topic", "create", "clicks")
    ensure_topic(Connection(bootstrap=broker.bootstrap), 1)
    report = ("audit", "report", "--ledger", broker.bootstrap)
    now_ms = time.time_ns() // 1_000_000
    past = ("--from", f"@{now_ms - 3_600_000}", "--to", f"@{now_ms + 3_600_000}")
    assert "no record was counted in this time" in pylog(*report, *past, exit_code=4).notes
    with AuditedProducer(broker.bootstrap, window_ms=60_000, report_s=3600, host="web-1") as producer:
        for number in range(3):
            producer.send("clicks", b"%d" % number)
    # The producer's account is there, and no reader's: nothing is known to be missing, and nothing to be whole.
    assert "no tier behind the producer is counted" in pylog(*report, *past, exit_code=4).notes
    pylog(*report, exit_code=0)


def test_a_time_that_is_none_is_refused(broker: BrokerProcess) -> None:
    pylog = Command(broker.bootstrap)
    report = ("audit", "report", "--ledger", broker.bootstrap)
    assert "--from" in pylog(*report, "--from", "yesterday", exit_code=2).notes
    late = ("--from", "2026-01-02", "--to", "2026-01-01")
    assert "a time after the first window" in pylog(*report, *late, exit_code=2).notes
