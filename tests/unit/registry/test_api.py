"""The registry over HTTP: paths, methods, errors and types as Confluent's clients know them; no brokers."""

import http.client
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pytest

from pylog.daemon.web import WebServer
from pylog.metrics import Metrics
from pylog.model import Offset
from pylog.registry import avro, changes
from pylog.registry.api import CONTENT_TYPE, new_app
from pylog.registry.changes import Change
from pylog.registry.election import Election
from pylog.registry.service import OFFSET_HEADER, PrimaryAnswer, PrimaryRequest, Service
from pylog.registry.state import Registry
from tests.unit.registry.test_changes import OTHER, RECORD, WIDER, Subjects

_T = TypeVar("_T")


class Office:
    """Stands in for the election."""

    is_primary = True

    def wait_primary(self, _timeout_s: float) -> bool:
        return True


class InMemory(Service):
    """Changes are applied at once instead of going through a log."""

    def __init__(self) -> None:
        self.subjects = Subjects()
        self.office = Office()
        self.election: Election = self.office  # type: ignore[assignment]
        self.forwarded: list[PrimaryRequest] = []

    def read(self, ask: Callable[[Registry], _T]) -> _T:
        return ask(self.subjects.registry)

    def read_at(self, ask: Callable[[Registry], _T]) -> tuple[_T, Offset]:
        return self.read(ask), 7

    def change(self, decide: Callable[[Registry], Change]) -> tuple[object, Offset]:
        return self.subjects.do(decide(self.subjects.registry)), 7

    def forward(self, request: PrimaryRequest) -> PrimaryAnswer:
        self.forwarded.append(request)
        return PrimaryAnswer(409, b'{"error_code":409}', "application/x")


class Answer(NamedTuple):
    status: int
    body: Any
    headers: http.client.HTTPMessage


class Browser:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def __call__(
        self, method: str, target: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        self._connection.request(method, target, data, dict(headers or {}))
        answer = self._connection.getresponse()
        text = answer.read()
        is_json = method != "HEAD" and answer.headers.get_content_type() == CONTENT_TYPE
        return Answer(answer.status, json.loads(text) if is_json else text.decode(), answer.headers)


@pytest.fixture
def service() -> InMemory:
    return InMemory()


@pytest.fixture
def ask(service: InMemory) -> Iterator[Browser]:
    with WebServer("127.0.0.1", 0, new_app(service, Metrics())) as server:
        yield Browser(server.port)


def test_a_subject_may_have_a_slash_a_blank_and_letters_of_any_script(ask: Browser) -> None:
    for name, quoted in (("a/b", "a%2Fb"), ("a b", "a%20b"), ("%2F", "%252F"), ("ä", "%C3%A4")):
        assert ask("POST", f"/subjects/{quoted}/versions", {"schema": RECORD}).status == 200
        assert ask("GET", f"/subjects/{quoted}/versions/latest").body["subject"] == name
    assert ask("GET", "/subjects").body == ["%2F", "a b", "a/b", "ä"]


def test_a_slash_at_the_end_changes_nothing(ask: Browser) -> None:
    assert ask("GET", "/subjects/").body == []
    assert ask("GET", "//subjects").body == []


def test_answers_are_of_confluents_type_and_a_change_says_how_far_it_reaches(ask: Browser) -> None:
    answer = ask("POST", "/subjects/s/versions", {"schema": RECORD})
    assert (answer.status, answer.body) == (200, {"id": 1})
    assert (answer.headers["content-type"], answer.headers[OFFSET_HEADER]) == (CONTENT_TYPE, "7")
    head = ask("HEAD", "/subjects/s/versions/1")
    assert (head.status, head.body, head.headers["content-type"]) == (200, "", CONTENT_TYPE)


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "code"),
    [
        ("GET", "/nothing", None, 404, 404),
        ("GET", "/schemas/ids/x", None, 404, 404),
        ("PATCH", "/subjects", None, 405, 405),
        ("DELETE", "/schemas/ids/1", None, 405, 405),
        ("GET", "/subjects/none/versions", None, 404, 40401),
        ("GET", "/subjects/s/versions/2", None, 404, 40402),
        ("GET", "/subjects/s/versions/0", None, 422, 42202),
        ("POST", "/subjects/s/versions", b"no JSON", 400, 400),
        ("POST", "/subjects/s/versions", b"[" * 100_000, 400, 400),
        ("POST", "/subjects/s/versions", [], 422, 422),
        ("POST", "/subjects/s/versions", {}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": OTHER}, 409, 409),
        ("POST", "/subjects/s/versions", {"schema": RECORD, "schemaType": "JSON"}, 422, 42201),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 422, 42203),
    ],
)
def test_refusals_have_confluents_numbers(
    ask: Browser, method: str, target: str, body: object, status: int, code: int
) -> None:
    ask("POST", "/subjects/s/versions", {"schema": RECORD})
    refused = ask(method, target, body)
    assert (refused.status, refused.body["error_code"]) == (status, code)
    assert refused.headers["content-type"] == CONTENT_TYPE
    assert refused.body["message"]
    assert ask("GET", "/subjects").body == ["s"]  # also on the same connection, which the refusal left in order


