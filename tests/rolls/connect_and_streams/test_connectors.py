"""Two workers of Kafka Connect, connectors from the inventory: records through them, refusals, a roll and a kill."""

import json
import re
import time
from collections import Counter
from typing import Any

import pytest

from tests.rolls.cluster import address_of, inside, keep_more, keep_result, wait_for
from tests.rolls.connect_and_streams.deployed import SCENARIO, given, kill, meanwhile, pid, play, played, unit

HOSTS = ("live1", "live2")
OTHER = "live3"
UNIT = "pylog-connect.service"
PORT = 8083
HOME = "/var/lib/pylog-connect"
RECORDS = 100_000
CHUNK = 200
MOST_CHUNKS = 2000
ASK = f"/opt/pylog/current/bin/pylog connect status --url https://127.0.0.1:{PORT} --format json"
ASK += " --ca /etc/pylog/ca.pem --certificate /etc/pylog/connect.pem"

CONNECT = given("pylog_connect")
CONNECTORS: list[dict[str, Any]] = CONNECT["connect_connectors"]


class Source:
    """The file that the source reads, the same on both hosts: either may have its task."""

    def __init__(self) -> None:
        # On hosts that were kept a second run goes on.
        self.lines = int(inside(HOSTS[0], f"cat {HOME}/in 2>/dev/null | wc -l"))

    def add(self, count: int) -> None:
        """Write the next lines, each with its number."""
        for host in HOSTS:
            inside(host, f"seq -f 'r%07.0f' {self.lines} {self.lines + count - 1} >>{HOME}/in")
        self.lines += count

    def is_all_written(self) -> bool:
        """Whether the sink has all lines."""
        return len(written()) == self.lines


def written() -> Counter[str]:
    """Return each line that the sink wrote, with how often; a kill may have cut one in two."""
    text = "".join(inside(host, f"cat {HOME}/out 2>/dev/null || true") for host in HOSTS)
    return Counter(re.findall(r"r\d{7}", text))


def statuses() -> dict[str, list[dict[str, Any]]]:
    """Return connector -> its rows: one of itself, one of each task."""
    found: dict[str, list[dict[str, Any]]] = {}
    # One that is not as it should be makes it end with 1.
    for row in json.loads(inside("live1", f"{ASK} || true"))["connectors"]:
        found.setdefault(row["connector"], []).append(row)
    return found


def host_of(worker: str) -> str:
    """Return the host of a worker's id, ADDRESS:PORT."""
    return next(host for host in HOSTS if worker == f"{address_of(host)}:{PORT}")


def with_more(*more: dict[str, Any], **settings: object) -> dict[str, Any]:
    """Return the variables of the inventory's connectors and of some more, rows-out with other *settings*."""
    source, sink = CONNECTORS
    changed = {**sink, "config": {**sink["config"], **{key.replace("_", "."): to for key, to in settings.items()}}}
    return {"connect_connectors": [source, changed, *more]}


@pytest.fixture(scope="module")
def source() -> Source:
    found = Source()
    began_s = time.monotonic()
    found.add(RECORDS)
    wait_for(found.is_all_written, 300)
    took_s = time.monotonic() - began_s
    keep_result(SCENARIO, {"files": [{"records": RECORDS, "seconds": round(took_s), "twice": twice(written())}]})
    return found


def twice(found: Counter[str]) -> int:
    """Return how many lines came again."""
    return found.total() - len(found)


def test_records_of_a_file_pass_through_a_topic_into_a_file(source: Source) -> None:
    assert set(written()) == {f"r{number:07}" for number in range(source.lines)}
    assert {row["state"] for rows in statuses().values() for row in rows} == {"running"}
    assert set(statuses()) == {"rows-in", "rows-out"}


def test_a_check_says_what_would_change_and_what_connect_thinks_of_it(source: Source) -> None:
    done = play("connect", with_more(tasks_max=1), "--check", "--diff")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "connector rows-out: tasks.max: found 2, wanted 1" in done.stdout
    wrong = {"name": "wrong", "config": {"connector.class": "FileStreamSource", "tasks.max": 1}}
    done = play("connect", with_more(wrong), "--check", "--diff")
    assert done.returncode != 0
    assert 'wrong: topic: Missing required configuration "topic"' in done.stdout.replace('\\"', '"')
    assert len(statuses()["rows-out"]) == 3


def test_connect_refuses_an_unknown_class_and_a_wrong_setting_and_nothing_else_is_touched(source: Source) -> None:
    pids = [pid(host, UNIT) for host in HOSTS]
    strange = {"name": "strange", "config": {"connector.class": "org.example.Nothing", "tasks.max": 1}}
    wrong = {"name": "wrong", "config": {**CONNECTORS[0]["config"], "tasks.max": "many"}}
    done = play("connect", with_more(strange, wrong, tasks_max=1))
    assert done.returncode != 0
    said = done.stdout.replace('\\"', '"')
    assert re.search(r"strange: .*Failed to find any class .* name matches org\.example\.Nothing", said)
    assert re.search(r"wrong: tasks\.max: Invalid value many for configuration tasks\.max", said)
    assert set(statuses()) == {"rows-in", "rows-out"}
    assert len(statuses()["rows-out"]) == 3, "two tasks as before, and the connector itself"
    assert [pid(host, UNIT) for host in HOSTS] == pids


