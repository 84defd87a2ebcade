"""The audit over real clusters: data is altered on its way, the report names what and where."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Message

from pylog.audit.counting import STAMP_HEADER, read_stamp
from pylog.audit.load import ensure_topic
from pylog.audit.producer import AuditedProducer
from pylog.client.connection import Connection
from pylog.client.raw import RawClient
from pylog.config import load_mirror_config
from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.errors import ApiError
from pylog.ingest import landing, plan
from pylog.ingest.fetch import positions
from pylog.ingest.lake import Kind, Lake
from pylog.mirror import instance
from pylog.mirror.session import Headers, Relay
from pylog.wire.api.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tests.programs.conftest import Datacenter
from tests.programs.program import Program, scrape, wait_until
from tests.servers.ports import free_ports

WINDOW_MS = 2_000


class Thief(Relay):
    """Drops record 5 of a producer, doubles record 6."""

    def __init__(self, producer: str) -> None:
        super().__init__("live", "offline")
        self._producer = producer

    def outgoing(self, record: Message) -> Sequence[Headers]:
        copies = super().outgoing(record)
        headers: Any = record.headers() or []  # the stub says what `produce` takes
        stamp = read_stamp(dict(headers).get(STAMP_HEADER))
        if stamp is None or stamp.producer != self._producer:
            return copies
        return () if stamp.sequence == 5 else tuple(copies) * (2 if stamp.sequence == 6 else 1)


class Counter(Program):
    def __init__(self, directory: Path, tier: str, cluster: Datacenter, topic: str) -> None:
        [self.port] = free_ports(1)
        super().__init__(
            directory / tier,
            "audit count",
            {
                "tier": tier,
                "bootstrap": cluster.bootstrap,
                "topics": [topic],
                "window_ms": WINDOW_MS,
                "report_ms": 300,
                "refresh_ms": 300,
                "replication_factor": 1,
                "metrics_listen": f"127.0.0.1:{self.port}",
            },
        )


@contextmanager
def mirror(directory: Path, live: Datacenter, offline: Datacenter, topic: str, relay: Relay) -> Iterator[None]:
    """Run a mirror in this process, so that a test can lay its hand on the records."""
    import yaml

    path = directory / "mirror.yml"
    path.write_text(
        yaml.safe_dump(
            {
                "version": 1,
                "source": dict(live.end()),
                "target": dict(offline.end()),
                "topics": [topic],
                "refresh_ms": 300,
                "commit_ms": 300,
                "internal_replication_factor": 1,
                "group": f"mirror-{topic}",
            }
        )
    )
    stop = Stop()
    thread = threading.Thread(target=instance.run, args=(load_mirror_config(path), stop, Notices(), relay))
    thread.start()
    try:
        yield
    finally:
        stop.want()
        thread.join()


def report(live: Datacenter, offline: Datacenter, topic: str, *more: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "pylog", "audit", "report", f"--ledger={live.bootstrap}",
         f"--ledger={offline.bootstrap}", f"--window-ms={WINDOW_MS}", f"--topic={topic}", "--format=json", *more],
        capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


@pytest.fixture(autouse=True)
def audit_topics(live: Datacenter, offline: Datacenter) -> None:
    for cluster in (live, offline):
        ensure_topic(Connection(bootstrap=cluster.bootstrap), 1)


def is_judged(found: dict[str, Any], topic: str, count: int, *tiers: str) -> bool:
    """Return whether all that was produced is known and these tiers were judged."""
    rows = found["topics"].get(topic, [])
    return sum(row["produced"] for row in rows) == count and all(
        set(row["arrived"]) == set(tiers) and not row["pending"] for row in rows
    )


def test_t38_audit_detects_injected_loss(tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str) -> None:
    live.create(topic)
    with (AuditedProducer(live.bootstrap, window_ms=WINDOW_MS, report_s=0.3, host="web-1") as honest,
          AuditedProducer(live.bootstrap, window_ms=WINDOW_MS, report_s=0.3, host="web-2") as robbed,
          Counter(tmp_path, "live", live, topic), Counter(tmp_path, "mirror", offline, topic) as counter,
          mirror(tmp_path, live, offline, topic, Thief(robbed.instance))):  # fmt: skip
        for number in range(200):
            for producer in (honest, robbed):
                producer.send(topic, b"%d" % number)
        honest.close()
        robbed.close()
        wait_until(
            lambda: is_judged(report(live, offline, topic)[1], topic, 400, "live", "mirror"), lambda: counter.log
        )
        code, found = report(live, offline, topic, f"--picture={tmp_path}", f"--metrics={tmp_path / 'audit.prom'}")
    assert code == 1
    assert [(one["kind"], one["tier"], one["topic"], one["producer"], one["host"], one["count"], one["ranges"])
            for one in found["findings"]] == [
        ("doubled", "mirror", topic, robbed.instance, "web-2", 1, []),
        ("lost", "mirror", topic, robbed.instance, "web-2", 1, [[5, 5]]),
    ]  # fmt: skip
    assert 'fill="#c0392b"' in (tmp_path / f"{topic}.svg").read_text()
    assert f'pylog_audit_findings{{kind="lost",topic="{topic}"}} 1' in (tmp_path / "audit.prom").read_text()


class ValueThief(Relay):
    """Drops the records with one value."""

    def outgoing(self, record: Message) -> Sequence[Headers]:
        return () if record.value() == b"13" else super().outgoing(record)


def test_a_record_that_nobody_stamped_is_named_by_its_offset(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    """A client that knows nothing of audits; two readers of one tier, of which one waits."""
    live.create(topic, 1)
    second = tmp_path / "second"
    with (Counter(tmp_path, "live", live, topic) as counter, Counter(second, "live", live, topic) as other,
          Counter(tmp_path, "mirror", offline, topic),
          mirror(tmp_path, live, offline, topic, ValueThief("live", "offline"))):  # fmt: skip
        live.send(topic, [b"%d" % number for number in range(100)], 1)

        def is_done() -> bool:
            passage = report(live, offline, topic)[1]["all_records"].get(topic, {})
            return bool(passage.get("due", {}).get("mirror") == 100)

        wait_until(is_done, lambda: counter.log + other.log)
        code, found = report(live, offline, topic)
        counted = [scrape(one.port).get('pylog_audit_records_total{tier="live"}', 0) for one in (counter, other)]
    assert sorted(counted) == [0, 100], "one has the lease"
    assert code == 1
    [lost] = found["findings"]
    assert (lost["kind"], lost["tier"], lost["partition"], lost["found_in"], lost["ranges"]) == (
        "lost", "mirror", 0, "live", [[13, 13]],
    )  # fmt: skip
    assert found["all_records"][topic] == {"due": {"mirror": 100}, "seen": {"mirror": 99}, "pending": []}


def test_a_producer_killed_before_its_closing_count_is_named(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic)
    program = f"""
