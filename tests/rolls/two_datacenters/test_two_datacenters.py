"""A stream from the live datacenter to the lake, through all that may happen on the way; told in one run, in order."""

import json
import os
import secrets
import shlex
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from local.demo import readers
from pylog.client.admin.cluster import Admin
from pylog.client.consumer import GroupConsumer
from pylog.client.producer import Producer
from tests.rolls import cluster
from tests.rolls.two_datacenters import pipeline
from tests.rolls.two_datacenters.pipeline import DRIVER_HOST, LAKE, LOAD, MIRROR_HOST, WORKER_HOSTS, Stream, on

CUT_S = 120
GROUPS_S = 10
"""Between two looks of the mirror at the source's groups, as the role has it."""

GROUP, TOPIC = "readers", "switched"
RESULT: dict[str, object] = {}


@pytest.fixture(scope="module")
def stream() -> Iterator[Stream]:
    """Produces through all tests up to the one that counts; loads run when these tests say so."""
    on(DRIVER_HOST, "systemctl stop pylog-ingest.timer")
    running = Stream()
    running.start()
    yield running
    on(DRIVER_HOST, "systemctl start pylog-ingest.timer")
    cluster.keep_result("two_datacenters", RESULT)


def test_sparks_own_cluster_runs_the_load_and_takes_no_stranger(stream: Stream) -> None:
    pipeline.wait_until(lambda: stream.keys, "the first records")
    pipeline.drain()
    with ThreadPoolExecutor(1) as pool:  # it tries for a minute before it gives up
        stranger = pool.submit(
            on, DRIVER_HOST, _STRANGER.format(master=pipeline.address(DRIVER_HOST)), is_checked=False
        )
        pipeline.run_load()
        said = stranger.result()
    assert pipeline.commits() > 0
    assert "let in" not in said
    assert "All masters are unresponsive" in said, said
    ports = on(DRIVER_HOST, "ss -H -l -n -t").split()
    assert any(one.endswith(":7077") for one in ports)
    assert not any(one.endswith(":6066") for one in ports), "the REST port starts jobs for anybody"
    settings = on(DRIVER_HOST, "cat /etc/pylog/spark/spark-defaults.conf")
    assert "spark.authenticate true" in settings
    for host in WORKER_HOSTS:
        assert on(host, "ls /var/lib/pylog-spark-worker/work"), f"no executor ever ran on {host}"
        assert not [one for one in cluster.targets() if one.name == host], "a worker beside a broker"


def test_a_cut_link_delays_and_loses_nothing(stream: Stream) -> None:
    with pipeline.link_cut(MIRROR_HOST):
        time.sleep(CUT_S)
        metrics = on(MIRROR_HOST, f"python3 -c {shlex.quote(_SCRAPE)}")
        lags = [float(line.rpartition(" ")[2]) for line in metrics.splitlines()
                if line.startswith("pylog_mirror_lag_seconds{") and ".avro" in line and "NaN" not in line]  # fmt: skip
        assert max(lags) > CUT_S / 2, lags
        RESULT["lag_s_at_the_end_of_the_cut"] = max(lags)
    healed_s = time.monotonic()
    pipeline.drain()
    RESULT["s_from_heal_to_caught_up"] = round(time.monotonic() - healed_s, 1)


def test_a_killed_task_runs_again(stream: Stream) -> None:
    before = pipeline.commits()
    with pipeline.beside(_KILL_TASKS, *WORKER_HOSTS) as killed:
        pipeline.run_load()
    assert any(killed), "no task was found to kill"
    assert pipeline.commits() > before
    RESULT["tasks_killed"] = sum(len(one.split()) for one in killed)


def test_a_killed_driver_leaves_nothing_half(stream: Stream) -> None:
    before = pipeline.commits()
    with pipeline.beside(_KILL_DRIVER, DRIVER_HOST) as killed:
        pipeline.start_load()
        result = pipeline.wait_load()
    assert killed[0].endswith(".parquet"), "no task had begun to write"
    assert result == "signal"
    RESULT["commits_of_the_killed_driver"] = pipeline.commits() - before
    before = pipeline.commits()
    pipeline.run_load()
    assert pipeline.commits() > before


def test_a_killed_broker_of_the_offline_datacenter_comes_back(stream: Stream) -> None:
    before = cluster.starts()["offline2"]
    on("offline2", "systemctl kill --signal=KILL pylog-broker@102")
    # It waits until its old session has ended, and another leads meanwhile.
    pipeline.wait_until(lambda: cluster.starts()["offline2"] not in (0, before), "the broker runs again")
    pipeline.pylog("cluster", "health", "--bootstrap", pipeline.brokers("offline"), "--brokers", "2",
                   "--consecutive", "3", "--wait", str(pipeline.PATIENCE_S))  # fmt: skip
    pipeline.drain()


