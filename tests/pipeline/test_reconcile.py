"""The closing table over a real broker, kcat and a landed lake: equal when it is, and never when it is not."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from local.demo import readers, reconcile
from pylog.audit.counting import Counter, write_report
from pylog.ingest import job
from pylog.ship import journal as shipper
from pylog.testing import BrokerProcess
from tests.pipeline.conftest import Topics

RECORDS = 3000


def cursor(number: int) -> str:
    return f"s=aa;i={number:x};b=b0;m=1;t={number * 16:x};x=ff"


class Landed:
    """A topic and two hosts' journals, produced, landed, and ready to be counted."""

    def __init__(self, directory: Path, bootstrap: str, topics: Topics) -> None:
        self.directory, self.bootstrap, self.lake = directory, bootstrap, directory / "lake"
        self.topic, self.journal = topics.create(), topics.create()
        keys = [b"run1-logins-%09d" % number for number in range(RECORDS)]
        topics.send(self.topic, keys)
        counter = Counter()
        counter.update(keys)
        write_report(directory / "report.json", {self.topic: counter.result()})
        # An interrupted run leaves records and no report.
        topics.send(self.topic, [b"run0-logins-%09d" % number for number in range(70)])
        # live2 was restarted and sent two entries again; both hosts have written on since their journals were listed.
        for host, listed, shipped in (("live1", range(5, 50), range(1, 60)), ("live2", range(20), [*range(25), 3, 4])):
            for number in shipped:
                header = [("pylog.cursor", cursor(number).encode())]
                topics.send(self.journal, [host.encode()], headers=lambda _, header=header: header)
            self.list_journal(host, [cursor(number) for number in listed])
        job.run(
            job.JobConfig(
                bootstrap=bootstrap, topics=(self.topic, self.journal), lake=self.lake, checkpoint=directory / "cp"
            )
        )

    def list_journal(self, host: str, cursors: list[str]) -> None:
        lines = (json.dumps({"__CURSOR": cursor, "__REALTIME_TIMESTAMP": "1"}) + "\n" for cursor in cursors)
        (self.directory / f"{host}.json").write_text("".join(lines))

    def reconcile(self, *more: str) -> int:
        return reconcile.main(
            [
                f"--bootstrap={self.bootstrap}",
                f"--lake={self.lake}",
                f"--report=run1={self.directory / 'report.json'}",
                *(f"--journal={host}={self.directory / host}.json" for host in ("live1", "live2")),
                f"--journal-topic={self.journal}",
                *more,
            ]
        )


@pytest.fixture(scope="module")
def landed(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> Landed:
    return Landed(tmp_path_factory.mktemp("landed"), broker.bootstrap, topics)


@pytest.fixture
def without() -> Iterator[Callable[[Path], None]]:
    """Takes a file away until the test is over."""
    away: list[tuple[Path, bytes]] = []

    def take(path: Path) -> None:
        away.append((path, path.read_bytes()))
        path.unlink()

    yield take
    for path, body in away:
        path.write_bytes(body)


def test_the_table_is_equal(landed: Landed, capsys: pytest.CaptureFixture[str]) -> None:
    assert landed.reconcile() == 0
    said = capsys.readouterr()
    assert said.err == ""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.out.splitlines() if "│" in line]
    assert [row[:6] for row in rows] == [
        [landed.topic, "3,000", "3,000", "3,000", "0", "0"],
        [f"{landed.journal} live1", "45", "45", "45", "0", "0"],
        [f"{landed.journal} live2", "20", "20", "20", "2", "2"],
    ]
    assert {row[7] for row in rows} == {"equal"}


def test_removing_one_parquet_file_fails_and_names_the_topic(
    landed: Landed, without: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    without(next((landed.lake / f"topic={landed.topic}").rglob("*.parquet")))
    assert landed.reconcile("--format=json") == 1
    said = capsys.readouterr()
    assert f"{landed.topic}: 3000 stored, " in said.err
    assert "missing from landed" in said.err
    body = json.loads(said.out)
    assert [row["source"] for row in body["rows"] if row["differences"]] == [landed.topic]


def test_a_file_landed_twice_fails(landed: Landed, capsys: pytest.CaptureFixture[str]) -> None:
    file = next((landed.lake / f"topic={landed.topic}").rglob("*.parquet"))
    copy = file.with_name("copy.parquet")
    copy.write_bytes(file.read_bytes())
    try:
        assert landed.reconcile() == 1
    finally:
        copy.unlink()
    assert "0 duplicates stored, " in capsys.readouterr().err


def test_a_torn_file_fails_and_is_named(landed: Landed, capsys: pytest.CaptureFixture[str]) -> None:
    torn = next((landed.lake / f"topic={landed.topic}").rglob("*.parquet")).with_name("torn.parquet")
    torn.write_bytes(b"PAR1torn")
    try:
        assert landed.reconcile() == 1
    finally:
        torn.unlink()
    assert "cannot be read" in capsys.readouterr().err


def test_an_entry_that_was_never_shipped_fails_and_names_the_host(
    landed: Landed, capsys: pytest.CaptureFixture[str]
) -> None:
    landed.list_journal("live1", [cursor(number) for number in [0, *range(5, 50)]])
    try:
        # What was shipped since entry 0 counts now; entry 0 itself is nowhere.
        assert landed.reconcile() == 1
    finally:
        landed.list_journal("live1", [cursor(number) for number in range(5, 50)])
    assert f"{landed.journal} live1: " in capsys.readouterr().err


def test_records_that_nobody_reported_fail_unless_a_run_is_named(
    landed: Landed, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [f"--bootstrap={landed.bootstrap}", f"--lake={landed.lake}"]
    assert reconcile.main([*where, f"--report={landed.directory / 'report.json'}"]) == 1
    assert f"{landed.topic}: 3000 produced, 3070 stored: 70 too many in stored" in capsys.readouterr().err


def test_brokers_that_are_gone_fail(landed: Landed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerProcess(tmp_path) as gone:
        bootstrap = gone.bootstrap
    assert landed.reconcile(f"--bootstrap={bootstrap}") == 1
    assert f"kcat over {landed.topic} at {bootstrap} ended with 1" in capsys.readouterr().err


def test_the_shipper_and_the_readers_agree_on_the_header() -> None:
    assert readers.CURSOR_HEADER == shipper.CURSOR_HEADER
