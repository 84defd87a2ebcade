"""Kafka Connect's own worker against a broker: connectors as code, failures, kills."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pylog.connect.document import State, Wanted
from pylog.connect.health import unwell
from tests.command import Command, Ended
from tests.programs.conftest import Datacenter
from tests.programs.program import wait_until
from tests.servers.connect import ConnectWorker, unpacked

START_S = 180.0
PYLOG = Command("127.0.0.1:9")


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("jars"))


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, jars: Path, live: Datacenter) -> Iterator[ConnectWorker]:
    with ConnectWorker(tmp_path_factory.mktemp("worker"), jars, live.bootstrap) as running:
        yield running


def file_source(path: Path, topic: str, **more: object) -> dict[str, object]:
    return {"connector.class": "FileStreamSource", "tasks.max": 1, "file": str(path), "topic": topic, **more}


def file_sink(path: Path, topic: str, **more: object) -> dict[str, object]:
    return {"connector.class": "FileStreamSink", "tasks.max": 1, "file": str(path), "topics": topic, **more}


def connector(name: str, config: Mapping[str, object], state: str = "running") -> dict[str, object]:
    return {"name": name, "config": config, "state": state}


def apply(
    worker: ConnectWorker, *connectors: object, absent: tuple[str, ...] = (), dry_run: bool = False, exit_code: int = 0
) -> Ended:
    document = json.dumps({"connectors": connectors, "absent": absent}).encode()
    options = ["--url", worker.url, "--format", "json", *(["--dry-run"] if dry_run else [])]
    return PYLOG("connect", "apply", "-", *options, stdin=document, exit_code=exit_code)


def actions(answer: Ended) -> list[str]:
    return [change["action"] for change in answer.json["changes"]]


@contextmanager
def watched(worker: ConnectWorker, metrics: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "pylog", "connect", "watch", "--url", worker.url, "--worker", worker.id]
    with subprocess.Popen([*command, "--metrics-file", str(metrics)]) as process:
        try:
            yield
        finally:
            process.terminate()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_records_go_from_a_file_through_a_topic_to_a_file_and_survive_a_killed_worker(
    worker: ConnectWorker, live: Datacenter, topic: str, tmp_path: Path
) -> None:
    live.create(topic)
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"line {number}\n" for number in range(500)))
    wanted = (connector("files-in", file_source(source, topic)), connector("files-out", file_sink(sink, topic)))
    assert actions(apply(worker, *wanted, dry_run=True)) == ["create", "create"]
    assert worker.workers.statuses() == {}
    apply(worker, *wanted)
    PYLOG("connect", "status", "--url", worker.url, "--wait", "120", "--consecutive", "3")
    wait_until(lambda: len(lines(sink)) >= 500, lambda: worker.log_path.read_text()[-3000:], START_S)
    worker.kill()
    with source.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(500, 1_000))
    worker.start()
    wait_until(lambda: len(set(lines(sink))) >= 1_000, lambda: worker.log_path.read_text()[-3000:], START_S)
    assert sorted(set(lines(sink))) == sorted(f"line {number}" for number in range(1_000))
    assert actions(apply(worker, *wanted)) == []
    assert actions(apply(worker, absent=("files-in", "files-out"))) == ["delete", "delete"]
    wait_until(lambda: worker.workers.statuses() == {}, "deleted", START_S)


def test_one_wrong_connector_is_named_in_connects_words_and_nothing_changes(
    worker: ConnectWorker, tmp_path: Path
) -> None:
    good = connector("good", file_source(tmp_path / "in", "words"))
    unknown = apply(worker, good, connector("odd", {"connector.class": "com.example.None"}), exit_code=1)
    assert "PYLOG-0221" in unknown.notes
    assert "odd: connector.class" in unknown.notes
    assert "com.example.None" in unknown.notes
    bad = connector("bad", file_source(tmp_path / "in", "words", **{"tasks.max": "many"}))
    wrong = apply(worker, good, bad, exit_code=1)
    assert "bad: tasks.max" in wrong.notes
    assert worker.workers.statuses() == {}


def test_a_failed_task_is_told_and_restarted_by_the_watch(
    worker: ConnectWorker, live: Datacenter, topic: str, tmp_path: Path
) -> None:
    live.create(topic)
    live.send(topic, [b"one"])
    target = tmp_path / "missing" / "out"
    should = [Wanted(name="fails", config={}, state=State.RUNNING)]
    apply(worker, connector("fails", file_sink(target, topic)))
    try:
        wait_until(lambda: "failed" in str(unwell(should, worker.workers.statuses())), "a failed task", START_S)
        status = PYLOG("connect", "status", "--url", worker.url, exit_code=1)
        assert "PYLOG-0222" in status.notes
        assert f"fails task 0: failed on {worker.id}" in status.notes
        assert actions(apply(worker, connector("fails", file_sink(target, topic)))) == []
        target.parent.mkdir()
        metrics = tmp_path / "connect.prom"
        with watched(worker, metrics):
            wait_until(lambda: lines(target) == ["one"], lambda: worker.log_path.read_text()[-3000:], START_S)
            wait_until(
                lambda: 'pylog_connect_tasks{connector="fails",state="running"} 1' in lines(metrics),
                lambda: metrics.read_text(),
            )
        assert 'pylog_connect_restarts_total{connector="fails"} 1' in lines(metrics)
    finally:
        apply(worker, absent=("fails",))


def test_a_connector_is_paused_and_goes_on(worker: ConnectWorker, live: Datacenter, topic: str, tmp_path: Path) -> None:
    live.create(topic)
    sink = tmp_path / "out"
    config = file_sink(sink, topic)
    apply(worker, connector("pauses", config, "paused"))
    try:
        paused = [Wanted(name="pauses", config={}, state=State.PAUSED)]
        wait_until(lambda: unwell(paused, worker.workers.statuses()) == [], "paused", START_S)
        live.send(topic, [b"one"])
        PYLOG("connect", "resume", "pauses", "--url", worker.url)
        wait_until(lambda: lines(sink) == ["one"], lambda: worker.log_path.read_text()[-3000:], START_S)
        assert actions(apply(worker, connector("pauses", config, "paused"), dry_run=True)) == ["pause"]
    finally:
        apply(worker, absent=("pauses",))


def test_nobody_at_the_address_is_told_apart_from_a_failure() -> None:
    answer = PYLOG("connect", "status", "--url", "http://127.0.0.1:9", exit_code=3)
    assert "PYLOG-0108" in answer.notes
