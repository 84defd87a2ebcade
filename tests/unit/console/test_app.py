"""The console over HTTP without a cluster: escaping, headers, accessibility, logins, forged forms, foreign names."""

import html
import http.server
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from pylog.audit.judge import Judgement
from pylog.audit.reports import Tier
from pylog.client.admin.cluster import ClusterView, OffsetRange, PartitionView, TopicView
from pylog.client.admin.configs import Setting
from pylog.client.admin.disks import BrokerDisks, LogDir, ReplicaSize
from pylog.client.admin.groups import GroupListing, GroupView, MemberView, Progress
from pylog.client.admin.lag import Status
from pylog.client.admin.reassignment import Reassignment
from pylog.client.admin.transactions import OpenTransaction, TransactionView
from pylog.client.admin.users import UserView
from pylog.client.commits import Verdict
from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord
from pylog.console.app import ATTEMPTS_OF_ADDRESS, ATTEMPTS_OF_USER, HEADERS, LOGIN_MS, Console
from pylog.console.changes import Target
from pylog.console.config import ConsoleConfig
from pylog.console.counts import Counts, Look, Producers
from pylog.console.pages import PAGES, VISIBLE_MS, parse_time
from pylog.console.pipeline import CommitFacts, LakeFacts, MirrorFacts, Pipeline
from pylog.console.readings import Reading
from pylog.console.records import SEARCH, Budget, Found, Hide
from pylog.console.sessions import IDLE_S
from pylog.console.sources import ClusterSource, Lags
from pylog.console.tails import EVERY_S, MAX_TAILS
from pylog.errors import ApiError, ConfigError, ErrorCode, Unreachable
from pylog.ingest.lake import File, Kind, State
from pylog.ingest.plan import Position
from pylog.ingest.status import Status as LoadStatus
from pylog.ingest.status import Stop
from pylog.model import NodeAddress, TopicPartition
from pylog.probe.lag import LagReport
from pylog.probe.reader import Latest
from pylog.security.acl import Binding, Entry, Operation, Pattern, PatternType, Permission, ResourceType
from tests.unit.console.ledgers import WINDOW_MS, ledger_of, look_of, reports
from tests.unit.test_commands import refusal

EVIL = "\"><script>alert('1')<img src=x onerror=alert(1)>{{7*7}}&lt;"
PLACE = TopicPartition(EVIL, 0)
THREADS = 40
"""That Starlette has for functions which may wait."""
SECURED = Connection(
    bootstrap="127.0.0.1:1",
    properties={
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "console",
        "sasl.password": "own",
    },
)


def known(value: Any) -> Reading[Any]:
    return Reading(value, 1_000, "", None, 1_000)


