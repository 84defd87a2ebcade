"""Confluent's REST API: which request means what, and how answers look.

Source: Confluent Schema Registry API reference.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pylog import __version__
from pylog.daemon.web import WebAnswer, WebRequest, json_answer
from pylog.errors import PylogError
from pylog.metrics import Metrics
from pylog.registry import changes, faults
from pylog.registry.changes import Change, Wanted
from pylog.registry.faults import RegistryError
from pylog.registry.records import Schema, Version, references_of
from pylog.registry.service import OFFSET_HEADER, PRIMARY_WAIT_S, Service
from pylog.registry.state import Registry

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
MAX_VERSION = (1 << 31) - 1

_Read: TypeAlias = Callable[[Registry], object]
_Decide: TypeAlias = Callable[[Registry], Change]


class Api:
    """Answers requests.

    Args:
        service: reads and changes.
        metrics: counts requests; scraped at ``/metrics``.
    """

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service, self._metrics = service, metrics

    def __call__(self, request: WebRequest) -> WebAnswer:
        """Answer one request."""
        if request.parts == ("metrics",):
            return WebAnswer(200, self._metrics.render().encode(), "text/plain; version=0.0.4")
        try:
            answer = self._answer(request)
        except RegistryError as error:
            answer = json_answer(error.status, {"error_code": error.code, "message": str(error)}, CONTENT_TYPE)
        except PylogError as error:
            answer = json_answer(500, {"error_code": 50001, "message": str(error)}, CONTENT_TYPE)
        self._metrics.counter("pylog_registry_requests_total", "Requests by status.", status=str(answer.status)).add()
        return answer

    def _answer(self, request: WebRequest) -> WebAnswer:
        read = _read_of(request)
        if read is not None:
            return json_answer(200, self._service.read(read), CONTENT_TYPE)
        decide = _change_of(request)
        if decide is None:
            raise RegistryError(404, "HTTP 404 Not Found")
        if not self._service.election.wait_primary(PRIMARY_WAIT_S):
            raise faults.no_primary()
        if not self._service.election.is_primary:
            return self._service.forward(request)
        answer, offset = self._service.change(decide)
        found = json_answer(200, answer, CONTENT_TYPE)
        return WebAnswer(found.status, found.body, CONTENT_TYPE, {OFFSET_HEADER: str(offset)})


def _read_of(request: WebRequest) -> _Read | None:
    """Return what a request asks for; None if it changes something, or nothing is there."""
    query, parts = request.query, request.parts
    deleted = _flag(query, "deleted")
    if request.method == "POST":
        return _post_read(request)
    if request.method != "GET":
        return None
    match parts:
        case ():
            return lambda registry: {}
        case ("subjects",):
            return lambda registry: _subjects(registry, query)
        case ("subjects", subject, "versions"):
            return lambda registry: [
                one.version
                for one in _filtered(
                    registry.subject(subject, with_deleted=deleted or _flag(query, "deletedOnly")), query
                )
            ]
        case ("subjects", subject, "versions", version):
            return lambda registry: _version_body(registry.version(subject, _number(version), with_deleted=deleted))
        case ("subjects", subject, "versions", version, "schema"):
            return lambda registry: json.loads(
                registry.version(subject, _number(version), with_deleted=deleted).schema.text
            )
        case ("subjects", subject, "versions", version, "referencedby"):
            return lambda registry: _referrers(registry, subject, version)
        case ("schemas",):
            return lambda registry: _schemas(registry, query)
        case ("schemas", "types"):
            return lambda registry: ["AVRO"]
        case ("schemas", "ids", schema_id):
            return lambda registry: (
                _schema_body(registry.by_id(_id(schema_id))[0].schema)
                | ({"maxId": registry.max_id} if _flag(query, "fetchMaxId") else {})
            )
        case ("schemas", "ids", schema_id, "schema"):
            return lambda registry: json.loads(registry.by_id(_id(schema_id))[0].schema.text)
        case ("schemas", "ids", schema_id, "subjects"):
            return lambda registry: list(dict.fromkeys(one.subject for one in _holders(registry, schema_id, query)))
        case ("schemas", "ids", schema_id, "versions"):
            return lambda registry: [
                {"subject": one.subject, "version": one.version} for one in _holders(registry, schema_id, query)
            ]
        case ("config",):
            return lambda registry: {"compatibilityLevel": registry.level(None)}
        case ("config", subject):
            return lambda registry: {
                "compatibilityLevel": _own(
                    registry.own_level(subject), registry.level(subject), query, faults.no_subject_level(subject)
                )
            }
        case ("mode",):
            return lambda registry: {"mode": registry.mode(None)}
        case ("mode", subject):
            return lambda registry: {
                "mode": _own(registry.own_mode(subject), registry.mode(subject), query, faults.no_subject_mode(subject))
            }
        case ("contexts",):
            return lambda registry: ["."]
        case ("v1", "metadata", "id"):
            return lambda registry: {
                "id": "",
                "scope": {"path": [], "clusters": {"kafka-cluster": "pylog", "schema-registry-cluster": "pylog"}},
            }
        case ("v1", "metadata", "version"):
            return lambda registry: {"version": __version__, "commitId": "pylog"}
    return None


def _post_read(request: WebRequest) -> _Read | None:
    """Return what a POST asks for that changes nothing: a look-up, a check of compatibility."""
    query = request.query
    match request.parts:
        case ("subjects", subject):
            wanted = _wanted(request)
            return lambda registry: _look_up(registry, subject, wanted, with_deleted=_flag(query, "deleted"))
        case ("compatibility", "subjects", subject, "versions"):
            wanted = _wanted(request)
            return lambda registry: _check(registry, subject, registry.live(subject), wanted, query)
        case ("compatibility", "subjects", subject, "versions", version):
            wanted = _wanted(request)
            return lambda registry: _check(
                registry, subject, [registry.version(subject, _number(version))], wanted, query, all_given=True
            )
    return None


def _change_of(request: WebRequest) -> _Decide | None:
    """Return what a request changes; None if it changes nothing."""
    query = request.query
    permanent, force = _flag(query, "permanent"), _flag(query, "force")
    match request.method, request.parts:
        case "POST", ("subjects", subject, "versions"):
            wanted = _wanted(request)
            return lambda registry: changes.register(registry, subject, wanted)
        case "DELETE", ("subjects", subject):
            return lambda registry: changes.delete_subject(registry, subject, permanent=permanent)
        case "DELETE", ("subjects", subject, "versions", version):
            return lambda registry: changes.delete_version(registry, subject, _number(version), permanent=permanent)
        case "PUT", ("config", *rest) if len(rest) < 2:
            level = _body(request).get("compatibility")
            return lambda registry: changes.set_level(level, rest[0] if rest else None)
        case "DELETE", ("config", *rest) if len(rest) < 2:
            return lambda registry: changes.unset_level(registry, rest[0] if rest else None)
        case "PUT", ("mode", *rest) if len(rest) < 2:
            mode = _body(request).get("mode")
            return lambda registry: changes.set_mode(registry, mode, rest[0] if rest else None, force=force)
        case "DELETE", ("mode", *rest) if len(rest) < 2:
            return lambda registry: changes.unset_mode(registry, rest[0] if rest else None)
    return None


def _body(request: WebRequest) -> dict[str, Any]:
    try:
        body = json.loads(request.body or b"{}")
    except (ValueError, RecursionError) as error:
        raise faults.RegistryError(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise faults.invalid_request("the body is no JSON object")
    return body


def _wanted(request: WebRequest) -> Wanted:
    body = _body(request)
    text, schema_id, version = body.get("schema"), body.get("id") or 0, body.get("version") or 0
    kind = body.get("schemaType") or "AVRO"
    if kind != "AVRO":
        raise faults.invalid_schema(f"schemas of type {kind!r} are not served, only AVRO")
    if not isinstance(text, str) or not text:
        raise faults.invalid_schema('Empty schema: the body has no text under "schema"')
    if not isinstance(schema_id, int) or not isinstance(version, int) or version < -1:
        raise faults.invalid_request(f"id {schema_id!r} and version {version!r} are wanted as whole numbers")
    try:
        references = references_of(body.get("references"))
    except ValueError as error:
        raise faults.invalid_schema(str(error)) from error
    return Wanted(text, references, _flag(request.query, "normalize"), max(schema_id, 0), max(version, 0))


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() == "true"


def _number(version: str) -> int | None:
    """Return a version's number, None for the latest."""
    if version in ("latest", "-1"):
        return None
    if not (version.isascii() and version.isdecimal() and 0 < int(version) <= MAX_VERSION):
        raise faults.invalid_version(version)
    return int(version)


