"""What is wrong with an inventory and its hosts, all of it at once, before any host is touched.

Pure: the inventory's variables and the hosts' own readings come in, findings come out.  ``roles/preflight`` calls this
module on the control machine, inside Ansible's own process, and prints the table.
"""

import datetime as dt
import difflib
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pylog.connect.document import read as read_connectors
from pylog.connect.properties import wrong_settings
from pylog.connect.topics import workers_of
from pylog.errors import ConfigError
from pylog.ingest.stream.config import DEFAULT_MASTER, wrong_query
from pylog.ops.addresses import address, addresses
from pylog.ops.certificates import (
    SECURED,
    Holder,
    authority_problems,
    ensemble_settings,
    holders,
    is_ensemble_encrypted,
    problems,
)
from pylog.ops.jars import Jar, JarsError, is_whole, read_lock
from pylog.ops.listeners import DEFAULT_TRUSTED, TRUSTED, Listener, listeners, networks, numeric, outside
from pylog.ops.migration import SECURED as LOGINS
from pylog.ops.orphans import servers_without_a_place
from pylog.ops.rights import MIN_PASSWORD_LENGTH, program_users
from pylog.ops.securing import TO_OPEN, TO_SECURED, Request, Standing, standings, turn_of
from pylog.ops.table import aligned
from pylog.ops.zoo_cfg import may_disagree

ZOOKEEPER_GROUP = "pylog_zookeeper"
BROKER_GROUP = "pylog_broker"
SPARK_GROUP = "pylog_spark"
STREAM_GROUP = "pylog_stream"
MONITORING_GROUP = "pylog_monitoring"
PROBE_GROUP = "pylog_probe"
CONNECT_GROUP = "pylog_connect"
GROUPS = (
    ZOOKEEPER_GROUP, BROKER_GROUP, "pylog_ship", SPARK_GROUP, "pylog_mirror", "pylog_registry", "pylog_audit",
    "pylog_probe", "pylog_console", CONNECT_GROUP, STREAM_GROUP, "pylog_spark_master", "pylog_spark_worker",
    "pylog_load_balancer",
    MONITORING_GROUP,
)  # fmt: skip
# Distributions on which the bundle is tested; every other one is refused rather than half installed.
SUPPORTED = {("debian", "12")}
# Machines for which the wheelhouse finds every wheel.
ARCHITECTURES = ("x86_64", "aarch64")
# What each part needs beside its own heap, measured on an idle three-node cluster and doubled.
BROKER_BYTES = 160 << 20
SPARK_BYTES = 2 << 30
PROMETHEUS_BYTES = 256 << 20
CONNECT_BYTES = 256 << 20
_HEAP_MIB = 512
SYSTEM_BYTES = 256 << 20
# Who listens where this bundle has been deployed before.
OWN_USERS = ("pylog", "pylog-connect", "pylog-zookeeper", "haproxy", "prometheus")
MAX_CLOCK_SKEW_MS = 30_000
# With less a run ends half way: a release with its packages has up to 250 MB, Spark's twice that.
MIN_FREE_BYTES = 512 << 20
# What the release's own packages want, and what Debian 12 has.
MIN_PYTHON = (3, 11)
# Characters of the reason why a host could not be read: the last ones say most.
MAX_FAILURE = 120
# A hash of the secret is readable on every host of a broker, so whoever gets in there may try all short ones.
MIN_SECRET_LENGTH = 16
SECRET_FILE = "/etc/pylog/cluster.secret"
# Where a server's data lies unless the operator says something else.
ZOOKEEPER_DATA = "/var/lib/pylog-zookeeper"
# A file system that the disks role made carries a label with this beginning.
DISK_LABEL = "pylog-"
# What stands for a variable that the role could not template: a mapping from this to the reason.
UNREADABLE = "__preflight_unreadable"
# What stands for the name of a variable where none of a host's could be read.
ALL = "*"
# Ten times as fast where PyYAML came with libyaml; every task that asks reads the specifications anew.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict, "path": str, "raw": object,
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing that must be put right: where, what was checked, what was found, what is wanted, what to do."""

    host: str
    check: str
    found: str
    wanted: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host: its templated variables, and what it says of itself (None before anybody asked it).

    Attributes:
        unreadable: variables that could not be templated, and why; they are not among `variables`.
        failure: why it could not be read; empty where it was, or where nobody asked.
        is_unreachable: whether that is because nobody could log in.
        read_ms: the control machine's time before it asked the host, and when it had the answer.
    """

    name: str
    variables: Mapping[str, Any]
    facts: Mapping[str, Any] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    is_unreachable: bool = False
    read_ms: tuple[int, int] = (0, 0)

    @property
    def datacenter(self) -> str:
        """Name of the group of hosts that form one cluster."""
        return str(self.variables.get("pylog_datacenter", "all"))

    @property
    def instances(self) -> list[Mapping[str, Any]]:
        """Broker instances of this host, those that are mappings with an id."""
        given = self.variables.get("pylog_broker_instances") or []
        return [entry for entry in given if isinstance(entry, Mapping) and "id" in entry]


def load_specs(roles: Path) -> dict[str, Mapping[str, Any]]:
    """Return variable name -> specification, over the ``argument_specs.yml`` of every role."""
    specs: dict[str, Mapping[str, Any]] = {}
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        for entry in yaml.load(path.read_text(), _LOADER)["argument_specs"].values():
            specs |= entry.get("options", {})
    return specs


def unknown_variables(host: Host, specs: Mapping[str, Any], prefixes: Iterable[str]) -> Iterator[Finding]:
    """Find variables that carry a role's prefix, or ``pylog_``, and that no role knows: mostly misspelled ones."""
    ours = tuple(prefixes)
    for name in host.variables:
        if name.startswith(ours) and name not in specs:
            near = difflib.get_close_matches(name, specs, n=1)
            wanted = f"{near[0]}?" if near else "a variable of roles/*/meta/argument_specs.yml"
            yield Finding(host.name, "unknown variable", name, wanted, "rename or remove it")


def bounds(description: str) -> tuple[int, int] | None:
    """Return the range that a variable's description gives, as in "1 to 65535" or "at least 1"; None without one."""
    if found := re.search(r"(?<![\d.])(-?\d+) to (-?\d+)(?![\d.]\d)", description):
        return int(found[1]), int(found[2])
    if found := re.search(r"\bat least (\d+)\b", description):
        return int(found[1]), sys.maxsize
    return None


def _wrong(value: object, spec: Mapping[str, Any], name: str) -> Iterator[tuple[str, str, str]]:
    """Yield (name, found, wanted) for every way *value* differs from *spec*, also inside lists and mappings."""
    if isinstance(value, str) and "{{" in value:
        return  # not templated: what it will be is not known here
    kind = spec.get("type", "str")
    is_number_in_text = kind in ("int", "float") and isinstance(value, str) and re.fullmatch(r"-?\d+", value)
    is_text_from_number = kind in ("str", "path") and isinstance(value, int | float)
    is_bool_as_number = kind in ("int", "float") and isinstance(value, bool)
    if is_bool_as_number or not (isinstance(value, _TYPES[kind]) or is_number_in_text or is_text_from_number):
        yield name, repr(value), kind
    elif (
        kind == "int"
        and (limits := bounds(spec.get("description", "")))
        and not (limits[0] <= int(str(value)) <= limits[1])
    ):
        yield name, str(value), f"at least {limits[0]}" if limits[1] == sys.maxsize else f"{limits[0]} to {limits[1]}"
    elif "choices" in spec and not isinstance(value, list) and value not in spec["choices"]:
        yield name, repr(value), " or ".join(map(str, spec["choices"]))
    elif isinstance(value, list) and "elements" in spec:
        inside = {key: spec[key] for key in ("options", "choices") if key in spec}
        for index, entry in enumerate(value):
            yield from _wrong(entry, {"type": spec["elements"], **inside}, f"{name}[{index}]")
    elif isinstance(value, dict) and "options" in spec:
        for key in value.keys() - spec["options"].keys():
            yield f"{name}.{key}", "set", f"one of {', '.join(spec['options'])}"
        for key, inner in spec["options"].items():
            if key in value:
                yield from _wrong(value[key], inner, f"{name}.{key}")
            elif inner.get("required"):
                yield f"{name}.{key}", "missing", inner.get("type", "str")


