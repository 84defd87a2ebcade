"""The console as a process beside a broker with logins and ACLs: who sees what, also while the broker is away."""

import copy
import http.cookiejar
import json
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import confluent_kafka
import pytest
from selenium.webdriver import Chrome

from pylog.audit import load
from pylog.audit.counting import AUDIT_TOPIC
from pylog.audit.render import moment
from pylog.audit.reports import Report
from pylog.broker.settings import ACL_AUTHORIZER
from pylog.client.admin.acls import AclAdmin
from pylog.client.admin.groups import GroupAdmin
from pylog.client.connection import Connection
from pylog.client.message import Message
from pylog.client.producer import Producer
from pylog.console.pages import PAGES
from pylog.model import TopicPartition
from pylog.security.acl import Binding, Entry, Operation, Pattern, PatternType, Permission, ResourceType
from pylog.testing import BrokerProcess
from tests.programs.browser import Screen
from tests.programs.browser import browser as start_browser
from tests.programs.program import Program, json_server, wait_until
from tests.servers.certificates import Authority
from tests.servers.ports import free_ports
from tests.unit.console.ledgers import WINDOW_MS, progress_of_the_mirror, reports

PASSWORDS = {name: f"{name}'s =,ü" for name in ("admin", "alice", "bob", "console")}
READERS = {"alice": (Operation.DESCRIBE, Operation.READ, Operation.DESCRIBE_CONFIGS), "bob": (Operation.DESCRIBE,)}


class Cluster:
    """A broker that asks for logins over TLS and holds users to ACLs; alice may read clicks, bob may see them."""

    def __init__(self, home: Path) -> None:
        self.authority = Authority(home / "certificates")
        self.certificate = self.authority.server()
        [port] = free_ports(1)
        config = home / "broker.yml"
        config.write_text(
            f"version: 1\nbroker_id: 0\ndata_dir: {home}/data\nadmin_socket: {home}/data/admin.sock\n"
            f"listeners:\n  client:\n    host: 127.0.0.1\n    port: {port}\n    security.protocol: SASL_SSL\n"
            f"    ssl.keystore.location: {self.certificate}\nstore:\n  kind: embedded\n"
            # Others fill the machine's disk meanwhile.
            f"config:\n  offsets.topic.replication.factor: 1\n  offsets.topic.num.partitions: 1\n"
            f"  log.disk.alarm.percent: 100\n"
            f"  authorizer.class.name: {ACL_AUTHORIZER}\n  super.users: User:admin;User:console\n"
        )
        (home / "data" / "store").mkdir(parents=True)
        self.password_files = {}
        for name, password in PASSWORDS.items():
            path = self.password_files[name] = home / f"{name}.password"
            path.write_text(f"{password}\n")
            path.chmod(0o600)
            command = ["user", "set", name, f"--config={config}", f"--password-file={path}"]
            subprocess.run([sys.executable, "-m", "pylog", *command], check=True)
        self.broker = BrokerProcess(home, port=port, config_file=config)

    def connection(self) -> Connection:
        """Return how the administrator connects."""
        properties = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
            "ssl.ca.location": str(self.authority.trusted),
        }
        return Connection(bootstrap=self.broker.bootstrap, properties=properties)

    def fill(self) -> None:
        """Make topics, records and ACLs."""
        cluster = self.connection()
        admin = AclAdmin(cluster)
        for topic in ("clicks", "salaries"):
            admin.create_topic(topic, partitions=2)
        with Producer(cluster) as producer:
            for number in range(300):
                producer.send("clicks", Message(b'{"n": %d, "x": "<script>"}' % number, partition=0))
        admin.add(
            [
                Binding(
                    Pattern(ResourceType.TOPIC, PatternType.LITERAL, "clicks"),
                    Entry(f"User:{user}", "*", operation, Permission.ALLOW),
                )
                for user, operations in READERS.items()
                for operation in operations
            ]
        )