class Planted(ClusterSource):
    """A cluster all of whose names and payloads are markup, and whose last look failed."""

    def view(self) -> Reading[ClusterView]:
        topic = TopicView(EVIL, (PartitionView(0, 1, (1, 2), (1,)),))
        brokers = (NodeAddress(1, EVIL, 9092), NodeAddress(2, EVIL, 9092))
        return known(ClusterView(EVIL, 1, brokers, {EVIL: topic})).failed(EVIL, 2_000)

    def answering(self) -> Reading[set[int]]:
        return known({1})

    def disks(self) -> Reading[dict[int, BrokerDisks]]:
        one = LogDir(EVIL, 100, 1, {PLACE: ReplicaSize(5, 0)})
        return known({1: BrokerDisks((one,)), 2: BrokerDisks(error=Unreachable(EVIL))})

    def moves(self) -> Reading[dict[TopicPartition, Reassignment]]:
        return known(
            {PLACE: Reassignment((1, 2), (2,), (1,)), TopicPartition("hidden", 0): Reassignment((1,), (1,), ())}
        )

    def settings(self, topic: str) -> Reading[list[Setting]]:
        return known([Setting(EVIL, EVIL, "topic", False), Setting("s", None, "default", False)])

    def offsets(self, topic: TopicView) -> Reading[dict[TopicPartition, OffsetRange]]:
        return known({PLACE: OffsetRange(0, 3)})

    def groups(self) -> Reading[list[GroupListing]]:
        return known([GroupListing(EVIL, "Stable")])

    def group(self, group_id: str) -> tuple[GroupView, Reading[dict[TopicPartition, Progress]]]:
        if group_id != EVIL:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        member = MemberView(EVIL, EVIL, EVIL, EVIL, (PLACE,))
        view = GroupView(EVIL, "Stable", EVIL, None, (member,))
        return view, known({PLACE: Progress(1, OffsetRange(0, 3))})

    def transactions(self) -> Reading[list[TransactionView]]:
        return known([TransactionView(EVIL, 1, 7, 0, "Ongoing", 60_000, 1_000, (PLACE,))])

    def transaction(self, transactional_id: str) -> TransactionView:
        if transactional_id != EVIL:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!r} is not known")
        return (self.transactions().value or [])[0]

    def hanging(self, older_than_ms: int) -> Reading[list[OpenTransaction]]:
        return known([OpenTransaction(PLACE, 7, 0, -1, 2, 1_000, EVIL)])

    def users(self) -> Reading[list[UserView]]:
        return known([UserView(EVIL, {"SCRAM-SHA-256": 4_096})])

    def rehearse(
        self, group_id: str, target: Target | None
    ) -> tuple[str, dict[TopicPartition, int], dict[TopicPartition, int]]:
        if group_id != EVIL:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        return "Empty", {PLACE: 1}, {} if target is None else {PLACE: 0}

    def topic_id(self, topic: str) -> Reading[str]:
        return known("id-1")

    def rules(self) -> Reading[list[Binding]]:
        pattern = Pattern(ResourceType.TOPIC, PatternType.LITERAL, EVIL)
        return known([Binding(pattern, Entry(f"User:{EVIL}", "*", Operation.READ, Permission.ALLOW))])

    def verdicts(self, group_id: str, progress: Any) -> Reading[dict[TopicPartition, Verdict]]:
        return known({PLACE: Verdict(Status.STOP, 5)})

    def offsets_at(self, places: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 1)

    def read(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        needle: bytes,
        budget: Budget = SEARCH,
        hide: Hide | None = None,
    ) -> Found:
        text = EVIL.encode()
        one = ConsumedRecord(
            EVIL, 0, 0, 1, needle or text, b'{"a": ' + json.dumps(EVIL).encode() + b"}", [(EVIL, text)]
        )
        if needle:
            return Found({0: 1}, [replace(one, value=text, headers=[])], 1, 10, "bytes")
        return Found({0: 1}, [one, replace(one, offset=1, value=text)], 2, 10, "records")


@dataclass
class Clock:
    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Brokers:
    """Judges logins as brokers do, and counts them."""

    passwords: dict[str, str] = field(default_factory=lambda: {"alice": "wonder", EVIL: "x"})
    judged: int = 0
    is_away: bool = False

    def __call__(self, cluster: Connection, mechanism: str, user: str, password: str) -> Connection:
        self.judged += 1
        if self.is_away:
            raise Unreachable("no broker answers")
        if self.passwords.get(user) != password:
            raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, "invalid credentials")
        return replace(cluster, properties={**cluster.properties, "sasl.username": user, "sasl.password": password})


LAGS = Lags(SimpleNamespace(latest=Latest(failure=EVIL, failed_ms=5)))  # type: ignore[arg-type]


class PlantedCounts(Counts):
    """Counts of a topic and a producer whose names are markup, with a loss; one of two clusters is away."""

    def __init__(self) -> None:
        super().__init__((Connection(bootstrap="127.0.0.1:1"),), WINDOW_MS)
        self._ledger = ledger_of(*reports(EVIL, EVIL, EVIL))

    def look(self, from_ms: int | None, to_ms: int | None) -> Look:
        readings = {"127.0.0.1:1": known(1), EVIL: Reading().failed(EVIL, 2_000)}
        complete_ms = {EVIL: {Tier.MIRROR: 5, Tier.LAKE: 5}}
        producers = Producers(self._ledger, threading.Lock())
        return replace(look_of(self._ledger, readings), producers=producers, complete_ms=complete_ms)

    def latest(self) -> Look:
        return self.look(None, None)

    def confirmed(self, judgement: Judgement) -> Judgement:
        return judgement