def test_each_request_is_counted_by_its_status(ask: Browser) -> None:
    ask("GET", "/subjects")
    ask("GET", "/nothing")
    text = ask("GET", "/metrics").body
    assert 'pylog_registry_requests_total{status="200"} 1' in text
    assert 'pylog_registry_requests_total{status="404"} 1' in text


def test_the_last_of_several_values_counts_and_flags_are_read(ask: Browser) -> None:
    ask("POST", "/subjects/s/versions", {"schema": RECORD})
    ask("DELETE", "/subjects/s")
    assert ask("GET", "/subjects?deleted=false&deleted=TRUE").body == ["s"]
    assert ask("GET", "/subjects?deleted=true&deleted=").body == []


def test_another_instance_s_change_is_forwarded_as_it_came(ask: Browser, service: InMemory) -> None:
    service.office.is_primary = False
    answer = ask("DELETE", "/subjects/a%2Fb?permanent=true&x=%20")
    assert (answer.status, answer.headers["content-type"]) == (409, "application/x")
    [request] = service.forwarded
    assert (request.method, request.target, request.body) == ("DELETE", "/subjects/a%2Fb?permanent=true&x=%20", b"")
    assert ask("POST", "/compatibility/subjects/s/versions/latest?verbose=true", {"schema": WIDER}).status == 404
    assert len(service.forwarded) == 1  # every instance reads for itself


class Locked(InMemory):
    """Notes what is parsed while the state is locked: nobody else is answered then."""

    def __init__(self) -> None:
        super().__init__()
        self.is_locked = False
        self.parsed: list[bool] = []

    def read(self, ask: Callable[[Registry], _T]) -> _T:
        self.is_locked = True
        try:
            return ask(self.subjects.registry)
        finally:
            self.is_locked = False

    def change(self, decide: Callable[[Registry], Change]) -> tuple[object, Offset]:
        return self.subjects.do(self.read(decide)), 7


