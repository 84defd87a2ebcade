"""Three hosts secured on every connection: what strangers, users and programs can do there, and what shows."""

import http.client
import io
import json
import re
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.client.web import basic_login
from pylog.ops.rights import program_users
from pylog.store.base import NotAllowed, NotConnected
from pylog.store.zookeeper import ZooKeeperStore
from pylog.store.zookeeper_security import ZooKeeperSecurity
from tests.rolls import cluster
from tests.rolls.cluster import AUTHORITY, LOCAL, ROOT, address_of, inside, on, properties, targets

HOSTS = ("live1", "live2", "live3")
TIMEOUT_S = 5.0
METADATA = bytes.fromhex("00000010000300010000000e00026161ffffffff")
"""Metadata of all topics, correlation id 14, client `aa`."""
ADDED_PASSWORD = "the-password-of-a-user-who-came-later"


# --- what answers ---


def exchange(place: tuple[str, int], said: bytes, *, is_encrypted: bool) -> bytes:
    """Return what comes back, b"" where the connection is refused, closed, or silent."""
    with suppress(OSError), socket.create_connection(place, TIMEOUT_S) as plain:
        connection: socket.socket = plain
        if is_encrypted:
            stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
            connection = stranger.wrap_socket(plain)
        connection.sendall(said)
        return connection.recv(65536)
    return b""


def _is_page(answer: bytes) -> bool:
    """Return whether HTTP is served; Go's servers tell whoever forgot TLS just that, in HTTP."""
    return answer.startswith(b"HTTP/") and b"HTTP request to an HTTPS server" not in answer


PROBES: dict[str, tuple[bytes, Callable[[bytes], bool]]] = {
    "http": (b"GET /metrics HTTP/1.0\r\n\r\n", _is_page),
    "kafka": (METADATA, lambda answer: answer[4:8] == METADATA[8:12]),
    "zookeeper": (b"srvr", lambda answer: answer.startswith(b"Zookeeper version")),
}


def answers(place: tuple[str, int]) -> frozenset[str]:
    """Return what *place* serves to somebody who shows neither certificate nor password."""
    found = set()
    for name, (said, is_answer) in PROBES.items():
        for is_encrypted in (False, True):
            if is_answer(exchange(place, said, is_encrypted=is_encrypted)):
                found.add(f"{name} over TLS" if is_encrypted else name)
    return frozenset(found)


def listening(host: str) -> set[int]:
    """Return the ports of *host* that others reach."""
    rows = [line.split()[3].rpartition(":") for line in inside(host, "ss -H -l -n -t").splitlines()]
    return {int(port) for address, _, port in rows if not address.strip("[]").startswith(("127.", "::1"))}


CONSOLE, REGISTRY = 8085, 8081
"""Answer everybody over TLS, who has to log in there."""


def test_no_port_of_any_host_answers_without_a_login() -> None:
    places = [(host, port) for host in HOSTS for port in sorted(listening(host))]
    with ThreadPoolExecutor(16) as pool:
        found = dict(zip(places, pool.map(lambda one: answers((address_of(one[0]), one[1])), places), strict=True))
    print({f"{host}:{port}": sorted(what) for (host, port), what in found.items()})
    assert {port for _, port in places} >= {9092, 9192, 2181, 3888, 19092}
    pages = {port: what for (_, port), what in found.items() if port in (CONSOLE, REGISTRY)}
    assert pages == dict.fromkeys((CONSOLE, REGISTRY), frozenset({"http over TLS"}))
    assert {place: what for place, what in found.items() if what and place[1] not in pages} == {}
    page = (ROOT / "docs/security.md").read_text()
    assert [port for port in (CONSOLE, REGISTRY) if f"`{port}`" not in page] == []


def test_the_console_shows_nothing_before_a_login() -> None:
    trusting = ssl.create_default_context(cafile=str(AUTHORITY))
    for path, status in (("/", 303), ("/api/", 401), ("/api/topics", 401), ("/api/alerts", 401)):
        connection = http.client.HTTPSConnection(address_of("live2"), CONSOLE, timeout=30, context=trusting)
        with closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            assert (path, answer.status) == (path, status)
            assert b"host.journal" not in answer.read()


def test_the_registry_is_for_users_of_the_cluster_and_shows_metrics_to_certificates() -> None:
    trusting = ssl.create_default_context(cafile=str(AUTHORITY))
    login = basic_login("demo", (ROOT / ".local/users/demo.password").read_text().strip())
    wrong = basic_login("demo", "not the password of demo")
    for header, path, status in (
        (None, "/subjects", 401),
        (None, "/metrics", 401),
        (wrong, "/subjects", 401),
        (login, "/subjects", 200),
        (login, "/metrics", 200),
    ):
        connection = http.client.HTTPSConnection(address_of("live1"), REGISTRY, timeout=30, context=trusting)
        with closing(connection):
            connection.request("GET", path, headers={"Authorization": header} if header else {})
            assert (path, header is login, connection.getresponse().status) == (path, header is login, status)


