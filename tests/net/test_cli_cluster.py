"""The command line against a real broker: what people see, what programs read, how it ends."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from confluent_kafka import Producer

from pylog.audit.counting import Counter, read_report
from pylog.client.admin.cluster import Admin
from pylog.client.connection import Connection
from pylog.model import NodeAddress
from pylog.testing import BrokerProcess
from tests.command import Command


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def pylog(broker: BrokerProcess) -> Command:
    return Command(broker.bootstrap)


def test_a_healthy_broker_is_healthy(pylog: Command) -> None:
    assert pylog("cluster", "health").text.startswith("healthy: 1 brokers, controller 0, ")
    found = pylog("cluster", "health", "--broker", "0", "--leading", "--consecutive", "2", "--format", "json").json
    assert found["healthy"] is True
    assert found["brokers"] == [0]
    assert found["problems"] == []


def test_what_is_wanted_and_missing_is_unhealthy(pylog: Command) -> None:
    ended = pylog("cluster", "health", "--broker", "7", "--brokers", "3", "--format", "json", exit_code=1)
    assert [problem["kind"] for problem in ended.json["problems"]] == ["broker_missing", "broker_missing"]
    assert ended.json["problems"][1]["detail"] == "not registered; registered: 0"


def test_waiting_for_health_ends_with_the_deadline(pylog: Command) -> None:
    ended = pylog("cluster", "health", "--brokers", "2", "--wait", "1.5", exit_code=1)
    assert "waiting: 1 problems, first: 1 brokers registered, 2 wanted" in ended.notes
    assert ended.text.startswith("unhealthy, 1 problems: ")


def test_a_dead_cluster_is_unreachable(pylog: Command) -> None:
    ended = pylog(
        "cluster",
        "health",
        "--timeout",
        "0.5",
        "--format",
        "json",
        exit_code=3,
        environment={"PYLOG_BOOTSTRAP": "127.0.0.1:1"},
    )
    assert ended.json["problems"][0]["kind"] == "unreachable"
    assert "Connection refused" in ended.notes
    assert "error: nobody answers" in ended.notes


def test_the_wanted_broker_on_this_host_is_asked_itself(pylog: Command, broker: BrokerProcess, tmp_path: Path) -> None:
    with patch("pylog.cli.cluster.socket_of", return_value=broker.admin_socket):
        pylog("cluster", "health", "--broker", "0")
    left_behind = tmp_path / "broker-0.sock"
    left_behind.touch()
    with patch("pylog.cli.cluster.socket_of", return_value=left_behind):
        ended = pylog("cluster", "health", "--broker", "0", "--format", "json", exit_code=1)
    assert [problem["kind"] for problem in ended.json["problems"]] == ["not_ready"]


def test_a_registered_broker_that_does_not_answer_is_told_from_one_that_does(broker: BrokerProcess) -> None:
    host, port = broker.bootstrap.split(":")
    admin = Admin(Connection(bootstrap=broker.bootstrap, timeout_s=3))
    assert admin.answering([NodeAddress(1, host, int(port)), NodeAddress(2, "127.0.0.1", 1)]) == {1}


def test_info_names_the_broker(pylog: Command, broker: BrokerProcess) -> None:
    found = pylog("cluster", "info", "--format", "json").json
    host, port = broker.bootstrap.split(":")
    assert found["brokers"][0] | {"leads": 0, "replicas": 0} == {
        "id": 0,
        "host": host,
        "port": int(port),
        "controller": True,
        "leads": 0,
        "replicas": 0,
    }
    assert "ID  HOST       " in pylog("cluster", "info").text


def test_a_topic_from_create_to_delete(pylog: Command) -> None:
    ended = pylog("topic", "create", "life", "--partitions", "3", "--config", "retention.ms=60000")
    assert (ended.output, ended.notes) == (b"", "created topic life\n")
    again = pylog("topic", "create", "life", exit_code=1)
    assert "TOPIC_ALREADY_EXISTS" in again.notes
    assert pylog("topic", "create", "life", "--if-not-exists").notes == "topic life exists already\n"

    assert {"name": "life", "partitions": 3, "replication_factor": 1, "without_leader": 0, "not_in_sync": 0} in pylog(
        "topic", "list", "--format", "json"
    ).json
    assert "life" in pylog("topic", "list").text
    found = pylog("topic", "describe", "life", "--format", "json").json
    assert found["partitions"][2] == {
        "partition": 2,
        "leader": 0,
        "replicas": [0],
        "isr": [0],
        "start_offset": 0,
        "end_offset": 0,
        "count": 0,
    }
    assert found["config"]["retention.ms"] == "60000"
    assert found["own_config"] == ["retention.ms"]
    text = pylog("topic", "describe", "life").text
    assert text.splitlines()[0].split() == [
        "PARTITION",
        "LEADER",
        "REPLICAS",
        "ISR",
        "START-OFFSET",
        "END-OFFSET",
        "COUNT",
    ]
    assert text.splitlines()[-1].split() == ["retention.ms", "60000"]

    assert "nothing was deleted" in pylog("topic", "delete", "life", stdin=b"n\n", exit_code=1).notes
    pylog("topic", "delete", "life", "--yes")
    assert "topic 'life' does not exist" in pylog("topic", "describe", "life", exit_code=1).notes
    assert "life" not in pylog("topic", "list").text


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["a/b"], "INVALID_TOPIC_EXCEPTION"),
        (["x", "--partitions", "0"], "INVALID_PARTITIONS"),
        (["x", "--replication-factor", "2"], "INVALID_REPLICATION_FACTOR"),
        (["x", "--config", "no.such=1"], "INVALID_CONFIG"),
    ],
)
def test_what_the_cluster_refuses_fails_and_creates_nothing(pylog: Command, arguments: list[str], found: str) -> None:
    assert found in pylog("topic", "create", *arguments, exit_code=1).notes
    assert '"x"' not in pylog("topic", "list", "--format", "json").text


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_as_they_were_sent(pylog: Command, codec: str) -> None:
    lines = b"".join(b"key%d:value %d \xff\n" % (i, i) for i in range(500))
    ended = pylog("produce", f"lines-{codec}", "-k", ":", "-z", codec, "-p", "0", "-H", "a=1", stdin=lines)
    assert (ended.output, ended.notes) == (b"", f"produced 500 records to lines-{codec}\n")
    assert pylog("consume", f"lines-{codec}", "-e", "-f", r"%k:%s\n").output == lines


def test_acks_nulls_and_lines_without_a_key(pylog: Command) -> None:
    pylog("topic", "create", "edge", "--partitions", "1")
    for acks in ("0", "1", "all"):
        pylog("produce", "edge", "-k", "=", "-Z", "--acks", acks, "-q", stdin=b"k=\nplain\n=v\nlast=no newline")
    assert pylog("consume", "edge", "-e", "-n", "4", "-f", "%K,%S %k|%s\\n").text == (
        "1,-1 k|\n-1,5 |plain\n0,1 |v\n4,10 last|no newline\n"
    )
    assert pylog("topic", "describe", "edge", "--format", "json").json["partitions"][0]["end_offset"] == 12


def test_reading_starts_where_it_is_told(pylog: Command) -> None:
    pylog("topic", "create", "places", "--partitions", "1")
    pylog("produce", "places", stdin=b"0\n1\n2\n3\n4\n")
    consume = ["consume", "places", "-e"]
    assert pylog(*consume, "--from", "3").text == "3\n4\n"
    assert pylog(*consume, "--from", "-2").text == "3\n4\n"
    assert pylog(*consume, "--from", "end").text == ""
    assert pylog(*consume, "-n", "2").text == "0\n1\n"
    times = [int(line) for line in pylog(*consume, "-f", "%T\\n").text.split()]
    assert pylog(*consume, "--from", f"@{times[0]}").text.endswith("3\n4\n")
    assert pylog(*consume, "--from", f"@{times[-1] + 1}").text == ""
    found = json.loads(pylog(*consume, "-n", "1", "-f", "json").output)
    assert found == {
        "topic": "places",
        "partition": 0,
        "offset": 0,
        "timestamp_ms": times[0],
        "key": None,
        "value": "0",
        "headers": [],
    }


def test_what_is_not_there_is_not_created_by_reading(pylog: Command) -> None:
    assert "topic 'ghost' does not exist" in pylog("consume", "ghost", "-e", exit_code=1).notes
    assert "ghost" not in pylog("topic", "list").text
    pylog("topic", "create", "one", "--partitions", "1")
    assert "found:  4\n  wanted: 0 to 0" in pylog("consume", "one", "-p", "4", exit_code=1).notes


def test_following_shows_records_as_they_come(pylog: Command) -> None:
    pylog("topic", "create", "live", "--partitions", "1")
    command = [sys.executable, "-m", "pylog", "consume", "live", "-n", "3", "-b", pylog.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        try:
            for line in (b"a\n", b"b\n", b"c\n"):
                pylog("produce", "live", stdin=line)
                assert follower.stdout.readline() == line
            assert follower.wait(20) == 0
        finally:
            follower.kill()


def test_a_reader_that_has_seen_enough_ends_it_quietly(pylog: Command) -> None:
    pylog("produce", "many", stdin=b"x" * 80 + b"\n" + b"y\n" * 200_000)
    command = f"{sys.executable} -m pylog consume many -b {pylog.bootstrap} | head -n 1; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout.count(b"\n"), ended.stderr) == (0, 1, b"")


def test_produce_to_nobody_ends_with_3(pylog: Command) -> None:
    ended = pylog(
        "produce",
        "t",
        "--delivery-timeout",
        "0.5",
        stdin=b"a\nb\n",
        exit_code=3,
        environment={"PYLOG_BOOTSTRAP": "127.0.0.1:1"},
    )
    assert "0 of 2 records were produced" in ended.notes


def test_a_record_that_is_too_large_is_refused(pylog: Command) -> None:
    ended = pylog("produce", "large", stdin=b"x" * 2_000_000 + b"\n", exit_code=1)
    assert "MESSAGE_TOO_LARGE" in ended.notes


def test_demo_counts_what_a_reader_then_finds(pylog: Command, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    ended = pylog("demo", "--records", "20000", "--run", "r1", "--report", str(report), "--format", "json")
    counts = read_report(report)
    assert {topic: c.count for topic, c in counts.items()} == {
        "pageviews": 14000,
        "searches": 2400,
        "logins": 1200,
        "host.metrics": 2400,
    }
    assert ended.json["run"] == "r1"
    for topic, wanted in counts.items():
        counter = Counter()
        counter.update(pylog("consume", topic, "-e", "-f", "%k\\n").output.splitlines())
        assert (counter.result().count, counter.result().key_hash) == (wanted.count, wanted.key_hash)
        assert len(pylog("topic", "describe", topic, "--format", "json").json["partitions"]) == 4


def test_demo_keeps_its_rate(pylog: Command) -> None:
    ended = pylog("demo", "--records", "500", "--rate", "500")
    rate = float(ended.notes.split(" s, ")[1].split(" a second")[0].replace(",", ""))
    assert rate <= 550


def test_demo_to_nobody_writes_no_report(pylog: Command, tmp_path: Path) -> None:
    pylog(
        "demo",
        "--records",
        "10",
        "--timeout",
        "0.5",
        "--report",
        str(tmp_path / "r.json"),
        exit_code=3,
        environment={"PYLOG_BOOTSTRAP": "127.0.0.1:1"},
    )
    assert list(tmp_path.iterdir()) == []


def test_segments_of_a_running_broker_verify(pylog: Command, broker: BrokerProcess) -> None:
    pylog("topic", "create", "stored", "--partitions", "1")
    pylog("produce", "stored", "-z", "lz4", stdin=b"".join(line * 200 + b"\n" for line in (b"a", b"b", b"c")))
    found = pylog("log", "verify", "--records", "--format", "json", str(broker.data_dir)).json
    rows = {row["partition"]: row for row in found["partitions"]}
    assert found["damages"] == []
    assert (rows["stored-0"]["records"], rows["stored-0"]["next_offset"]) == (3, 3)
    segment = broker.data_dir / "stored-0" / f"{0:020d}.log"
    batches = [
        json.loads(line)
        for line in pylog("log", "dump", "--records", "--format", "json", str(segment)).text.splitlines()
    ]
    assert [record["value"] for batch in batches for record in batch["records"]] == ["a" * 200, "b" * 200, "c" * 200]
    assert batches[0]["compression"] == "lz4"


def test_retention_frees_closed_segments_and_tells_so(pylog: Command, broker: BrokerProcess, tmp_path: Path) -> None:
    pylog(
        "topic",
        "create",
        "brief",
        "--partitions",
        "1",
        "--config",
        "segment.bytes=2048",
        "--config",
        "retention.bytes=2048",
    )
    for _ in range(8):
        pylog("produce", "brief", "-q", stdin=b"x" * 1000 + b"\n")
    arguments = ["retention", "--socket", str(broker.admin_socket)]
    metrics = tmp_path / "pylog.prom"
    would = pylog(*arguments, "--dry-run", "--format", "json").json
    assert [segment["topic"] for segment in would["deleted"]] == ["brief"] * len(would["deleted"])
    assert would["freed_bytes"] == sum(segment["size_bytes"] for segment in would["deleted"]) > 0
    did = pylog(*arguments, "--format", "json", "--metrics-file", str(metrics)).json
    assert did["deleted"] == would["deleted"]
    assert pylog("topic", "describe", "brief", "--format", "json").json["partitions"][0]["start_offset"] > 0
    assert f'pylog_retention_freed_bytes{{broker="admin"}} {did["freed_bytes"]}' in metrics.read_text()
    assert pylog(*arguments).notes.startswith("0 segments deleted, 0 bytes, 1 brokers asked")


def test_retention_on_a_host_without_brokers_is_a_failure(pylog: Command, tmp_path: Path) -> None:
    with patch("pylog.cli.retention.RUN_DIR", tmp_path), patch("pylog.cli.retention.CONFIG_DIR", tmp_path):
        assert "no broker-*.sock" in pylog("retention", "--all", exit_code=3).notes


def test_retention_finds_the_brokers_of_this_host(pylog: Command, broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "broker-0.sock").symlink_to(broker.admin_socket)
    with patch("pylog.cli.retention.RUN_DIR", tmp_path), patch("pylog.cli.retention.CONFIG_DIR", tmp_path):
        assert "1 brokers asked" in pylog("retention", "--all", "--dry-run").notes


def test_retention_of_a_broker_that_is_down_goes_by_its_files(pylog: Command, tmp_path: Path) -> None:
    settings = {"log.segment.bytes": 4096, "log.retention.bytes": 8192}
    with BrokerProcess(tmp_path / "down", config=settings) as down:
        here = Command(down.bootstrap)
        here("topic", "create", "brief", "--partitions", "1")
        # A batch each, so that a segment has several.
        producer = Producer({"bootstrap.servers": down.bootstrap, "batch.num.messages": 1, "linger.ms": 0})
        for _ in range(30):
            producer.produce("brief", b"x" * 1000)
        assert producer.flush(30) == 0
        log = down.data_dir / "brief-0"
        down.stop()
        (down.data_dir / "unknown-0").mkdir()
        run_dir, config_dir = tmp_path / "run", tmp_path / "etc"
        run_dir.mkdir()
        config_dir.mkdir()
        (config_dir / "broker-0.yml").write_text(
            "version: 1\nbroker_id: 0\nlisteners:\n  client: {host: 127.0.0.1, port: 9092}\n"
            f"data_dir: {down.data_dir}\nadmin_socket: {run_dir}/broker-0.sock\nstore: {{kind: embedded}}\n"
        )
        before = sorted(path.name for path in log.iterdir())
        with patch("pylog.cli.retention.RUN_DIR", run_dir), patch("pylog.cli.retention.CONFIG_DIR", config_dir):
            would = pylog("retention", "--all", "--dry-run", "--format", "json")
            assert "skipped unknown-0" in would.notes
            assert sorted(path.name for path in log.iterdir()) == before
            metrics = tmp_path / "pylog.prom"
            did = pylog("retention", "--all", "--format", "json", "--metrics-file", str(metrics))
            assert (did.json["deleted"], did.json["offline"]) == (would.json["deleted"], [str(down.data_dir)])
            assert did.json["freed_bytes"] > 0
            assert 'pylog_retention_skipped_partitions{broker="broker-0"} 1' in metrics.read_text()
            quiet = pylog("retention", "--all", "--quiet")
            assert (quiet.text, quiet.notes) == ("", "")
        assert sum(path.stat().st_size for path in log.glob("*.log")) <= 8192 + 4096
        down.start()
        [row] = [one for one in down.admin("GET", "/status")[1]["partitions"] if one["topic"] == "brief"]
        assert row["log_end_offset"] == 30
        assert row["log_start_offset"] == min(int(path.stem) for path in log.glob("*.log"))


def test_a_failed_retention_keeps_the_time_of_the_last_success(
    pylog: Command, broker: BrokerProcess, tmp_path: Path
) -> None:
    metrics = tmp_path / "pylog.prom"

    def last_success() -> list[str]:
        return [line for line in metrics.read_text().splitlines() if line.startswith("pylog_retention_last_success")]

    pylog("retention", "--socket", str(broker.admin_socket), "--metrics-file", str(metrics))
    first = last_success()
    assert len(first) == 1
    ended = pylog(
        "retention",
        "--socket",
        str(broker.admin_socket),
        "--socket",
        str(tmp_path / "none.sock"),
        "--metrics-file",
        str(metrics),
        exit_code=3,
    )
    assert "retention failed for 1 of 2 brokers" in ended.notes
    silent = pylog("retention", "--socket", str(tmp_path / "none.sock"), "--quiet", exit_code=3)
    assert (silent.text, silent.notes) == ("", ""), "its exit code tells cron"
    assert last_success() == first
    assert "pylog_retention_failed_brokers 1" in metrics.read_text()


def test_strays_are_named_and_purged_only_on_order(pylog: Command, tmp_path: Path) -> None:
    stray = tmp_path / f"clicks-0.{'a' * 32}-stray"
    for path in (stray, tmp_path / "clicks-0", tmp_path / "a-stray"):
        path.mkdir()
        (path / f"{0:020d}.log").write_bytes(b"x" * 100)
    found = pylog("log", "purge-stray", str(tmp_path), "--format", "json")
    assert found.json == {"deleted": False, "directories": [{"directory": stray.name, "size_bytes": 100}]}
    assert "kept" in found.notes
    assert stray.exists()
    assert "1 directories, 100 bytes, deleted" in pylog("log", "purge-stray", str(tmp_path), "--yes").notes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-stray", "clicks-0"]


def test_a_configuration_is_checked_as_the_broker_reads_it(pylog: Command, tmp_path: Path) -> None:
    path = tmp_path / "broker.yml"
    good = (
        f"version: 1\nbroker_id: 5\nlisteners:\n  client: {{host: 127.0.0.1, port: 9092}}\ndata_dir: {tmp_path}\n"
        f"admin_socket: {tmp_path}/a.sock\nstore: {{kind: embedded}}\n"
    )
    path.write_text(good)
    assert "good, for broker 5" in pylog("config", "check", str(path)).notes
    path.write_text(good + "brokr: 1\n")
    assert f"{path}:8" in pylog("config", "check", str(path), exit_code=1).notes


def test_the_quickstart_runs(broker: BrokerProcess) -> None:
    example = Path(__file__).parent.parent.parent / "examples" / "quickstart.py"
    command = [sys.executable, str(example), broker.bootstrap]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["0 b'hello'", "1 b'log'", "2 b'!'"]