def _id(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise RegistryError(404, "HTTP 404 Not Found")
    return int(text)


def _own(own: str | None, effective: str, query: Mapping[str, str], missing: RegistryError) -> str:
    if own is None and not _flag(query, "defaultToGlobal"):
        raise missing
    return own or effective


def _schema_body(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    return body


def _version_body(one: Version) -> dict[str, Any]:
    return {"subject": one.subject, "version": one.version, "id": one.schema_id, **_schema_body(one.schema)}


def _filtered(found: list[Version], query: Mapping[str, str]) -> list[Version]:
    return [one for one in found if one.is_deleted or not _flag(query, "deletedOnly")]


def _subjects(registry: Registry, query: Mapping[str, str]) -> list[str]:
    only = _flag(query, "deletedOnly")
    prefix = query.get("subjectPrefix", "").removeprefix(":*:")
    return [
        name
        for name in registry.subjects(with_deleted=only or _flag(query, "deleted"))
        if name.startswith(prefix) and not (only and registry.live(name))
    ]


def _schemas(registry: Registry, query: Mapping[str, str]) -> list[dict[str, Any]]:
    found = [
        one
        for one in registry.everything(with_deleted=_flag(query, "deleted"))
        if one.subject.startswith(query.get("subjectPrefix", "").removeprefix(":*:"))
    ]
    if _flag(query, "latestOnly"):
        found = list({one.subject: one for one in found}.values())
    return [_version_body(one) for one in found]


def _holders(registry: Registry, schema_id: str, query: Mapping[str, str]) -> list[Version]:
    found = registry.by_id(_id(schema_id))
    return [
        one
        for one in found
        if (_flag(query, "deleted") or not one.is_deleted) and query.get("subject", one.subject) == one.subject
    ]


def _referrers(registry: Registry, subject: str, version: str) -> list[int]:
    found = registry.version(subject, _number(version), with_deleted=True)
    return sorted({one.schema_id for one in registry.referrers(subject, found.version) if not one.is_deleted})


def _look_up(registry: Registry, subject: str, wanted: Wanted, *, with_deleted: bool) -> dict[str, Any]:
    found = registry.subject(subject, with_deleted=with_deleted)
    schema = wanted.schema(registry)
    for one in reversed(found):
        if one.schema == schema:
            return _version_body(one)
    raise faults.no_schema()


def _check(
    registry: Registry,
    subject: str,
    earlier: list[Version],
    wanted: Wanted,
    query: Mapping[str, str],
    *,
    all_given: bool = False,
) -> dict[str, Any]:
    reasons = changes.misfits(registry, subject, wanted.schema(registry), earlier, all_given=all_given)
    body: dict[str, Any] = {"is_compatible": not reasons}
    return body | ({"messages": reasons} if _flag(query, "verbose") else {})