@pytest.mark.parametrize(
    "path",
    [
        "/compatibility/subjects/s/versions",
        "/compatibility/subjects/s/versions/1",
        "/subjects/s/versions",
        "/subjects/s",
    ],
)
def test_no_schema_is_parsed_or_compared_while_the_state_is_locked(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    service = Locked()
    service.subjects.register(RECORD)
    # More than schemas whose parsed form is kept.
    for number in range(70):
        service.subjects.register(json.dumps({**json.loads(RECORD), "doc": str(number)}))
    service.subjects.register(WIDER)
    avro.check_valid.cache_clear()
    monkeypatch.setattr(avro, "_comparisons", avro._Comparisons())
    parse = avro._parse

    def noted(text: str, dependencies: Sequence[str]) -> Any:
        service.parsed.append(service.is_locked)
        return parse(text, dependencies)

    monkeypatch.setattr(avro, "_parse", noted)
    with WebServer("127.0.0.1", 0, new_app(service, Metrics())) as server:
        ask = Browser(server.port)
        assert ask("PUT", "/config/s", {"compatibility": "BACKWARD_TRANSITIVE"}).status == 200
        assert ask("POST", path, {"schema": WIDER}).status == 200
    assert service.parsed, "it was judged"
    assert not any(service.parsed)


def test_a_schema_that_would_keep_a_processor_busy_for_long_is_refused(ask: Browser) -> None:
    fields = [{"name": f"f{number}", "type": "int"} for number in range(avro.MAX_PARTS)]
    for text, said in (
        (json.dumps({"type": "record", "name": "R", "fields": fields}), "objects and lists"),
        (json.dumps({"type": "record", "name": "R", "doc": "x" * avro.MAX_CHARS, "fields": []}), "characters long"),
    ):
        for path in ("/compatibility/subjects/s/versions", "/subjects/s/versions", "/subjects/s"):
            answer = ask("POST", path, {"schema": text})
            assert (answer.status, answer.body["error_code"]) == (422, 42201)
            assert said in answer.body["message"]


def test_a_subject_has_no_more_versions_than_a_new_schema_is_compared_with_in_time(
    ask: Browser, service: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_VERSIONS", 2)
    service.subjects.register(RECORD)
    service.subjects.register(WIDER)
    third = '{"type":"record","name":"R","fields":[]}'
    answer = ask("POST", "/subjects/s/versions", {"schema": third})
    assert (answer.status, answer.body["error_code"]) == (422, 42205)
    assert ask("POST", "/subjects/s/versions", {"schema": WIDER}).status == 200, "it is there already"
    assert ask("DELETE", "/subjects/s/versions/1").status == 200
    assert ask("POST", "/subjects/s/versions", {"schema": third}).status == 200


ARTIFACTS = "/apis/registry/v2/groups/default/artifacts?ifExists=RETURN_OR_UPDATE&canonical=false"


def upload(ask: Browser, subject: str, text: str, target: str = ARTIFACTS, **headers: str) -> Answer:
    named = {"X-Registry-ArtifactId": subject, "X-Registry-ArtifactType": "AVRO", **headers}
    return ask("POST", target, text.encode(), {name.replace("_", "-"): value for name, value in named.items()})


def test_what_apicurios_clients_register_confluents_read_and_the_other_way_round(ask: Browser) -> None:
    first = upload(ask, "s-value", RECORD)
    assert first.status == 200
    assert {name: first.body[name] for name in ("id", "globalId", "version", "type")} == {
        "id": "s-value", "globalId": 1, "version": "1", "type": "AVRO",
    }  # fmt: skip
    assert upload(ask, "s-value", RECORD).body == first.body
    assert json.loads(ask("GET", "/schemas/ids/1").body["schema"]) == json.loads(RECORD)
    second = ask("POST", "/subjects/s-value/versions", {"schema": WIDER}).body["id"]
    assert upload(ask, "s-value", WIDER).body["version"] == "2"
    assert ask("GET", f"/apis/registry/v2/ids/globalIds/{second}").body == json.loads(WIDER)
    assert ask("GET", f"/apis/registry/v2/ids/globalIds/{second}/references").body == []
    assert upload(ask, "plain-value", '"string"').status == 200


@pytest.mark.parametrize(
    ("target", "text", "headers", "status", "code"),
    [
        (ARTIFACTS, OTHER, {}, 409, 409),
        (ARTIFACTS, "no schema", {}, 422, 42201),
        (ARTIFACTS, RECORD, {"X_Registry_ArtifactType": "PROTOBUF"}, 422, 42201),
        (ARTIFACTS, RECORD, {"X_Registry_Version": "7"}, 422, 422),
        (ARTIFACTS, RECORD, {"Content_Type": "application/create.extended+json"}, 422, 42201),
        (ARTIFACTS.replace("default", "mine"), RECORD, {}, 422, 422),
        (ARTIFACTS.replace("RETURN_OR_UPDATE", "FAIL"), RECORD, {}, 422, 422),
    ],
)
def test_an_artifact_that_would_not_be_kept_as_it_was_sent_is_refused(
    ask: Browser, target: str, text: str, headers: dict[str, str], status: int, code: int
) -> None:
    assert upload(ask, "s", RECORD).status == 200
    refused = upload(ask, "s", text, target, **headers)
    assert (refused.status, refused.body["error_code"]) == (status, code)
    assert ask("GET", "/subjects/s/versions").body == [1]
    assert ask("POST", ARTIFACTS, RECORD.encode()).body["message"].startswith("header X-Registry-ArtifactId must")


def test_a_forwarded_artifact_has_its_headers(ask: Browser, service: InMemory) -> None:
    service.office.is_primary = False
    upload(ask, "s", RECORD)
    assert service.forwarded[-1].headers["x-registry-artifactid"] == "s"