class PlantedPipeline(Pipeline):
    """A mirror and a lake all of whose names are markup."""

    def __init__(self) -> None:
        super().__init__((), Path(EVIL), lambda: 0)

    def mirrors(self) -> dict[str, Reading[list[MirrorFacts]]]:
        return {EVIL: known([MirrorFacts(EVIL, 3)]).failed(EVIL, 2_000)}

    def lake(self) -> Reading[LakeFacts]:
        position = Position({PLACE: 3}, {EVIL: "id-1"})
        file = File(f"topic={EVIL}/x.parquet", 3, 10)
        body = {"number": 1, "kind": "load", "files": [asdict(file)], "dead_letters": [], "replaces": [],
                "position": position.to_json()}  # fmt: skip
        state = State(1, {Kind.LOAD: 1}, position, {file.path: file}, {file.path: file})
        status = LoadStatus(at_ms=5, stopped={EVIL: Stop(EVIL, EVIL, 5)})
        return known(LakeFacts(EVIL, state, status, [CommitFacts(5, body)])).failed(EVIL, 2_000)


class Prometheus(http.server.BaseHTTPRequestHandler):
    """Answers with an alert and a sample whose words are markup."""

    def do_GET(self) -> None:
        if self.path.startswith("/api/v1/query?"):
            sample = {"metric": {"__name__": "pylog_stream_batch", "query": EVIL, "api": EVIL, "broker": "1"},
                      "value": [1_000, "1"]}  # fmt: skip
            self._answer({"result": [sample]})
            return
        assert self.path == "/api/v1/alerts"
        alert = {
            "labels": {"alertname": EVIL, "severity": "critical", EVIL: EVIL},
            "annotations": {"summary": EVIL},
            "state": "firing",
            "activeAt": "2030-01-01T00:00:00.123456789Z",
            "value": "1e+00",
        }
        known = alert | {"labels": {"alertname": "PylogBrokerDown", "host": EVIL}}
        self._answer({"alerts": [alert, known]})

    def _answer(self, data: Mapping[str, object]) -> None:
        body = json.dumps({"status": "success", "data": data}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def prometheus() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Prometheus) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def client_of(config: ConsoleConfig, clock: Clock | None = None, brokers: Brokers | None = None) -> TestClient:
    judge = brokers or Brokers()
    console = Console(config, LAGS, PlantedCounts(), None, clock or Clock(), Planted, judge, PlantedPipeline())
    scheme = "https" if config.is_encrypted else "http"
    return TestClient(console.app(), base_url=f"{scheme}://localhost:8085", follow_redirects=False)


@pytest.fixture
def open_client(prometheus: str) -> Iterator[TestClient]:
    cluster = Connection(bootstrap="127.0.0.1:1")
    with client_of(ConsoleConfig(cluster=cluster, read_payloads=("*",), prometheus=prometheus)) as client:
        yield client


@pytest.fixture
def locked() -> Iterator[TestClient]:
    with client_of(ConsoleConfig(cluster=SECURED, has_login=True)) as client:
        yield client


