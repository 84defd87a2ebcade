"""What each request of Confluent's REST API reads or changes, and of Apicurio's: a table, and a function for each row.

Source: Confluent Schema Registry API reference.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pylog import __version__
from pylog.registry import apicurio, changes, faults
from pylog.registry.changes import Change, Wanted
from pylog.registry.faults import RegistryError
from pylog.registry.records import AVRO, CONTRACT_FIELDS, Schema, Version, references_of
from pylog.registry.state import Registry

MAX_VERSION = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as the functions of the table see it.

    Attributes:
        path: the path's variable parts, unquoted, by the route's names.
        query: the last value of each name.
        body: the JSON object that was sent; empty if nothing was.
    """

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    def flag(self, name: str) -> bool:
        """Return whether the query says ``name=true``."""
        return self.query.get(name, "").lower() == "true"

    def refuse(self, fields: Iterable[str]) -> None:
        """Refuse a body that has one of these fields.

        Raises:
            RegistryError: 422.
        """
        for name in fields:
            if self.body.get(name) is not None:
                raise faults.invalid_request(f"{name} is not supported, and would be lost; send the request without it")

    @property
    def version(self) -> int | None:
        """The version that the path names; None for the latest.

        Raises:
            RegistryError: 42202, it is none.
        """
        text = self.path["version"]
        if text in ("latest", "-1"):
            return None
        if not (text.isascii() and text.isdecimal() and 0 < int(text) <= MAX_VERSION):
            raise faults.invalid_version(text)
        return int(text)

    @property
    def schema_id(self) -> int:
        """The id that the path names.

        Raises:
            RegistryError: 404, it is none.
        """
        text = self.path["id"]
        if not (text.isascii() and text.isdecimal()):
            raise RegistryError(404, "HTTP 404 Not Found")
        return int(text)

    @property
    def schema(self) -> Wanted:
        """The schema that the body holds.

        Raises:
            RegistryError: 42201, it is none that is served here; 422, a part of it has the wrong type.
        """
        text, schema_id, version = self.body.get("schema"), self.body.get("id") or 0, self.body.get("version") or 0
        kind = self.body.get("schemaType") or AVRO
        if kind != AVRO:
            raise faults.invalid_schema(f"schemas of type {kind!r} are not served, only AVRO")
        # A client that was told yes would believe that its rules hold, and send in the clear what it means to encrypt.
        self.refuse(CONTRACT_FIELDS)
        if not isinstance(text, str) or not text:
            raise faults.invalid_schema('Empty schema: the body has no text under "schema"')
        if not isinstance(schema_id, int) or not isinstance(version, int) or version < -1:
            raise faults.invalid_request(f"id {schema_id!r} and version {version!r} are wanted as whole numbers")
        try:
            references = references_of(self.body.get("references"))
        except ValueError as error:
            raise faults.invalid_schema(str(error)) from error
        return Wanted(text, references, self.flag("normalize"), max(schema_id, 0), max(version, 0))


Prepare: TypeAlias = Callable[[Registry, Ask, Schema], changes.Comparisons]
Read: TypeAlias = Callable[[Registry, Ask], object]
Decide: TypeAlias = Callable[[Registry, Ask], Change]


def _subjects(registry: Registry, ask: Ask) -> list[str]:
    only = ask.flag("deletedOnly")
    prefix = ask.query.get("subjectPrefix", "").removeprefix(":*:")
    return [
        name
        for name in registry.subjects(with_deleted=only or ask.flag("deleted"))
        if name.startswith(prefix) and not (only and registry.live(name))
    ]


def _versions(registry: Registry, ask: Ask) -> list[int]:
    only = ask.flag("deletedOnly")
    versions = registry.subject(ask.path["subject"], with_deleted=only or ask.flag("deleted"))
    return [one.version for one in versions if one.is_deleted or not only]


def _one_version(registry: Registry, ask: Ask) -> Version:
    return registry.version(ask.path["subject"], ask.version, with_deleted=ask.flag("deleted"))


def _referrers(registry: Registry, ask: Ask) -> list[int]:
    subject = ask.path["subject"]
    version = registry.version(subject, ask.version, with_deleted=True).version
    return sorted({one.schema_id for one in registry.referrers(subject, version) if not one.is_deleted})


def _schemas(registry: Registry, ask: Ask) -> list[dict[str, Any]]:
    prefix = ask.query.get("subjectPrefix", "").removeprefix(":*:")
    versions = [one for one in registry.everything(with_deleted=ask.flag("deleted")) if one.subject.startswith(prefix)]
    if ask.flag("latestOnly"):
        versions = list({one.subject: one for one in versions}.values())
    return [_version_body(one) for one in versions]


