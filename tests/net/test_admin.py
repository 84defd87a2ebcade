"""The admin socket of a running broker, and what the process does at its edges."""

import os
import shutil
import signal
import socket
import stat
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pylog import __version__
from pylog.testing import BrokerProcess
from tests.interop import frames
from tests.interop.frames import Connection


def produce(broker: BrokerProcess, topic: str, count: int, size: int = 100) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, value=b"x" * size, key=str(number), partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0


def test_status_says_what_runs_and_what_it_hosts(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        produce(broker, "events", 3)
        status, answer = broker.admin("GET", "/status")
        assert status == 200
        assert (answer["release"], answer["state"], answer["is_registered"]) == (__version__, "running", True)
        [row] = answer["partitions"]
        assert (row["topic"], row["partition"], row["role"], row["in_sync"]) == ("events", 0, "leader", True)
        assert (row["log_start_offset"], row["high_watermark"], row["log_end_offset"]) == (0, 3, 3)
        assert broker.admin("GET", "/ready") == (200, {"ready": True, "reason": "", "lacking": 0})


def test_the_socket_is_for_owner_and_group_only(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert stat.S_IMODE(broker.admin_socket.stat().st_mode) == 0o660


def test_retention_deletes_closed_segments_and_a_dry_run_only_names_them(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, config={"log.segment.bytes": 4096, "log.retention.bytes": 8192}) as broker:
        produce(broker, "events", 200, size=200)
        _, planned = broker.admin("POST", "/retention", {"dry_run": True})
        assert planned["deleted"]
        assert broker.admin("GET", "/status")[1]["partitions"][0]["log_start_offset"] == 0
        _, done = broker.admin("POST", "/retention", {})
        assert done["deleted"] == planned["deleted"]
        assert done["freed_bytes"] == sum(row["size_bytes"] for row in done["deleted"]) > 0
        row = broker.admin("GET", "/status")[1]["partitions"][0]
        assert row["log_start_offset"] > 0
        assert row["size_bytes"] <= 8192 + 4096


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [("GET", "/nothing", None, 404), ("POST", "/status", {}, 404), ("POST", "/retention", [1], 400)],
)
def test_wrong_requests_are_answered(tmp_path: Path, method: str, path: str, body: object, status: int) -> None:
    with BrokerProcess(tmp_path) as broker:
        found, answer = broker.admin(method, path, body)
        assert found == status
        assert answer["error"]


def test_two_brokers_on_one_directory_are_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        second = BrokerProcess(tmp_path)
        with pytest.raises(RuntimeError, match="another broker has this data directory open"):
            second.start()
        assert broker.admin("GET", "/ready")[0] == 200


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"cannot listen on 127.0.0.1:{port}"):
            BrokerProcess(tmp_path, port=port).start()


def test_a_clean_stop_leaves_the_marker_and_a_start_takes_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        produce(broker, "events", 1)
        marker = broker.data_dir / ".kafka_cleanshutdown"
        assert not marker.exists()
        assert broker.stop() == 0
        assert marker.exists()
        broker.start()
        assert not marker.exists()


def test_a_killed_broker_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        produce(broker, "events", 500)
        broker.kill()
        broker.start()
        assert broker.admin("GET", "/status")[1]["partitions"][0]["log_end_offset"] == 500


@pytest.mark.parametrize(("percent", "is_on"), [(1, True), (100, False)])
def test_t12_the_disk_raises_an_alarm_while_writes_still_go_on(tmp_path: Path, percent: int, is_on: bool) -> None:
    settings = {"log.disk.alarm.percent": percent, "log.disk.high.watermark.percent": 100}
    total, used, _ = shutil.disk_usage(tmp_path)
    if used < total // 50:  # a temporary directory in memory, hardly in use
        with (tmp_path / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, total // 50)
    with BrokerProcess(tmp_path, config=settings) as broker:
        produce(broker, "events", 1)
        assert f"pylog_disk_alarm {int(is_on)}\n" in broker.admin("GET", "/metrics")[1]
        assert ("disk alarm=on" in broker.log) is is_on


def test_t9_damage_in_a_closed_segment_takes_the_partition_offline_before_it_is_read(tmp_path: Path) -> None:
    settings = {"log.segment.bytes": 4096, "log.scrub.interval.ms": 0}
    with BrokerProcess(tmp_path, config=settings) as broker:
        produce(broker, "events", 100, size=200)
        produce(broker, "others", 1)
        segment = broker.data_dir / "events-0" / f"{0:020d}.log"
        content = bytearray(segment.read_bytes())
        content[1000] ^= 1
        segment.write_bytes(content)
        deadline_s = time.monotonic() + 60
        while "damage found partition=events-0" not in broker.log:
            assert time.monotonic() < deadline_s, broker.log
            time.sleep(0.1)
        assert str(segment) in broker.log
        with Connection(broker.bootstrap) as connection:
            body = connection.ask(frames.fetch("events", 0))
            assert int.from_bytes(body[8 + 2 + 6 + 8 : 8 + 2 + 6 + 10]) == 56  # KAFKA_STORAGE_ERROR
            assert frames.listed_offset(connection.ask(frames.list_offsets("others"))) == 1


def test_rule_11_a_bug_in_a_background_task_ends_the_process_and_the_next_one_has_everything(tmp_path: Path) -> None:
    trigger = tmp_path / "fail"
    with BrokerProcess(tmp_path, module="tests.servers.broken", env={"FAIL_WHEN": str(trigger)}) as broker:
        produce(broker, "events", 10)
        trigger.touch()
        deadline_s = time.monotonic() + 30
        while not broker.has_ended:
            assert time.monotonic() < deadline_s, broker.log
            time.sleep(0.02)
        assert "bug, this broker ends itself code=PYLOG-0211" in broker.log
        assert "tests/servers/broken.py" in broker.log
        trigger.unlink()
        broker.start()
        assert broker.admin("GET", "/status")[1]["partitions"][0]["log_end_offset"] == 10
        produce(broker, "events", 1)


def test_a_stopped_process_goes_on_after_a_pause_longer_than_the_hang_limit(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(7)  # the limit is 6 s; only real time can tell a pause from a hang
        os.kill(broker.pid, signal.SIGCONT)
        assert broker.admin("GET", "/ready")[0] == 200
        produce(broker, "events", 1)