class Html(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def addresses() -> list[str]:
    name = re.sub("[^A-Za-z0-9]", lambda found: f"%{ord(found[0]):02X}", EVIL)
    return [
        path.replace("{topic}", name)
        .replace("{partition}", "0")
        .replace("{window}", "2030-01-01T00:01:00Z")
        .replace("{alert}", "PylogBrokerDown")
        + (f"?id={name}" if path in ("/group", "/group/reset", "/transaction") else "")
        for path, _ in PAGES
    ]


def records_address() -> str:
    [found] = [one for one in addresses() if one.endswith("/records")]
    return found


def partition_address() -> str:
    return records_address().removesuffix("/records")


@pytest.mark.parametrize("address", addresses())
def test_names_and_payloads_stay_text(open_client: TestClient, address: str) -> None:
    answer = open_client.get(address)
    assert answer.status_code == 200, answer.text
    page = Html(answer.text)
    assert not page.of("script")
    assert not page.of("img")
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
    if address != "/codes":
        assert EVIL in page.text or EVIL.replace("'", "\\'") in page.text


@pytest.mark.parametrize("address", addresses())
def test_each_page_can_be_read_and_walked_without_seeing_it(open_client: TestClient, address: str) -> None:
    page = Html(open_client.get(address).text)
    tags = [tag for tag, _ in page.tags]
    assert page.of("html")[0]["lang"] == "en"
    assert [tags.count(tag) for tag in ("h1", "main", "header", "footer")] == [1] * 4
    assert tags.index("title") < tags.index("body")
    assert page.of("a")[0]["href"] == "#main"
    assert tags.count("caption") == tags.count("table")
    assert all(one["scope"] in ("col", "row") for one in page.of("th"))
    labels = {one["for"] for one in page.of("label")}
    assert {one["id"] for one in page.of("input") if one.get("type") != "hidden"} <= labels
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(one.get("aria-label") for one in page.of("nav"))


def test_each_link_leads_to_a_page(open_client: TestClient) -> None:
    seen: set[str] = set()
    left = ["/"]
    while left:
        address = left.pop()
        answer = open_client.get(address)
        assert answer.status_code == 200, address
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        page = Html(answer.text)
        found = [one["href"] or "" for one in page.of("a") + page.of("link") if (one["href"] or "").startswith("/")]
        left += [
            one for one in set(found) - seen if "offset=" not in one and "go_on=" not in one and "follow=" not in one
        ]
        seen |= set(found)
    assert {"/topics", "/brokers", "/codes", "/groups"} <= seen
    assert any("/records" in one for one in seen)


@pytest.mark.parametrize("address", addresses())
def test_each_page_has_a_twin_in_json(open_client: TestClient, address: str) -> None:
    answer = open_client.get("/api" + address)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert "unknown" in answer.json()


@pytest.mark.parametrize("address", ["/", "/api/", "/nowhere", "/static/console.css", "/static/nothing", "/topics/no"])
def test_every_answer_has_the_headers(open_client: TestClient, address: str) -> None:
    answer = open_client.get(address)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "script-src" not in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == (
        "public, max-age=31536000, immutable" if address.endswith(".css") else "no-store"
    )


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8085", "localhost.evil.example", "", "[::1", "127.0.0.2"]
)
def test_a_name_that_is_not_ours_is_refused(open_client: TestClient, host: str) -> None:
    answer = open_client.get("/api/", headers={"host": host})
    assert answer.status_code == 421
    assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "[::1]:8085", "LOCALHOST:1"])
def test_loopback_is_ours_under_any_port(open_client: TestClient, host: str) -> None:
    assert open_client.get("/api/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/topics/nope", 404, "does not exist"),
        ("/group?id=nope", 404, "does not exist"),
        ("/group", 404, "names the group"),
        ("/group/reset?id=nope", 404, "does not exist"),
        ("/group/reset?id=x&to=yesterday", 400, "to must be earliest, latest, an offset, or a time"),
        ("/transaction?id=nope", 404, "is not known"),
        ("/transaction", 404, "names the transactional id"),
        ("/transactions/hanging?older_than=9999999999", 400, "older_than must be from 0 to"),
        (partition_address().replace("/0", "/9"), 404, "has no partition 9"),
        (partition_address().replace("/0", "/x"), 400, "partition must be a whole number"),
        (records_address() + "?offset=99999999999999999999", 400, "offset must be a whole number"),
        (partition_address().removesuffix("/0") + "/tail?seen=x", 400, "seen must be like"),
        (records_address() + "?offset=1&time=2030-01-01", 400, "give one of them"),
        (records_address() + "?time=yesterday", 400, "time must be like"),
        ("/completeness?from=yesterday", 400, "time must be like"),
        ("/completeness?from=2030-01-01&hours=7", 400, "hours must be from 1 to 6"),
        ("/completeness/x/yesterday", 400, "time must be like"),
        ("/alerts/PylogNothing", 404, "there is no alert"),
        ("/topics?page=%C2%B2", 400, "page must be a whole number"),
        ("/topics?q=" + "x" * 201, 400, "at most 200 characters"),
    ],
)
def test_bad_input_has_a_clear_answer(open_client: TestClient, address: str, status: int, words: str) -> None:
    answer = open_client.get(address)
    assert (answer.status_code, words in Html(answer.text).text) == (status, True), answer.text
    twin = open_client.get("/api" + address)
    assert (twin.status_code, words in twin.json()["error"]) == (status, True)