def _schema_of_id(registry: Registry, ask: Ask) -> dict[str, Any]:
    body = registry.by_id(ask.schema_id)[0].schema.body()
    return body | ({"maxId": registry.max_id} if ask.flag("fetchMaxId") else {})


def _text_of_id(registry: Registry, ask: Ask) -> object:
    return _parsed(registry.by_id(ask.schema_id)[0].schema)


def _no_references(registry: Registry, ask: Ask) -> list[object]:
    if registry.by_id(ask.schema_id)[0].schema.references:
        raise faults.invalid_request(
            f"schema {ask.schema_id} has references, which are served by /schemas/ids/{{id}} alone"
        )
    return []


def _holders(registry: Registry, ask: Ask) -> list[Version]:
    return [
        one
        for one in registry.by_id(ask.schema_id)
        if (ask.flag("deleted") or not one.is_deleted) and ask.query.get("subject", one.subject) == one.subject
    ]


def _look_up(registry: Registry, ask: Ask) -> dict[str, Any]:
    versions = registry.subject(ask.path["subject"], with_deleted=ask.flag("deleted"))
    schema = ask.schema.schema(registry)
    for one in reversed(versions):
        if one.schema == schema:
            return _version_body(one)
    raise faults.no_schema()


def _check_all(registry: Registry, ask: Ask) -> dict[str, Any]:
    return _check(registry, ask, registry.live(ask.path["subject"]), all_given=False)


def _check_one(registry: Registry, ask: Ask) -> dict[str, Any]:
    return _check(registry, ask, [registry.version(ask.path["subject"], ask.version)], all_given=True)


def _check(registry: Registry, ask: Ask, earlier: list[Version], *, all_given: bool) -> dict[str, Any]:
    schema = ask.schema.schema(registry)
    reasons = changes.misfits(registry, ask.path["subject"], schema, earlier, all_given=all_given)
    return {"is_compatible": not reasons} | ({"messages": reasons} if ask.flag("verbose") else {})


def _compare_all(registry: Registry, ask: Ask, schema: Schema) -> changes.Comparisons:
    return changes.comparisons(registry, ask.path["subject"], schema, None)


def _compare_new(registry: Registry, ask: Ask, schema: Schema) -> changes.Comparisons:
    """A schema that is there already, as at each start of a producer, is compared with nothing."""
    subject = ask.path["subject"]
    is_known = any(one.schema == schema for one in registry.live(subject))
    return changes.comparisons(registry, subject, schema, () if is_known else None)


def _compare_none(registry: Registry, ask: Ask, schema: Schema) -> changes.Comparisons:
    return changes.comparisons(registry, ask.path["subject"], schema, ())


def _compare_one(registry: Registry, ask: Ask, schema: Schema) -> changes.Comparisons:
    earlier = [registry.version(ask.path["subject"], ask.version)]
    return changes.comparisons(registry, ask.path["subject"], schema, earlier)


PREPARED: Mapping[tuple[str, str], Prepare] = {
    ("POST", "/subjects/{subject}"): _compare_none,
    ("POST", "/subjects/{subject}/versions"): _compare_new,
    ("POST", apicurio.ARTIFACTS): _compare_new,
    ("POST", "/compatibility/subjects/{subject}/versions"): _compare_all,
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"): _compare_one,
}
"""Routes that get a schema, and what is computed for each before the state is locked: it may take seconds."""


def _level(registry: Registry, ask: Ask) -> dict[str, str]:
    subject = ask.path["subject"]
    missing = faults.no_subject_level(subject)
    return {"compatibilityLevel": _own(registry.own_level(subject), registry.level(subject), ask, missing)}


def _mode(registry: Registry, ask: Ask) -> dict[str, str]:
    subject = ask.path["subject"]
    return {"mode": _own(registry.own_mode(subject), registry.mode(subject), ask, faults.no_subject_mode(subject))}


def _own(own: str | None, effective: str, ask: Ask, missing: RegistryError) -> str:
    if own is None and not ask.flag("defaultToGlobal"):
        raise missing
    return own or effective


def _version_body(one: Version) -> dict[str, Any]:
    return {"subject": one.subject, "version": one.version, "id": one.schema_id, **one.schema.body()}


def _parsed(schema: Schema) -> object:
    try:
        return json.loads(schema.text)
    except ValueError:  # of a kind that is not written in JSON
        return schema.text


