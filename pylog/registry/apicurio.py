"""Apicurio's REST API, version 2, as far as its converters and serializers call it: the same schemas by other routes.

    POST /apis/registry/v2/groups/default/artifacts       header X-Registry-ArtifactId: SUBJECT; the body is the schema
    GET  /apis/registry/v2/ids/globalIds/ID               the schema
    GET  /apis/registry/v2/ids/globalIds/ID/references    what it refers to, which for such clients is nothing

A global id is an id of Confluent's API, and an artifact a subject: what one kind of client registers the other reads.

Source: Apicurio Registry 2.6, core registry API.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pylog.registry import changes, faults
from pylog.registry.changes import Change, Wanted
from pylog.registry.records import AVRO
from pylog.registry.state import Registry

BASE = "/apis/registry/v2"
ARTIFACTS = f"{BASE}/groups/{{group}}/artifacts"
GLOBAL_ID = f"{BASE}/ids/globalIds/{{id}}"
REFERENCES = f"{GLOBAL_ID}/references"
ARTIFACT_ID = "x-registry-artifactid"
HEADERS = (ARTIFACT_ID, "x-registry-artifacttype", "x-registry-version")
"""Of a request, beside its body: what else it says."""

_GROUP = "default"
_IF_EXISTS = ("RETURN_OR_UPDATE", "UPDATE", "RETURN")


def upload(
    group: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return path and body of the request of Confluent's API that a request for `ARTIFACTS` stands for.

    Args:
        group: of its path.
        query: the last value of each name.
        headers: by lower-case names.
        body: the schema.

    Raises:
        RegistryError: 422, it wants what would be lost; 42201, it is no schema that is served here.
    """
    if group != _GROUP:
        raise faults.invalid_request(f"group must be {_GROUP!r}, got {group!r}: subjects have no groups")
    if headers.get(ARTIFACT_ID) is None:
        raise faults.invalid_request("header X-Registry-ArtifactId must name the subject")
    if headers.get("x-registry-version") is not None:
        raise faults.invalid_request("header X-Registry-Version is not supported: versions are counted")
    if query.get("ifExists", _IF_EXISTS[0]) not in _IF_EXISTS:
        raise faults.invalid_request(f"ifExists must be one of {', '.join(_IF_EXISTS)}, got {query['ifExists']!r}")
    if headers.get("content-type", "").partition(";")[0] == "application/create.extended+json":
        raise faults.invalid_schema("schemas with references of artifacts are not served")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise faults.invalid_schema(f"the body is no text: {error}") from error
    fields = {"schema": text, "schemaType": headers.get("x-registry-artifacttype", AVRO)}
    return {"subject": headers[ARTIFACT_ID]}, fields


def register(registry: Registry, subject: str, wanted: Wanted) -> Change:
    """Give a schema an id and a version, unless it has them; the answer is an artifact's metadata.

    Raises:
        RegistryError: as `changes.register`.
    """
    change = changes.register(registry, subject, wanted)
    schema_id = change.answer["id"]
    numbers = [key.version for key, _ in change.writes]
    numbers += [one.version for one in registry.live(subject) if one.schema_id == schema_id]
    return replace(change, answer=_metadata(subject, schema_id, numbers[0]))


def _metadata(subject: str, schema_id: int, version: int) -> dict[str, Any]:
    return {
        "groupId": _GROUP,
        "id": subject,
        "version": str(version),
        "globalId": schema_id,
        "contentId": schema_id,
        "type": AVRO,
        "state": "ENABLED",
        "references": [],
    }