def test_a_search_goes_on_where_it_stopped(open_client: TestClient) -> None:
    address = partition_address().removesuffix("/0") + "/search"
    page = Html(open_client.get(address, params={"q": "<b>"}).text)
    assert "Searched 1 of 3 offsets in 1 partition: 1 record found. It stopped because it had read" in page.text
    [further] = [one["href"] for one in page.of("a") if one.get("rel") == "next"]
    assert further is not None
    assert "go_on=0%3A1" in further
    assert "-e | grep -F -e &#39;&lt;b&gt;&#39;</code>" in open_client.get(address, params={"q": "<b>"}).text
    twin = open_client.get("/api" + further).json()
    assert (twin["total_offsets"], twin["next"]) == (2, "0:1")
    for wrong in ("x", "0:", "0:1,", "1:1;2", "0:" + "9" * 19):
        answer = open_client.get("/api" + address, params={"q": "a", "go_on": wrong})
        assert (answer.status_code, "go_on must be like" in answer.json()["error"]) == (400, True), wrong


def test_a_tail_is_followed_only_by_who_asked_for_it_and_stops_by_itself(open_client: TestClient) -> None:
    address = partition_address().removesuffix("/0") + "/tail"
    page = open_client.get(address)
    assert "refresh" not in page.headers
    [follow] = [one["href"] or "" for one in Html(page.text).of("a") if "follow=" in (one["href"] or "")]
    looked = open_client.get(follow)
    seconds, _, after = looked.headers["refresh"].partition("; url=")
    assert seconds == str(EVERY_S)
    assert after.isascii()
    assert open_client.get(after).status_code == 200
    assert "refresh" not in open_client.get(address).headers


def test_only_so_many_tails_are_followed_at_once(open_client: TestClient) -> None:
    address = partition_address().removesuffix("/0") + "/tail?follow="
    assert [open_client.get(f"{address}{number}").status_code for number in range(MAX_TAILS)] == [200] * MAX_TAILS
    refused = open_client.get(f"{address}more")
    assert refused.status_code == 503
    assert "8 tails are being followed" in refused.text
    assert open_client.get(f"{address}0").status_code == 200


def test_a_tail_needs_the_right_to_payloads() -> None:
    with client_of(ConsoleConfig(cluster=Connection(bootstrap="127.0.0.1:1"))) as client:
        assert client.get(partition_address().removesuffix("/0") + "/tail").status_code == 403


def test_a_search_needs_the_right_to_payloads() -> None:
    with client_of(ConsoleConfig(cluster=Connection(bootstrap="127.0.0.1:1"))) as client:
        address = partition_address().removesuffix("/0")
        assert client.get(address + "/search?q=a").status_code == 403
        assert "/search" not in client.get(address).text


def test_partitions_on_the_move_are_shown_to_who_may_see_their_topic(open_client: TestClient) -> None:
    page = open_client.get("/api/changes").json()
    assert page["move_count"] == 1
    assert page["moves"] == [
        {"topic": EVIL, "partition": 0, "target": [2], "removing": [1], "size_bytes": 5,
         "adding": [{"broker": 2, "size_bytes": None}]}
    ]  # fmt: skip
    assert "Reassignments under way" in open_client.get("/changes").text


def test_a_prometheus_that_is_away_is_no_quiet_cluster() -> None:
    cluster = Connection(bootstrap="127.0.0.1:1")
    with client_of(ConsoleConfig(cluster=cluster, prometheus="http://127.0.0.1:1")) as client:
        page = client.get("/api/alerts").json()
        assert page["verdict"] == "unknown"
        assert "Prometheus at http://127.0.0.1:1 does not answer" in page["sentence"]
        assert page["unknown"][0]["since_ms"] > 0
        assert client.get("/alerts/PylogBrokerDown").status_code == 200
    with client_of(ConsoleConfig(cluster=cluster)) as client:
        assert "names no Prometheus" in client.get("/api/alerts").json()["sentence"]


def test_commands_of_a_runbook_are_shown_as_commands(open_client: TestClient) -> None:
    text = open_client.get("/alerts/PylogBrokerDown").text
    assert "<code>fab status</code>" in text
    assert "`" not in text


def test_payloads_need_a_right_of_their_own() -> None:
    with client_of(ConsoleConfig(cluster=Connection(bootstrap="127.0.0.1:1"))) as client:
        assert client.get(records_address()).status_code == 403
        assert client.get("/api" + records_address()).status_code == 403
        assert "/records" not in client.get(partition_address()).text


def log_in(client: TestClient, user: str = "alice", password: str = "wonder", **headers: str) -> Any:
    [token] = [one["value"] for one in Html(client.get("/login").text).of("input") if one.get("name") == "token"]
    return client.post(
        "/login",
        data={"user": user, "password": password, "token": token, "next": "/topics"},
        headers={"origin": str(client.base_url), **headers},
    )