def test_a_group_moves_over_and_back_and_skips_nothing(stream: Stream, tmp_path: Path) -> None:
    live, offline = pipeline.brokers("live"), pipeline.brokers("offline")
    Admin(live).create_topic(TOPIC, partitions=4, replication_factor=3)
    _send(live, range(4000))
    read = _read(live, at_least=1000)
    over, back = tmp_path / "over.json", tmp_path / "back.json"
    done = cluster.playbook("switch_over", {"switch_over_groups": [GROUP], "switch_over_report": str(over)})
    assert done.returncode == 0
    read_there = _read(offline, at_least=1500)
    _send(live, range(4000, 5000))
    extra = {"switch_over_groups": [GROUP], "switch_over_back": True, "switch_over_report": str(back)}
    assert cluster.playbook("switch_over", extra).returncode == 0
    read_again = _read(live, at_least=0)
    everything = read + read_there + read_again
    assert set(everything) == {b"%06d" % number for number in range(5000)}
    for name, path in (("over", over), ("back", back)):
        [rows] = json.loads(path.read_text()).values()
        assert sum(row["lost"] for row in rows) == 0
        RESULT[f"switch_{name}"] = {key: sum(row[key] for row in rows) for key in ("unread", "reread", "lost")}
    RESULT["switch_read_more_than_once"] = sum(count - 1 for count in Counter(everything).values())


def test_every_record_is_in_the_lake_as_often_as_in_the_offline_datacenter(stream: Stream) -> None:
    pipeline.wait_until(lambda: stream.count > 10_000, "enough records", progress=lambda: stream.count)
    stream.stop()
    pipeline.drain()
    pipeline.run_load()
    doubled = total = 0
    for topic, keys in stream.keys.items():
        produced = Counter(keys)
        mirrored = stream.keys_in(readers.stored_keys(pipeline.brokers("offline"), topic))
        landed = stream.keys_in(readers.landed_keys(LAKE, topic))
        assert stream.keys_in(readers.stored_keys(pipeline.brokers("live"), topic)) == produced
        assert landed.keys() == produced.keys()
        assert landed == mirrored, "Spark lost or doubled something"
        total += produced.total()
        doubled += (mirrored - produced).total()
    assert total == stream.count
    RESULT["records_produced_and_landed"] = total
    RESULT["copies_made_by_the_mirror"] = doubled


def test_the_audit_finds_everything_everywhere(stream: Stream) -> None:
    found = pipeline.audit(stream.began_s)
    assert [one for one in found["findings"] if one["is_alarm"]] == []
    rows = [row for rows in found["topics"].values() for row in rows]
    assert sum(row["produced"] for row in rows) >= stream.count
    for row in rows:
        assert row["arrived"] == dict.fromkeys(("live", "mirror", "lake"), row["produced"])


