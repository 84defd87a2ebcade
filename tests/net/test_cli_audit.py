"""`pylog audit report` of a time: what is missing, and what nobody can tell, against a real broker."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.audit.counting import AUDIT_TOPIC, WindowCount
from pylog.audit.ledger import Ledger
from pylog.audit.load import ensure_topic, load, write
from pylog.audit.producer import AuditedProducer
from pylog.audit.reports import FOR_EVER_MS, Report, Tier
from pylog.audit.sequences import Sequences
from pylog.client.admin.cluster import Admin
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.connection import Connection
from pylog.errors import ApiError
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


def producer_to(broker: BrokerProcess, topic: str) -> AuditedProducer:
    """Return a producer for a new topic, which reports only when it is told to."""
    Command(broker.bootstrap)("topic", "create", topic)
    ensure_topic(Connection(bootstrap=broker.bootstrap), 1)
    return AuditedProducer(broker.bootstrap, window_ms=60_000, report_s=3600, host="web-1")


@contextmanager
def refused_reports(cluster: Connection) -> Iterator[None]:
    """Have the broker refuse every report as too large."""
    configs = ConfigAdmin(cluster)
    configs.alter(Holder.TOPIC, AUDIT_TOPIC, {"max.message.bytes": "100"})
    try:
        yield
    finally:
        configs.alter(Holder.TOPIC, AUDIT_TOPIC, {}, ["max.message.bytes"])


def test_a_report_that_the_broker_refuses_is_told_again(broker: BrokerProcess) -> None:
    cluster = Connection(bootstrap=broker.bootstrap)
    producer = producer_to(broker, "told")
    with refused_reports(cluster):
        for number in range(3):
            producer.send("told", b"%d" % number)
        producer._report_due_s = 0.0
        producer.poll(0)
        assert producer._producer.flush() == 0
    warnings: list[str] = []
    assert producer.instance not in load([cluster], 0, warnings.append).producers("told")
    producer.close()
    ledger = load([cluster], 0, warnings.append)
    assert warnings == []
    assert ledger.producers("told")[producer.instance].complete_ms == FOR_EVER_MS
    windows = ledger.counts("told", Tier.PRODUCER).windows
    assert sum(len(one.sequences) for (who, _), one in windows.items() if who == producer.instance) == 3


def test_a_closing_report_that_the_broker_refuses_is_raised(broker: BrokerProcess) -> None:
    producer = producer_to(broker, "untold")
    producer.send("untold", b"1")
    with refused_reports(Connection(bootstrap=broker.bootstrap)), pytest.raises(ApiError, match=r"(?i)large"):
        producer.close()


def test_a_time_that_is_none_is_refused(broker: BrokerProcess) -> None:
    pylog = Command(broker.bootstrap)
    report = ("audit", "report", "--ledger", broker.bootstrap)
    assert "--from" in pylog(*report, "--from", "yesterday", exit_code=2).notes
    late = ("--from", "2026-01-02", "--to", "2026-01-01")
    assert "a time after the first window" in pylog(*report, *late, exit_code=2).notes


def _report(number: int, count: int) -> Report:
    return Report(
        tier=Tier.LIVE, topic="clicks", who="reader", number=number, at_ms=60_000, complete_ms=60_000,
        windows={("p", number * 60_000): WindowCount("web-1", count, 7, Sequences([(0, count - 1)]))},
    )  # fmt: skip


def _counts(ledger: Ledger) -> dict[int, int]:
    found = ledger.counts("clicks", Tier.LIVE).windows if "clicks" in ledger.topics() else {}
    return {window_ms: one.count for (_, window_ms), one in found.items()}


def test_a_long_report_is_written_and_one_that_is_too_long_keeps_no_other_back(tmp_path: Path) -> None:
    def long(topic: str, windows: int, number: int) -> Report:
        counts = {("p", n * 60_000): WindowCount("web-1", 1, 7, Sequences([(n, n)])) for n in range(windows)}
        return replace(_report(number, 1), topic=topic, windows=counts)

    warnings = list[str]()
    with BrokerProcess(tmp_path / "broker") as broker:
        cluster = Connection(bootstrap=broker.bootstrap)
        Admin(cluster).create_topic(AUDIT_TOPIC, partitions=1, replication_factor=1)  # as an earlier release made it
        ensure_topic(cluster, 1)
        write(cluster, [long("endless", 200_000, 0), long("long", 20_000, 0), _report(0, 3)], warnings.append)
        ledger = load([cluster], 0, pytest.fail)
        found = {topic: len(ledger.counts(topic, Tier.LIVE).windows) for topic in ledger.topics()}
    assert found == {"clicks": 1, "long": 20_000}
    [said] = warnings
    assert re.match(r"topic 'endless': the report of 200000 windows has \d+ bytes; at most 15728640 are sent", said)


def test_a_comparison_reads_only_what_came_since_the_last_one(tmp_path: Path) -> None:
    keep, warnings = tmp_path / "read.json", list[str]()
    with BrokerProcess(tmp_path / "broker") as broker:
        cluster = Connection(bootstrap=broker.bootstrap)

        def counts(from_ms: int = 0) -> dict[int, int]:
            return _counts(load([cluster], from_ms, warnings.append, keep))

        ensure_topic(cluster, 1)
        assert counts() == {}
        write(cluster, [_report(0, 3), _report(1, 4)], pytest.fail)
        assert counts() == {0: 3, 60_000: 4}
        assert counts() == {0: 3, 60_000: 4}, "nothing came, and nothing is forgotten"
        write(cluster, [_report(2, 5)], pytest.fail)
        assert counts(60_000) == {60_000: 4, 120_000: 5}, "an earlier window is passed over"
        assert counts() == {0: 3, 60_000: 4, 120_000: 5}, "of an earlier time than the file is, all is read"

        body = json.loads(keep.read_text())
        body["ledger"] |= {"tiers": {}, "producers": {}}
        keep.write_text(json.dumps(body))
        write(cluster, [_report(3, 6)], pytest.fail)
        assert counts() == {180_000: 6}, "what the file says was read is not read again"

        for changed in ("crc", "offset"):
            forged = [one | {changed: one[changed] + 1} for one in body["clusters"]]
            keep.write_text(json.dumps(body | {"clusters": forged}))
            assert len(counts()) == 4, f"another {changed}: the report that was read last is gone"
        for useless in ("torn", "[]", json.dumps(body | {"version": 99}), json.dumps(body | {"clusters": []})):
            keep.write_text(useless)
            assert len(counts()) == 4

        Admin(cluster).delete_topic(AUDIT_TOPIC)
        ensure_topic(cluster, 1)
        write(cluster, [_report(0, 1)], pytest.fail)
        assert counts() == {0: 1}, "of another _audit"
        pylog = Command(broker.bootstrap)
        pylog("audit", "report", "--ledger", broker.bootstrap, "--keep", str(tmp_path / "kept.json"), exit_code=0)
        assert json.loads((tmp_path / "kept.json").read_text())["clusters"][0]["offset"] == 0
        assert warnings == []
        (tmp_path / "file").touch()
        assert _counts(load([cluster], 0, warnings.append, tmp_path / "file" / "kept")) == {0: 1}
        assert len(warnings) == 1, "a file that cannot be written is told, and the comparison is made"