def test_nothing_is_shown_before_the_login(locked: TestClient) -> None:
    for address in addresses():
        answer = locked.get(address)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=%2F")
        assert locked.get("/api" + address).status_code == 401


def test_a_login_leads_to_the_page_and_a_logout_ends_it(locked: TestClient) -> None:
    answer = log_in(locked)
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics")
    page = Html(locked.get("/topics").text)
    assert "Logged in as alice" in " ".join(page.text.split())
    [token] = [one["value"] for one in page.of("input") if one.get("name") == "token"]
    cookies = dict(locked.cookies)
    out = locked.post("/logout", data={"token": token}, headers={"origin": str(locked.base_url)})
    assert out.status_code == 303
    locked.cookies.update(cookies)
    assert locked.get("/topics").status_code == 303


def test_a_name_that_is_markup_logs_in_as_text(locked: TestClient) -> None:
    assert log_in(locked, EVIL, "x").status_code == 303
    page = Html(locked.get("/").text)
    assert not page.of("script")
    assert EVIL in page.text


def test_the_cookie_of_a_session_is_strict_and_new(locked: TestClient) -> None:
    locked.get("/login")
    before = locked.cookies["pylog"]
    answer = log_in(locked)
    flags = {one.strip().lower() for one in answer.headers["set-cookie"].split(";")[1:]}
    assert flags == {"httponly", "path=/", "samesite=strict"}
    assert locked.cookies["pylog"] != before


def test_behind_https_the_cookie_belongs_to_this_host_alone() -> None:
    with client_of(ConsoleConfig(cluster=SECURED, has_login=True, public_url="https://localhost:8085")) as client:
        answer = log_in(client)
        assert answer.headers["set-cookie"].startswith("__Host-pylog=")
        assert "; Secure" in answer.headers["set-cookie"]


def test_a_wrong_password_is_refused_with_one_sentence(locked: TestClient) -> None:
    wrong, stranger = log_in(locked, password="no"), log_in(locked, user="nobody")
    assert (wrong.status_code, stranger.status_code) == (403, 403)
    assert "Name or password is wrong." in wrong.text
    assert "Name or password is wrong." in stranger.text
    assert [one["value"] for one in Html(wrong.text).of("input") if one.get("name") == "next"] == ["/topics"]
    assert locked.get("/").status_code == 303


def test_attempts_are_limited_and_brokers_are_not_asked_any_more() -> None:
    clock, brokers = Clock(), Brokers()
    with client_of(ConsoleConfig(cluster=SECURED, has_login=True), clock, brokers) as client:
        for _ in range(ATTEMPTS_OF_USER):
            assert log_in(client, password="no").status_code == 403
        assert log_in(client).status_code == 429
        assert brokers.judged == ATTEMPTS_OF_USER
        for number in range(ATTEMPTS_OF_ADDRESS):
            log_in(client, user=f"user {number}")
        assert brokers.judged < ATTEMPTS_OF_ADDRESS
        clock.now_s += 60
        assert log_in(client).status_code == 303


def test_brokers_that_are_away_are_no_wrong_password() -> None:
    with client_of(ConsoleConfig(cluster=SECURED, has_login=True), None, Brokers(is_away=True)) as client:
        answer = log_in(client)
        assert answer.status_code == 503
        assert "No broker could be asked" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:9999"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_form_of_another_site_is_refused(locked: TestClient, headers: dict[str, str]) -> None:
    assert log_in(locked, **headers).status_code == 403
    assert locked.get("/").status_code == 303


def test_a_proxy_may_ask_by_another_name_than_browsers() -> None:
    with client_of(ConsoleConfig(cluster=SECURED, has_login=True, public_url="https://console.example/")) as client:
        assert log_in(client, origin="https://console.example").status_code == 303
        assert log_in(client, origin="https://console.example.evil").status_code == 403
        assert log_in(client, origin="http://console.example").status_code == 403


def test_a_form_needs_the_token_of_its_cookie(locked: TestClient) -> None:
    [token] = [one["value"] for one in Html(locked.get("/login").text).of("input") if one.get("name") == "token"]
    form = {"user": "alice", "password": "wonder", "next": "/"}
    origin = {"origin": str(locked.base_url)}
    assert locked.post("/login", data=form, headers=origin).status_code == 403
    locked.cookies.clear()
    assert locked.post("/login", data=form | {"token": token or ""}, headers=origin).status_code == 403