def test_the_audit_names_a_row_that_is_taken_out_of_the_lake(stream: Stream) -> None:
    files = {path: pq.read_table(path) for path in (LAKE / "topic=pageviews.avro").rglob("*.parquet")}
    places = [
        (path, number)
        for path, table in files.items()
        for number, key in enumerate(table["key"].to_pylist())
        if key.startswith(stream.run_name.encode())
    ]
    path, victim = places[len(places) // 2]
    table, whole, status = files[path], path.read_bytes(), path.stat()
    kept = [number for number in range(len(table)) if number != victim]
    try:
        pq.write_table(table.take(kept), path)
        os.chown(path, status.st_uid, status.st_gid)
        alarms = [one for one in pipeline.audit(stream.began_s)["findings"] if one["is_alarm"]]
    finally:
        path.write_bytes(whole)
    [alarm] = alarms
    assert (alarm["kind"], alarm["topic"], alarm["tier"], alarm["count"]) == ("lost", "pageviews.avro", "lake", 1)
    assert len(alarm["ranges"]) == 1
    RESULT["named"] = {name: alarm[name] for name in ("kind", "topic", "tier", "window", "producer", "ranges")}
    assert [one for one in pipeline.audit(stream.began_s)["findings"] if one["is_alarm"]] == []


def test_both_registries_have_the_schemas_with_the_same_ids(stream: Stream) -> None:
    def ids(datacenter: str) -> dict[str, int]:
        found = {}
        for subject in (f"{topic}-value" for topic in stream.keys):
            url = f"{pipeline.registry(datacenter)}/subjects/{subject}/versions/latest"
            with urllib.request.urlopen(url, timeout=10) as answer:
                found[subject] = json.loads(answer.read())["id"]
        return found

    there = ids("live")
    assert len(there) == len(stream.keys) > 0
    assert ids("offline") == there


def test_a_new_secret_reaches_all_of_spark() -> None:
    """One play writes it and restarts who read the old one; a load runs then, and another with the old one back."""
    runs = "pylog-spark-master.service pylog-spark-worker.service"
    started = f"systemctl show --property ActiveEnterTimestampMonotonic --value {runs} | xargs"

    def change(extra: dict[str, str]) -> list[str]:
        before = [on(host, started) for host in WORKER_HOSTS]
        assert cluster.playbook("site", extra, "--limit", ",".join(WORKER_HOSTS)).returncode == 0
        assert all(old != new for old, new in zip(before, [on(host, started) for host in WORKER_HOSTS], strict=True))
        loaded = pipeline.commits()
        # With nothing new no Spark would be started.
        with Producer(pipeline.brokers("offline")) as producer:
            producer.send("host.journal", b"loaded under another secret")
        pipeline.run_load()
        assert pipeline.commits() > loaded
        return [on(host, "grep authenticate.secret /etc/pylog/spark/spark-defaults.conf") for host in WORKER_HOSTS]

    ours = change({"spark_secret": secrets.token_hex(32)})
    theirs = change({})
    assert ours[0] == ours[1] != theirs[0] == theirs[1]


def test_a_group_goes_on_although_the_live_datacenter_is_lost(tmp_path: Path) -> None:
    """Every host of it stands still: nobody answers, and nothing is known but what the mirror has carried over."""
    live, offline = pipeline.brokers("live"), pipeline.brokers("offline")
    group, topic = "unplanned-readers", "unplanned"
    Admin(live).create_topic(topic, partitions=4, replication_factor=3)
    _send(live, range(4000), topic)
    read = _read(live, at_least=1000, group=group, topic=topic)
    pipeline.drain()
    time.sleep(2 * GROUPS_S)  # the mirror carries groups over at this pace, and tells nobody when it has
    report = tmp_path / "lost.json"
    began_s = time.monotonic()
    with pipeline.lost("live"):
        extra = {"switch_over_groups": [group], "switch_over_source_lost": True, "switch_over_report": str(report)}
        assert cluster.playbook("switch_over", extra).returncode == 0
        read_there = _read(offline, at_least=0, group=group, topic=topic)
        RESULT["s_from_the_loss_to_all_read"] = round(time.monotonic() - began_s, 1)
        with urllib.request.urlopen(f"{pipeline.registry('offline')}/subjects", timeout=10) as answer:
            assert json.loads(answer.read()), "readers here decode without the other datacenter"
    assert set(read + read_there) == {b"%06d" % number for number in range(4000)}
    [rows] = json.loads(report.read_text()).values()
    assert sum(row["left"] for row in rows) == len(read_there)
    RESULT["source_lost_read_twice"] = len(read) + len(read_there) - 4000
    health = ("cluster", "health", "--bootstrap", live, "--brokers", "3", "--consecutive", "3")
    pipeline.pylog(*health, "--wait", str(pipeline.PATIENCE_S))
    pipeline.drain()
    cluster.keep_result("two_datacenters", RESULT)


def _send(bootstrap: str, numbers: range, topic: str = TOPIC) -> None:
    with Producer(bootstrap, batch__size=1000) as producer:
        for number in numbers:
            producer.send(topic, b"%06d" % number, partition=number % 4)


def _read(bootstrap: str, at_least: int, group: str = GROUP, topic: str = TOPIC) -> list[bytes]:
    """Read as the group: so many records and some, or to the end; commit, and leave."""
    found: list[bytes] = []
    deadline = time.monotonic() + pipeline.PATIENCE_S
    # Small fetches, so that it stops in the middle of every partition.
    with GroupConsumer(
        bootstrap, group, [topic], fetch__message__max__bytes=2000, queued__min__messages=50
    ) as consumer:
        while not (at_least and len(found) >= at_least) and not consumer.is_at_end:
            came = consumer.read(0.5, 50)
            found += [record.value for record in came if record.value is not None]
            if came:
                deadline = time.monotonic() + pipeline.PATIENCE_S
            assert time.monotonic() < deadline, f"after {len(found)} records no more came"
        consumer.commit()
    return found


_SCRAPE = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9181/metrics').read().decode())"

_STRANGER = """
export JAVA_TOOL_OPTIONS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' SPARK_CONF_DIR=/nowhere
PYSPARK_PYTHON=/opt/pylog/spark/current/bin/python /opt/pylog/spark/current/bin/python -c '
from pyspark import SparkContext
SparkContext("spark://{master}:7077", "stranger").parallelize([1]).count()
print("let in")
' 2>&1
"""

# As soon as Spark's Python appears on a worker: every one that runs then.
_KILL_TASKS = f"""
until {pipeline.IS_OVER}; do
  found=$(pgrep -u pylog -f 'pyspark[.]daemon')
  if [ -n "$found" ]; then kill -KILL $found; echo $found; exit 0; fi
  sleep 0.05
done
"""

# As soon as a task writes: other tasks read then, and the driver waits for all of them.
_KILL_DRIVER = f"""
began=$(mktemp)
until {pipeline.IS_OVER}; do
  found=$(find {pipeline.SHARED}/_staging -name '*.parquet' -newer $began -print -quit)
  if [ -n "$found" ]; then systemctl kill --signal=KILL {LOAD}; echo $found; exit 0; fi
  sleep 0.02
done
"""
