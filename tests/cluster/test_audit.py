"""What a cluster may lose, it loses under the eyes of the audit, which names every record (T2)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pylog.audit.load import ensure_topic
from pylog.audit.producer import AuditedProducer
from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.errors import ApiError, ErrorCode
from pylog.model import TopicPartition
from tests.cluster.conftest import Brokers, bootstrap, create, isrs, leaders, wait_for
from tests.cluster.history import read
from tests.programs.program import Program
from tests.servers.ports import free_ports

WINDOW_MS = 2_000
BEFORE, UNSEEN, AFTER = 100, 50, 100
"""Records that everybody has, that only the leader has when it dies, that its successor takes."""


def counter(directory: Path, brokers: Brokers, *topics: str) -> Program:
    [port] = free_ports(1)
    config = {
        "tier": "live", "bootstrap": bootstrap(brokers), "topics": list(topics), "window_ms": WINDOW_MS,
        "report_ms": 300, "refresh_ms": 300, "replication_factor": 3, "metrics_listen": f"127.0.0.1:{port}",
    }  # fmt: skip
    return Program(directory, "audit count", config)


def report(brokers: Brokers, topic: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "pylog", "audit", "report", f"--ledger={bootstrap(brokers)}",
         f"--window-ms={WINDOW_MS}", f"--topic={topic}", "--format=json"],
        capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def numbers(brokers: Brokers, topic: str) -> list[int]:
    return [int(message.value() or b"-1") for message in read(bootstrap(brokers), topic, 1, settle_s=0.5)]


def wait_judged(brokers: Brokers, topic: str, count: int, live: Program) -> None:
    """Wait until the live tier is judged for *count* records that were produced, and nothing else."""
    found: dict[str, Any] = {}

    def is_judged() -> bool:
        found.update(report(brokers, topic))
        rows = found["topics"].get(topic, [])
        is_counted = all("live" in row["arrived"] and not row["pending"] for row in rows)
        return is_counted and sum(row["produced"] for row in rows) == count

    wait_for(is_judged, lambda: f"{count} of {topic} are judged: {found}; the reader: {live.log}")


@pytest.mark.parametrize("acks", ["1", "0"])
def test_t2_what_acks1_and_acks0_lose_with_a_leader_is_named_by_the_audit(
    tmp_path: Path, brokers: Brokers, acks: str
) -> None:
    topic = f"named-{acks}"
    create(brokers[1], topic, 1, 3)
    ensure_topic(Connection(bootstrap=bootstrap(brokers)), 3)
    wait_for(lambda: isrs(brokers, topic) == {0: {1, 2, 3}}, "all replicas are in sync")
    [leader] = leaders(brokers, topic).values()
    followers = [brokers[one].pid for one in brokers if one != leader]
    [segment] = (brokers[leader].data_dir / f"{topic}-0").glob("*.log")
    left = survivors(brokers, leader)
    # It reports when it is closed and not before: nobody could answer while the followers stand still.
    producer = AuditedProducer(bootstrap(brokers), window_ms=WINDOW_MS, report_s=3600, host="web-1", acks=acks)

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number)
        producer._producer.flush()

    with counter(tmp_path, brokers, topic) as live:
        send(0, BEFORE)
        wait_for(lambda: len(numbers(brokers, topic)) == BEFORE, "everybody has the first ones")
        for pid in followers:
            os.kill(pid, signal.SIGSTOP)
        try:
            # The fetches that wait at the leader are answered with the next record; what follows stays with it.
            size = segment.stat().st_size
            send(BEFORE, 1)
            wait_for(lambda: segment.stat().st_size > size, "the leader has it")
            send(BEFORE + 1, UNSEEN)
            brokers[leader].kill()
        finally:
            for pid in followers:
                os.kill(pid, signal.SIGCONT)
        wait_for(lambda: leaders(left, topic)[0] in left, "another leads")
        send(BEFORE + 1 + UNSEEN, AFTER)
        brokers[leader].start()
        wait_for(lambda: isrs(brokers, topic) == {0: {1, 2, 3}}, "all replicas are in sync again")
        producer.close()
        total = BEFORE + 1 + UNSEEN + AFTER
        wait_judged(brokers, topic, total, live)
        found = report(brokers, topic)["findings"]
    missing = sorted(set(range(total)) - set(numbers(brokers, topic)))
    assert set(missing) >= set(range(BEFORE + 1, BEFORE + 1 + UNSEEN)), "the leader was not alone with them"
    assert {(one["kind"], one["tier"], one["producer"], one["host"]) for one in found} == {
        ("lost", "live", producer.instance, "web-1")
    }
    named = [number for one in found for first, last in one["ranges"] for number in range(first, last + 1)]
    assert sorted(named) == missing


def test_a_partition_without_a_leader_holds_up_its_own_topic_only(tmp_path: Path, brokers: Brokers) -> None:
    create(brokers[1], "alone", 1, 1)
    create(brokers[1], "shared", 1, 3)
    ensure_topic(Connection(bootstrap=bootstrap(brokers)), 3)
    wait_for(lambda: isrs(brokers, "shared") == {0: {1, 2, 3}}, "all replicas are in sync")
    [owner] = leaders(brokers, "alone").values()
    with AuditedProducer(bootstrap(brokers), window_ms=WINDOW_MS, report_s=0.5, host="web-1") as producer:

        def send(topic: str, count: int) -> None:
            for number in range(count):
                producer.send(topic, b"%d" % number)
            producer._producer.flush()

        def judged(topic: str, count: int) -> None:
            wait_judged(brokers, topic, count, live)

        with counter(tmp_path / "before", brokers, "alone", "shared") as live:
            send("alone", 10)
            send("shared", 20)
            judged("alone", 10)
            brokers[owner].kill()
            left = survivors(brokers, owner)
            with pytest.raises(ApiError) as refused:  # asked for at once, of a leader that no longer answers
                Admin(bootstrap(left)).ends([TopicPartition("alone", 0)])
            assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
            wait_for(lambda: leaders(left, "alone") == {0: -1}, "nobody leads it")
            with pytest.raises(ApiError) as refused:  # and not an error that ends a program
                Admin(bootstrap(left)).ends([TopicPartition("alone", 0)])
            assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
            send("shared", 20)
            judged("shared", 40)
        with counter(tmp_path / "after", brokers, "alone", "shared") as live:  # begins without its leader
            send("shared", 20)
            judged("shared", 60)
            assert not report(brokers, "alone")["findings"]
            brokers[owner].start()
            wait_for(lambda: leaders(brokers, "alone") == {0: owner}, "it is led again")
            send("alone", 10)
            judged("alone", 20)
    assert not [one for topic in ("alone", "shared") for one in report(brokers, topic)["findings"]]


def survivors(brokers: Brokers, gone: int) -> Brokers:
    return {one: broker for one, broker in brokers.items() if one != gone}
