"""Changes from the console: who may make them, forged forms, and that they are written down before."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from pylog.client.admin.cluster import ClusterView, OffsetRange, TopicView
from pylog.client.connection import Connection
from pylog.console.app import CHANGES_OF_USER, Console
from pylog.console.changes import (
    CHANGES_TOPIC,
    Change,
    Journal,
    NotWritten,
    Target,
    changes_data,
    check_settings,
    new_offsets,
    parse_target,
    rehearsal_data,
)
from pylog.console.config import VERBS, ConsoleConfig
from pylog.console.pages import parse_time
from pylog.console.readings import Reading
from pylog.errors import ApiError, ConfigError, ErrorCode, Unreachable
from pylog.model import TopicPartition
from tests.unit.console.test_app import (
    EVIL,
    LAGS,
    PLACE,
    SECURED,
    Brokers,
    Clock,
    Html,
    Planted,
    PlantedCounts,
    PlantedPipeline,
    log_in,
    partition_address,
)

TOPIC_ADDRESS = partition_address().removesuffix("/0")


class KeptJournal(Journal):
    """Keeps its lines in memory; fails while it is closed."""

    def __init__(self) -> None:
        super().__init__(SECURED, lambda: 5)
        self.lines: list[Change] = []
        self.is_closed = False

    def _write(self, change: Change) -> None:
        if self.is_closed:
            raise Unreachable("no leader")
        self.lines.append(change)


@dataclass
class Cluster:
    """What was done to it."""

    moved: list[tuple[str, dict[TopicPartition, int]]] = field(default_factory=list)
    written: list[tuple[str, int | None, bytes | None, bytes | None]] = field(default_factory=list)
    state: str = "Empty"
    error: ApiError | None = None


class Changing(Planted):
    """A cluster that takes changes."""

    cluster = Cluster()
    topic = EVIL

    def view(self) -> Reading[ClusterView]:
        found = super().view()
        assert found.value is not None
        topics = {self.topic: replace(found.value.topics[EVIL], name=self.topic)}
        return replace(found, value=replace(found.value, topics=topics))

    def offsets(self, topic: TopicView) -> Reading[dict[TopicPartition, OffsetRange]]:
        return replace(super().offsets(topic), value={TopicPartition(topic.name, 0): OffsetRange(0, 3)})

    def rehearse(self, group_id: str, target: Target | None) -> Any:
        return self.cluster.state, {PLACE: 1}, {} if target is None else {PLACE: 0}

    def move_group(self, group_id: str, offsets: Any) -> None:
        if self.cluster.error is not None:
            raise self.cluster.error
        self.cluster.moved.append((group_id, dict(offsets)))

    def produce(self, topic: str, partition: int | None, key: bytes | None, value: bytes | None) -> tuple[int, int]:
        self.cluster.written.append((topic, partition, key, value))
        return 0, 7


@dataclass
class Site:
    client: TestClient
    journal: KeptJournal
    cluster: Cluster

    def token(self, address: str) -> str:
        found = re.search('name="token" value="([^"]+)"', self.client.get(address).text)
        assert found is not None
        return found[1]

    def post(self, address: str, origin: str = "http://localhost:8085", **form: str) -> Any:
        return self.client.post(address, data=form, headers={"origin": origin})


@pytest.fixture
def site() -> Iterator[Site]:
    config = ConsoleConfig(cluster=SECURED, has_login=True, changes=VERBS, changers=("alice",))
    Changing.cluster = Cluster()
    brokers = Brokers({"alice": "wonder", "bob": "x"})
    console = Console(config, LAGS, PlantedCounts(), None, Clock(), Changing, brokers, PlantedPipeline())
    console._journal = journal = KeptJournal()
    with TestClient(console.app(), base_url="http://localhost:8085", follow_redirects=False) as client:
        log_in(client)
        yield Site(client, journal, Changing.cluster)


def reset(site: Site, **other: str) -> Any:
    form = {"token": site.token("/"), "id": EVIL, "to": "earliest", "confirm": EVIL}
    return site.post("/group/reset", **(form | other))


def test_a_rehearsal_leads_to_the_move_and_the_move_is_written_down_before_and_after(site: Site) -> None:
    page = site.client.get("/group/reset", params={"id": EVIL, "to": "earliest"})
    assert "It would read 1 offsets again, and skip 0" in page.text
    assert site.cluster.moved == []
    assert site.journal.lines == []
    answer = reset(site)
    assert answer.status_code == 200, answer.text
    assert site.cluster.moved == [(EVIL, {PLACE: 0})]
    assert [(one.state, one.user, one.verb, one.subject) for one in site.journal.lines] == [
        ("begun", "alice", "reset-offsets", EVIL),
        ("done", "alice", "reset-offsets", EVIL),
    ]
    assert site.journal.lines[1].details["offsets"] == {f"{EVIL}:0": 0}
    shown = Html(answer.text)
    assert not shown.of("script") + shown.of("img")


def test_what_cannot_be_written_down_is_not_done(site: Site) -> None:
    site.journal.is_closed = True
    answer = reset(site)
    assert answer.status_code == 503
    assert "nothing was changed: topic _console_changes cannot be written: no leader" in answer.text
    assert "PYLOG-0318" in answer.text
    assert site.cluster.moved == []


def test_a_change_that_fails_is_written_down_as_failed(site: Site) -> None:
    site.cluster.error = ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not yours")
    answer = reset(site)
    assert answer.status_code == 403
    assert [(one.state, one.error) for one in site.journal.lines] == [("begun", ""), ("failed", "not yours")]


def test_members_that_came_since_the_rehearsal_stop_the_move(site: Site) -> None:
    site.cluster.state = "Stable"
    answer = reset(site)
    assert answer.status_code == 400
    assert "only a group without members can be moved; nothing was changed" in answer.text
    assert site.cluster.moved == []
    assert site.journal.lines[-1].state == "failed"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"confirm": ""}, "type the name to confirm"),
        ({"confirm": "another"}, "type the name to confirm"),
        ({"id": "", "confirm": ""}, "type the name to confirm"),
        ({"to": ""}, "say where the group is to go on"),
        ({"to": "yesterday"}, "to must be earliest"),
    ],
)
def test_a_form_that_says_too_little_changes_nothing(site: Site, other: dict[str, str], words: str) -> None:
    answer = reset(site, **other)
    assert answer.status_code == 400
    assert words in answer.text
    assert site.cluster.moved == []
    assert site.journal.lines == []


@pytest.mark.parametrize("token", ["", "x", "0" * 43])
def test_a_forged_token_changes_nothing(site: Site, token: str) -> None:
    assert reset(site, token=token).status_code == 403
    assert site.cluster.moved == []


def test_the_token_of_another_session_changes_nothing(site: Site) -> None:
    with TestClient(site.client.app, base_url="http://localhost:8085", follow_redirects=False) as other:
        log_in(other)
        stolen = Site(other, site.journal, site.cluster).token("/")
    assert reset(site, token=stolen).status_code == 403
    assert site.cluster.moved == []


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8086", ""])
def test_a_form_of_another_site_changes_nothing(site: Site, origin: str) -> None:
    form = {"token": site.token("/"), "id": EVIL, "to": "earliest", "confirm": EVIL}
    assert site.post("/group/reset", origin, **form).status_code == 403
    headers = {"origin": "http://localhost:8085", "sec-fetch-site": "cross-site"}
    assert site.client.post("/group/reset", data=form, headers=headers).status_code == 403
    assert site.cluster.moved == []


def test_reading_never_changes(site: Site) -> None:
    form = {"token": site.token("/"), "id": EVIL, "to": "earliest", "confirm": EVIL}
    assert site.client.get("/group/reset", params=form).status_code == 200
    assert site.cluster.moved == []
    assert site.journal.lines == []


def test_who_is_not_named_may_only_rehearse(site: Site) -> None:
    with TestClient(site.client.app, base_url="http://localhost:8085", follow_redirects=False) as client:
        log_in(client, "bob", "x")
        bob = Site(client, site.journal, site.cluster)
        page = client.get("/group/reset", params={"id": EVIL, "to": "earliest"}).text
        assert "You may not move groups from here" in page
        assert "Move the group</button>" not in page
        answer = reset(bob)
        assert answer.status_code == 403
        assert "you may not reset-offsets from here" in Html(answer.text).text, Html(answer.text).text
        assert client.get(f"{TOPIC_ADDRESS}/produce").status_code == 403
    assert site.cluster.moved == []
    assert site.journal.lines == []


def test_nothing_can_be_changed_where_the_inventory_names_no_verb() -> None:
    config = ConsoleConfig(cluster=SECURED, has_login=True, changes=("produce",), changers=("*",))
    console = Console(config, LAGS, PlantedCounts(), None, Clock(), Changing, Brokers(), PlantedPipeline())
    console._journal = KeptJournal()
    with TestClient(console.app(), base_url="http://localhost:8085", follow_redirects=False) as client:
        log_in(client)
        assert reset(Site(client, KeptJournal(), Cluster())).status_code == 405
        assert client.get(f"{TOPIC_ADDRESS}/produce").status_code == 200


def test_a_session_that_has_ended_changes_nothing(site: Site) -> None:
    token = site.token("/")
    site.client.cookies.clear()
    assert site.post("/group/reset", token=token, id=EVIL, to="earliest", confirm=EVIL).status_code == 403
    assert site.cluster.moved == []


def test_changes_are_limited(site: Site) -> None:
    answers = [reset(site, confirm="").status_code for _ in range(CHANGES_OF_USER + 1)]
    assert answers == [400] * CHANGES_OF_USER + [429]


def test_a_record_is_written_and_its_payload_is_not_in_the_journal(site: Site) -> None:
    form = {"token": site.token("/"), "key": "k1", "value": "secret\r\nline", "partition": "0", "confirm": EVIL}
    answer = site.post(f"{TOPIC_ADDRESS}/produce", **form)
    assert answer.status_code == 200, answer.text
    assert "offset 7" in answer.text
    assert site.cluster.written == [(EVIL, 0, b"k1", b"secret\nline")]
    assert [one.state for one in site.journal.lines] == ["begun", "done"]
    assert site.journal.lines[1].details == {"key_bytes": 2, "value_bytes": 11, "partition": 0, "offset": 7}
    assert all(b"secret" not in one.encode() for one in site.journal.lines)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"confirm": "x"}, "type the name to confirm"),
        ({"partition": "1"}, "partition must be from 0 to 0"),
        ({"partition": "-1"}, "partition must be a whole number"),
        ({"is_null": "1", "key": ""}, "so it needs one"),
        ({"value": "x" * 12_001}, "key and value may have 12000 bytes here"),
    ],
)
def test_a_record_that_makes_no_sense_is_not_written(site: Site, other: dict[str, str], words: str) -> None:
    form = {"token": site.token("/"), "key": "k", "value": "v", "confirm": EVIL} | other
    answer = site.post(f"{TOPIC_ADDRESS}/produce", **form)
    assert answer.status_code == 400
    assert words in Html(answer.text).text
    assert site.cluster.written == []
    assert site.journal.lines == []


def test_a_record_without_value_deletes_its_key(site: Site) -> None:
    form = {"token": site.token("/"), "key": "k", "is_null": "1", "confirm": EVIL}
    assert site.post(f"{TOPIC_ADDRESS}/produce", **form).status_code == 200
    assert site.cluster.written == [(EVIL, None, b"k", None)]


def test_an_underscore_makes_no_topic_one_of_pylog_itself(site: Site) -> None:
    Changing.topic = "_mine"
    try:
        form = {"token": site.token("/"), "value": "x", "confirm": "_mine"}
        assert site.post("/topics/_mine/produce", **form).status_code == 200
        assert "/topics/_mine/produce" in site.client.get("/topics/_mine").text
    finally:
        Changing.topic = EVIL


@pytest.mark.parametrize("name", [CHANGES_TOPIC, "_audit", "__consumer_offsets", "pylog.groups.live"])
def test_nobody_writes_by_hand_to_topics_of_pylog_itself(site: Site, name: str) -> None:
    Changing.topic = name
    try:
        form = {"token": site.token("/"), "value": "x", "confirm": name}
        answer = site.post(f"/topics/{name}/produce", **form)
        assert (answer.status_code, "belongs to pylog itself" in answer.text) == (403, True)
        assert site.client.get(f"/topics/{name}/produce").status_code == 403
        assert "/produce" not in site.client.get(f"/topics/{name}").text
    finally:
        Changing.topic = EVIL
    assert site.cluster.written == []
    assert site.journal.lines == []


def test_the_topic_of_the_journal_must_keep_its_lines() -> None:
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    check_settings(kept)
    for name, value in (("cleanup.policy", "compact"), ("retention.ms", "1000"), ("retention.bytes", "1")):
        with pytest.raises(ConfigError, match=f"{name} must be .*, got {value}"):
            check_settings(kept | {name: value})
    with pytest.raises(ConfigError, match="got None"):
        check_settings({})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"changes": ("produce",), "has_login": False}, "without a login nobody could say who"),
        ({"changes": ("delete-topic",), "has_login": True}, "must be of reset-offsets, produce, got delete-topic"),
        ({"changers": ("alice",), "has_login": True}, "name what in changes"),
    ],
)
def test_changes_that_nobody_could_answer_for_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ConsoleConfig(cluster=SECURED, **values)


def test_a_target_is_a_word_an_offset_or_a_time() -> None:
    assert parse_target("earliest", parse_time) == Target("earliest")
    assert parse_target("17", parse_time) == Target("offset", 17)
    assert parse_target("2030-01-31T12:00", parse_time) == Target("time", 1_896_091_200_000)
    for text in ("-1", "soon", "1" * 19, ""):
        with pytest.raises(ConfigError, match="to must be earliest"):
            parse_target(text, parse_time)


def test_a_group_goes_on_within_what_is_kept() -> None:
    held = {PLACE: OffsetRange(10, 20)}
    assert new_offsets(Target("earliest"), held, {}) == {PLACE: 10}
    assert new_offsets(Target("latest"), held, {}) == {PLACE: 20}
    assert [new_offsets(Target("offset", at), held, {})[PLACE] for at in (5, 15, 25)] == [10, 15, 20]
    assert new_offsets(Target("time", 1), held, {PLACE: 12}) == {PLACE: 12}


def test_a_rehearsal_counts_what_is_read_again_and_what_is_skipped() -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    model = rehearsal_data("g", "Empty", "5", {one: 9, two: 2}, {one: 5, two: 5}, is_allowed=True)
    assert model["sentence"] == "It would read 4 offsets again, and skip 3 that it has not read."
    assert [(row["again"], row["skipped"]) for row in model["partitions"]] == [(4, 0), (0, 3)]
    assert model["can_do"]
    assert not rehearsal_data("g", "Stable", "5", {one: 9}, {one: 5}, is_allowed=True)["can_do"]
    assert not rehearsal_data("g", "Empty", "", {one: 9}, {}, is_allowed=True)["can_do"]
    assert not rehearsal_data("g", "Empty", "5", {}, {}, is_allowed=True)["can_do"]


def test_the_journal_is_shown_newest_first_and_a_foreign_record_is_none_of_it() -> None:
    line = Change(id="a", state="done", at_ms=5, user="alice", address="::1", verb="produce", subject="t", details={})
    rows = changes_data([line.encode(), b"{}", None, json.dumps({"state": "done"}).encode(), b"\xff"])
    assert [row["state"] for row in rows] == ["no line of a console"] * 4 + ["done"]
    assert rows[-1]["user"] == "alice"


def test_a_cluster_that_is_away_takes_no_line() -> None:
    journal = Journal(Connection(bootstrap="127.0.0.1:1", timeout_s=1), lambda: 5)
    done: list[int] = []

    def act() -> dict[str, Any]:
        done.append(1)
        return {}

    with pytest.raises(NotWritten):
        journal.carry_out("alice", "::1", "produce", "t", {}, act)
    assert done == []