def test_workers_roll_one_at_a_time_while_records_move(source: Source) -> None:
    pids, before = [pid(host, UNIT) for host in HOSTS], source.lines
    began_s = time.monotonic()
    with meanwhile(lambda: source.add(CHUNK), MOST_CHUNKS):
        changed = played("connect", {"connect_config": {"offset.flush.interval.ms": 3000}})
    took_s = time.monotonic() - began_s
    assert [host for host in HOSTS if not changed[host]] == []
    assert all(pid(host, UNIT) != old for host, old in zip(HOSTS, pids, strict=True))
    times = {
        host: [int(unit(host, UNIT, f"{what}EnterTimestampMonotonic")) for what in ("Inactive", "Active")]
        for host in HOSTS
    }
    (_, first_is_back), (second_stopped, _) = times["live1"], times["live2"]
    assert second_stopped > first_is_back
    wait_for(source.is_all_written, 300)
    keep("roll, one worker at a time", source.lines - before, took_s)


def test_a_worker_killed_while_records_move_loses_none(source: Source) -> None:
    before, began_s = source.lines, time.monotonic()
    [task] = [row for row in statuses()["rows-in"] if row["task"] != ""]
    victim = host_of(task["worker"])
    with meanwhile(lambda: source.add(CHUNK), MOST_CHUNKS):
        wait_for(lambda: len(written()) > before)
        kill(victim, UNIT)
        wait_for(lambda: pid(victim, UNIT) > 0 and all_run(), 180)
        reached = len(written())
        wait_for(lambda: len(written()) > reached)
    wait_for(source.is_all_written, 300)
    keep("SIGKILL of the source's worker", source.lines - before, time.monotonic() - began_s)


def all_run() -> bool:
    """Whether workers say that everything runs."""
    try:
        return {row["state"] for rows in statuses().values() for row in rows} == {"running"}
    except json.JSONDecodeError:
        return False


def keep(fault: str, records: int, took_s: float) -> None:
    """Keep what a fault did, for the scenario's page."""
    row = {"fault": fault, "records": records, "seconds": round(took_s), "missing": 0, "twice_by_now": twice(written())}
    keep_more(SCENARIO, "faults", row)


LATER = {
    "name": "rows-later",
    "config": {"connector.class": "FileStreamSink", "tasks.max": 1, "topics": "rows", "file": f"{HOME}/later/out"},
}


def test_a_failed_task_is_told_and_restarted_once_its_cause_is_gone(source: Source) -> None:
    done = play("connect", {**with_more(LATER), "connect_wait_s": 20})
    assert done.returncode != 0
    assert re.search(rf"rows-later task 0: failed .*{HOME}/later/out", done.stdout)
    assert all_run_but("rows-later")
    for host in HOSTS:
        inside(host, f"install -d -o pylog-connect -g pylog-connect {HOME}/later")
    wait_for(all_run, 240)
    metrics = "".join(inside(host, "cat /var/lib/pylog/metrics/connect.prom") for host in HOSTS)
    restarts = re.findall(r'pylog_connect_restarts_total\{connector="rows-later"\} (\d+)', metrics)
    assert sum(map(int, restarts)) >= 1
    assert set(played("connect", with_more(LATER)).values()) == {0}


def all_run_but(name: str) -> bool:
    """Whether all other connectors run."""
    return {row["state"] for other, rows in statuses().items() if other != name for row in rows} == {"running"}


def test_a_connector_that_is_named_absent_goes_and_a_second_run_changes_nothing(source: Source) -> None:
    absent = {"connect_absent": ["rows-later"]}
    assert sum(played("connect", absent).values()) > 0
    assert set(statuses()) == {"rows-in", "rows-out"}
    assert set(played("connect", absent).values()) == {0}


KNOCK = """
import http.client, ssl, sys
address, port, scheme = sys.argv[1:]
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
make = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}[scheme]
connection = make(address, int(port), timeout=10, **({"context": context} if scheme == "https" else {}))
try:
    connection.request("GET", "/connectors")
    print("answered", connection.getresponse().status)
except (OSError, http.client.HTTPException) as error:
    print("nothing", error)
"""


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", HOSTS)
def test_nobody_without_a_certificate_reaches_a_worker_from_another_host(
    host: str, scheme: str, source: Source
) -> None:
    said = inside(OTHER, f"python3 - {address_of(host)} {PORT} {scheme} <<'END'{KNOCK}END\n")
    assert said.startswith("nothing"), said