def wrong_values(host: Host, specs: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Find variables whose value does not have the type, choice or shape that the roles want."""
    for name in sorted(host.variables.keys() & specs.keys()):
        for where, found, wanted in _wrong(host.variables[name], specs[name], name):
            yield Finding(host.name, f"variable {where}", found, wanted, "correct it in the inventory")


def missing_variables(host: Host, groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find what cannot have a default: names, ids and instances are the operator's to choose."""
    required: dict[str, tuple[str, ...]] = {"pylog_cluster_name": ("all",), "zookeeper_id": (ZOOKEEPER_GROUP,)}
    required |= {"pylog_broker_instances": (BROKER_GROUP,), "pylog_cluster_secret": (BROKER_GROUP,)}
    required |= {"mirror_source": ("pylog_mirror",), "audit_tier": ("pylog_audit",)}
    required |= {"spark_secret": ("pylog_spark_master", "pylog_spark_worker")}
    for name, where in required.items():
        is_wanted = "all" in where or any(host.name in groups.get(group, ()) for group in where)
        if is_wanted and not host.variables.get(name) and not {name, ALL} & host.unreadable.keys():
            yield Finding(
                host.name, f"variable {name}", "not set", f"set on hosts of {where[0]}", "set it in the inventory"
            )


def group_shapes(groups: Mapping[str, Iterable[str]], hosts: Iterable[Host]) -> Iterator[Finding]:
    """Find empty groups and ensembles that cannot vote: an even number survives no more losses than one server less.

    One that runs may have an even number, because it grows by one server at a time.
    """
    hosts = list(hosts)
    for group in (ZOOKEEPER_GROUP, BROKER_GROUP):
        if not list(groups.get(group, ())):
            yield Finding("all", f"group {group}", "no host", "at least one", "add hosts to the group")
    for group in sorted(groups):
        if group.startswith("pylog_") and group not in GROUPS:
            near = difflib.get_close_matches(group, GROUPS, n=1)
            wanted = f"{near[0]}?" if near else "one of the bundle's groups"
            yield Finding("all", f"group {group}", "in the inventory", wanted, "rename it: no play would run on it")
    members = [host for host in hosts if host.name in groups.get(ZOOKEEPER_GROUP, ())]
    # By a --limit: nobody knows what those servers run.
    is_limited = any(host.facts for host in hosts)
    left_out = {host.datacenter for host in members} - {host.datacenter for host in members if host.facts}
    servers = Counter(host.datacenter for host in members)
    for datacenter, count in servers.items():
        if (
            count % 2 == 0
            and not any(running_ensembles(hosts, groups, datacenter))
            and not (is_limited and datacenter in left_out)
        ):
            remedy = "add or remove one ZooKeeper server"
            yield Finding(datacenter, "size of the ensemble", str(count), "an odd number", remedy)
    brokers = {host.datacenter for host in hosts if host.name in groups.get(BROKER_GROUP, ())}
    for datacenter in sorted(brokers - servers.keys()):
        yield Finding(datacenter, f"group {ZOOKEEPER_GROUP}", "no host", "at least one a datacenter", "add a server")


def running_ensembles(
    hosts: Iterable[Host], groups: Mapping[str, Iterable[str]], datacenter: str
) -> Iterator[list[int]]:
    """Yield the ids in the configuration of each ZooKeeper server of *datacenter* that has data, unless it is alone."""
    for host in hosts:
        if host.name in groups.get(ZOOKEEPER_GROUP, ()) and host.datacenter == datacenter:
            facts, directory = host.facts or {}, host.variables.get("zookeeper_data_dir", ZOOKEEPER_DATA)
            if facts.get("ensemble") and f"{directory}/version-2" in facts["files"]:
                yield facts["ensemble"]


def ensemble_changes(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find ensembles of which the running one and the wanted one could each find a majority without the other."""
    hosts = [host for host in hosts if host.name in groups.get(ZOOKEEPER_GROUP, ())]
    for datacenter in sorted({host.datacenter for host in hosts}):
        leaving = {name for host in hosts for name in str(host.variables.get("remove_server", "")).split(",")}
        members = [host for host in hosts if host.datacenter == datacenter and host.name not in leaving]
        given = [str(host.variables.get("zookeeper_id", "")) for host in members]
        wanted = sorted(int(number) for number in given if number.isdecimal())
        running = list(running_ensembles(hosts, groups, datacenter))
        if unsafe := next((ids for ids in running if may_disagree(ids, wanted)), None):
            told = f"servers {', '.join(map(str, unsafe))} become {', '.join(map(str, wanted))}"
            remedy = "change the group by one host, run site, then change it by the next"
            yield Finding(datacenter, "change of the ensemble", told, "one server more or less at a time", remedy)


def _repeated(pairs: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, list[str]]]:
    places: dict[Any, list[str]] = {}
    for value, place in pairs:
        places.setdefault(value, []).append(place)
    return ((value, found) for value, found in places.items() if len(found) > 1)


def repeated_ids(
    hosts: Iterable[Host], groups: Mapping[str, Iterable[str]], specs: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Find ids, ports and directories that two servers of one cluster or host would share."""
    hosts = list(hosts)
    for datacenter in sorted({host.datacenter for host in hosts}):
        members = [host for host in hosts if host.datacenter == datacenter]
        brokers = [(instance["id"], host.name) for host in members for instance in host.instances]
        servers = [(v, host.name) for host in members if (v := host.variables.get("zookeeper_id")) is not None]
        for name, pairs in (("broker id", brokers), ("zookeeper_id", servers)):
            for value, places in _repeated(pairs):
                found = f"{value} on {', '.join(places)}"
                yield Finding(datacenter, name, found, "unique in the cluster", "give each server its own id for ever")
    for host in hosts:
        ports = [(one.port, one.what) for one in listeners_of(host, groups, specs)]
        directories = [(i.get("data_dir"), f"broker {i['id']}") for i in host.instances]
        for name, pairs in (("port", ports), ("data_dir", directories)):
            for value, places in _repeated(pairs):
                found = f"{value} for {', '.join(places)}"
                yield Finding(host.name, name, found, "unique on the host", "change one of them")


DEFAULT_FACTOR = 3
DEFAULT_IN_SYNC = 2
"""What the role `broker` sets where the operator says nothing."""

# The controller decides by its own, and any broker may be controller.
_COMMON_SETTINGS = ("default.replication.factor", "min.insync.replicas", "num.partitions")


def replication(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find replication factors that no placement can satisfy."""
    hosts = [host for host in hosts if host.name in groups.get(BROKER_GROUP, ())]
    for host in hosts:
        wanted = (host.variables.get("broker_config") or {}).get("default.replication.factor", DEFAULT_FACTOR)
        count = sum(other.datacenter == host.datacenter for other in hosts)
        if isinstance(wanted, int) and wanted > count:
            remedy = "lower it, or add hosts"
            yield Finding(host.name, "default.replication.factor", str(wanted), f"at most {count}, the hosts", remedy)
        in_sync = (host.variables.get("broker_config") or {}).get("min.insync.replicas", DEFAULT_IN_SYNC)
        if isinstance(wanted, int) and isinstance(in_sync, int) and in_sync > wanted:
            most = f"at most {wanted}, the default.replication.factor"
            yield Finding(host.name, "min.insync.replicas", str(in_sync), most, "lower it: every write would fail")


def copies(
    hosts: Iterable[Host], groups: Mapping[str, Iterable[str]], specs: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Find internal topics that need more brokers than there are: they would never be made."""
    hosts = list(hosts)
    brokers = Counter(
        host.datacenter for host in hosts if host.name in groups.get(BROKER_GROUP, ()) for _ in host.instances
    )
    for datacenter in sorted(brokers):
        for host in hosts:
            if host.datacenter == datacenter and host.name in groups.get(BROKER_GROUP, ()):
                name = "offsets.topic.replication.factor"
                wanted = (host.variables.get("broker_config") or {}).get(name, DEFAULT_FACTOR)
                yield from _too_many(host.name, f"broker_config {name}", wanted, brokers[datacenter])
    for group, name, site in _COPIES:
        for host in hosts:
            if host.name in groups.get(group, ()):
                wanted = host.variables.get(name, specs.get(name, {}).get("default", DEFAULT_FACTOR))
                datacenter = str(host.variables.get(site) or host.datacenter)
                if datacenter in brokers:
                    yield from _too_many(host.name, name, wanted, brokers[datacenter])


# Group, variable with a number of copies, variable that names the datacenter that keeps them.
_COPIES = (
    ("pylog_audit", "audit_replication_factor", "audit_datacenter"),
    (CONNECT_GROUP, "connect_replication_factor", "connect_datacenter"),
    ("pylog_mirror", "mirror_internal_replication_factor", "mirror_target"),
    ("pylog_mirror", "mirror_replication_factor", "mirror_target"),
    ("pylog_registry", "registry_replication_factor", "registry_datacenter"),
)


def _too_many(host: str, name: str, wanted: object, brokers: int) -> Iterator[Finding]:
    if isinstance(wanted, int) and wanted > brokers:
        yield Finding(host, name, str(wanted), f"at most {brokers}, the brokers", "lower it, or add brokers")


# Variables that name groups of hosts.
SITES = (
    "pylog_datacenter", "topics_datacenter", "ship_datacenter", "registry_datacenter", "ingest_datacenter",
    "audit_datacenter", "probe_datacenter", "load_balancer_datacenter", "mirror_source", "mirror_target",
    "audit_ledgers", "connect_datacenter", "console_datacenter", "console_ledgers", "stream_datacenter",
)  # fmt: skip


def sites(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find names of groups that no group has, hosts outside their datacenter, and hosts that name none."""
    hosts = [host for host in hosts if any(host.name in groups[g] for g in groups if g.startswith("pylog_"))]
    named = sorted({host.datacenter for host in hosts if "pylog_datacenter" in host.variables})
    for host in hosts:
        for variable in SITES:
            given = host.variables.get(variable) or []
            for name in [given] if isinstance(given, str) else given:
                if not isinstance(name, str) or "{{" in name:
                    continue
                if not list(groups.get(name, ())):
                    near = difflib.get_close_matches(name, [one for one in groups if not one.startswith("pylog_")], n=1)
                    wanted = f"{near[0]}?" if near else "a group with hosts"
                    yield Finding(host.name, f"variable {variable}", name, wanted, "name a group of the inventory")
                elif variable == "pylog_datacenter" and host.name not in groups[name]:
                    yield Finding(host.name, f"group {name}", "not a member", "a member", "add the host to the group")
        if named and "pylog_datacenter" not in host.variables:
            remedy = "set it, best in the group_vars of the datacenter's group"
            yield Finding(host.name, "variable pylog_datacenter", "not set", " or ".join(named), remedy)


def stray_files(files: Iterable[str], groups: Iterable[str]) -> Iterator[Finding]:
    """Find files of `group_vars` for groups that the inventory does not have: nobody reads them."""
    groups = [*groups, "all", "ungrouped"]
    for name in files:
        if name not in groups:
            near = difflib.get_close_matches(name, groups, n=1)
            wanted = f"{near[0]}?" if near else "a group of the inventory"
            yield Finding("all", f"group_vars/{name}", "no such group", wanted, "rename the file or the group")


def queries(host: Host) -> list[Mapping[str, Any]]:
    """Return the queries that *host* is to run, those that are mappings with a name."""
    given = host.variables.get("stream_queries")
    found = given if isinstance(given, list) else []
    return [one for one in found if isinstance(one, Mapping) and isinstance(one.get("name"), str)]


def wrong_masks(host: Host, groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find masks of consoles whose topic could never match: the console would not start with them."""
    given = host.variables.get("console_masks")
    if host.name in groups.get("pylog_console", ()) and isinstance(given, list):
        topics = [str(one.get("topic", "")) for one in given if isinstance(one, Mapping)]
        for topic in topics:
            if "{{" not in topic and (not topic or "*" in topic[:-1]):
                wanted = "a name, or the beginning of names and then *"
                yield Finding(host.name, "variable console_masks", f"topic {topic!r}", wanted, "correct it")


def open_consoles(
    hosts: Iterable[Host], groups: Mapping[str, Iterable[str]], stood: Mapping[str, Standing]
) -> Iterator[Finding]:
    """Find consoles that would not start, because others than programs of their host reached them without a login.

    Args:
        hosts: all of them.
        groups: name -> hosts.
        stood: where each datacenter stands: on the way to secured or open programs log in only at some steps.
    """
    for host in hosts:
        if host.name not in groups.get("pylog_console", ()):
            continue
        standing = stood.get(str(host.variables.get("console_datacenter") or host.datacenter))
        # One with faults has their rows, and its stage may not be known.
        is_secured = standing is None or bool(standing.faults) or standing.stage.programs == LOGINS
        login = host.variables.get("console_login") or ("scram" if is_secured else "none")
        url = str(host.variables.get("console_public_url") or "")
        address_given = str(host.variables.get("console_listen") or "127.0.0.1:8085")
        remedy = f"let people log in, with pylog_security: {SECURED}, or come by ssh -L"
        if login == "none":
            for name, value in (("console_public_url", url), ("console_listen", address_given)):
                # Not templated: what it will be is not known here.
                if value and "{{" not in value and not value.startswith(("127.", "[::1]", "localhost:")):
                    yield Finding(host.name, f"variable {name}", value, "no such address without a login", remedy)
        elif url.startswith("http:"):
            wanted = "https://HOST: it carries passwords"
            yield Finding(host.name, "variable console_public_url", url, wanted, "let the proxy serve HTTPS")


def wrong_queries(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find queries that cannot run, by what is seen without their topics, and names that two of them share."""
    hosts = [host for host in hosts if host.name in groups.get(STREAM_GROUP, ())]
    for host in hosts:
        master = str(host.variables.get("stream_spark_master", DEFAULT_MASTER))
        for query in queries(host):
            if found := wrong_query(query, master):
                name, remedy = f"stream_queries {query['name']}", "correct it in the inventory"
                yield Finding(host.name, name, found, "a query that can run", remedy)
    for datacenter in sorted({str(host.variables.get("stream_datacenter") or host.datacenter) for host in hosts}):
        members = [h for h in hosts if str(h.variables.get("stream_datacenter") or h.datacenter) == datacenter]
        for name, places in _repeated((query["name"], host.name) for host in members for query in queries(host)):
            remedy = "keep one: set stream_queries in host_vars, and give each query its own name"
            found = f"on {', '.join(places)}"
            yield Finding(datacenter, f"stream_queries {name}", found, "once: each would write all rows", remedy)


def one_cluster(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find what the brokers of one cluster, or the servers of one ensemble, must have in common and have not."""
    for group, names, settings in (
        (BROKER_GROUP, ("pylog_cluster_secret", "pylog_cluster_other_secrets"), _COMMON_SETTINGS),
        (ZOOKEEPER_GROUP, ("zookeeper_client_port", "zookeeper_peer_port", "zookeeper_election_port"), ()),
    ):
        found = [host for host in hosts if host.name in groups.get(group, ())]
        for datacenter in sorted({host.datacenter for host in found}):
            given = [
                {name: host.variables.get(name) for name in names}
                | {name: (host.variables.get("broker_config") or {}).get(name) for name in settings}
                for host in found
                if host.datacenter == datacenter
            ]
            for name in given[0]:
                if count := len({repr(variables[name]) for variables in given}) - 1:
                    remedy = "set it for the group, not for a host"
                    yield Finding(datacenter, name, f"{count + 1} values", "one for the cluster", remedy)
    # Producers and tiers are compared window by window.
    counting = [host for host in hosts if any(host.name in groups.get(one, ()) for one in ("pylog_audit", SPARK_GROUP))]
    if len({repr(host.variables.get("audit_window_ms")) for host in counting}) > 1:
        yield Finding("all", "audit_window_ms", "several values", "one everywhere", "set it for all hosts")


def directories(host: Host) -> Iterator[Finding]:
    """Find data directories beside the disks that were given for them: they would fill the root file system."""
    mounts = [Path(entry["mount"]) for entry in host.variables.get("disks_devices") or [] if "mount" in entry]
    for instance in host.instances:
        data_dir = Path(str(instance.get("data_dir", "/")))
        if mounts and not any(data_dir.is_relative_to(mount) for mount in mounts):
            wanted = "below " + " or ".join(map(str, mounts))
            yield Finding(host.name, f"data_dir of broker {instance['id']}", str(data_dir), wanted, "move it to a disk")


def system(host: Host) -> Iterator[Finding]:
    """Find hosts on which the bundle was never tested."""
    facts = host.facts or {}
    if (facts["os"]["id"], facts["os"]["version"]) not in SUPPORTED:
        found, wanted = f"{facts['os']['id']} {facts['os']['version']}", " or ".join(map(" ".join, sorted(SUPPORTED)))
        yield Finding(host.name, "distribution", found, wanted, "install a supported distribution")
    if facts["os"]["arch"] not in ARCHITECTURES:
        wanted = " or ".join(ARCHITECTURES)
        yield Finding(host.name, "architecture", facts["os"]["arch"], wanted, "use another machine")
    if tuple(facts["python"]) < MIN_PYTHON:
        found, wanted = (".".join(map(str, version)) for version in (facts["python"], MIN_PYTHON))
        remedy = "install the distribution's python3, and set no other ansible_python_interpreter"
        yield Finding(host.name, "Python", found, f"at least {wanted}", remedy)
    if facts["init"] != "systemd":
        yield Finding(host.name, "init", facts["init"], "systemd", "boot the host with systemd")
    for name, known in facts["resolved"].items():
        if not known:
            remedy = "add it to DNS or /etc/hosts, or set pylog_address"
            yield Finding(host.name, "name resolution", f"{name} unknown", "an address", remedy)


def full_disks(host: Host) -> Iterator[Finding]:
    """Find file systems without the room that an installation takes."""
    free_bytes = dict((host.facts or {}).get("free_bytes", {}))
    if "/opt/pylog" in (host.facts or {}).get("files", {}) and {"/opt", "/var/lib"} <= free_bytes.keys():
        free_bytes.pop("/", None)  # the first installation alone puts packages there
    for directory, free in free_bytes.items():
        if free < MIN_FREE_BYTES:
            remedy = "free some: an installation would end half way"
            found, wanted = (f"{size >> 20} MiB free" for size in (free, MIN_FREE_BYTES))
            yield Finding(host.name, f"disk of {directory}", found, f"at least {wanted}", remedy)


def memory(host: Host, groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find hosts with less memory than their parts need, the page cache not counted."""
    wanted = SYSTEM_BYTES + BROKER_BYTES * len(host.instances)
    if host.name in groups.get(ZOOKEEPER_GROUP, ()):
        wanted += _heap_bytes(host, "zookeeper_heap_mib")
    if host.name in groups.get(SPARK_GROUP, ()):
        wanted += SPARK_BYTES
    if host.name in groups.get(CONNECT_GROUP, ()):
        wanted += _heap_bytes(host, "connect_heap_mib") + CONNECT_BYTES
    if host.name in groups.get(STREAM_GROUP, ()):
        wanted += SPARK_BYTES * len(queries(host))
    if host.name in groups.get(MONITORING_GROUP, ()):
        wanted += PROMETHEUS_BYTES
    found = (host.facts or {})["memory_bytes"]
    if found < wanted:
        remedy = "add memory or move parts to other hosts"
        yield Finding(host.name, "memory", f"{found >> 20} MiB", f"at least {wanted >> 20} MiB", remedy)


def _heap_bytes(host: Host, name: str) -> int:
    """Return what a variable in MiB asks for; 0 for what is no number, which `wrong_values` finds."""
    given = str(host.variables.get(name, _HEAP_MIB))
    return int(given) << 20 if given.isdecimal() else 0


def listeners_of(
    host: Host, groups: Mapping[str, Iterable[str]], specs: Mapping[str, Mapping[str, Any]]
) -> list[Listener]:
    """Return what will listen on *host*."""
    mine = [name for name, members in groups.items() if host.name in members]
    return listeners(host.variables, mine, specs, is_watched=bool(groups.get(MONITORING_GROUP)))


def ports(host: Host, groups: Mapping[str, Iterable[str]], specs: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Find ports that the host's parts need and that another program holds."""
    wanted = {one.port: one.what for one in listeners_of(host, groups, specs)}
    for listener in (host.facts or {})["listeners"]:
        if listener["port"] in wanted and listener["user"] not in OWN_USERS:
            yield Finding(
                host.name,
                f"port {listener['port']}",
                f"held by a program of {listener['user']}",
                f"free for {wanted[listener['port']]}",
                "stop it or choose another port",
            )


def exposed(
    host: Host, groups: Mapping[str, Iterable[str]], specs: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Find ports that could be reached from outside the trusted networks: nobody has to log in to any of them.

    A host that was not asked yet is taken to have the address by which Ansible reaches it.
    """
    try:
        trusted = networks(host.variables)
    except (ValueError, TypeError) as error:
        wanted = f"networks, such as {DEFAULT_TRUSTED[0]}"
        yield Finding(host.name, f"variable {TRUSTED}", str(error), wanted, "correct it in the inventory")
        return
    known = (host.facts or {}).get("addresses") or _addresses_given(host)
    if host.variables.get("firewall_enabled") is True:
        numbers = [number for one in known if (number := numeric(one)) is not None]
        if numbers and not any(number in network for number in numbers for network in trusted):
            remedy = f"add this network to {TRUSTED}: the hosts' filters would drop what it sends"
            yield Finding(host.name, "address", ", ".join(map(str, numbers)), f"within {TRUSTED}", remedy)
        return
    for one in listeners_of(host, groups, specs):
        for reached in outside(one, known, trusted):
            remedy = f"{f'set {one.setting} to an inside address, or ' if one.setting else ''}firewall_enabled: true"
            yield Finding(
                host.name, f"{one.what}, port {one.port}", f"reachable at {reached}", f"only within {TRUSTED}", remedy
            )


def _addresses_given(host: Host) -> list[str]:
    """Return where the inventory says that *host* is: its name and names in DNS say nothing here."""
    return [str(host.variables.get(name, "")) for name in ("pylog_address", "ansible_host")]


def own_name(host: Host, groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find hosts of Spark that take their own name for the loopback address: they would listen there alone."""
    if not any(host.name in groups.get(group, ()) for group in ("pylog_spark_master", "pylog_spark_worker")):
        return
    name = address(host.name, host.variables)
    known = (host.facts or {})["resolved"].get(name, [])
    if known and all((number := numeric(one)) is not None and number.is_loopback for one in known):
        remedy = "take the name out of the line of 127.0.1.1 in /etc/hosts, or set pylog_address"
        yield Finding(host.name, "own name", f"{name} is {known[0]}", "an address that others reach", remedy)


def watched(host: Host, groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find brokers of which no alert could ever tell."""
    if groups.get(MONITORING_GROUP) and host.name in groups.get(BROKER_GROUP, ()):
        for instance in host.instances:
            if "metrics_port" not in instance:
                remedy = "give it a port: Prometheus has nothing to ask otherwise"
                yield Finding(host.name, f"broker {instance['id']}", "no metrics_port", "a metrics_port", remedy)


def probed(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find datacenters that are watched without a probe: alerts of clients, groups and ZooKeeper would never come."""
    brokers, probes = ({*groups.get(group, ())} for group in (BROKER_GROUP, PROBE_GROUP))
    hosts = list(hosts)
    datacenters = {host.datacenter for host in hosts if host.name in brokers}
    measured = {str(host.variables.get("probe_datacenter") or host.datacenter) for host in hosts if host.name in probes}
    if groups.get(MONITORING_GROUP):
        for datacenter in sorted(datacenters - measured):
            remedy = (
                f"put one of its hosts into {PROBE_GROUP}: the alerts of canary, lag and ZooKeeper read what it tells"
            )
            yield Finding(datacenter, "probe", f"no host in {PROBE_GROUP}", "one", remedy)


def has_brokers(host: Host) -> bool:
    """Say whether brokers are installed on *host*, running or not."""
    return any(re.fullmatch(r"/etc/pylog/broker-\d+\.yml", path) for path in (host.facts or {}).get("files", {}))


def shortages(
    hosts: Iterable[Host], groups: Mapping[str, Iterable[str]], *, is_repair: bool
) -> Iterator[tuple[Finding, bool]]:
    """Find what an installation needs, each with whether it stops this run.

    It stops none where brokers are installed: they run without it, and a restart, a move of partitions to other hosts
    or another disk may be what helps them.
    """
    hosts = list(hosts)
    installed = {host.datacenter for host in hosts if has_brokers(host)}
    for finding in probed(hosts, groups):
        yield finding, not is_repair and finding.host not in installed
    for host in hosts:
        yield from ((finding, not has_brokers(host)) for finding in full_disks(host))


def readable(host: Host) -> Iterator[Finding]:
    """Find variables that cannot be filled in: what they refer to is missing, or a vault stays shut."""
    for name, why in host.unreadable.items():
        remedy = "set what it refers to; secrets belong in a file of ansible-vault"
        if "vault" in why.lower() and "undefined" not in why:
            remedy = "give the right vault password: --ask-vault-pass, or ANSIBLE_VAULT_PASSWORD_FILE"
        yield Finding(host.name, "variables" if name == ALL else f"variable {name}", why, "a value", remedy)


def short_secret(host: Host, groups: Mapping[str, Iterable[str]]) -> bool:
    """Say whether the brokers of *host* know each other by a secret that can be guessed from its hash."""
    given = host.variables.get("pylog_cluster_secret")
    return host.name in groups.get(BROKER_GROUP, ()) and isinstance(given, str) and 0 < len(given) < MIN_SECRET_LENGTH


def secrets(host: Host, groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find a short secret where no broker has one yet; `notes` names it where brokers run with it."""
    if short_secret(host, groups) and SECRET_FILE not in (host.facts or {}).get("files", {}):
        yield _short(host, "openssl rand -hex 32 makes one")


def _short(host: Host, remedy: str) -> Finding:
    found = f"{len(host.variables['pylog_cluster_secret'])} characters"
    return Finding(host.name, "variable pylog_cluster_secret", found, f"at least {MIN_SECRET_LENGTH}", remedy)


def half_secured(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find clusters of which some hosts are secured and others not, and users where nobody logs in."""
    hosts = [host for host in hosts if any(host.name in groups[g] for g in groups if g.startswith("pylog_"))]
    for datacenter in sorted({host.datacenter for host in hosts}):
        members = [host for host in hosts if host.datacenter == datacenter]
        given = {str(host.variables.get("pylog_security", "none")) for host in members}
        if len(given) > 1:
            remedy = "set it for the group, not for a host"
            yield Finding(datacenter, "pylog_security", " and ".join(sorted(given)), "one for the cluster", remedy)
        elif given == {"none"} and any(is_ensemble_encrypted(host.variables) for host in members):
            remedy = f"set pylog_security: {SECURED}, which gives the servers certificates"
            yield Finding(datacenter, "variable zookeeper_encrypted", "true, without pylog_security", SECURED, remedy)
        elif given == {"none"} and any(host.variables.get("users_wanted") for host in members):
            remedy = f"set pylog_security: {SECURED}, or take them out"
            yield Finding(datacenter, "variable users_wanted", "users, and no logins", "logins", remedy)


def standings_of(question: Mapping[str, Any]) -> dict[str, Standing]:
    """Return where each datacenter stands between open and secured."""
    hosts = {name: host_of(name, variables) for name, variables in question["hosts"].items()}
    # What a repair read, which judges no host by it.
    repaired = {name: one.get("__preflight_repaired") or {} for name, one in question["hosts"].items()}
    asked = question.get("secure", {})
    return standings(
        {name: host.variables for name, host in hosts.items()},
        {name: repaired[name].get("answer") if host.facts is None else host.facts for name, host in hosts.items()},
        question["groups"],
        Request(to=str(asked.get("to", "")), datacenter=str(asked.get("datacenter", ""))),
        away=question.get("away", ()),
        is_repair=bool(question.get("is_repair")),
    )


def unfinished(found: Mapping[str, Standing], question: Mapping[str, Any]) -> Iterator[Finding]:
    """Find migrations that nothing but `secure.yml` may go on with, and why that may not either."""
    for place, standing in found.items():
        yield from (Finding(place, *fault) for fault in standing.faults)
    wanted = str(question.get("secure", {}).get("to", ""))
    if wanted and not any(standing.turn or standing.faults for standing in found.values()):
        given = str(question["secure"].get("datacenter", "")) or "none"
        yield Finding(
            "all", "secure_datacenter", given, " or ".join(sorted(found)), "name one: each has a run of its own"
        )


def switched(host: Host) -> Iterator[Finding]:
    """Find servers that run open and shall be secured, or the other way: half way nobody could reach both kinds."""
    is_wanted = {
        "pylog-broker": host.variables.get("pylog_security", "none") == SECURED,
        "pylog-zookeeper": is_ensemble_encrypted(host.variables),
    }
    for unit, is_secured in (host.facts or {}).get("secured", {}).items():
        if is_secured != is_wanted[unit.partition("@")[0].removesuffix(".service")]:
            words = ("secured", "open") if is_secured else ("open", "secured")
            way = TO_OPEN if is_secured else TO_SECURED
            remedy = (
                f"playbooks/secure.yml -e secure_to={way}, which begins at once; or stop this unit on all hosts of "
                f"{host.datacenter} (systemctl stop, and reset-failed where it failed)"
            )
            yield Finding(host.name, unit, f"runs {words[0]}", f"{words[1]}, or stopped", remedy)


def passwords(hosts: Mapping[str, Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find users of programs without a password, or with one that can be guessed from what ZooKeeper has of it."""
    for place, wanted in program_users({name: host.variables for name, host in hosts.items()}, groups).items():
        brokers = [host for host in hosts.values() if host.datacenter == place and host.name in groups[BROKER_GROUP]]
        given = brokers[0].variables.get("users_passwords")
        users = [str(user["name"]) for user in wanted["users"]]
        if not isinstance(given, Mapping):
            if not any({"users_passwords", ALL} & host.unreadable.keys() for host in brokers):
                named = f"passwords of {', '.join(users)}"
                yield Finding(place, "variable users_passwords", "not set", named, "set it; keep it in a vault")
            continue
        for name in users:
            length = len(str(given.get(name) or ""))
            if length < MIN_PASSWORD_LENGTH:
                found = f"{length} characters" if length else "not set"
                wanted_text = f"at least {MIN_PASSWORD_LENGTH} characters"
                yield Finding(place, f"users_passwords {name}", found, wanted_text, "openssl rand -hex 24 makes one")


def authority(hosts: Iterable[Host], now: dt.datetime) -> Iterator[Finding]:
    """Find an authority that is missing, unusable or near its end."""
    secured = [host for host in hosts if host.variables.get("pylog_security") == SECURED]
    # Mostly one for all: each is looked at once.
    seen: set[tuple[str, str]] = set()
    for host in secured:
        if {"certificates_ca", "certificates_ca_key", ALL} & host.unreadable.keys():
            continue
        pem, key = (str(host.variables.get(name) or "") for name in ("certificates_ca", "certificates_ca_key"))
        if not pem:
            remedy = "set it; handbook, Certificates, says how to make one"
            yield Finding(host.name, "variable certificates_ca", "not set", "an authority's certificate", remedy)
        elif (pem, key) not in seen:
            seen.add((pem, key))
            for found, wanted, remedy in authority_problems(pem, key, now):
                yield Finding("all", "authority of the certificates", found, wanted, remedy)


def certificates(
    host: Host, hosts: Mapping[str, Host], groups: Mapping[str, Iterable[str]], now: dt.datetime
) -> Iterator[Finding]:
    """Find certificates that nobody can make, and given ones that do not fit the host."""
    pem, key = (str(host.variables.get(name) or "") for name in ("certificates_ca", "certificates_ca_key"))
    given = host.variables.get("certificates_given") or {}
    if {"certificates_ca", "certificates_ca_key", "certificates_given", ALL} & host.unreadable.keys() or not pem:
        return
    for holder in holders(host.name, {name: one.variables for name, one in hosts.items()}, groups):
        if holder.name not in given and not key:
            remedy = "set certificates_ca_key, or give the host one in certificates_given"
            yield Finding(host.name, f"certificate of {holder.name}", "none, and no key to sign", "one", remedy)
        elif holder.name in given:
            for found in _wrong_given(given[holder.name], pem, holder, now):
                remedy = "issue another one, and correct certificates_given"
                yield Finding(host.name, f"certificates_given {holder.name}", found, "a certificate that fits", remedy)


def _wrong_given(given: object, pem: str, holder: Holder, now: dt.datetime) -> list[str]:
    if not isinstance(given, Mapping) or not given.get("chain") or not given.get("key"):
        return ["it lacks chain or key"]
    try:
        return problems(str(given["chain"]), authority_pem=pem, holder=holder, now=now, renew_days=0, is_given=True)
    except ValueError as error:
        return [str(error)]


def control_machine(variables: Mapping[str, Any], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find an `ansible_become` that holds on the control machine too: it would run what needs no rights as root."""
    if "localhost" not in groups.get("all", ()) and variables.get("ansible_become") in (True, "true", "yes"):
        remedy = "set it for the groups of hosts, not for all"
        yield Finding("localhost", "variable ansible_become", "true", "not set on this machine", remedy)


def disks(host: Host) -> Iterator[Finding]:
    """Find disks that are missing or hold what this bundle did not put there."""
    readings = (host.facts or {})["disks"]
    for entry in host.variables.get("disks_devices") or []:
        reading = readings.get(entry["device"], {"exists": False})
        name = f"disk {entry['device']}"
        if not reading["exists"]:
            yield Finding(host.name, name, "no such block device", "a block device", "correct disks_devices")
        elif reading["type"] and not (reading["type"] == "xfs" and reading["label"].startswith(DISK_LABEL)):
            found = f"{reading['type']} {reading['label']}".strip()
            # The system's own disk has a partition table, and its partitions are what is mounted.
            if carried := sorted({*reading["mounts"], *reading.get("carries", ())}):
                found += f", carries {', '.join(carried)}"
                remedy = "correct disks_devices: this disk is in use"
            else:
                remedy = f"correct disks_devices, or save its data, then: wipefs --all {entry['device']}"
            yield Finding(host.name, name, found, f"blank, or XFS labelled {DISK_LABEL}…", remedy)
        elif [place for place in reading["mounts"] if place != entry["mount"]]:
            yield Finding(host.name, name, f"mounted at {reading['mounts'][0]}", entry["mount"], "unmount it first")
        elif not reading["type"] and (former := _mounted_by_fstab(host, entry["mount"])) and not _replaces(host, entry):
            # A broker would begin with nothing where it had something, and no gate would have asked the others.
            remedy = f"replace_disk.yml -e replace_host={host.name} -e replace_mount={entry['mount']}"
            yield Finding(host.name, name, "blank", f"{former}, which was mounted at {entry['mount']}", remedy)


def _mounted_by_fstab(host: Host, mount: str) -> str:
    """Return the disk that the host's fstab mounts at *mount*; empty if none."""
    lines = [line.split() for line in (host.facts or {}).get("fstab", [])]
    return next((fields[0] for fields in lines if fields[1:2] == [mount] and fields[0].startswith("UUID=")), "")


def _replaces(host: Host, entry: Mapping[str, Any]) -> bool:
    """Say whether this run is the one that puts another disk there."""
    return (host.variables.get("replace_host"), host.variables.get("replace_mount")) == (host.name, entry["mount"])


def strays(host: Host, groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find brokers and ZooKeeper servers that run and that the inventory does not have: no gate would count them."""
    mine = [name for name, members in groups.items() if host.name in members]
    ids = [int(entry["id"]) for entry in host.instances if str(entry["id"]).isdecimal()]
    for unit, verb in servers_without_a_place((host.facts or {}).get("enabled_units", ()), mine, ids):
        remedy = f"put it back into the inventory; {verb} takes it out of service first"
        yield Finding(host.name, unit, "runs here", "a place in the inventory", remedy)


def clocks(hosts: Iterable[Host]) -> Iterator[Finding]:
    """Find clocks far from the others': record timestamps and retention follow them.

    Each is compared with the control machine's, which read its own before it asked and after it had the answer: many
    hosts are read minutes apart, and a login may take long. What is certain is that the difference lies between both.
    """
    ranges = {
        host.name: [int(host.facts["clock_ms"]) - limit_ms for limit_ms in reversed(host.read_ms)]
        for host in hosts
        if host.facts
    }
    middles = sorted(sum(limits) // 2 for limits in ranges.values())
    middle = middles[len(middles) // 2] if middles else 0
    for name, (least_ms, most_ms) in ranges.items():
        nearest_ms = min(max(middle, least_ms), most_ms)
        if abs(nearest_ms - middle) > MAX_CLOCK_SKEW_MS:
            found = f"{(nearest_ms - middle) / 1000:+.0f} s from the others"
            yield Finding(name, "clock", found, f"within {MAX_CLOCK_SKEW_MS // 1000} s", "run an NTP client")


def check_inventory(
    hosts: Iterable[Host],
    groups: Mapping[str, Iterable[str]],
    specs: Mapping[str, Mapping[str, Any]],
    roles: Iterable[str],
) -> list[Finding]:
    """Return all findings that need no host: variables, ids, groups."""
    hosts = list(hosts)
    prefixes = ["pylog_", *(f"{role}_" for role in roles)]
    findings = [*group_shapes(groups, hosts), *repeated_ids(hosts, groups, specs), *replication(hosts, groups)]
    findings += [*one_cluster(hosts, groups), *copies(hosts, groups, specs), *sites(hosts, groups)]
    findings += wrong_queries(hosts, groups)
    for host in hosts:
        findings += [*readable(host), *watched(host, groups)]
        findings += [*directories(host), *wrong_masks(host, groups)]
        findings += unknown_variables(host, specs, prefixes)
        findings += wrong_values(host, specs)
        findings += missing_variables(host, groups)
        findings += exposed(host, groups, specs)
    return sorted(set(findings))


def check_hosts(
    hosts: Iterable[Host], groups: Mapping[str, Iterable[str]], specs: Mapping[str, Mapping[str, Any]]
) -> list[Finding]:
    """Return all findings about hosts that were asked; those outside a ``--limit`` were not."""
    hosts = list(hosts)
    asked = [host for host in hosts if host.facts is not None]
    findings = [*clocks(asked), *ensemble_changes(hosts, groups)]
    for host in hosts:
        if host.failure:
            check, remedy = "reading", "correct its sudo and its python3 (a traceback is a fault of pylog)"
            if host.is_unreachable:
                check, remedy = "login", "correct how it is reached"
            remedy += ", or leave it out: -e away=HOST"
            findings.append(Finding(host.name, check, host.failure, "an answer of its Python", remedy))
    for host in asked:
        findings += [*system(host), *memory(host, groups), *ports(host, groups, specs), *disks(host)]
        findings += [*own_name(host, groups), *strays(host, groups), *secrets(host, groups)]
    return sorted(set(findings))


def table(findings: Iterable[Finding]) -> list[str]:
    """Return the findings as the lines of one aligned table."""
    return aligned(("host", "check", "found", "wanted", "remedy"), [astuple(finding) for finding in findings])


def absent(away: Collection[str], hosts: Collection[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find hosts said to be away that are none of the inventory's, and ensembles that have no majority without them."""
    names = {host.name for host in hosts}
    for name in sorted(set(away) - names):
        yield Finding("all", "away", name, "hosts of the inventory, with commas between them", "correct -e away")
    places = {host.name: host.datacenter for host in hosts}
    for place in sorted({places.get(name, "") for name in away} - {""}):
        members = [name for name in groups.get("pylog_zookeeper", ()) if places.get(name) == place]
        gone = [name for name in members if name in away]
        if gone and 2 * len(gone) >= len(members):
            found = f"{', '.join(gone)} of {len(members)} ZooKeeper servers"
            yield Finding("all", "away", found, "a majority that is there", "bring one of them back")


def notes(question: Mapping[str, Any]) -> list[Finding]:
    """Return rows that stop nobody.

    These are hosts that are away, judged by the inventory alone, short secrets in use, what brokers that are installed
    lack of `shortages`, and, in a repair, backups that are not encrypted.
    """
    remedy = "once it is back, run again without -e away"
    known = set(question.get("away", ())) & question["hosts"].keys()
    rows = [Finding(name, "away", "as -e away says", "not asked, counted as lost", remedy) for name in sorted(known)]
    hosts = [host_of(name, variables) for name, variables in question["hosts"].items()]
    short = [host for host in hosts if host.facts and short_secret(host, question["groups"])]
    rows += [_short(host, "change it: handbook, Another cluster secret") for host in short]
    rows += [
        Finding(place, "security", one.words, "no migration under way, or this one", "docs/security.md")
        for place, one in standings_of(question).items()
        if one.words and not one.faults
    ]
    is_repair = bool(question.get("is_repair"))
    lacking = shortages(hosts, question["groups"], is_repair=is_repair)
    rows += [finding for finding, is_stopping in lacking if not is_stopping]
    return rows + ([*open_backups(hosts, question["groups"])] if is_repair else [])


def open_pages(host: Host, groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find a Prometheus or an Alertmanager of a secured cluster that other hosts reach: neither asks for a login."""
    if host.name not in groups.get(MONITORING_GROUP, ()) or host.variables.get("pylog_security") != SECURED:
        return
    names = {"Prometheus": "monitoring_listen"}
    if host.variables.get("monitoring_alertmanager"):
        names["Alertmanager"] = "monitoring_alertmanager_listen"
    for what, name in names.items():
        text, _, port = str(host.variables.get(name, _LOOPBACK)).rpartition(":")
        listens = numeric(text.strip("[]"))
        if text != "localhost" and (listens is None or not listens.is_loopback):
            found = f"{what} at {text}:{port} would answer whoever reaches it, without login or encryption"
            remedy = "take it out, and reach the page by SSH, or by a proxy on its host that asks for a login"
            yield Finding(host.name, f"variable {name}", found, "an address of loopback", remedy)


_LOOPBACK = "127.0.0.1:0"
"""Where both listen unless the inventory says something else; the port does not matter here."""


def open_backups(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find secured clusters whose daily backups of metadata hold the keys of all passwords in clear."""
    brokers = [host for host in hosts if host.name in groups.get(BROKER_GROUP, ())]
    is_open = {
        host.datacenter
        for host in brokers
        if host.variables.get("pylog_security") == SECURED
        and not host.variables.get("backup_keys")
        and not {"backup_keys", ALL} & host.unreadable.keys()
    }
    for place in sorted(is_open):
        found = "not set: backups of metadata would hold the SCRAM keys of all users in clear"
        wanted = "a list of secrets that encrypt them"
        yield Finding(
            place, "variable backup_keys", found, wanted, "openssl rand -hex 32 makes one; keep it in a vault"
        )


def connectors(host: Host) -> Iterator[Finding]:
    """Find settings of Kafka Connect's worker that it does not have, and connectors that are none."""
    remedy = "correct it in the inventory"
    listens = host.variables.get("connect_listen_host")
    number = numeric(str(listens or "127.0.0.1").strip("[]"))
    if host.variables.get("pylog_security") != SECURED and (number is None or not number.is_loopback):
        wanted = f"127.0.0.1, or pylog_security: {SECURED}"
        yield Finding(
            host.name, "variable connect_listen_host", str(listens), wanted, "whoever reaches it may run code"
        )
    given = host.variables.get("connect_config") or {}
    if isinstance(given, Mapping):
        for name, found, wanted in wrong_settings(given):
            yield Finding(host.name, f"connect_config {name}", found, wanted, remedy)
    try:
        read_connectors(
            {
                "connectors": host.variables.get("connect_connectors") or [],
                "absent": host.variables.get("connect_absent") or [],
            }
        )
    except ConfigError as error:
        for text in str(error).split("; "):
            where, _, rest = text.partition(": found ")
            found, _, wanted = rest.rpartition(", wanted ")
            yield Finding(host.name, f"connect_connectors {where}", found or text, wanted, remedy)


def shared_workers(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    """Find workers of one group that could not reach each other, and that would be told different things."""
    places: dict[tuple[str, str], list[Host]] = {}
    for host in hosts:
        if host.name in groups.get(CONNECT_GROUP, ()):
            places.setdefault(workers_of(host.variables), []).append(host)
    for (place, _), members in sorted(places.items()):
        names = ", ".join(host.name for host in members)
        if len(members) > 1 and any(host.variables.get("pylog_security") != SECURED for host in members):
            wanted = f"one host, or pylog_security: {SECURED}"
            remedy = "several call each other, and whoever reaches their REST API may run code"
            yield Finding(place, f"group {CONNECT_GROUP}", f"{names}, without login", wanted, remedy)
        for name in ("connect_connectors", "connect_absent", "connect_plugins", "connect_secrets", "connect_config"):
            if len({repr(host.variables.get(name)) for host in members}) > 1:
                yield Finding(
                    place, name, "several values", "one for all workers", "set it for the group, not for a host"
                )


def jars(hosts: Iterable[Host], groups: Mapping[str, Iterable[str]], root: Path) -> Iterator[Finding]:
    """Find jars of Kafka Connect that this machine lacks, or that are not what their lock says.

    The one check that reads more of the control machine than the inventory: each directory's jars once for all hosts.
    """
    seen: set[tuple[Path, Path]] = set()
    for host in hosts:
        if host.name not in groups.get(CONNECT_GROUP, ()):
            continue
        directory = root / str(host.variables.get("connect_jars") or ".local/jars")
        plugins = host.variables.get("connect_plugins") or {}
        locks = {"worker": host.variables.get("connect_worker_lock") or "requirements/connect/worker.txt"}
        for name, path in {**plugins, **locks}.items() if isinstance(plugins, Mapping) else ():
            lock = root / str(path)
            if (lock, directory) not in seen:
                seen.add((lock, directory))
                yield from _wrong_jars(name, str(path), lock, directory)
        for name in plugins if isinstance(plugins, Mapping) else ():
            if name == "worker" or not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,99}", str(name)):
                yield Finding(host.name, f"connect_plugins {name}", "no name of a plugin", "another name", "rename it")


def _wrong_jars(name: str, path: str, lock: Path, directory: Path) -> Iterator[Finding]:
    try:
        wanted: list[Jar] = read_lock(lock.read_text(), path)
    except OSError as error:
        yield Finding("localhost", f"plugin {name}", f"{path}: {error.strerror}", "a lock", "correct connect_plugins")
        return
    except (JarsError, UnicodeDecodeError) as error:
        yield Finding("localhost", f"plugin {name}", str(error), "a lock", "make it again: docs/connect.md")
        return
    states = {jar: is_whole(directory, jar) for jar in wanted}
    fetch = f"make jars LOCKS={path}"
    if missing := [jar.coordinates for jar, state in states.items() if state is None]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield Finding("localhost", f"plugin {name}", f"{missing[0]}{more} not fetched", "its jars here", fetch)
    for jar, state in states.items():
        if state is False:
            remedy = f"remove {directory / jar.sha256}.jar, then: {fetch}"
            yield Finding("localhost", f"plugin {name}", f"{jar.coordinates}: another checksum", jar.sha256, remedy)


def host_of(name: str, variables: Mapping[str, Any]) -> Host:
    """Return a host from Ansible's ``hostvars``, among which the role registered what the host said of itself."""
    reading = variables.get("__preflight_reading") or {}
    unreadable = {
        key: str(value[UNREADABLE])
        for key, value in variables.items()
        if isinstance(value, Mapping) and UNREADABLE in value
    }
    return Host(
        name=name,
        variables={key: value for key, value in variables.items() if key not in unreadable},
        facts=reading.get("answer"),
        unreadable=unreadable,
        failure="" if "answer" in reading else failure_of(reading),
        is_unreachable=bool(reading.get("unreachable")),
        read_ms=(int(reading.get("asked_ms", 0)), int(reading.get("answered_ms", 0))),
    )


def failure_of(reading: Mapping[str, Any]) -> str:
    """Return why a host could not be read, on one line, from what Ansible registered; empty if it was not asked."""
    if not (reading.get("unreachable") or reading.get("failed")):
        return ""
    said = " ".join(str(reading.get("module_stderr") or reading.get("msg") or "no reason").split())
    return said if len(said) <= MAX_FAILURE else f"... {said[-MAX_FAILURE:]}"


def judge(question: Mapping[str, Any], roles: Path) -> list[Finding]:
    """Return everything that is wrong with an inventory and the hosts that were asked.

    Args:
        question: ``groups``: name -> hosts; ``hosts``: name -> variables, of the control machine as ``localhost`` too;
            ``files``: names of its files of `group_vars`; ``away``: hosts that are in repair; ``now_ms``: the time;
            ``secure``: what `secure.yml` was asked for, as ``to`` and ``datacenter``;
            ``is_repair``: what a repair can do without stops nobody.
        roles: directory of the roles, for their specifications.
    """
    groups = question["groups"]
    members = {name: v for name, v in question["hosts"].items() if name in groups.get("all", ()) or name != "localhost"}
    hosts = [host_of(name, variables) for name, variables in members.items()]
    names = [path.parent.parent.name for path in roles.glob("*/meta/argument_specs.yml")]
    specs = load_specs(roles)
    around = [*control_machine(question["hosts"].get("localhost", {}), groups)]
    around += stray_files(question.get("files", ()), groups)
    around += absent(question.get("away", ()), hosts, groups)
    now = dt.datetime.fromtimestamp(int(question.get("now_ms", 0)) / 1000, dt.UTC)
    named = {host.name: host for host in hosts}
    around += [*half_secured(hosts, groups), *passwords(named, groups), *authority(hosts, now)]
    is_repair = bool(question.get("is_repair"))
    around += [finding for finding, is_stopping in shortages(hosts, groups, is_repair=is_repair) if is_stopping]
    if not is_repair:
        around += open_backups(hosts, groups)
    for host in hosts:
        around += [*certificates(host, named, groups, now), *open_pages(host, groups)]
        if host.name in groups.get(CONNECT_GROUP, ()):
            around += connectors(host)
    around += shared_workers(hosts, groups)
    if not is_repair:
        around += jars(hosts, groups, roles.parent)
    found = standings_of(question)
    around += unfinished(found, question)
    if not is_repair:
        around += open_consoles(hosts, groups, found)
    for host in hosts:
        if host.datacenter in found and found[host.datacenter].is_switched:
            around += switched(host)
    return sorted(around) + check_inventory(hosts, groups, specs, names) + check_hosts(hosts, groups, specs)


def group_files(sources: Iterable[str]) -> list[str]:
    """Return the names of the files and directories of `group_vars` beside inventories at *sources*."""
    places = [Path(source) if Path(source).is_dir() else Path(source).parent for source in sources]
    found = [path for place in places for path in (place / "group_vars").glob("*") if not path.name.startswith(".")]
    return sorted({path.name if path.is_dir() else path.stem for path in found})


def verdict(question: Mapping[str, Any], roles: Path) -> dict[str, Any]:
    """Return the lines of the table of findings, none where all is well, and what roles want to know of all hosts.

    That is the addresses, the certificates of each host, the users of programs in each datacenter, which datacenters
    they log in to, how programs connect to encrypted ensembles, and the stage of each datacenter: by that roles write
    what is secured and what is open.

    Hosts that are away have a row of their own, which stops nobody.

    Args:
        question: as `judge` takes it, with ``sources``, the paths of the inventories, in the place of ``files``.
        roles: directory of the roles.
    """
    findings = judge({**question, "files": group_files(question["sources"])}, roles)
    stood = standings_of(question)
    users = program_users(question["hosts"], question["groups"])
    logins = [place for place in users if stood[place].stage.programs == LOGINS]
    return {
        "table": table(findings) if findings else [],
        "notes": table(found) if (found := notes(question)) else [],
        "addresses": addresses(question["hosts"], load_specs(roles), logins),
        "certificates": {
            name: [asdict(one) for one in holders(name, question["hosts"], question["groups"])]
            for name in question["hosts"]
        },
        "users": users,
        "logins": logins,
        "ensembles": ensemble_settings(
            question["hosts"], question["groups"], {place: one.stage.store for place, one in stood.items()}
        ),
        "stages": {place: asdict(one.stage) for place, one in stood.items()},
        "turns": {place: turn_of(one.turn, one.position) for place, one in stood.items() if one.turn and one.position},
        "standings": {place: one.words for place, one in stood.items() if one.words},
    }
