"""The users of programs: who gets which rights in which cluster."""

from typing import Any

import pytest

from pylog.ops.preflight import GROUPS
from pylog.ops.rights import PROGRAMS, program_users
from pylog.security.access import read_access
from pylog.security.acl import Operation, ResourceType

LIVE = {"pylog_security": "sasl_ssl", "pylog_datacenter": "live"}
OFFLINE = {
    "pylog_security": "sasl_ssl",
    "pylog_datacenter": "offline",
    "mirror_source": "live",
    "ship_datacenter": "live",
    "registry_source": "live",
}
HOSTS: dict[str, dict[str, Any]] = {
    "live1": LIVE,
    "offline1": {**OFFLINE, "audit_ledgers": ["live", "offline"], "ingest_topics": ["clicks", "host.journal"]},
}
EVERYTHING: dict[str, list[str]] = {group: ["offline1"] for group in GROUPS} | {"pylog_broker": ["live1", "offline1"]}


def rights(place: str, user: str, **groups: list[str]) -> set[str]:
    [entry] = [one for one in program_users(HOSTS, EVERYTHING | groups)[place]["users"] if one["name"] == user]
    [read] = read_access({"users": [entry]}).users
    return {f"{one.entry.operation.name} {one.pattern}" for one in read.acls or ()}


def test_every_document_is_one_that_the_store_takes_and_grants_nothing_that_opens_the_cluster() -> None:
    for users in program_users(HOSTS, EVERYTHING).values():
        for user in read_access(users).users:
            for pattern, entry in user.acls or ():
                assert entry.operation not in (Operation.ALL, Operation.CLUSTER_ACTION), user.name
                is_change = entry.operation in (Operation.ALTER, Operation.ALTER_CONFIGS, Operation.DELETE)
                is_cluster = pattern.resource_type is ResourceType.CLUSTER
                assert not (is_change and is_cluster), user.name


def test_the_mirror_reads_there_and_writes_here() -> None:
    there, here = rights("live", "pylog-mirror"), rights("offline", "pylog-mirror")
    assert "READ TOPIC:LITERAL:*" in there
    assert not {one for one in there if one.split()[0] in ("WRITE", "CREATE", "ALTER", "DELETE")}
    assert {"WRITE TOPIC:LITERAL:*", "CREATE TOPIC:LITERAL:*"} <= here


def test_a_shipper_writes_one_topic_of_the_datacenter_that_it_ships_to() -> None:
    assert {one for one in rights("live", "pylog-ship") if one.startswith("WRITE")} == {
        "WRITE TOPIC:LITERAL:host.journal"
    }
    assert "pylog-ship" in program_users(HOSTS, EVERYTHING)["offline"]["absent"]


def test_a_registry_reads_the_schemas_of_the_one_that_it_follows() -> None:
    topic = "TOPIC:LITERAL:_schemas"
    assert rights("live", "pylog-registry") == {f"READ {topic}", f"DESCRIBE {topic}"}
    assert {f"WRITE {topic}", f"CREATE {topic}"} <= rights("offline", "pylog-registry")


def test_workers_of_connect_have_their_topics_and_what_connectors_are_said_to_use() -> None:
    host = {"pylog_datacenter": "live", "connect_reads": ["clicks"], "connect_writes": ["db.*", "audit-of-db"]}
    hosts = HOSTS | {"c1": host}
    [user] = [
        one for one in program_users(hosts, {**EVERYTHING, "pylog_connect": ["c1"]})["live"]["users"]
        if one["name"] == "pylog-connect"
    ]  # fmt: skip
    found = {
        (one["resource"], one.get("name"), one.get("pattern", "literal")): one["operations"] for one in user["acls"]
    }
    assert found.keys() == {
        ("topic", "connect-", "prefixed"), ("topic", "clicks", "literal"), ("topic", "db.", "prefixed"),
        ("topic", "audit-of-db", "literal"), ("group", "connect", "literal"), ("group", "connect-", "prefixed"),
        ("cluster", None, "literal"),
    }  # fmt: skip
    assert "Write" not in found["topic", "clicks", "literal"]
    assert "Read" not in found["topic", "db.", "prefixed"]


def test_the_console_may_not_read_all_schemas_for_whoever_looks() -> None:
    read = {one for one in rights("offline", "pylog-console") if one.startswith("READ")}
    assert read == {"READ TOPIC:LITERAL:__consumer_offsets", "READ TOPIC:LITERAL:_audit"}


def test_the_ingestion_reads_what_it_loads() -> None:
    read = {one for one in rights("offline", "pylog-ingest") if one.startswith("READ TOPIC")}
    assert read == {"READ TOPIC:LITERAL:_audit", "READ TOPIC:LITERAL:clicks", "READ TOPIC:LITERAL:host.journal"}


def test_a_query_reads_its_inputs_writes_its_output_and_owns_its_groups() -> None:
    query = {"name": "q", "inputs": {"a": {"topic": "clicks"}, "f": {"path": "/x"}}, "output": "counts", "group": "own"}
    hosts = {**HOSTS, "offline1": {**OFFLINE, "stream_queries": [query]}}
    users = program_users(hosts, EVERYTHING)["offline"]["users"]
    [user] = read_access({"users": [one for one in users if one["name"] == "pylog-stream"]}).users
    own = ("LITERAL:own", "PREFIXED:stream-")
    assert {f"{one.entry.operation.name} {one.pattern}" for one in user.acls or ()} == {
        "READ TOPIC:LITERAL:clicks", "DESCRIBE TOPIC:LITERAL:clicks",
        "WRITE TOPIC:LITERAL:counts", "DESCRIBE TOPIC:LITERAL:counts",
        *(f"{one} GROUP:{name}" for one in ("READ", "DESCRIBE", "DELETE") for name in own),
        "IDEMPOTENT_WRITE CLUSTER:LITERAL:kafka-cluster",
    }  # fmt: skip


@pytest.mark.parametrize("queries", [["q"], [{}], [{"name": "q", "inputs": {"a": "clicks"}}], [{"inputs": ["a"]}]])
def test_what_has_not_the_shape_of_a_query_is_left_to_preflight(queries: list[Any]) -> None:
    hosts = {**HOSTS, "offline1": {**OFFLINE, "stream_queries": queries}}
    assert program_users(hosts, EVERYTHING)["offline"]["users"]


def test_the_report_of_one_tier_reads_the_counts_of_another() -> None:
    assert rights("live", "pylog-audit") == {"READ TOPIC:LITERAL:_audit", "DESCRIBE TOPIC:LITERAL:_audit"}


def test_programs_that_nobody_runs_have_no_user() -> None:
    alone: dict[str, list[str]] = {group: [] for group in GROUPS} | {"pylog_broker": ["live1"]}
    assert program_users(HOSTS, alone) == {
        "live": {"users": [{"name": "pylog-admin", "acls": []}], "absent": list(PROGRAMS)}
    }
    open_hosts = {name: {**host, "pylog_security": "none"} for name, host in HOSTS.items()}
    assert program_users(open_hosts, EVERYTHING) == {}
