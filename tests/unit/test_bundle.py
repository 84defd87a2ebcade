"""The bundle as it lies in the repository: specs, inventories, templates, Molecule's files."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import pytest
import yaml
from cryptography.x509.oid import NameOID

from local.docs import roles
from pylog.cli.settings import load_settings
from pylog.client.security import security_properties
from pylog.config import (
    load_broker_config,
    load_console_config,
    load_counter_config,
    load_mirror_config,
    load_registry_config,
)
from pylog.ingest.job import parse
from pylog.ops.host import OWN_PATHS
from pylog.ops.migration import LAST, STEPS, stage_at
from pylog.ops.preflight import Host, check_inventory, load_specs
from pylog.ops.securing import broker_text, ensemble_text
from pylog.ops.wheelhouse import pack
from pylog.ops.zoo_cfg import problems
from tests.servers.certificates import Authority
from tests.templates import render

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parent.parent.name for path in ROOT.glob("roles/*/tasks/main.yml"))
UNITS = ROOT / "templates" / "etc" / "systemd" / "system"
BIN = Path(sys.executable).parent
SPARKS = {"release_requirements": "spark", "release_root": "/opt/pylog/spark"}


def defaults(role: str) -> dict[str, Any]:
    path = ROOT / "roles" / role / "defaults" / "main.yml"
    return yaml.safe_load(path.read_text()) or {} if path.exists() else {}


def options(role: str) -> dict[str, Any]:
    specs = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    found: dict[str, Any] = specs["argument_specs"]["main"].get("options", {})
    return found


def is_computed(value: object) -> bool:
    return isinstance(value, str) and ("{{" in value or "{%" in value)


@pytest.mark.parametrize("role", ROLES)
def test_every_default_is_specified_and_every_specified_default_is_the_default(role: str) -> None:
    specified = {name: spec["default"] for name, spec in options(role).items() if "default" in spec}
    given = defaults(role)
    assert given.keys() <= options(role).keys()
    assert {name: value for name, value in given.items() if not is_computed(value)} == {
        name: value for name, value in specified.items() if name in given
    }
    for name, spec in options(role).items():
        assert not (spec.get("required") and name in given), f"{name} is required and has a default"


def test_packages_of_every_role_that_has_some_can_be_asked_for() -> None:
    table = yaml.safe_load((ROOT / "roles/packages/vars/main.yml").read_text())["__packages_table"]
    assert sorted(options("packages")["packages_roles"]["choices"]) == sorted(table)


@pytest.mark.parametrize("role", ROLES)
def test_every_specified_variable_has_a_type_and_a_sentence(role: str) -> None:
    def check(name: str, spec: Mapping[str, Any]) -> None:
        assert spec.get("type"), name
        assert spec.get("description", "").endswith("."), name
        for inner, inner_spec in spec.get("options", {}).items():
            check(f"{name}.{inner}", inner_spec)

    for name, spec in options(role).items():
        check(name, spec)


@pytest.mark.parametrize("role", ROLES)
def test_every_default_has_a_sentence_above_it(role: str) -> None:
    path = ROOT / "roles" / role / "defaults" / "main.yml"
    lines = path.read_text().splitlines() if path.exists() else []
    for before, line in itertools.pairwise(lines):
        if re.match(r"[a-z]", line):
            assert before.startswith("# "), f"{path}: {line}"


@pytest.mark.parametrize("role", ROLES)
def test_every_role_explains_itself(role: str) -> None:
    assert (ROOT / "roles" / role / "README.md").read_text() == roles.readme(role)


def variables_used(role: str) -> Iterator[str]:
    prefixes = "|".join(ROLES)
    for path in (ROOT / "roles" / role).rglob("*.yml"):
        if path.parent.name in ("tasks", "vars", "defaults"):
            for expression in re.findall(r"\{\{.*?\}\}|when: .*", path.read_text(), re.DOTALL):
                yield from re.findall(rf"(?<![\w.'\"/])((?:{prefixes}|pylog)_[a-z_]+)\b", expression)


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_a_role_reads_is_specified_somewhere(role: str) -> None:
    known = set().union(*(options(name) for name in ROLES))
    for name in ROLES:
        path = ROOT / "roles" / name / "vars" / "main.yml"
        known |= (yaml.safe_load(path.read_text()) or {}).keys() if path.exists() else set()
    # Words of these playbooks and of the inventory, not of a role.
    known |= {"purge_data", "pylog_broker", "pylog_zookeeper", "pylog_cluster"}
    known |= {path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")}
    assert set(variables_used(role)) - known == set()


def ansible_inventory(name: str, **environment: str) -> dict[str, Any]:
    command = [str(BIN / "ansible-inventory"), "-i", f"inventories/{name}", "--list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ | environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def hosts_and_groups(inventory: Mapping[str, Any]) -> tuple[list[Host], dict[str, list[str]]]:
    def members(group: str) -> list[str]:
        entry = inventory.get(group, {})
        below = (host for child in entry.get("children", []) for host in members(child))
        return list(dict.fromkeys([*entry.get("hosts", []), *below]))

    groups = {group: members(group) for group in inventory if group != "_meta"}
    variables = inventory["_meta"]["hostvars"]
    return [Host(name=name, variables=variables.get(name, {})) for name in groups["all"]], groups


def write_hosts_file(path: Path, *names: str) -> Path:
    """Write the state of hosts as `make hosts` does."""
    disks = ["/dev/loop100", "/dev/loop101"]
    hosts = {name: {"ip": f"10.64.0.{number}", "disks": disks} for number, name in enumerate(names, 1)}
    path.write_text(json.dumps({"ssh_key": "/k", "known_hosts": "/h", "apt_proxy": "http://p:1", "hosts": hosts}))
    return path


@pytest.fixture
def hosts_file(tmp_path: Path) -> Path:
    """State of the four hosts of `make up`."""
    return write_hosts_file(tmp_path / "hosts.json", "live1", "live2", "live3", "offline1")


def test_the_example_inventory_passes_preflight() -> None:
    hosts, groups = hosts_and_groups(ansible_inventory("example"))
    assert check_inventory(hosts, groups, load_specs(ROOT / "roles"), ROLES) == []


def test_the_local_inventory_passes_preflight(hosts_file: Path) -> None:
    hosts, groups = hosts_and_groups(ansible_inventory("local", PYLOG_HOSTS_FILE=str(hosts_file)))
    assert {host.name: host.datacenter for host in hosts} == {
        "live1": "live", "live2": "live", "live3": "live", "offline1": "offline"
    }  # fmt: skip
    assert check_inventory(hosts, groups, load_specs(ROOT / "roles"), ROLES) == []


def test_hosts_of_spark_form_its_cluster_and_pass_preflight(tmp_path: Path) -> None:
    names = ["live1", "live2", "live3", "offline1", "offline2", "spark1", "spark2"]
    file = write_hosts_file(tmp_path / "hosts.json", *names)
    hosts, groups = hosts_and_groups(ansible_inventory("local", PYLOG_HOSTS_FILE=str(file)))
    assert check_inventory(hosts, groups, load_specs(ROOT / "roles"), ROLES) == []
    assert groups["pylog_spark_master"] == groups["pylog_spark"] == ["spark1"]
    assert groups["pylog_spark_worker"] == ["spark1", "spark2"]
    assert not set(groups["pylog_broker"]) & set(groups["pylog_spark_worker"])
    assert {host.name: host.datacenter for host in hosts}["spark1"] == "offline"


def test_each_datacenter_has_a_registry_and_the_offline_one_follows(hosts_file: Path) -> None:
    for name, environment in (("example", {}), ("local", {"PYLOG_HOSTS_FILE": str(hosts_file)})):
        hosts, groups = hosts_and_groups(ansible_inventory(name, **environment))
        variables = {host.name: host.variables for host in hosts}
        for datacenter, source in (("live", None), ("offline", "live")):
            there = [one for one in groups["pylog_registry"] if one in groups[datacenter]]
            assert there, f"{name}: {datacenter} has no registry"
            assert {variables[one].get("registry_source") for one in there} == {source}


def test_one_datacenter_alone_has_nothing_between_datacenters(tmp_path: Path) -> None:
    file = write_hosts_file(tmp_path / "hosts.json", "live1", "live2", "live3")
    _, groups = hosts_and_groups(ansible_inventory("local", PYLOG_HOSTS_FILE=str(file)))
    for part in ("mirror", "registry", "audit", "spark", "spark_master", "spark_worker"):
        assert groups.get(f"pylog_{part}", []) == []


def test_an_inventory_without_hosts_says_what_to_do(tmp_path: Path) -> None:
    program = ROOT / "inventories" / "local" / "hosts.py"
    environment = os.environ | {"PYLOG_HOSTS_FILE": str(tmp_path / "missing.json")}
    done = subprocess.run([program, "--list"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert "run: make hosts" in done.stderr


def test_every_playbook_parses_against_the_example() -> None:
    """Run one process: it reads the inventory and preflight, with which every playbook begins, once."""
    playbooks = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("playbooks/*.yml"))
    command = [str(BIN / "ansible-playbook"), "-i", "inventories/example", "--syntax-check", *playbooks]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^playbook: (.*)", done.stdout, re.MULTILINE) == playbooks


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., str]:
    """Return a function that has role release look at this machine, touching nothing, and say what it found."""
    wheel = "pylog_cluster-0.1.0-py3-none-any.whl"
    (tmp_path / wheel).write_bytes(b"")
    for name in ("broker", "spark"):
        (tmp_path / f"{name}.txt").write_text(f"pylog-cluster==0.1.0 --hash=sha256:{name}\n")

    def install(say: str, group: str, *runs: Mapping[str, object]) -> str:
        roles = [
            {"ansible.builtin.include_role": {"name": "release", "public": True}, "vars": variables}
            for variables in runs
        ]
        answer = {"ansible.builtin.debug": {"msg": "it says {{ " + say + " }}"}}
        play = {"hosts": group, "connection": "local", "gather_facts": False, "tasks": [*roles, answer]}
        play["vars"] = {
            "release_wheelhouse": str(tmp_path),
            "release_archives": str(tmp_path / "out"),
            "pylog_broker_instances": [{"id": 1}],
            "__preflight_host": {"files": {"/opt/pylog/current": "link releases/former"}, "users": {}},
        }
        (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
        (tmp_path / "hosts.ini").write_text(f"[{group}]\nlocalhost\n")
        command = [str(BIN / "ansible-playbook"), "-i", str(tmp_path / "hosts.ini"), str(tmp_path / "play.yml")]
        command += ["-e", '{"__release_differs": false}']
        plain = os.environ | {"ANSIBLE_FORCE_COLOR": "0"}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=plain)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.search(r"it says (.*)", done.stdout)
        assert found, done.stdout
        return found[1].rstrip('"')

    return install


def test_brokers_beside_spark_keep_their_own_release(installed: Callable[..., str], tmp_path: Path) -> None:
    found = installed("__release_name", "pylog_broker", {}, SPARKS)
    assert found == pack(tmp_path / "broker.txt", tmp_path / "out")["release"]


@pytest.mark.parametrize(("group", "moved"), [("pylog_broker", "[]"), ("pylog_ship", "['/opt/pylog/current']")])
def test_only_under_a_broker_the_former_release_stays_until_its_restart(
    installed: Callable[..., str], group: str, moved: str
) -> None:
    links = "__release_links_wanted | map(attribute='dest') | select('match', '/opt') | list"
    assert installed(links, group, {}) == moved, "one that runs no broker any more has no roll that would do it"


def test_f13_a_check_says_when_the_packet_filter_is_not_as_loaded(tmp_path: Path) -> None:
    play = {
        "hosts": "pylog_broker", "connection": "local", "gather_facts": False, "become": False,
        "tasks": [{"ansible.builtin.include_role": {"name": "firewall"}}],
        "vars": {
            "firewall_enabled": True, "pylog_broker_instances": [{"id": 1}],
            "__preflight_addresses": {"host": {}, "ensemble": {}},
            "__preflight_host": {
                "files": "{{ __firewall_wanted }}", "packet_filter": "{{ seen }}", "ssh_ports": [22], "resolved": {},
                "settled_units": ["pylog-firewall.service"], "packages": ["nftables"],
            },
        },
    }  # fmt: skip
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    (tmp_path / "hosts.ini").write_text("[pylog_broker]\nsame seen=loaded\nother seen=changed\nnone seen=''\n")
    command = [str(BIN / "ansible-playbook"), "-i", str(tmp_path / "hosts.ini"), str(tmp_path / "play.yml"), "--check"]
    plain = os.environ | {"ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=plain)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(re.findall(r"changed: \[(\w+)\] => \s*msg: table inet pylog = ([^\n]*), wanted", done.stdout))
    assert said == {"other": "changed", "none": "not loaded"}
    assert re.search(r"^same .* changed=0 ", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize(("mounts", "is_refused"), [(["/", "/data/1"], False), (["/"], True)])
def test_f32_a_missing_mount_stops_the_role_before_anything_is_written(
    tmp_path: Path, mounts: list[str], is_refused: bool
) -> None:
    ask = {"ansible.builtin.include_role": {"name": "broker", "tasks_from": "configure"}}
    play = {
        "hosts": "localhost", "connection": "local", "gather_facts": False, "become": False, "tasks": [ask],
        "vars": {
            "broker_mounts": ["/data/1"], "disks_devices": [], "pylog_broker_instances": [{"id": 1}],
            "__preflight_host": {"files": {}, "mounts": mounts},
            "__broker_desired": {"files": {}},
        },
    }  # fmt: skip
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    command = [str(BIN / "ansible-playbook"), "-i", "localhost,", str(tmp_path / "play.yml"), "--check"]
    plain = os.environ | {"ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=plain)
    said = " ".join(done.stdout.split())
    assert ("broker_mounts: found no mount at /data/1" in said) is is_refused
    assert ("Keep what the brokers run with now" in said) is not is_refused


def security_of(done: int) -> dict[str, Any]:
    """Return what role `broker` knows after *done* steps of a migration."""
    stage = asdict(stage_at(STEPS, done))
    return {"__broker_security": stage, "__broker_security_text": broker_text(stage)}


def ensemble_security_of(done: int) -> dict[str, Any]:
    """Return what role `zookeeper` knows after *done* steps of a migration."""
    stage = asdict(stage_at(STEPS, done))
    return {"__zookeeper_security": stage, "__zookeeper_security_text": ensemble_text(stage)}


def test_the_broker_reads_the_configuration_that_the_role_writes(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 64)
    instance = {"id": 7, "port": 9093, "internal_port": 9193, "metrics_port": 9401, "data_dir": "/d/7", "rack": "a"}
    text = render(
        "etc/pylog/broker.yml.j2", ansible_managed="managed", instance=instance, broker_listen_host="0.0.0.0",
        **security_of(0), broker_advertised_host="192.0.2.1", broker_internal_listen_host="0.0.0.0",
        broker_internal_advertised_host="192.0.2.1", broker_metrics_host="127.0.0.1",
        broker_store_hosts="192.0.2.1:2181,192.0.2.2:2181", broker_session_timeout_ms=6000,
        broker_secret_file=str(secret), broker_config_effective={"num.partitions": 4, "default.replication.factor": 1},
        __broker_store_settings={},
    )  # fmt: skip
    path = tmp_path / "broker-7.yml"
    path.write_text(text)
    config = load_broker_config(path)
    assert (config.broker_id, config.rack, config.client.advertised_port) == (7, "a", 9093)
    assert config.store.hosts == "192.0.2.1:2181,192.0.2.2:2181"
    assert config.settings["num.partitions"] == 4


def test_the_broker_reads_the_secured_configuration_that_the_role_writes(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 64)
    text = render(
        "etc/pylog/broker.yml.j2", ansible_managed="managed",
        instance={"id": 7, "port": 9093, "internal_port": 9193, "data_dir": "/d/7"}, broker_listen_host="0.0.0.0",
        **security_of(LAST), broker_session_ms=3600000, broker_advertised_host="192.0.2.1",
        broker_internal_listen_host="0.0.0.0", broker_internal_advertised_host="192.0.2.1",
        broker_store_hosts="192.0.2.1:2181", broker_session_timeout_ms=6000, broker_secret_file=str(secret),
        broker_config_effective={"super.users": "User:pylog-admin"},
        __broker_store_settings={
            "zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/etc/pylog/ca.pem",
            "zookeeper.set.acl": "true", "zookeeper.acl.owners": "x509:CN=pylog",
            "zookeeper.ssl.keystore.location": "/etc/pylog/tls.pem",
        },
    )  # fmt: skip
    keys = Authority(tmp_path).issue("tls.pem", (NameOID.COMMON_NAME, "pylog"))
    path = tmp_path / "broker-7.yml"
    path.write_text(text.replace("/etc/pylog/tls.pem", str(keys)).replace("/etc/pylog/ca.pem", str(keys)))
    config = load_broker_config(path)
    assert config.store.security.rights is not None
    assert list(map(str, config.store.security.rights.owners)) == ["x509:CN=pylog"]
    assert config.client.settings.protocol.name == "SASL_SSL"
    assert config.internal is not None
    assert config.internal.settings.protocol.name == "SSL"
    assert "ssl.keystore.location: /etc/pylog/tls.pem" in text


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_the_configuration_of_zookeeper_that_the_role_writes_is_judged_good(is_encrypted: bool) -> None:
    text = render(
        "etc/pylog-zookeeper/zoo.cfg.j2", ansible_managed="managed", zookeeper_tick_ms=2000, zookeeper_init_ticks=10,
        zookeeper_sync_ticks=5, zookeeper_data_dir="/var/lib/pylog-zookeeper", zookeeper_data_log_dir="",
        zookeeper_client_port=2181, zookeeper_max_connections=200, zookeeper_autopurge_hours=24,
        zookeeper_autopurge_snapshots=3, zookeeper_four_letter_words=["mntr"], zookeeper_members=["h1"],
        **ensemble_security_of(LAST if is_encrypted else 0), __zookeeper_keys="/etc/pylog-zookeeper/tls.pem",
        __zookeeper_authorities="/etc/pylog-zookeeper/ca.pem",
    )  # fmt: skip
    assert list(problems(text, 1)) == []
    assert ("\nclientPort=2181\n" in text) is not is_encrypted
    assert ("\nsecureClientPort=2181\n" in text) is is_encrypted


COMPUTED: dict[str, Any] = {
    "__preflight_stages": {"all": {"pages": "open"}},
    "__audit_login": {}, "__registry_login": {}, "__registry_zookeeper": {},
    "__registry_is_encrypted": False, "registry_login": "none",
    "__mirror_source_login": {}, "__mirror_target_login": {},
    "registry_bootstrap": "192.0.2.1:9092,", "registry_zookeeper": "192.0.2.1:2181",
    "registry_follow": "http://192.0.2.1:8081,http://192.0.2.2:8081",
    "registry_advertised_url": "http://192.0.2.1:8081", "mirror_source": "live", "mirror_target": "offline",
    "mirror_source_bootstrap": "192.0.2.1:9092,192.0.2.2:9092,", "mirror_target_bootstrap": "198.51.100.1:9092,",
    "mirror_group": "pylog-mirror-offline", "mirror_metrics_listen": "127.0.0.1:9181",
    "audit_metrics_listen": "127.0.0.1:9182", "audit_tier": "mirror", "audit_bootstrap": "198.51.100.1:9092,",
}  # fmt: skip


@pytest.mark.parametrize(("role", "load"), [
    ("registry", load_registry_config), ("mirror", load_mirror_config), ("audit", load_counter_config),
])  # fmt: skip
def test_a_program_reads_the_configuration_that_its_role_writes(
    tmp_path: Path, role: str, load: Callable[[Path], Any]
) -> None:
    given = {name: value for name, value in defaults(role).items() if not is_computed(value)}
    path = tmp_path / f"{role}.yml"
    path.write_text(render(f"etc/pylog/{role}.yml.j2", ansible_managed="managed", **given, **COMPUTED))
    loaded = load(path)
    if role == "mirror":
        assert loaded.source.connection.bootstrap == "192.0.2.1:9092,192.0.2.2:9092"
        assert loaded.topics == (".*",)
    else:
        assert loaded.cluster.bootstrap.endswith(":9092")


@pytest.mark.parametrize(("role", "load"), [
    ("registry", load_registry_config), ("mirror", load_mirror_config), ("audit", load_counter_config),
])  # fmt: skip
def test_a_program_of_a_secured_cluster_logs_in(tmp_path: Path, role: str, load: Callable[[Path], Any]) -> None:
    given = {name: value for name, value in defaults(role).items() if not is_computed(value)}
    login = {"security.protocol": "SASL_SSL", "sasl.username": f"pylog-{role}", "sasl.password": 'a"b: c'}
    logins = {name: login for name in COMPUTED if name.startswith("__") and name.endswith("_login")}
    path = tmp_path / f"{role}.yml"
    path.write_text(render(f"etc/pylog/{role}.yml.j2", ansible_managed="managed", **given, **(COMPUTED | logins)))
    loaded = load(path)
    connections = [loaded.source.connection, loaded.target.connection] if role == "mirror" else [loaded.cluster]
    assert [dict(one.properties) for one in connections] == [login] * len(connections)


def test_a_registry_of_a_secured_cluster_is_encrypted_and_asks_for_a_login(tmp_path: Path) -> None:
    given = {name: value for name, value in defaults("registry").items() if not is_computed(value)}
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "pylog-registry",
             "sasl.password": "a long password", "ssl.ca.location": str(Authority(tmp_path).trusted)}  # fmt: skip
    secured = {"__registry_login": login, "__registry_is_encrypted": True, "registry_login": "scram"}
    path = tmp_path / "registry.yml"
    path.write_text(
        render("etc/pylog/registry.yml.j2", ansible_managed="managed", **given, **(COMPUTED | secured)).replace(
            "http://", "https://"
        )
    )
    loaded = load_registry_config(path)
    assert loaded.login_mechanism == "SCRAM-SHA-512"
    assert loaded.tls is not None
    assert (loaded.tls.key_store, loaded.tls.client_auth) == (Path("/etc/pylog/registry.pem"), "requested")


def test_the_load_and_the_count_of_the_lake_log_in_by_the_files_that_the_role_writes(tmp_path: Path) -> None:
    authority, password = Authority(tmp_path).trusted, tmp_path / "ingest.password"
    password.write_text("a long password\n")
    password.chmod(0o600)
    given = {"ansible_managed": "managed", "__ingest_password_file": str(password)}
    paths = {}
    for name in ("ingest-security.yml", "ingest-login.yml"):
        paths[name] = tmp_path / name
        text = render(f"etc/pylog/{name}.j2", **given).replace("/etc/pylog/ca.pem", str(authority))
        paths[name].write_text(text)
    job = parse(["--bootstrap", "h:1", "--topics", "t", "--lake", "/l", "--checkpoint", "/c", "--security",
                     str(paths["ingest-security.yml"])])  # fmt: skip
    found = load_settings({"PYLOG_CONFIG": str(paths["ingest-login.yml"])}).properties
    assert found["sasl.password"] == "a long password"
    assert found == security_properties(job.security, {})


@pytest.mark.parametrize("is_secured", [False, True])
def test_the_console_reads_the_configuration_that_the_role_writes(tmp_path: Path, is_secured: bool) -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "pylog-console",
             "sasl.password": "a long password", "ssl.ca.location": str(Authority(tmp_path).trusted)}  # fmt: skip
    text = render(
        "etc/pylog/console.yml.j2", ansible_managed="managed",
        console_listen=f"{'0.0.0.0' if is_secured else '127.0.0.1'}:1",
        console_datacenter="live", console_bootstrap="h1:9092,", console_login="scram" if is_secured else "none",
        console_read_payloads=["alice"], console_public_url="", console_registry=["http://h1:8081"],
        console_prometheus=" http://h1:9090", console_ledgers=["offline"], console_audit_window_ms=5000,
        console_lake="/srv/lake" if is_secured else "",
        console_masks=[{"topic": "orders", "field": "card"}] if is_secured else [],
        console_changes=["produce"] if is_secured else [], console_changers=["alice"] if is_secured else [],
        __console_logins={"live": login, "offline": login} if is_secured else {}, __console_is_encrypted=is_secured,
        __console_names=["h1", "192.0.2.1"],
        __console_clusters=[{"bootstrap": "h2:9092"} | ({"properties": login} if is_secured else {})],
    )  # fmt: skip
    path = tmp_path / "console.yml"
    path.write_text(text)
    found = load_console_config(path)
    assert found.has_login is found.is_encrypted is is_secured
    assert [one.bootstrap for one in found.ledgers] == ["h2:9092"]
    assert (found.window_ms, found.prometheus, found.registries) == (5000, "http://h1:9090", ("http://h1:8081",))
    assert ("192.0.2.1" in found.hosts) is is_secured
    assert (found.datacenter, [one.field for one in found.masks]) == ("live", ["card"] if is_secured else [])
    assert found.may_change("alice") == (frozenset({"produce"}) if is_secured else frozenset())
    assert found.lake == (Path("/srv/lake") if is_secured else None)


@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.glob("*.service.j2")))
def test_f30_every_service_is_bounded(unit: str) -> None:
    text = (UNITS / unit).read_text()
    if unit == "pylog-firewall.service.j2":
        return  # loads the kernel's own table, as root
    assert "\nUser=" in text
    assert "{% include 'pylog-bounds.inc' %}" in text
    # As Ansible renders it: the last newline of an included file goes, and what follows it joined its last line.
    environment = jinja2.Environment(trim_blocks=True, loader=jinja2.FileSystemLoader(UNITS))
    lines = environment.from_string("{% include 'pylog-bounds.inc' %}\nPrivateTmp=yes\n").render().splitlines()
    assert lines[-2:] == ["SystemCallErrorNumber=EPERM", "PrivateTmp=yes"]
    assert "LimitCORE=0" in lines, "a core dump would hold keys"
    if unit == "pylog-load-balancer.service.j2":
        # May listen on a low port; a set of capabilities counts from the last empty one on.
        assert text.index("\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\n") > text.index("pylog-bounds.inc")
    if unit == "pylog-node-exporter.service.j2":
        assert "\nSystemCallFilter=adjtimex clock_adjtime\n" in text, "or node_timex_sync_status is missing"


def test_f26_kernel_settings_come_after_those_of_etc_sysctl_conf() -> None:
    """At boot systemd reads all files by their names, /etc/sysctl.conf by the name that Debian links to it."""
    [ours] = [path.name.removesuffix(".j2") for path in (ROOT / "templates/etc/sysctl.d").iterdir()]
    assert max(ours, "99-sysctl.conf") == ours


def test_every_template_is_used() -> None:
    there = {str(path.relative_to(ROOT / "templates")) for path in (ROOT / "templates").rglob("*.j2")}
    text = "".join(path.read_text() for path in ROOT.glob("roles/*/*/*.yml"))
    named = {path.removesuffix(".j2") + ".j2" for path in re.findall(r"(?<!\w)((?:etc|root)/[\w./@-]+\w)", text)}
    assert there - named == set()


def test_every_file_that_a_role_writes_is_read_before_it_is_compared() -> None:
    """Otherwise it differs for ever, and each run does the whole role again."""
    written = ["/" + str(path.relative_to(ROOT / "templates")) for path in (ROOT / "templates").rglob("*.j2")]
    paths = [PurePosixPath(path.removesuffix(".j2")) for path in written]
    unread = {str(path) for path in paths if not any(path.match(pattern) for pattern in OWN_PATHS)}
    assert unread == {"/etc/pylog/spark/spark-defaults.conf"}, "which is compared on the host by each run"


@pytest.mark.parametrize("given", [{}, {"monitoring_data_dir": "/srv/samples"}])
def test_every_directory_of_the_monitoring_is_read_before_it_is_compared(given: Mapping[str, str]) -> None:
    question = yaml.safe_load((ROOT / "roles/preflight/vars/main.yml").read_text())["__preflight_question"]
    environment = jinja2.Environment()  # nothing here is HTML
    environment.filters["regex_replace"] = lambda text, pattern, to: re.sub(pattern, to, text)
    asked = environment.compile_expression(question["paths"].strip("{} \n"))(**given)
    computed = yaml.safe_load((ROOT / "roles/monitoring/vars/main.yml").read_text())
    variables = defaults("monitoring") | {"__monitoring_dir": computed["__monitoring_dir"], **given}
    written = [
        PurePosixPath(environment.from_string(directory["path"]).render(variables))
        for directory in computed["__monitoring_directories"]
    ]
    assert [path for path in written if not any(path.match(pattern) for pattern in (*OWN_PATHS, *asked))] == []


@pytest.mark.parametrize("role", [path.parents[1].name for path in sorted(ROOT.glob("roles/*/tasks/apply.yml"))])
def test_what_a_role_writes_is_what_it_compares(role: str) -> None:
    tasks = "".join(path.read_text() for path in (ROOT / "roles" / role / "tasks").glob("*.yml"))
    compared = (ROOT / "roles" / role / "vars" / "main.yml").read_text()
    written = set(re.findall(r"(?<!\w)(etc/[\w./@-]+)\.j2", tasks))
    # A unit may stand there by its name, a configuration by its variable's value.
    assert [path for path in sorted(written) if path not in compared and path.rsplit("/", 1)[1] not in compared] == []


def test_every_directory_that_a_release_declares_is_read_by_preflight() -> None:
    lines = (ROOT / "templates" / "etc" / "tmpfiles.d" / "pylog.conf.j2").read_text().splitlines()
    declared = {line.split()[1] for line in lines if line.startswith("d ")}
    assert declared
    assert declared - {*OWN_PATHS} == set()


@pytest.mark.parametrize("path", sorted(ROOT.glob("molecule/*/molecule.yml")), ids=lambda path: path.parent.name)
def test_a_scenario_counts_its_tests(path: Path) -> None:
    [minimum] = re.findall(r"^min_tests=(\d+)$", path.with_name("scenario.sh").read_text(), re.MULTILINE)
    assert int(minimum) > 0
    # Those of `cluster` are what all scenarios have unless they say otherwise.
    tests = yaml.safe_load(path.read_text()).get("verifier", {}).get("directory", f"/tests/rolls/{path.parent.name}")
    assert tests.endswith(f"/tests/rolls/{path.parent.name}")
    assert path.parent.name == "cluster" or any((ROOT / "tests/rolls" / path.parent.name).glob("test_*.py"))


def test_the_page_of_variables_is_up_to_date() -> None:
    assert (ROOT / "docs" / "variables.md").read_text() == roles.variables_page()
