"""The users that the programs of a deployment log in as, each with no more rights than its work needs.

Pure.  Role `users` adds passwords and hands the result to ``pylog user apply``, as a part of its document.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pylog.ops.certificates import SECURED

ADMIN = "pylog-admin"
"""Gates, topics as code, operators on hosts of brokers: a super user, since root there can change the store too."""

PROGRAMS = (
    "pylog-audit",
    "pylog-connect",
    "pylog-console",
    "pylog-ingest",
    "pylog-mirror",
    "pylog-probe",
    "pylog-registry",
    "pylog-ship",
    "pylog-stream",
)

MIN_PASSWORD_LENGTH = 16
"""No program types its password, and whoever reads the users in ZooKeeper may try all short ones."""

_AUDIT_TOPIC = "_audit"

Variables = Mapping[str, Any]
Rule = dict[str, Any]


def _topic(name: str, *operations: str, is_prefix: bool = False) -> Rule:
    pattern = {"pattern": "prefixed"} if is_prefix else {}
    return {"resource": "topic", "name": name, **pattern, "operations": list(operations)}


def _group(name: str, *operations: str, is_prefix: bool = False) -> Rule:
    pattern = {"pattern": "prefixed"} if is_prefix else {}
    return {"resource": "group", "name": name, **pattern, "operations": list(operations)}


def _cluster(*operations: str) -> Rule:
    return {"resource": "cluster", "operations": list(operations)}


def _ship(host: Variables) -> Iterable[tuple[str, list[Rule]]]:
    topic = str(host.get("ship_topic") or "host.journal")
    yield (
        _place(host, "ship_datacenter"),
        [_topic(topic, "Write", "Create", "Describe", "DescribeConfigs"), _cluster("IdempotentWrite")],
    )


def _registry(host: Variables) -> Iterable[tuple[str, list[Rule]]]:
    topic = str(host.get("registry_topic") or "_schemas")
    yield (
        _place(host, "registry_datacenter"),
        [_topic(topic, "Read", "Write", "Create", "Describe", "DescribeConfigs", "AlterConfigs")],
    )
    # What it follows it asks over HTTP, where whoever may read this topic may read all schemas.
    if host.get("registry_source"):
        yield str(host["registry_source"]), [_topic(topic, "Read", "Describe")]


def _audit(host: Variables) -> Iterable[tuple[str, list[Rule]]]:
    rules = [
        _topic("*", "Read", "Describe", "DescribeConfigs"),
        _topic(_AUDIT_TOPIC, "Write", "Create", "AlterConfigs"),
        _group("*", "Read", "Describe"),
        _cluster("IdempotentWrite"),
    ]
    yield _place(host, "audit_datacenter"), rules
    # The report compares what other tiers have counted.
    for ledger in host.get("audit_ledgers") or []:
        yield str(ledger), [_topic(_AUDIT_TOPIC, "Read", "Describe")]


def _mirror(host: Variables) -> Iterable[tuple[str, list[Rule]]]:
    reading = [
        _topic("*", "Read", "Describe", "DescribeConfigs"),
        _group("*", "Read", "Describe"),
        _cluster("Describe", "DescribeConfigs"),
    ]
    everything = ("Read", "Write", "Create", "Alter", "Describe", "DescribeConfigs", "AlterConfigs")
    writing = [_topic("*", *everything), _group("*", "Read", "Describe"), _cluster("Describe", "IdempotentWrite")]
    yield str(host.get("mirror_source", "")), reading
    yield _place(host, "mirror_target"), writing


def _probe(host: Variables) -> Iterable[tuple[str, list[Rule]]]:
    topic = str(host.get("probe_canary_topic") or "_pylog_canary")
    rules = [
        _topic("*", "Describe"),
        _topic("__consumer_offsets", "Read"),
        _topic(topic, "Read", "Write", "Create", "Alter", "Describe", "DescribeConfigs", "AlterConfigs"),
        _group("*", "Describe"),
        # Not Alter on the cluster, which makes an administrator of whoever has it: to choose the brokers of its own
        # topic's partitions takes rights for the topic alone.
        _cluster("Describe", "IdempotentWrite"),
    ]
    yield _place(host, "probe_datacenter"), rules


def _console(host: Variables) -> Iterable[tuple[str, list[Rule]]]:
    counts = _topic(_AUDIT_TOPIC, "Read", "Describe")
    rules = [
        _topic("*", "Describe"),
        _topic("__consumer_offsets", "Read"),
        counts,
        _group("*", "Describe"),
        _cluster("Describe"),
    ]
    if host.get("console_changes"):
        # Where it is written down who changed what; the changes themselves are made as who logged in.
        rules.append(_topic("_console_changes", "Write", "Create", "Describe", "DescribeConfigs"))
    yield _place(host, "console_datacenter"), rules
    for ledger in host.get("console_ledgers") or []:
        # Describe: which mirrors write there, and what they parked.
        yield str(ledger), [_topic("*", "Describe"), counts]


def _connect(host: Variables) -> Iterable[tuple[str, list[Rule]]]:
    group = str(host.get("connect_group") or "connect")
    # Its own three, and dead letters; a sink reads in the group GROUP-NAME.
    own = _topic(f"{group}-", "Read", "Write", "Create", "Describe", "DescribeConfigs", is_prefix=True)
    rules = [own, _group(group, "Read", "Describe"), _group(f"{group}-", "Read", "Describe", is_prefix=True)]
    rules += [_named(str(name), "Read", "Describe", "DescribeConfigs") for name in host.get("connect_reads") or []]
    writing = ("Write", "Create", "Describe", "DescribeConfigs")
    rules += [_named(str(name), *writing) for name in host.get("connect_writes") or []]
    yield _place(host, "connect_datacenter"), [*rules, _cluster("Describe", "IdempotentWrite")]


def _named(name: str, *operations: str) -> Rule:
    """Return rights for a topic, or for all whose names begin with what stands before a ``*`` at the end."""
    is_prefix = name.endswith("*") and name != "*"
    return _topic(name.removesuffix("*") if is_prefix else name, *operations, is_prefix=is_prefix)


def _ingest(host: Variables) -> Iterable[tuple[str, list[Rule]]]:
    topics = [str(one) for one in host.get("ingest_topics") or ["host.journal"]]
    names = ["*"] if host.get("ingest_topic_pattern") else topics
    rules = [
        *(_topic(name, "Read", "Describe", "DescribeConfigs") for name in names),
        _topic(_AUDIT_TOPIC, "Read", "Write", "Describe"),
        _group(str(host.get("ingest_group") or "pylog-ingest"), "Read", "Describe"),
        _cluster("IdempotentWrite"),
    ]
    yield _place(host, "ingest_datacenter"), rules


def _stream(host: Variables) -> Iterable[tuple[str, list[Rule]]]:
    # Delete: a query that is taken out of the inventory takes its group with it, and has no rule of its own by then.
    rules = [_cluster("IdempotentWrite"), {**_group("stream-", "Read", "Describe", "Delete"), "pattern": "prefixed"}]
    # What has not the shape of a query is named by preflight, which asks for these rules too.
    for query in (one for one in host.get("stream_queries") or [] if isinstance(one, Mapping)):
        inputs = query.get("inputs")
        found = [one for one in inputs.values() if isinstance(one, Mapping)] if isinstance(inputs, Mapping) else []
        rules += [_topic(str(one["topic"]), "Read", "Describe") for one in found if one.get("topic")]
        if query.get("output"):
            rules.append(_topic(str(query["output"]), "Write", "Describe"))
        group = str(query.get("group") or "none")
        if group != "none" and not group.startswith("stream-"):
            rules.append(_group(group, "Read", "Describe", "Delete"))
    yield _place(host, "stream_datacenter"), rules


_WORK = {
    "pylog_ship": ("pylog-ship", _ship),
    "pylog_registry": ("pylog-registry", _registry),
    "pylog_audit": ("pylog-audit", _audit),
    "pylog_mirror": ("pylog-mirror", _mirror),
    "pylog_probe": ("pylog-probe", _probe),
    "pylog_console": ("pylog-console", _console),
    "pylog_connect": ("pylog-connect", _connect),
    "pylog_spark": ("pylog-ingest", _ingest),
    "pylog_stream": ("pylog-stream", _stream),
}


def _place(host: Variables, name: str) -> str:
    return str(host.get(name) or host.get("pylog_datacenter", "all"))


def program_users(
    hosts: Mapping[str, Variables], groups: Mapping[str, Iterable[str]]
) -> dict[str, dict[str, list[Any]]]:
    """Return datacenter -> users of programs, as `pylog user apply` takes them but without passwords.

    Of several hosts that run the same program each adds what it needs. ``absent`` names those that no host needs there.
    """
    places = {
        str(hosts[name].get("pylog_datacenter", "all"))
        for name in groups.get("pylog_broker", ())
        if name in hosts and hosts[name].get("pylog_security") == SECURED
    }
    found: dict[str, dict[str, list[Rule]]] = {place: {} for place in places}
    for group, (user, work) in _WORK.items():
        for name in groups.get(group, ()):
            for place, rules in work(hosts.get(name, {})):
                if place in places:
                    mine = found[place].setdefault(user, [])
                    mine += [rule for rule in rules if rule not in mine]
    return {
        place: {
            "users": [{"name": ADMIN, "acls": []}, *({"name": user, "acls": users[user]} for user in sorted(users))],
            "absent": [user for user in PROGRAMS if user not in users],
        }
        for place, users in sorted(found.items())
    }
