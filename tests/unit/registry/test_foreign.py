"""A topic of another registry: kinds of schema and contracts that are not served here are kept, with their ids."""

import json

import pytest

from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord
from pylog.daemon.notices import Notices
from pylog.registry import changes
from pylog.registry.changes import Wanted
from pylog.registry.faults import RegistryError
from pylog.registry.records import Key, Kind, decode_value, encode_key, encode_value
from pylog.registry.replica import Replica, TopicConfig
from pylog.registry.routes import CHANGES, READS, Ask
from pylog.registry.state import Registry

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
JSON = '{"type":"object"}'
PROTOBUF = 'syntax = "proto3"; message M {}'
CONTRACT = {
    "metadata": {"properties": {"owner": "team"}},
    "ruleSet": {"domainRules": [{"name": "secret", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD"}]},
}


def value(schema_id: int, text: str, **more: object) -> bytes:
    return json.dumps({"subject": "s", "version": 1, "id": schema_id, "schema": text, **more}).encode()


def replica() -> Replica:
    return Replica(TopicConfig(cluster=Connection(bootstrap="h:1")), Registry(), "me", Notices())


def read(found: Replica, key: bytes | Key, data: bytes | None) -> None:
    name = encode_key(key) if isinstance(key, Key) else key
    found._apply(ConsumedRecord("_schemas", 0, found.next_offset, 0, name, data, []))


def answer(registry: Registry, target: str, **path: str) -> object:
    [ask] = [one for method, at, one in READS if (method, at) == ("GET", target)]
    return ask(registry, Ask(path, {}, {}))


@pytest.mark.parametrize(("kind", "text"), [("JSON", JSON), ("PROTOBUF", PROTOBUF)])
def test_a_schema_of_another_kind_is_kept_with_its_id(kind: str, text: str) -> None:
    found = replica()
    read(found, Key(Kind.SCHEMA, "s", 1), value(7, text, schemaType=kind))
    assert answer(found.registry, "/schemas/ids/{id}", id="7") == {"schema": text, "schemaType": kind}
    whole = {"subject": "s", "version": 1, "id": 7, "schema": text, "schemaType": kind}
    assert answer(found.registry, "/subjects/{subject}/versions/{version}", subject="s", version="1") == whole
    assert changes.register(found.registry, "t", Wanted(RECORD)).answer == {"id": 8}


def test_what_compaction_would_take_is_written_again_as_it_was() -> None:
    key = Key(Kind.SCHEMA, "s", 1)
    for data in (value(7, JSON, deleted=False, schemaType="JSON"), value(7, RECORD, deleted=False, **CONTRACT)):
        assert json.loads(encode_value(key, decode_value(key, data)) or b"") == json.loads(data)


def test_an_avro_schema_does_not_follow_one_of_another_kind() -> None:
    found = replica()
    read(found, Key(Kind.SCHEMA, "s", 1), value(7, JSON, schemaType="JSON"))
    with pytest.raises(RegistryError, match="version 1: it is of type JSON") as refused:
        changes.register(found.registry, "s", Wanted(RECORD))
    assert refused.value.code == 409


def test_a_reference_to_another_kind_is_refused() -> None:
    found = replica()
    read(found, Key(Kind.SCHEMA, "s", 1), value(7, PROTOBUF, schemaType="PROTOBUF"))
    references = [{"name": "x", "subject": "s", "version": 1}]
    with pytest.raises(RegistryError, match=r"reference 'x'.*PROTOBUF"):
        changes.register(found.registry, "t", Ask({}, {}, {"schema": RECORD, "references": references}).schema)


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":41,"schema":"x","references":7}'),
        (b'{"keytype":"CONTEXT","magic":0}', b'{"id":41}'),
        (b"no JSON", b'{"id":41}'),
    ],
)
def test_the_id_of_a_record_that_cannot_be_read_is_not_given_again(key: bytes, data: bytes) -> None:
    found = replica()
    read(found, key, data)
    assert changes.register(found.registry, "t", Wanted(RECORD)).answer == {"id": 42}


@pytest.mark.parametrize("data", [None, b"", b"no JSON", b"[1]", b'{"id":"x"}', b'{"id":true}', b'{"id":99999999999}'])
def test_what_holds_no_id_takes_none(data: bytes | None) -> None:
    found = replica()
    read(found, b"no key", data)
    assert changes.register(found.registry, "t", Wanted(RECORD)).answer == {"id": 1}


def test_a_contract_of_a_schema_that_is_there_is_shown() -> None:
    found = replica()
    read(found, Key(Kind.SCHEMA, "s", 1), value(7, RECORD, **CONTRACT))
    assert answer(found.registry, "/schemas/ids/{id}", id="7") == {"schema": RECORD, **CONTRACT}
    assert changes.register(found.registry, "s", Wanted(RECORD)).answer == {"id": 7}


@pytest.mark.parametrize("name", ["metadata", "ruleSet"])
def test_a_contract_that_a_client_sends_is_refused(name: str) -> None:
    with pytest.raises(RegistryError, match=f"{name} is not supported") as refused:
        Ask({"subject": "s"}, {}, {"schema": RECORD, name: CONTRACT[name]}).schema  # noqa: B018
    assert refused.value.status == 422
    assert Ask({"subject": "s"}, {}, {"schema": RECORD, name: None}).schema.text == RECORD


@pytest.mark.parametrize("name", ["alias", "normalize", "compatibilityGroup", "defaultMetadata", "overrideRuleSet"])
def test_settings_of_a_subject_that_are_not_served_are_refused(name: str) -> None:
    [decide] = [one for method, at, one in CHANGES if (method, at) == ("PUT", "/config/{subject}")]
    with pytest.raises(RegistryError, match=f"{name} is not supported") as refused:
        decide(Registry(), Ask({"subject": "s"}, {}, {"compatibility": "FULL", name: {"a": 1}}))
    assert refused.value.status == 422
    assert decide(Registry(), Ask({"subject": "s"}, {}, {"compatibility": "FULL", name: None})).writes