_CLUSTER_ID = {
    "id": "",
    "scope": {"path": [], "clusters": {"kafka-cluster": "pylog", "schema-registry-cluster": "pylog"}},
}

READS: tuple[tuple[str, str, Read], ...] = (
    ("GET", "/", lambda registry, ask: {}),
    ("GET", "/subjects", _subjects),
    ("POST", "/subjects/{subject}", _look_up),
    ("GET", "/subjects/{subject}/versions", _versions),
    ("GET", "/subjects/{subject}/versions/{version}", lambda registry, ask: _version_body(_one_version(registry, ask))),
    (
        "GET",
        "/subjects/{subject}/versions/{version}/schema",
        lambda registry, ask: _parsed(_one_version(registry, ask).schema),
    ),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", _referrers),
    ("GET", "/schemas", _schemas),
    ("GET", "/schemas/types", lambda registry, ask: ["AVRO"]),
    ("GET", "/schemas/ids/{id}", _schema_of_id),
    ("GET", "/schemas/ids/{id}/schema", _text_of_id),
    ("GET", apicurio.GLOBAL_ID, _text_of_id),
    ("GET", apicurio.REFERENCES, _no_references),
    (
        "GET",
        "/schemas/ids/{id}/subjects",
        lambda registry, ask: list(dict.fromkeys(one.subject for one in _holders(registry, ask))),
    ),
    (
        "GET",
        "/schemas/ids/{id}/versions",
        lambda registry, ask: [{"subject": one.subject, "version": one.version} for one in _holders(registry, ask)],
    ),
    ("POST", "/compatibility/subjects/{subject}/versions", _check_all),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", _check_one),
    ("GET", "/config", lambda registry, ask: {"compatibilityLevel": registry.level(None)}),
    ("GET", "/config/{subject}", _level),
    ("GET", "/mode", lambda registry, ask: {"mode": registry.mode(None)}),
    ("GET", "/mode/{subject}", _mode),
    ("GET", "/contexts", lambda registry, ask: ["."]),
    ("GET", "/v1/metadata/id", lambda registry, ask: _CLUSTER_ID),
    ("GET", "/v1/metadata/version", lambda registry, ask: {"version": __version__, "commitId": "pylog"}),
)
"""Method, path and answer of what changes nothing; every instance answers these from its own copy."""


def _register(registry: Registry, ask: Ask) -> Change:
    return changes.register(registry, ask.path["subject"], ask.schema)


def _register_artifact(registry: Registry, ask: Ask) -> Change:
    return apicurio.register(registry, ask.path["subject"], ask.schema)


def _delete_subject(registry: Registry, ask: Ask) -> Change:
    return changes.delete_subject(registry, ask.path["subject"], permanent=ask.flag("permanent"))


def _delete_version(registry: Registry, ask: Ask) -> Change:
    return changes.delete_version(registry, ask.path["subject"], ask.version, permanent=ask.flag("permanent"))


def _set_level(registry: Registry, ask: Ask) -> Change:
    ask.refuse(_OTHER_SETTINGS)
    return changes.set_level(ask.body.get("compatibility"), ask.path.get("subject"))


_OTHER_SETTINGS = (
    "alias",
    "normalize",
    "validateFields",
    "validateRules",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
"""What Confluent's registry keeps of a subject beside its level."""


def _unset_level(registry: Registry, ask: Ask) -> Change:
    return changes.unset_level(registry, ask.path.get("subject"))


def _set_mode(registry: Registry, ask: Ask) -> Change:
    return changes.set_mode(registry, ask.body.get("mode"), ask.path.get("subject"), force=ask.flag("force"))


def _unset_mode(registry: Registry, ask: Ask) -> Change:
    return changes.unset_mode(registry, ask.path.get("subject"))


CHANGES: tuple[tuple[str, str, Decide], ...] = (
    ("POST", "/subjects/{subject}/versions", _register),
    ("POST", apicurio.ARTIFACTS, _register_artifact),
    ("DELETE", "/subjects/{subject}", _delete_subject),
    ("DELETE", "/subjects/{subject}/versions/{version}", _delete_version),
    ("PUT", "/config", _set_level),
    ("PUT", "/config/{subject}", _set_level),
    ("DELETE", "/config", _unset_level),
    ("DELETE", "/config/{subject}", _unset_level),
    ("PUT", "/mode", _set_mode),
    ("PUT", "/mode/{subject}", _set_mode),
    ("DELETE", "/mode", _unset_mode),
    ("DELETE", "/mode/{subject}", _unset_mode),
)
"""Method, path and decision of what changes something; the primary alone decides."""