def test_a_page_of_another_site_has_nothing_read(open_client: TestClient) -> None:
    for site in ("cross-site", "same-site"):
        for mode, kind, status in (
            ("no-cors", "image", 403),
            ("navigate", "iframe", 403),
            ("cors", "empty", 403),
            ("navigate", "document", 200),
        ):
            headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": kind}
            assert open_client.get(records_address(), headers=headers).status_code == status
    assert open_client.get("/", headers={"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}).status_code == 200


def test_pages_that_wait_keep_nobody_from_the_login_form() -> None:
    is_over = threading.Event()
    waiting = threading.Semaphore(0)
    was_over: list[bool] = []

    class Silent(Planted):
        def view(self) -> Reading[ClusterView]:
            waiting.release()
            was_over.append(is_over.wait(60.0))
            return super().view()

    config = ConsoleConfig(cluster=SECURED, has_login=True)
    console = Console(config, LAGS, PlantedCounts(), None, Clock(), Silent, Brokers(), PlantedPipeline())
    with TestClient(console.app(), base_url="http://localhost", follow_redirects=False) as client:
        log_in(client)
        readers = [threading.Thread(target=client.get, args=("/topics",)) for _ in range(THREADS)]
        for one in readers:
            one.start()
        for _ in readers:
            waiting.acquire()
        try:
            assert client.get("/login").status_code == 200
            assert client.get("/static/console.css").status_code == 200
        finally:
            is_over.set()
            for one in readers:
                one.join()
    assert was_over == [True] * THREADS, "the login form waited for the pages"


def test_a_form_is_small_and_a_form(locked: TestClient) -> None:
    origin = {"origin": str(locked.base_url)}
    assert locked.post("/login", json={}, headers=origin).status_code == 415
    assert locked.post("/login", data={"user": "x" * 20_000}, headers=origin).status_code == 413
    assert locked.post("/login", data={f"a{n}": "" for n in range(50)}, headers=origin).status_code == 400


@pytest.mark.parametrize("place", ["//evil.example", "https://evil.example", "/\\evil", "javascript:alert(1)", "/\nx"])
def test_a_login_leads_nowhere_else(locked: TestClient, place: str) -> None:
    page = Html(locked.get("/login", params={"next": place}).text)
    assert [one["value"] for one in page.of("input") if one.get("name") == "next"] == ["/"]


def test_a_session_ends_by_itself() -> None:
    clock = Clock()
    with client_of(ConsoleConfig(cluster=SECURED, has_login=True), clock) as client:
        log_in(client)
        assert client.get("/").status_code == 200
        clock.now_s += IDLE_S
        assert client.get("/").status_code == 303


def test_values_in_avro_are_read_with_the_rights_of_who_looks() -> None:
    users: list[str] = []

    def deserializer_of(person: Connection) -> Callable[[bytes], object]:
        users.append(person.properties["sasl.username"])
        return lambda payload: payload

    config = ConsoleConfig(cluster=SECURED, has_login=True)
    console = Console(config, LAGS, PlantedCounts(), deserializer_of, Clock(), Planted, Brokers(), PlantedPipeline())
    with TestClient(console.app(), base_url="http://localhost", follow_redirects=False) as client:
        log_in(client)
    (person,) = console._sessions.owners("alice")
    assert (users, person.deserialize is not None) == (["alice"], True)


def test_a_user_who_is_removed_is_logged_out_in_half_a_minute() -> None:
    clock, brokers = Clock(), Brokers()
    with client_of(ConsoleConfig(cluster=SECURED, has_login=True), clock, brokers) as client:
        log_in(client)
        brokers.passwords.clear()
        assert (client.get("/").status_code, brokers.judged) == (200, 1), "a login counts for a while"
        clock.now_s += LOGIN_MS / 1000
        assert client.get("/api/topics").status_code == 401
        brokers.passwords["alice"] = "wonder"
        assert client.get("/").status_code == 303
        log_in(client)
        assert client.get("/").status_code == 200


def test_brokers_that_are_away_log_nobody_out() -> None:
    clock, brokers = Clock(), Brokers()
    with client_of(ConsoleConfig(cluster=SECURED, has_login=True), clock, brokers) as client:
        log_in(client)
        brokers.is_away = True
        clock.now_s += LOGIN_MS / 1000
        assert [client.get("/").status_code for _ in range(3)] == [200] * 3
        assert brokers.judged == 2, "one page in half a minute waits for them"


@pytest.mark.parametrize(("failed_ms", "is_shown"), [(1_000 + VISIBLE_MS, True), (1_001 + VISIBLE_MS, False)])
def test_rights_that_were_seen_too_long_ago_show_nothing(failed_ms: int, is_shown: bool) -> None:
    class Late(Planted):
        def view(self) -> Reading[ClusterView]:
            return replace(super().view(), tried_ms=failed_ms)

        def groups(self) -> Reading[list[GroupListing]]:
            return known([GroupListing("g", "Stable")])

        def lags(self) -> Reading[LagReport]:
            row = ("g", EVIL)
            return known(LagReport({row: 7.0}, {row: 1.0}, {row: 0.0}, {("g",): 1.0}))

    config = ConsoleConfig(cluster=SECURED, has_login=True)
    console = Console(config, LAGS, PlantedCounts(), None, Clock(), Late, Brokers(), PlantedPipeline())
    with TestClient(console.app(), base_url="http://localhost", follow_redirects=False) as client:
        log_in(client)
        assert client.get("/api/completeness").status_code == (200 if is_shown else 503)
        (row,) = client.get("/api/groups").json()["groups"]
        assert row["lag"] == (7 if is_shown else None)


@pytest.mark.parametrize("may_describe", [True, False])
def test_mirrors_and_the_lake_s_place_are_for_those_who_may_describe_the_cluster(may_describe: bool) -> None:
    class Limited(Planted):
        def rules(self) -> Reading[list[Binding]]:
            found = super().rules()
            return found if may_describe else found.failed("CLUSTER_AUTHORIZATION_FAILED", 2_000)

    config = ConsoleConfig(cluster=SECURED, has_login=True)
    console = Console(config, LAGS, PlantedCounts(), None, Clock(), Limited, Brokers(), PlantedPipeline())
    with TestClient(console.app(), base_url="http://localhost", follow_redirects=False) as client:
        log_in(client)
        mirror, lake = client.get("/api/mirror").json(), client.get("/api/lake").json()
        assert (bool(mirror["mirrors"]), lake["id"] == EVIL, lake["directory"] == EVIL) == (may_describe,) * 3
        assert ("refused by the target" in mirror["sentence"]) == may_describe
        assert client.get("/mirror").status_code == client.get("/lake").status_code == 200


def test_two_sessions_of_one_person_share_their_connections() -> None:
    console = Console(
        ConsoleConfig(cluster=SECURED, has_login=True), LAGS, PlantedCounts(), None, Clock(), Planted, Brokers()
    )
    with TestClient(console.app(), base_url="http://localhost", follow_redirects=False) as one:
        log_in(one)
        one.cookies.clear()
        log_in(one)
    first, second = console._sessions.owners("alice")
    assert first is second


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_pages_are_read_only(open_client: TestClient, method: str) -> None:
    for path in addresses():
        assert open_client.request(method, path).status_code == 405


def test_times_are_utc_unless_they_name_a_zone() -> None:
    assert parse_time("2030-01-31T12:00") == 1_896_091_200_000
    assert parse_time("2030-01-31T12:00+01:00") == 1_896_087_600_000
    for text in ("", "1969-12-31", "0001-01-01", "9" * 30):
        with pytest.raises(ConfigError):
            parse_time(text)


@pytest.mark.parametrize("address", addresses())
def test_the_command_of_each_page_is_one_that_pylog_takes(open_client: TestClient, address: str) -> None:
    found = re.search(r"<code>(pylog [^<]*)</code></p>\n<p>The same as JSON", open_client.get(address).text)
    assert found is not None
    words = shlex.split(html.unescape(found[1]).partition(" | ")[0])[1:]
    assert refusal(tuple(words), True) == ""


def test_no_template_passes_text_by_the_escaping() -> None:
    templates = list((resources.files("pylog.console") / "templates").iterdir())
    assert len(templates) > 10
    for one in templates:
        assert not re.search(r"\|\s*safe|autoescape|Markup", one.read_text()), one.name
