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
from pylog.client.connection import Connection
from tests.cluster.conftest import Brokers, bootstrap, create, isrs, leaders, wait_for
from tests.cluster.history import read
from tests.programs.program import Program
from tests.servers.zookeeper import free_ports

WINDOW_MS = 2_000
BEFORE, UNSEEN, AFTER = 100, 50, 100
"""Records that everybody has, that only the leader has when it dies, that its successor takes."""


def counter(directory: Path, brokers: Brokers, topic: str) -> Program:
    [port] = free_ports(1)
    config = {
        "tier": "live", "bootstrap": bootstrap(brokers), "topics": [topic], "window_ms": WINDOW_MS, "report_ms": 300,
        "refresh_ms": 300, "replication_factor": 3, "metrics_listen": f"127.0.0.1:{port}",
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


def is_judged(found: dict[str, Any], topic: str, count: int) -> bool:
    rows = found["topics"].get(topic, [])
    is_counted = all("live" in row["arrived"] and not row["pending"] for row in rows)
    return is_counted and sum(row["produced"] for row in rows) == count


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
    survivors = {one: broker for one, broker in brokers.items() if one != leader}
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
        wait_for(lambda: leaders(survivors, topic)[0] in survivors, "another leads")
        send(BEFORE + 1 + UNSEEN, AFTER)
        brokers[leader].start()
        wait_for(lambda: isrs(brokers, topic) == {0: {1, 2, 3}}, "all replicas are in sync again")
        producer.close()
        total = BEFORE + 1 + UNSEEN + AFTER
        wait_for(lambda: is_judged(report(brokers, topic), topic, total), f"judged: {live.log}")
        found = report(brokers, topic)["findings"]
    missing = sorted(set(range(total)) - set(numbers(brokers, topic)))
    assert set(missing) >= set(range(BEFORE + 1, BEFORE + 1 + UNSEEN)), "the leader was not alone with them"
    assert {(one["kind"], one["tier"], one["producer"], one["host"]) for one in found} == {
        ("lost", "live", producer.instance, "web-1")
    }
    named = [number for one in found for first, last in one["ranges"] for number in range(first, last + 1)]
    assert sorted(named) == missing