import os, sys
from pylog.audit.producer import AuditedProducer
producer = AuditedProducer({live.bootstrap!r}, window_ms={WINDOW_MS}, report_s=3600, host="web-3")
for number in range(50):
    producer.send({topic!r}, b"%d" % number)
producer._producer.flush()
print(producer.instance, flush=True)
os._exit(9)
"""
    with Counter(tmp_path, "live", live, topic) as counter:
        dead = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert dead.returncode == 9, dead.stderr
        wait_until(lambda: report(live, offline, topic)[1]["findings"], lambda: counter.log)
        code, found = report(live, offline, topic)
    # Told, and no loss: what arrived of it is followed all the same.
    assert (code, found["is_complete"]) == (0, False)
    assert {(one["kind"], one["producer"], one["host"]) for one in found["findings"]} == {
        ("unknown", dead.stdout.strip(), "web-3")
    }
    assert sum(one["count"] for one in found["findings"]) == 50


def test_a_producer_that_pauses_is_not_one_that_died(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic)
    with (
        Counter(tmp_path, "live", live, topic) as counter,
        AuditedProducer(live.bootstrap, window_ms=WINDOW_MS, report_s=0.3) as producer,
    ):
        for number in range(50):
            producer.send(topic, b"%d" % number)
        # Nobody sends, polls or closes meanwhile.
        wait_until(lambda: is_judged(report(live, offline, topic)[1], topic, 50, "live"), lambda: counter.log)
        assert report(live, offline, topic)[1]["findings"] == []
        producer.send(topic, b"50")
        wait_until(lambda: is_judged(report(live, offline, topic)[1], topic, 51, "live"), lambda: counter.log)
        assert report(live, offline, topic)[1]["findings"] == []


def test_what_the_broker_refuses_is_not_promised(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic, 1, max__message__bytes="2000")
    # One message a batch: a broker refuses batches, and what has to wait for its first connection is in one.
    producer = AuditedProducer(live.bootstrap, window_ms=WINDOW_MS, host="web-1", batch__num__messages=1)
    with Counter(tmp_path, "live", live, topic) as counter:
        for value in (b"a", b"b", bytes(5_000), b"c"):
            producer.send(topic, value)
            producer.poll(0.2)
        with pytest.raises(ApiError, match=r"(?i)large"):
            producer.close()
        wait_until(lambda: is_judged(report(live, offline, topic)[1], topic, 3, "live"), lambda: counter.log)
        code, found = report(live, offline, topic)
    assert (code, found["findings"]) == (0, [])


def test_a_reader_that_is_killed_counts_every_record_once(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic)
    counter = Counter(tmp_path, "live", live, topic)
    with AuditedProducer(live.bootstrap, window_ms=WINDOW_MS, report_s=0.3) as producer, counter:
        for part in range(3):
            for number in range(300):
                producer.send(topic, b"%d" % number)
            producer.poll(1)
            wait_until(lambda: scrape(counter.port).get('pylog_audit_records_total{tier="live"}', 0) > 0,
                       lambda: counter.log)  # fmt: skip
            if part < 2:
                counter.kill()
                counter.start()
        producer.close()
        wait_until(lambda: is_judged(report(live, offline, topic)[1], topic, 900, "live"), lambda: counter.log)
        code, found = report(live, offline, topic)
    assert (code, found["findings"]) == (0, [])
    assert sum(row["arrived"]["live"] for row in found["topics"][topic]) == 900


def test_a_topic_that_is_made_again_is_counted_from_its_beginning(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    """Once while its reader is down, once while it reads; each new one is longer than what was read of the old one."""
    counter, produced = Counter(tmp_path, "live", live, topic), 0

    def produce(count: int) -> None:
        nonlocal produced
        live.create(topic)
        with AuditedProducer(live.bootstrap, window_ms=WINDOW_MS, report_s=0.3) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number)
        produced += count

    def wait_judged() -> None:
        wait_until(lambda: is_judged(report(live, offline, topic)[1], topic, produced, "live"), lambda: counter.log)

    with counter:
        produce(300)
        wait_judged()
        counter.kill()
        live.admin.delete_topic(topic)
        produce(500)
        counter.start()
        wait_judged()
        live.admin.delete_topic(topic)
        produce(900)
        wait_judged()
        found = report(live, offline, topic)[1]
    assert [one for one in found["findings"] if one["is_alarm"]] == []
    assert sum(row["arrived"]["live"] for row in found["topics"][topic]) == 1700


def load(bootstrap: str, directory: Path, *topics: str) -> None:
    """Land all that the topics hold, as a task of the load job does, in this process."""
    lake = Lake.create(directory)
    state = lake.finish()
    with RawClient(bootstrap) as client:
        latest = positions(client, topics, LATEST_TIMESTAMP)
        starts = positions(client, topics, EARLIEST_TIMESTAMP).offsets
    attempt = lake.begin(Kind.LOAD, state)
    landed = landing.land(
        plan.ranges_between(state.position, latest, starts),
        landing.Landing(bootstrap=bootstrap, directory=attempt.directory, prefix="00000001",
                        fail_on_data_loss=True))  # fmt: skip
    more = {**landing.report([landed], []), "position": latest.to_json()}
    lake.commit(attempt, landed.files, dead_letters=landed.dead_letters, more=more)


def count_lake(live: Datacenter, lake: Path) -> str:
    """Count what is in the lake, and return what was noted meanwhile."""
    command = [sys.executable, "-m", "pylog", "audit", "lake", str(lake), f"--bootstrap={live.bootstrap}",
               f"--window-ms={WINDOW_MS}"]  # fmt: skip
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def lake_report(live: Datacenter, lake: Path, topic: str) -> tuple[int, dict[str, Any]]:
    """Count the lake and report until nothing is pending."""
    answers: list[tuple[int, dict[str, Any]]] = []

    def is_done() -> bool:
        count_lake(live, lake)
        answers.append(report(live, live, topic))
        return is_judged(answers[-1][1], topic, 500, "lake")

    wait_until(is_done, lambda: str(answers[-1]))
    return answers[-1]


def test_t38_rows_deleted_in_parquet_are_named(tmp_path: Path, live: Datacenter, topic: str) -> None:
    live.create(topic)
    with AuditedProducer(live.bootstrap, window_ms=WINDOW_MS, host="web-1") as producer:
        for number in range(500):
            producer.send(topic, b"%d" % number)
    lake = tmp_path / "lake"
    load(live.bootstrap, lake, topic)
    code, found = lake_report(live, lake, topic)
    assert (code, found["findings"]) == (0, [])
    path = lake / min(Lake.open(lake).visible().files)
    rows = pq.read_table(path)
    pq.write_table(rows.slice(3), path)
    gone = sorted(int(value) for value in rows.slice(0, 3)["value"].to_pylist())
    code, found = lake_report(live, lake, topic)
    assert code == 1
    assert {(one["kind"], one["tier"], one["producer"], one["host"]) for one in found["findings"]} == {
        ("lost", "lake", producer.instance, "web-1")
    }
    named = [number for one in found["findings"] for first, last in one["ranges"] for number in range(first, last + 1)]
    assert sorted(named) == gone


def test_a_topic_that_is_gone_leaves_the_others_counted(tmp_path: Path, live: Datacenter, topic: str) -> None:
    gone, lake = f"{topic}-gone", tmp_path / "lake"
    for name in (gone, topic):
        live.create(name)
        with AuditedProducer(live.bootstrap, window_ms=WINDOW_MS) as producer:
            producer.send(name, b"one")
    load(live.bootstrap, lake, gone, topic)
    live.admin.delete_topic(gone)
    said = count_lake(live, lake)
    assert f"topic {gone} is in the lake and not in the cluster any more" in said
    assert re.search(r"reported \d+ windows of 1 topics", said)
