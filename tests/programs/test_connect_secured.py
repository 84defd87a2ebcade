"""Two workers of Kafka Connect on a secured cluster, with the files and the rights of role `connect`."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID

from pylog.client import Message, Producer
from pylog.client.admin.cluster import Admin
from pylog.connect.keystores import write_keystores
from pylog.connect.topics import internal_topics
from pylog.connect.workers import WorkerAway, Workers
from pylog.ops.rights import program_users
from tests.command import Command, Ended
from tests.connect_role import rendered
from tests.programs.program import wait_until
from tests.programs.test_console import Cluster
from tests.servers.connect import ConnectWorker, unpacked
from tests.servers.ports import free_ports

START_S = 180.0
PYLOG = Command("127.0.0.1:9")
PASSWORD = 'a "long" \\ password: ü'
HOST: dict[str, Any] = {
    "pylog_security": "sasl_ssl",
    "pylog_datacenter": "live",
    "connect_reads": ["orders"],
    "connect_writes": ["orders"],
    "connect_replication_factor": 1,
    "connect_offset_partitions": 2,
    "connect_status_partitions": 1,
    "connect_rebalance_delay_ms": 1000,
    "connect_config": {"offset.flush.interval.ms": 500, "plugin.discovery": "service_load"},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    found = Cluster(home)
    hosts = {"h1": {"pylog_security": "sasl_ssl", "pylog_datacenter": "live"}, "h2": HOST}
    users = program_users(hosts, {"pylog_broker": ["h1"], "pylog_connect": ["h2"]})["live"]["users"]
    [mine] = [one for one in users if one["name"] == "pylog-connect"]
    document = json.dumps({"users": [{**mine, "password": PASSWORD}]})
    command = [sys.executable, "-m", "pylog", "user", "apply", "-", "--config", str(home / "broker.yml")]
    subprocess.run(command, input=document, text=True, check=True)
    with found.broker:
        admin = Admin(found.connection())
        for topic in [{"name": "orders", "partitions": 1, "config": {}}, *internal_topics([HOST], "live")]:
            admin.create_topic(topic["name"], partitions=topic["partitions"], config=topic["config"])
        yield found


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("target") / "out"


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> list[str]:
    """What a program of the host shows and trusts."""
    keys = cluster.authority.issue("watch.pem", (NameOID.COMMON_NAME, "pylog-connect-watch"))
    return ["--ca", str(cluster.authority.trusted), "--certificate", str(keys)]


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("jars"))


@pytest.fixture(scope="module")
def workers(
    cluster: Cluster, client: list[str], target: Path, jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[ConnectWorker]]:
    mark = tmp_path_factory.mktemp("role")
    texts, _ = rendered(
        mark,
        HOST | {
            "connect_bootstrap": cluster.broker.bootstrap,
            "connect_port": 65535,
            "connect_secrets": {"target": str(target)},
            "users_passwords": {"pylog-connect": PASSWORD},
            "__preflight_logins": ["live"], "__preflight_stages": {"live": {"programs": "secured"}},
            "__preflight_addresses": {"host": {"localhost": "127.0.0.1"}},
        },
    )  # fmt: skip
    found = []
    for number, port in enumerate(free_ports(2)):
        home = tmp_path_factory.mktemp(f"worker{number}")
        places = {
            "/etc/pylog-connect/ca.pem": str(cluster.authority.trusted),
            # One file for both, since they are one host here.
            "/etc/pylog-connect/secrets.properties": str(target.with_name("secrets.properties")),
            "/etc/pylog-connect": str(home),
            "/run/pylog-connect": str(home),
            "/opt/pylog/connect/0123456789": str(jars),
            "65535": str(port),
        }
        pattern = re.compile("|".join(map(re.escape, places)))
        for name, text in texts.items():
            place = target.parent if name == "secrets.properties" else home
            (place / name).write_text(pattern.sub(lambda one, to=places: to[one[0]], text))
        write_keystores(cluster.certificate, cluster.authority.trusted, home)
        api = Workers(f"https://127.0.0.1:{port}", ca=Path(client[1]), certificate=Path(client[3]))
        file = home / "worker.properties"
        found.append(ConnectWorker(home, jars, "", file=file, port=port, workers=api))
    with ThreadPoolExecutor() as threads:
        list(threads.map(ConnectWorker.start, found))
    yield found
    for worker in found:
        worker.__exit__(None, None, None)


def ask(worker: ConnectWorker, client: list[str], *words: str, **more: object) -> Ended:
    return PYLOG("connect", *words, "--url", worker.url, *client, **more)  # type: ignore[arg-type]


def apply(worker: ConnectWorker, client: list[str], document: object) -> list[str]:
    answer = ask(worker, client, "apply", "-", "--format", "json", stdin=json.dumps(document).encode())
    return [change["action"] for change in answer.json["changes"]]


def test_nobody_without_a_certificate_reaches_a_worker(workers: list[ConnectWorker], cluster: Cluster) -> None:
    with pytest.raises(WorkerAway, match=r"(?i)certificate"):
        Workers(workers[0].url, ca=cluster.authority.trusted).version()


def test_records_go_through_and_one_that_is_no_json_is_a_dead_letter(
    workers: list[ConnectWorker], cluster: Cluster, client: list[str], target: Path
) -> None:
    sink = {
        "connector.class": "FileStreamSink",
        "tasks.max": 1,
        "topics": "orders",
        "file": f"${{file:{target.with_name('secrets.properties')}:target}}",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": False,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "connect-dead-letters-out",
        "errors.deadletterqueue.topic.replication.factor": 1,
    }
    document: dict[str, list[dict[str, object]]] = {"connectors": [{"name": "out", "config": sink}]}
    for worker, state in ((workers[0], "paused"), (workers[1], "running")):
        # One of the two is not the leader, which it asks: as workers ask each other, by certificates.
        document["connectors"][0]["state"] = state
        assert apply(worker, client, document) == [{"paused": "create", "running": "run"}[state]]
        for one in workers:
            ask(one, client, "status", "--wanted", "-", "--wait", "120", stdin=json.dumps(document).encode())
    with Producer(cluster.connection()) as producer:
        for value in (b'"first"', b"no json", b'"last"'):
            producer.send("orders", Message(value, partition=0))
    log = workers[0].log_path
    wait_until(lambda: target.exists() and "last" in target.read_text(), lambda: log.read_text()[-3000:], START_S)
    assert target.read_text().split() == ["first", "last"]
    admin = Admin(cluster.connection())
    wait_until(lambda: "connect-dead-letters-out" in admin.cluster().topics, "a topic of dead letters")


def test_the_connector_survives_the_restart_of_its_worker_and_the_gate_says_when(
    workers: list[ConnectWorker], cluster: Cluster, client: list[str], target: Path
) -> None:
    [task] = workers[0].workers.statuses()["out"].tasks
    gone, stays = sorted(workers, key=lambda one: one.id != task.worker)
    gone.__exit__(None, None, None)
    gone.start()
    ask(stays, client, "status", "--wait", "120", "--consecutive", "3")
    with Producer(cluster.connection()) as producer:
        producer.send("orders", Message(b'"after"', partition=0))
    wait_until(lambda: "after" in target.read_text(), lambda: stays.log_path.read_text()[-3000:], START_S)
    assert apply(workers[0], client, {"absent": ["out"]}) == ["delete"]


def test_a_topic_with_another_policy_is_named_in_connects_words(
    workers: list[ConnectWorker], cluster: Cluster, jars: Path
) -> None:
    admin = Admin(cluster.connection())
    home, [port] = workers[0].log_path.parent, free_ports(1)
    admin.create_topic("connect-other", partitions=1, config={"cleanup.policy": "delete"})
    text = (home / "worker.properties").read_text().replace("=connect-configs", "=connect-other")
    text = text.replace("group.id=connect", "group.id=connect-other")
    file = home / "other.properties"
    file.write_text(text.replace(workers[0].id.partition(":")[2], str(port)))
    url = f"https://127.0.0.1:{port}"
    api = Workers(url, ca=cluster.authority.trusted, certificate=cluster.certificate)
    wrong = ConnectWorker(home / "other", jars, "", file=file, port=port, workers=api)
    with ThreadPoolExecutor() as threads:
        started = threads.submit(wrong.start)
        pattern = r"Topic 'connect-other'.*'cleanup.policy=compact'"
        log = wrong.log_path
        wait_until(lambda: log.exists() and re.search(pattern, log.read_text()), str(log), START_S)
        wrong.kill()
        started.exception()  # it may have answered before it looked at the topic