@pytest.mark.parametrize("port", [9092, 19092])
def test_plain_clients_and_wrong_passwords_are_refused(port: int) -> None:
    place = f"{address_of('live1')}:{port}"
    plain = subprocess.run(["kcat", "-b", place, "-L", "-m", "5"], capture_output=True, text=True, check=False)
    assert plain.returncode != 0
    refused = read("demo", "-b", place, "-L", "-m", "30", secret="not the password of demo")
    assert refused.returncode != 0
    assert "authentication" in refused.stderr.lower()
    served = read("demo", "-b", place, "-L", "-m", "60")
    assert served.returncode == 0, served.stderr
    assert "3 brokers" in served.stdout


# --- users and rights ---


@pytest.fixture(scope="module")
def topic() -> str:
    name = "secured"
    admin = AdminClient(properties("demo"))
    admin.create_topics([NewTopic(name, 3, 3)], operation_timeout=30)[name].result(60)
    failed: list[object] = []
    producer = Producer(properties("demo") | {"acks": "all"})
    for number in range(100):
        producer.produce(
            name, str(number).encode(), on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert failed == []
    return name


def read(user: str, *words: str, secret: str | None = None) -> subprocess.CompletedProcess[str]:
    """Have Debian's kcat read to the end as *user*, who is named in a file: a password is no argument."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.writelines(f"{name}={value}\n" for name, value in properties(user, secret).items())
        file.flush()
        command = ["timeout", "120", "kcat", "-F", file.name, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_user_of_the_inventory_writes_and_reads(topic: str) -> None:
    done = read("demo", "-C", "-t", topic, "-o", "beginning", "-e", "-q")
    assert sorted(map(int, done.stdout.split())) == list(range(100)), done.stderr


def test_a_program_may_do_its_work_and_nothing_else(topic: str) -> None:
    admin = AdminClient(properties("pylog-ship"))
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("strange", 1, 1)])["strange"].result(30)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    described = admin.describe_user_scram_credentials(["demo"])
    assert isinstance(described, dict)
    with pytest.raises(KafkaException) as refused:
        described["demo"].result(30)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    done = read("pylog-ship", "-C", "-t", topic, "-o", "beginning", "-e", "-q")
    assert (done.returncode, done.stdout) == (1, "")
    assert "authorization failed" in done.stderr.lower()


def test_users_are_those_of_the_inventory() -> None:
    users = json.loads(on("live1", "pylog user list --config /etc/pylog/broker-1.yml --format json"))
    variables = {target.name: target.variables for target in targets()}
    groups: dict[str, list[str]] = {}
    for target in targets():
        for group in target.groups:
            groups.setdefault(group, []).append(target.name)
    wanted = {user["name"] for user in program_users(variables, groups)["live"]["users"]}
    assert {user["user"] for user in users} == wanted | {"demo"}


# --- ZooKeeper ---


def zookeeper_hosts() -> str:
    return ",".join(f"{address_of(host)}:2181" for host in HOSTS)


def session(keys: Path | None, *, is_encrypted: bool = True) -> ZooKeeperStore:
    trusted = AUTHORITY if is_encrypted else None
    security = ZooKeeperSecurity(is_encrypted=is_encrypted, trust_store=trusted, key_store=keys)
    return ZooKeeperStore(zookeeper_hosts(), security=security)


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_zookeeper_knows_nobody_without_a_certificate(is_encrypted: bool) -> None:
    with closing(session(None, is_encrypted=is_encrypted)) as stranger, pytest.raises(NotConnected):
        stranger.connect(15)


@pytest.fixture
def probes_keys(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "probe.pem"
    path.touch(0o600)
    path.write_text(inside("live2", "cat /etc/pylog/probe.pem"))
    yield path
    path.unlink()


def test_nodes_of_brokers_are_closed_to_other_certificates_of_the_authority(probes_keys: Path) -> None:
    with closing(session(probes_keys)) as stranger:
        stranger.connect(30)
        paths = ["/", "/config/users", "/config/users/demo", "/brokers/ids/1", "/kafka-acl", "/pylog/format_level"]
        for path in paths:
            with pytest.raises(NotAllowed):
                stranger.get_many([path])
        for path in ("/strange", "/controller", "/config/users/mallory", "/brokers/ids/9"):
            with pytest.raises(NotAllowed):
                stranger.create(path, b"{}", ephemeral=True)
        for path in ("/controller", "/brokers/ids/1", "/config/users/demo"):
            with pytest.raises(NotAllowed):
                stranger.delete(path)


def test_the_probe_reads_what_each_zookeeper_server_says_of_itself(probes_keys: Path) -> None:
    context = ssl.create_default_context(cafile=str(AUTHORITY))
    context.load_cert_chain(probes_keys)
    connection = http.client.HTTPSConnection(address_of("live2"), 9184, timeout=TIMEOUT_S, context=context)
    with closing(connection):
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    up = dict(re.findall(r'pylog_zookeeper_up\{server="([^"]+)"\} (\d)', page))
    assert up == {f"{address_of(host)}:2181": "1" for host in HOSTS}


def test_prometheus_scrapes_every_page_with_its_certificate() -> None:
    # It answers its own host alone.
    url = "http://127.0.0.1:9090/api/v1/targets"
    page = inside("live2", f"python3 -c 'import urllib.request as r; print(r.urlopen(\"{url}\").read().decode())'")
    found = json.loads(page)["data"]["activeTargets"]
    assert {one["scrapeUrl"]: one["lastError"] for one in found if one["health"] == "down"} == {}
    encrypted = {one["labels"]["job"] for one in found if one["scrapeUrl"].startswith("https:")}
    assert encrypted == {"pylog-broker", "pylog-host", "pylog-load-balancer", "pylog-probe", "pylog-registry"}


# --- secrets ---


def secrets() -> dict[str, str]:
    found = {path.name: path.read_text().split()[0] for path in (*LOCAL.glob("*.secret"), *LOCAL.glob("users/*"))}
    key = (LOCAL / "ca" / "ca.key").read_text().split("\n")
    return found | {"ca.key": key[1], "added": ADDED_PASSWORD}


def leaked(text: str) -> set[str]:
    return {name for name, secret in secrets().items() if secret in text}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    "command",
    [
        "journalctl --no-pager -o cat",
        "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'",
        "systemctl show '*' --all --no-pager",
        "find /var/log -type f ! -path '/var/log/journal/*' -exec cat {} +",
        "find / -xdev -type f -perm -o+r -size -2048k ! -path '/usr/*' ! -path '/opt/*' -exec cat {} +",
    ],
    ids=["journal", "processes", "units", "logs", "files that everybody reads"],
)
def test_no_secret_is_where_others_of_the_host_look(host: str, command: str) -> None:
    said = subprocess.run(
        ["podman", "exec", json.loads(cluster.HOSTS_FILE.read_text())["hosts"][host]["container"], "sh", "-c", command],
        capture_output=True, check=False,
    ).stdout.decode(errors="replace")  # fmt: skip
    assert len(said) > 100 or "/var/log" in command
    assert leaked(said) == set()


def test_keys_and_passwords_are_for_their_programs_alone() -> None:
    for host in HOSTS:
        rows = inside(host, "stat -c '%a %U %G %n' /etc/pylog/*.pem /etc/pylog/*.yml /etc/pylog-zookeeper/*.pem").split(
            "\n"
        )
        modes = {row.split()[3]: row.split()[:3] for row in rows if row}
        secret = {path: mode for path, mode in modes.items() if not path.endswith("/ca.pem")}
        assert {mode[0] for mode in secret.values()} == {"640"}, secret
        assert {mode[2] for path, mode in secret.items() if "zookeeper" in path} == {"pylog-zookeeper"}
        number = host.removeprefix("live")
        socket_mode = inside(host, f"stat -c '%a %U' /run/pylog/broker-{number}.sock").strip()
        assert socket_mode == "660 pylog"


def test_a_bundle_for_support_has_no_secret(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("fab")), "bundle", "--inventory", cluster.INVENTORY]
    file = tmp_path / "bundle.tar.gz"
    done = subprocess.run(
        [*command, "--to", str(file)], cwd=ROOT, env=cluster.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = io.StringIO(done.stdout + done.stderr)
    with tarfile.open(file) as archive:
        members = [one for one in archive if one.isfile()]
        for member in members:
            content = archive.extractfile(member)
            assert content is not None
            text.write(content.read().decode(errors="replace"))
    assert len(members) > 3
    assert leaked(text.getvalue()) == set()


USERS_ALONE = f"""
- ansible.builtin.import_playbook: {ROOT}/playbooks/preflight.yml
- hosts: pylog_broker
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {{name: users}}
"""
"""What `site` does about users."""


def test_a_user_who_comes_later_is_written_without_showing_the_password(topic: str, tmp_path: Path) -> None:
    rights = [
        {"resource": "topic", "name": topic, "operations": ["Read", "Describe"]},
        {"resource": "group", "name": "later-", "pattern": "prefixed", "operations": ["Read"]},
    ]
    (tmp_path / "users.yml").write_text(USERS_ALONE)
    added = {"name": "later", "password": ADDED_PASSWORD, "acls": rights}
    (tmp_path / "added.json").write_text(json.dumps({"users_wanted": [{"name": "demo"}, added]}))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, "-i", cluster.INVENTORY, str(tmp_path / "users.yml"), "-vvv", "--diff"]
    done = subprocess.run(
        [*command, "-e", f"@{tmp_path}/added.json"], cwd=ROOT, env=cluster.environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "user later: password: found none" in done.stdout
    assert leaked(done.stdout + done.stderr) == set()
    given = ["-X", "auto.offset.reset=earliest", "-e", "-q"]
    later = read("later", *given, "-G", "later-1", topic, secret=ADDED_PASSWORD)
    assert len(later.stdout.split()) == 100, later.stderr
    others = read("later", *given, "-G", "others", topic, secret=ADDED_PASSWORD)
    assert others.stdout == ""
    assert "authorization failed" in others.stderr.lower()
