"""What roles write at a stage between open and secured, by Ansible itself: one host for each of some stages."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from pylog.ops.certificates import ensemble_settings
from pylog.ops.migration import LAST, STEPS, stage_at
from tests import securing

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"peers-accept": 8, "rights-reported": 12, "programs-secured": 13, "pages-secured": 14}
STAGES = {"open": 0, "store-identity": 5} | NAMES | {"secured": LAST}
INSTANCE = {
    "id": 7,
    "port": 9092,
    "secured_port": 9093,
    "internal_port": 9192,
    "metrics_port": 9400,
    "data_dir": "/d/7",
}
PARTS = ("defaults/main.yml", "vars/main.yml")
ROLES = ("zookeeper", "broker", "registry", "probe", "load_balancer", "console", "ship")
USERS = tuple(f"pylog-{program}" for program in ("admin", "console", "probe", "registry", "ship"))
FILES = {
    "zoo.cfg": "{{ lookup('rendered', templates ~ '/etc/pylog-zookeeper/zoo.cfg.j2') }}",
    "zookeeper.service": "{{ lookup('rendered', templates ~ '/etc/systemd/system/pylog-zookeeper.service.j2') }}",
    "broker.yml": "{{ lookup('rendered', templates ~ '/etc/pylog/broker.yml.j2') }}",
    "profile.yml": "{{ __broker_profile_content }}",
    "registry.yml": "{{ lookup('rendered', templates ~ '/etc/pylog/registry.yml.j2') }}",
    "probe.yml": "{{ lookup('rendered', templates ~ '/etc/pylog/probe.yml.j2') }}",
    "haproxy.cfg": "{{ lookup('rendered', templates ~ '/etc/pylog-load-balancer/haproxy.cfg.j2') }}",
    "console.yml": "{{ lookup('rendered', templates ~ '/etc/pylog/console.yml.j2') }}",
    "ship.service": "{{ lookup('rendered', templates ~ '/etc/systemd/system/pylog-ship.service.j2') }}",
    "left": "{{ __broker_profile_is_left }}",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Return stage -> file -> its text."""
    directory = tmp_path_factory.mktemp("roles")
    stages = {name: asdict(stage_at(STEPS, done)) for name, done in STAGES.items()}
    hosts = {name: {"pylog_security": "sasl_ssl", "pylog_datacenter": name} for name in stages}
    groups = {"pylog_zookeeper": list(hosts), "pylog_broker": list(hosts)}
    given: dict[str, Any] = {
        "templates": str(ROOT / "templates"), "ansible_managed": "managed", "zookeeper_id": 1, "instance": INSTANCE,
        "pylog_broker_instances": [INSTANCE], "broker_templates": str(ROOT / "templates"),
        "users_passwords": dict.fromkeys(USERS, "x"),
        "__release_name": "1", "broker_advertised_host": "192.0.2.1", "broker_store_hosts": "192.0.2.1:2181",
        "broker_session_timeout_ms": 6000, "broker_config_base": {"num.partitions": 4},
        "__preflight_host": {"files": {}, "users": {}, "settled_units": [], "stages": {"profile": "programs=secured"}},
        "__preflight_addresses": {
            "host": dict.fromkeys(hosts, "192.0.2.1"), "zookeeper": dict.fromkeys(hosts, "192.0.2.1:2181"),
            "load_balancer": dict.fromkeys(hosts, "192.0.2.1:19092"),
            "ensemble": dict.fromkeys(hosts, "192.0.2.1"), "brokers": {one: ["192.0.2.1:9092"] for one in hosts},
            "ids": {one: [7] for one in hosts},
        },
        "__preflight_stages": stages,
        "__preflight_logins": [name for name, stage in stages.items() if stage["programs"] == "secured"],
        "__preflight_ensembles": ensemble_settings(hosts, groups, {name: one["store"] for name, one in stages.items()}),
    }  # fmt: skip
    says = "{{ {" + ", ".join(f"'{name}': {text[3:-3]}" for name, text in FILES.items()) + "} | to_json }}"
    play = {
        "hosts": "all", "connection": "local", "gather_facts": False, "become": False,
        "vars_files": [str(ROOT / "roles" / role / part) for role in ROLES for part in PARTS],
        "tasks": [{"ansible.builtin.copy": {"content": says, "dest": f"{directory}/{{{{ pylog_datacenter }}}}.json"}}],
    }  # fmt: skip
    children = {name: {"hosts": {name: variables}} for name, variables in hosts.items()}
    for name in (*groups, "pylog_monitoring", "pylog_registry"):
        children[name] = {"hosts": {one: {} for one in hosts}}
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": children}}))
    (directory / "vars.json").write_text(json.dumps(given))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(directory / "hosts.yml")]
    command += [str(directory / "play.yml"), "-e", f"@{directory / 'vars.json'}"]
    plain = os.environ | {"ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=plain)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: json.loads((directory / f"{name}.json").read_text()) for name in stages}


@pytest.mark.parametrize("name", STAGES)
def test_a_broker_and_a_server_get_the_files_that_the_steps_are_tested_with(
    name: str, written: dict[str, dict[str, str]]
) -> None:
    stage = stage_at(STEPS, STAGES[name])
    broker = securing.broker_file(stage, INSTANCE, address="192.0.2.1", store="192.0.2.1:2181")
    # The role's first comment has three lines.
    assert written[name]["broker.yml"].splitlines()[3:] == broker.splitlines()[1:]
    text = written[name]["zoo.cfg"]
    assert ("# stage: " in text) is (stage.quorum != "open" and stage.ensemble != "tls")
    assert ("netty-codec" in written[name]["zookeeper.service"]) is (stage.quorum != "open")


@pytest.mark.parametrize("name", STAGES)
def test_programs_follow_the_steps_of_their_own(name: str, written: dict[str, dict[str, str]]) -> None:
    stage, texts = stage_at(STEPS, STAGES[name]), written[name]
    registry, probe = yaml.safe_load(texts["registry.yml"]), yaml.safe_load(texts["probe.yml"])
    logs_in = stage.programs == "secured"
    assert ("properties" in registry, "properties" in probe) == (logs_in, logs_in)
    assert ("SASL_SSL" in texts["profile.yml"], str(texts["left"])) == (logs_in, str(not logs_in))
    assert ("zookeeper_security" in registry) is ("zookeeper_security" in probe) is (stage.store != "open")
    assert ("zookeeper.set.acl" in registry.get("zookeeper_security", {})) is (stage.store == "acl")
    has_pages = stage.pages == "secured"
    assert ("listen_security" in registry, "metrics_security" in probe) == (has_pages, has_pages)
    assert registry["login"] == ("scram" if logs_in and has_pages else "none")


@pytest.mark.parametrize("name", STAGES)
def test_whoever_hands_clients_on_or_has_a_page_follows_them_too(name: str, written: dict[str, dict[str, str]]) -> None:
    stage, texts = stage_at(STEPS, STAGES[name]), written[name]
    logs_in, has_pages = stage.programs == "secured", stage.pages == "secured"
    balancer, console = texts["haproxy.cfg"], yaml.safe_load(texts["console.yml"])
    assert ("check-ssl verify required" in balancer) is ("tcp-check connect default" in balancer) is logs_in
    assert ("ssl crt /etc/pylog-load-balancer/tls.pem" in balancer) is has_pages
    assert ("properties" in console) is (console["login"] == "scram") is logs_in
    assert console["registry"] == [f"{'https' if has_pages else 'http'}://192.0.2.1:8081"]
    assert ("PYLOG_CONFIG=/etc/pylog/ship.yml" in texts["ship.service"]) is logs_in