@dataclass
class Answer:
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Browser:
    """Keeps cookies, follows redirects and verifies the console's certificate, as browsers do."""

    _sessions: ClassVar[dict[tuple[str, str], http.cookiejar.Cookie]] = {}

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._url = url
        self.context = context
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.HTTPCookieProcessor(self.cookies)
        )

    def become(self, user: str) -> None:
        """Take the session of *user*, who logs in once for all tests: logins from one address are limited."""
        if (kept := self._sessions.get((self._url, user))) is not None:
            self.cookies.set_cookie(kept)
            return
        self.cookies.clear()  # a login ends the session whose cookie it comes with
        assert self.log_in(user, PASSWORDS[user]).status == 200
        [self._sessions[self._url, user]] = self.cookies

    def get(self, path: str) -> Answer:
        return self._open(urllib.request.Request(self._url + path))

    def log_in(self, user: str, password: str) -> Answer:
        found = re.search('name="token" value="([^"]+)"', self.get("/login").text)
        assert found is not None
        form = urllib.parse.urlencode({"user": user, "password": password, "token": found[1], "next": "/"}).encode()
        return self._open(urllib.request.Request(self._url + "/login", form, {"Origin": self._url}))

    def send(self, address: str, **form: str) -> Answer:
        """Send a form with the token of the session."""
        found = re.search('name="token" value="([^"]+)"', self.get("/codes").text)
        assert found is not None
        body = urllib.parse.urlencode({"token": found[1], **form}).encode()
        return self._open(urllib.request.Request(self._url + address, body, {"Origin": self._url}))

    def send_raw(self, address: str, form: dict[str, str], **headers: str) -> Answer:
        """Send any form with any headers; ``_`` of a header's name is ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._open(urllib.request.Request(self._url + address, urllib.parse.urlencode(form).encode(), named))

    def _open(self, request: urllib.request.Request) -> Answer:
        try:
            with self._opener.open(request, timeout=30) as answer:
                return Answer(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    with found.broker:
        found.fill()
        yield found


@pytest.fixture(scope="module")
def prometheus() -> Iterator[str]:
    """What answers as Prometheus does: alerts about things of which few may know."""
    labels = ({"topic": "salaries"}, {"group": "payroll-readers"}, {"connector": "payroll-sink"}, {"topic": "clicks"})
    alerts = [
        {"labels": {"alertname": "PylogTest", **one}, "state": "firing", "annotations": {"summary": str(one)}}
        for one in labels
    ]
    answers = {"/api/v1/alerts": {"data": {"alerts": alerts}}, "/api/v1/query": {"data": {"result": []}}}
    with json_server(answers) as url:
        yield url


@pytest.fixture(scope="module")
def console(cluster: Cluster, prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    [port] = free_ports(1)
    config = {
        "listen": f"0.0.0.0:{port}",
        "bootstrap": cluster.broker.bootstrap,
        "timeout_s": 5,
        "security": {
            "protocol": "SASL_SSL",
            "mechanism": "SCRAM-SHA-256",
            "user": "console",
            "password_file": str(cluster.password_files["console"]),
            "ca_file": str(cluster.authority.trusted),
        },
        "login": "scram",
        "read_payloads": ["alice"],
        "changes": ["reset-offsets", "produce"],
        "changers": ["admin", "bob"],
        "prometheus": prometheus,
        "certificate_file": str(cluster.certificate),
        "key_file": str(cluster.certificate),
    }
    with Program(tmp_path_factory.mktemp("console"), "console", config) as program:
        program.wait_log("event=ready")
        yield f"https://127.0.0.1:{port}"
        assert program.stop() == 0, program.log
        assert "Traceback" not in program.log, program.log


@pytest.fixture
def browser(cluster: Cluster, console: str) -> Browser:
    return Browser(console, ssl.create_default_context(cafile=str(cluster.authority.trusted)))


def test_the_broker_judges_the_password(browser: Browser) -> None:
    assert browser.log_in("alice", "wrong").status == 403
    assert browser.get("/api/").status == 401
    assert browser.log_in("nobody", "x").status == 403
    shown = browser.log_in("alice", PASSWORDS["alice"])
    assert shown.status == 200
    assert "<bdi>alice</bdi>" in shown.text


def test_people_see_what_their_acls_let_them_see(browser: Browser) -> None:
    browser.become("alice")
    assert [row["name"] for row in browser.get("/api/topics").json["topics"]] == ["clicks"]
    assert browser.get("/topics/salaries").status == 404
    assert browser.get("/api/topics/clicks").json["partitions"][0]["end_offset"] == 300
    unknown = browser.get("/api/brokers").json["unknown"]
    assert [("CLUSTER_AUTHORIZATION_FAILED" in row["reason"], row["what"]) for row in unknown] == [
        (True, "disk of broker 0")
    ]


def test_users_and_rules_are_for_those_who_may_describe_the_cluster(browser: Browser) -> None:
    browser.become("bob")
    refused = browser.get("/api/rules").json
    assert (refused["users"], refused["rules"]) == ([], [])
    assert {row["what"] for row in refused["unknown"] if "CLUSTER_AUTHORIZATION_FAILED" in row["reason"]} == {
        "users",
        "rules",
    }
    browser.become("admin")
    shown = browser.get("/api/rules").json
    assert [(row["user"], row["has_rules"]) for row in shown["users"]] == [
        ("admin", False),
        ("alice", True),
        ("bob", True),
        ("console", False),
    ]
    assert ("User:bob", "Describe", "clicks") in {
        (row["principal"], row["operation"], row["name"]) for row in shown["rules"]
    }
    assert shown["unknown"] == []


def test_people_see_the_transactions_that_they_may_describe(browser: Browser, cluster: Cluster) -> None:
    connection = cluster.connection()
    own = {"bootstrap.servers": connection.bootstrap, "transactional.id": "payments", **connection.properties}
    producer = confluent_kafka.Producer(own)
    producer.init_transactions(30.0)
    producer.begin_transaction()
    producer.produce("salaries", b"paid", partition=1)
    producer.flush()
    browser.become("admin")
    [one] = browser.get("/api/transactions").json["transactions"]
    assert (one["transactional_id"], one["state"], one["partition_count"]) == ("payments", "Ongoing", 1)
    described = browser.get("/api/transaction?id=payments").json
    assert described["partitions"] == [{"topic": "salaries", "partition": 1}]
    assert browser.get("/api/transactions/hanging?older_than=0").json["sentence"] == "No transaction hangs."
    browser.become("bob")
    assert browser.get("/api/transactions").json["transactions"] == []
    assert browser.get("/transaction?id=payments").status == 403
    producer.commit_transaction(30.0)


def test_the_console_s_own_rights_are_nobody_s(browser: Browser) -> None:
    browser.become("bob")
    assert [row["name"] for row in browser.get("/api/topics").json["topics"]] == ["clicks"]
    assert browser.get("/topics/clicks/0/records").status == 403
    assert browser.get("/topics/clicks/search?q=n").status == 403
    assert "/records" not in browser.get("/topics/clicks/0").text


def test_records_come_in_pages_and_markup_stays_text(browser: Browser) -> None:
    browser.become("alice")
    answer = browser.get("/api/topics/clicks/0/records")
    assert answer.status == 200, answer.text
    latest = answer.json
    assert [row["offset"] for row in latest["records"]] == list(range(250, 300))
    first = browser.get("/api/topics/clicks/0/records?offset=0").json
    assert (len(first["records"]), first["next_offset"], first["ended_by"]) == (100, 100, "records")
    found = browser.get("/api/topics/clicks/0/records?q=%22n%22%3A+277%2C").json
    assert [row["offset"] for row in found["records"]] == [277]
    assert found["sentence"].startswith("Searched 300 of 300 offsets: 1 record found.")
    assert "<script" not in browser.get("/topics/clicks/0/records").text
    everywhere = browser.get("/api/topics/clicks/search?q=%22n%22%3A+277%2C").json
    assert [(row["partition"], row["offset"]) for row in everywhere["records"]] == [(0, 277)]
    assert everywhere["sentence"] == (
        "Searched 300 of 300 offsets in 2 partitions: 1 record found. That is all of them."
    )
    assert browser.get("/api/topics/clicks/search?q=n&time=2900-01-01").json["records"] == []
    since = browser.get("/api/topics/clicks/0/records?time=2020-01-01").json
    assert since["from_offset"] == 0
    assert browser.get("/api/topics/clicks/0/records?time=2900-01-01").json["records"] == []


def test_completeness_names_the_first_missing_record_of_topics_one_may_see(browser: Browser, cluster: Cluster) -> None:
    browser.become("alice")
    before = browser.get("/api/completeness").json
    assert before["verdict"] == "unknown"
    assert "nobody counts there" in before["unknown"][0]["reason"]
    now_ms = time.time_ns() // 1_000_000
    t0 = now_ms - now_ms % WINDOW_MS - 10 * WINDOW_MS
    load.ensure_topic(cluster.connection(), 1)
    for topic, lost in (("clicks", (107, 108)), ("salaries", (5,))):
        written = reports(topic, lost=lost, t0=t0, until_ms=now_ms + 3_600_000)
        with Producer(cluster.connection()) as producer:
            for report in written:
                value = report.encode() if isinstance(report, Report) else progress_of_the_mirror(report)
                producer.send(AUDIT_TOPIC, value, partition=0)
    wait_until(lambda: browser.get("/api/completeness").json["topics"], "the counts are read")
    page = browser.get("/api/completeness").json
    window = moment(t0 + WINDOW_MS)
    assert [row["topic"] for row in page["topics"]] == ["clicks"]
    assert page["sentence"] == (
        f"Not complete: 2 records are lost or altered. The first: topic clicks, window {window}, "
        "record 107 of producer p1 on web1, is not at mirror."
    )
    assert browser.get("/completeness/salaries").status == 404
    assert browser.get(f"/completeness/salaries/{window}").status == 404
    # Each span of time is read on its own, for three seconds a look.
    address = f"/completeness/clicks/{window}"
    wait_until(lambda: browser.get(f"/api{address}").json["judged_ms"], "the counts of the window are read")
    one = browser.get(f"/api{address}").json
    assert one["producers"][0]["counts"][2] == {"arrived": 98, "copies": 3, "missing": 2, "ranges": [[107, 108]]}
    assert "lacks 2: 107–108" in browser.get(address).text
    hour = "/api/completeness/clicks?" + urllib.parse.urlencode({"from": moment(t0), "hours": 1})
    wait_until(lambda: browser.get(hour).json["judged_ms"], "the counts of the hour are read")
    assert browser.get(hour).json["finding_count"] == 6
    wait_until(lambda: browser.get("/api/").json["completeness"]["verdict"] == "incomplete", "the overview knows")


def test_changes_are_made_with_the_person_s_rights_and_written_down(browser: Browser, cluster: Cluster) -> None:
    GroupAdmin(cluster.connection()).commit("readers", {TopicPartition("salaries", 0): 0})
    browser.become("admin")
    written = browser.send("/topics/salaries/produce", key="k", value="a secret", partition="0", confirm="salaries")
    assert written.status == 200, written.text
    assert "salaries:0" in written.text
    rehearsed = browser.get("/api/group/reset?id=readers&to=latest").json
    assert [(row["committed_offset"], row["new_offset"]) for row in rehearsed["partitions"]] == [(0, 1)]
    assert GroupAdmin(cluster.connection()).committed("readers") == {TopicPartition("salaries", 0): 0}
    moved = browser.send("/group/reset", id="readers", to="latest", confirm="readers")
    assert moved.status == 200, moved.text
    assert GroupAdmin(cluster.connection()).committed("readers") == {TopicPartition("salaries", 0): 1}
    lines = browser.get("/api/changes").json["changes"]
    assert [(row["state"], row["verb"], row["subject"], row["user"]) for row in lines] == [
        ("done", "reset-offsets", "readers", "admin"),
        ("begun", "reset-offsets", "readers", "admin"),
        ("done", "produce", "salaries", "admin"),
        ("begun", "produce", "salaries", "admin"),
    ]
    assert "a secret" not in str(lines)
    # bob may make changes here, and the brokers' ACLs still do not let him write to clicks.
    browser.become("bob")
    refused = browser.send("/topics/clicks/produce", value="x", confirm="clicks")
    assert (refused.status, "TOPIC_AUTHORIZATION_FAILED" in refused.text) == (403, True)
    assert browser.get("/api/changes").json["changes"] == []
    browser.become("admin")
    wait_until(
        lambda: [row["state"] for row in browser.get("/api/changes").json["changes"]][:2] == ["failed", "begun"],
        "the line is read",
    )


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with start_browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def test_a_person_logs_in_writes_a_record_and_moves_a_group(driver: Chrome, console: str, cluster: Cluster) -> None:
    GroupAdmin(cluster.connection()).commit("walkers", {TopicPartition("salaries", 1): 0})
    screen = Screen(driver, console)

    def arrived(path: str) -> None:
        wait_until(lambda: screen.path == path, lambda: f"{path}, not {screen.path}: {screen.text}")
        assert screen.violations() == []
        screen.emulate(prefers_color_scheme="dark")
        assert screen.violations("color-contrast") == []
        screen.emulate()

    screen.open("/topics/salaries/produce")
    arrived("/login?next=%2Ftopics%2Fsalaries%2Fproduce")
    screen.fill("User of the cluster", "admin").fill("Password", "wrong").send("Password")
    wait_until(lambda: screen.verdict == "Name or password is wrong.", lambda: screen.text)
    arrived("/login")
    screen.fill("User of the cluster", "admin").fill("Password", PASSWORDS["admin"]).send("Password")
    arrived("/topics/salaries/produce")
    screen.fill("Value", "<b>typed</b>").fill("Type the topic's name to produce", "salaries")
    screen.send("Type the topic's name to produce")
    wait_until(lambda: screen.heading == "Produced to salaries", lambda: screen.text)
    arrived("/topics/salaries/produce")
    [[place, _]] = screen.rows("What was done")
    assert place.startswith("salaries:")
    screen.open("/groups").follow("walkers")
    arrived("/group?id=walkers")
    screen.follow("Move it to other offsets").fill("Go on at", "latest").send("Go on at")
    arrived("/group/reset?id=walkers&to=latest")
    assert screen.verdict.startswith("It would read 0 offsets again, and skip ")
    screen.fill("Type the group's name to move it", "walkers").send("Type the group's name to move it")
    wait_until(lambda: screen.heading == "Moved group walkers", lambda: screen.text)
    arrived("/group/reset")
    screen.follow("Changes")
    arrived("/changes")
    wait_until(lambda: screen.reload().rows("Changes made")[0][4:6] == ["walkers", "done"], lambda: screen.text)
    screen.open("/rules")
    arrived("/rules")
    assert "admin" in screen.text
    assert [one for one in screen.complaints() if "status of 403" not in one] == []


def test_who_may_see_little_learns_nothing_else(browser: Browser, cluster: Cluster) -> None:
    """bob may see clicks; every page is asked, and every name that is not his to know is looked for."""
    admin = cluster.connection()
    secrets = ("salaries", "payroll-readers", "payments", "payroll-sink", "payroll-site", "alice", "walkers", "<script")
    if "pylog.offsets.payroll-site" not in AclAdmin(admin).cluster().topics:
        AclAdmin(admin).create_topic("pylog.offsets.payroll-site", partitions=1)
    GroupAdmin(admin).commit("payroll-readers", {TopicPartition("salaries", 0): 0})
    paths = [
        path.replace("{topic}", "clicks").replace("{partition}", "0").replace("{window}", "2030-01-01T00:01:00Z")
        .replace("{alert}", "PylogBrokerDown")
        for path, _ in PAGES
    ]  # fmt: skip
    # What is looked for is there for those who may see it.
    browser.become("admin")
    wait_until(lambda: "payroll-site" in browser.get("/api/mirror").text, "the mirror is known")
    wait_until(lambda: "payroll-readers" in browser.get("/api/groups").text, "the group is known")
    assert "payroll-sink" in browser.get("/api/alerts").text
    browser.become("bob")
    statuses = {}
    for path in paths:
        answer = browser.get(f"/api{path}")
        statuses[path] = answer.status
        assert [one for one in secrets if one in answer.text] == [], path
        assert [one for one in secrets[:-1] if one in browser.get(path).text] == [], path
    # Payloads, queries that run on, and what names no group or id.
    refused = {"/topics/clicks/search", "/topics/clicks/tail", "/topics/clicks/0/records", "/streams"}
    assert {path for path, status in statuses.items() if status == 403} == refused
    assert {path for path, status in statuses.items() if status not in (200, 403)} == {
        "/group",
        "/group/reset",
        "/transaction",
    }
    assert [row["labels"] for row in browser.get("/api/alerts").json["alerts"]] == [{"topic": "clicks"}]
    assert browser.get("/api/alerts").json["sentence"].endswith("3 more are about what you may not see.")
    for path in ("/topics/salaries", "/topics/salaries/0/records", "/completeness/salaries", "/topics/salaries/tail"):
        assert browser.get(f"/api{path}").status in (403, 404), path
    for path in ("/group?id=payroll-readers", "/group/reset?id=payroll-readers&to=latest", "/transaction?id=payments"):
        assert browser.get(f"/api{path}").status in (403, 404), path


def test_who_may_read_cannot_keep_others_from_reading(browser: Browser) -> None:
    browser.become("alice")
    statuses = [browser.get(f"/topics/clicks/tail?follow={number}").status for number in range(4)]
    assert statuses == [200, 200, 503, 503]
    assert browser.get("/api/topics/clicks/search?q=n").status == 200


def test_sessions_and_forms_cannot_be_made_up(browser: Browser, console: str) -> None:
    browser.become("bob")
    [cookie] = browser.cookies
    token = re.search('name="token" value="([^"]+)"', browser.get("/codes").text)
    assert token is not None
    form = {"token": token[1], "id": "readers", "to": "latest", "confirm": "readers"}
    assert cookie.value is not None
    for headers in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "https://["}):
        assert browser.send_raw("/group/reset", form, **headers).status == 403, headers
    assert browser.send_raw("/group/reset", form, Origin=console, Sec_Fetch_Site="cross-site").status == 403
    assert browser.send_raw("/group/reset", form | {"token": "x" * 43}, Origin=console).status == 403
    assert browser.send_raw("/group/reset", form, Origin=console).status in (403, 404)
    number, _, signature = cookie.value.partition(".")
    for value in ("", "x", f"{number}.", f".{signature}", f"{number}.{signature[::-1]}", f"{signature}.{number}"):
        stranger = Browser(console, browser.context)
        stranger.cookies.set_cookie(copy.copy(cookie))
        for one in stranger.cookies:
            one.value = value
        assert stranger.get("/api/").status == 401, value
    assert browser.get("/api/").status == 200
    out = browser.send_raw("/logout", {"token": token[1]}, Origin=console)
    assert out.status == 200
    stolen = Browser(console, browser.context)
    stolen.cookies.set_cookie(cookie)
    assert stolen.get("/api/").status == 401
    Browser._sessions.clear()


def test_a_stopped_broker_is_said_and_nothing_hangs(browser: Browser, cluster: Cluster) -> None:
    browser.become("admin")
    # On a busy machine the first answer of the brokers may come after the page has given up waiting for it.
    wait_until(lambda: browser.get("/api/").json.get("verdict") == "healthy", "the page knows the cluster")
    cluster.broker.stop()
    try:
        wait_until(lambda: browser.get("/api/").json["verdict"] == "unknown", "the page notices")
        shown = browser.get("/")
        assert shown.status == 200
        assert "Not known at the moment" in shown.text
        assert "The last complete answer was: Healthy" in shown.text
        assert "clicks" in [row["name"] for row in browser.get("/api/topics").json["topics"]]
        other = Browser(browser._url, ssl.create_default_context(cafile=str(cluster.authority.trusted)))
        assert other.log_in("bob", PASSWORDS["bob"]).status == 503
    finally:
        cluster.broker.start()
    wait_until(lambda: browser.get("/api/").json["verdict"] == "healthy", "the page notices again")


def test_it_does_not_listen_for_everybody_without_a_login(cluster: Cluster, tmp_path: Path) -> None:
    with Program(tmp_path, "console", {"listen": "0.0.0.0:0", "bootstrap": cluster.broker.bootstrap}) as program:
        assert program.wait() != 0
        assert "without login everybody who reaches it sees the cluster" in program.log
        assert "Traceback" not in program.log, program.log
