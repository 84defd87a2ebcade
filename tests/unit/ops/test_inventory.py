"""From Ansible's own listing to hosts that Fabric can reach, and from their answers to the table of `fab status`."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pylog.ops import bundle
from pylog.ops.inventory import PROMPT, TIMEOUT_S, InventoryError, Target, load, target
from pylog.ops.orphans import EXPORTER, PROGRAMS
from pylog.ops.status import DEFAULTS, is_well, questions, rows, units
from pylog.ops.tasks import report, watchers_of

ROOT = Path(__file__).parents[3]
VARIABLES = {
    "ansible_host": "192.0.2.7",
    "ansible_user": "deploy",
    "ansible_ssh_private_key_file": "/k",
    "ansible_ssh_common_args": "-o UserKnownHostsFile=/h -o IdentitiesOnly=yes",
    "zookeeper_id": 3,
    "pylog_broker_instances": [{"id": 31}, {"id": 32}],
}
GROUPS = {"pylog_zookeeper", "pylog_broker", "pylog_ship"}


def broker(broker_id: int, **changes: Any) -> dict[str, Any]:
    status = {"release": "0.1.0", "state": "running", "controller_id": 32}
    unit = f"pylog-broker@{broker_id}.service"
    return {"id": broker_id, "unit": unit, "status": status, "is_ready": True, "reason": ""} | changes


def answers(changed: list[str] | None = None, **broker_changes: Any) -> dict[str, Any]:
    good = {"state": "active/running", "is_active": True, "changed_files": []}
    names = units(target("h", VARIABLES, GROUPS))
    found = {name: dict(good) for name in names}
    found["pylog-broker@31.service"]["changed_files"] = changed or []
    readings = [broker(31, **broker_changes), broker(32)]
    is_ready = all(reading["is_ready"] for reading in readings)
    return {
        "units": {"units": found},
        "brokers": {"brokers": readings, "is_ready": is_ready},
        "zookeeper": {"mode": "leader", "is_ready": True},
    }


def test_an_inventory_is_read_with_its_templates_and_groups_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Molecule has such a callback write its recap behind what was asked for.
    monkeypatch.setenv("ANSIBLE_CALLBACKS_ENABLED", "ansible.posix.profile_tasks")
    (tmp_path / "hosts.yml").write_text("""
all:
  children:
    a: {hosts: {h1: {own: 1}}, children: {b: {hosts: {h2: {broken: "{{ nowhere }}"}}}}}
  vars: {secret: s3cret, ansible_become_password: "{{ secret }}", pylog_cluster_name: "{{ inventory_hostname }}"}
""")
    first, second = load(str(tmp_path / "hosts.yml"))
    assert (first.name, first.groups, first.variables["own"]) == ("h1", {"all", "a"}, 1)
    assert (second.name, second.groups) == ("h2", {"all", "a", "b"})
    assert (first.sudo_password, first.variables["pylog_cluster_name"]) == ("s3cret", "h1")
    assert "broken" not in second.variables


def test_a_password_that_cannot_be_filled_in_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {hosts: {h1: {ansible_become_password: '{{ vault_sudo }}'}}}")
    with pytest.raises(InventoryError, match="h1: ansible_become_password: 'vault_sudo' is undefined"):
        load(str(tmp_path / "hosts.yml"))


@pytest.mark.parametrize(
    ("arguments", "proxy"),
    [
        ("-J ops@bastion", "ssh -i /k -W h:22 ops@bastion"),
        (
            "-o ProxyJump=bastion:2222 -o UserKnownHostsFile=/h",
            "ssh -o UserKnownHostsFile=/h -i /k -p 2222 -W h:22 bastion",
        ),
        ("-o 'ProxyJump first,last'", "ssh -i /k -J first -W h:22 last"),
        ("-o ProxyCommand='ssh -W %h:%p -q bastion'", "ssh -W h:22 -q bastion"),
        ("-oProxyJump=none", None),
        ("", None),
    ],
)
def test_a_bastion_is_gone_through_as_ssh_goes(arguments: str, proxy: str | None) -> None:
    given = {"ansible_ssh_common_args": arguments, "ansible_ssh_private_key_file": "/k"}
    assert target("h", given, set()).proxy == proxy


def test_what_ssh_is_told_holds_for_the_login() -> None:
    found = target(
        "h", {"ansible_ssh_common_args": "-p 2200 -l deploy", "ansible_ssh_extra_args": "-i /k -o X=y"}, set()
    )
    assert (found.port, found.user, found.key_file) == (2200, "deploy", "/k")
    assert target("h", {"ansible_ssh_common_args": "-p 2200", "ansible_port": 2300}, set()).port == 2300


def test_sudo_is_answered_where_it_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = target("h", {**VARIABLES, "ansible_become_password": "p w"}, GROUPS)
    assert found.sudo == f"sudo -S -p '{PROMPT}' "
    [answer] = watchers_of(found)
    assert list(answer.submit(PROMPT)) == ["p w\n"]
    assert watchers_of(target("h", VARIABLES, GROUPS)) == []
    (tmp_path / "file").write_text("from a file\n")
    monkeypatch.setenv("ANSIBLE_BECOME_PASSWORD_FILE", str(tmp_path / "file"))
    assert target("h", VARIABLES, GROUPS).sudo_password == "from a file"


def test_a_host_is_reached_as_ansible_reaches_it() -> None:
    found = target("h", VARIABLES, GROUPS)
    assert (found.address, found.user, found.port, found.key_file) == ("192.0.2.7", "deploy", 22, "/k")
    assert found.known_hosts == "/h"
    assert found.timeout_s == TIMEOUT_S
    assert target("h", {**VARIABLES, "ansible_timeout": 90}, GROUPS).timeout_s == 90
    assert found.broker_ids == [31, 32]
    assert target("h", VARIABLES, GROUPS - {"pylog_broker"}).broker_ids == [], "decommissioned"


def test_an_unreadable_inventory_is_named() -> None:
    with pytest.raises(InventoryError, match="no-such-inventory"):
        load("inventories/no-such-inventory")


def test_questions_need_sudo_for_others_than_root() -> None:
    asked = questions(target("h", VARIABLES, GROUPS))
    assert set(asked) == {"units", "brokers", "zookeeper"}
    assert all(command.startswith("sudo -n python3 -c ") for command in asked.values())
    assert questions(target("h", {}, set()))["units"].endswith(" units '{\"units\": {}}'")


def test_every_unit_has_a_row() -> None:
    assert list(rows("h", answers())) == [
        ("h", "pylog-zookeeper.service", "active/running", "leader"),
        ("h", "pylog-broker@31.service", "active/running", "release 0.1.0, running, in sync"),
        ("h", "pylog-broker@32.service", "active/running", "release 0.1.0, running, in sync, controller"),
        ("h", "cron.service", "active/running", ""),
        ("h", "pylog-ship.service", "active/running", ""),
    ]


@pytest.mark.parametrize(
    ("groups", "variables", "found"),
    [
        ({"pylog_load_balancer"}, {}, {"pylog-load-balancer.service"}),
        ({"pylog_monitoring"}, {}, {"pylog-prometheus.service"}),
        (
            {"pylog_monitoring"},
            {"monitoring_alertmanager": {"receivers": []}},
            {"pylog-prometheus.service", "pylog-alertmanager.service"},
        ),
        ({"pylog_spark_master"}, {}, {"pylog-spark-master.service"}),
        ({"pylog_spark_worker"}, {}, {"pylog-spark-worker.service"}),
        ({"pylog_audit"}, {}, {"pylog-audit.service"}),
        ({"pylog_audit"}, {"audit_ledgers": ["l"]}, {"pylog-audit.service", "pylog-audit-report.timer"}),
        ({"pylog_spark"}, {}, {"pylog-ingest.timer", "pylog-compact.timer", "pylog-audit-lake.timer"}),
        (
            {"pylog_spark"},
            {"ingest_continuous": "True", "ingest_compact_interval_s": "0", "ingest_audit_interval_s": 0},
            {"pylog-ingest.service"},
        ),
        ({"pylog_spark"}, {"ingest_table_format": "iceberg"}, {"pylog-ingest.timer", "pylog-audit-lake.timer"}),
        ({"pylog_ship"}, {"firewall_enabled": True}, {"pylog-ship.service", "pylog-firewall.service"}),
        ({"elsewhere"}, {"firewall_enabled": True}, set()),
    ],
)
def test_each_host_is_asked_for_what_its_groups_and_variables_have_it_run(
    groups: set[str], variables: dict[str, Any], found: set[str]
) -> None:
    assert units(target("h", variables, groups)).keys() == found


def test_the_exporter_is_asked_for_where_the_inventory_has_a_host_that_watches(tmp_path: Path) -> None:
    exporter = {"pylog-node-exporter.service": "/run/pylog-node-exporter/started"}
    (tmp_path / "hosts.yml").write_text("""
all:
  children:
    pylog_ship: {hosts: {h1: {}, h2: {}}}
    pylog_monitoring: {hosts: {h2: {}}}
    elsewhere: {hosts: {h3: {}}}
""")
    hosts = {found.name: units(found) for found in load(str(tmp_path / "hosts.yml"))}
    ship, prometheus = ({f"pylog-{name}.service": f"/run/pylog-{name}/started"} for name in ("ship", "prometheus"))
    assert hosts == {"h1": ship | exporter, "h2": ship | prometheus | exporter, "h3": {}}
    assert units(target("h1", {}, {"pylog_ship"})) == ship


def test_every_program_of_the_bundle_is_asked_for_on_some_host() -> None:
    groups = {group for members in PROGRAMS.values() for group in members}
    given = {"audit_ledgers": ["l"], "monitoring_alertmanager": {"receivers": []}, "stream_queries": [{"name": "a-b"}]}
    asked = [units(target("h", given | {"ingest_continuous": value}, groups)) for value in (True, False)]
    assert set(PROGRAMS) <= {unit.replace("@a-b", "@") for found in asked for unit in found}
    assert asked[0]["pylog-stream@a-b.service"] == "/run/pylog/stream-a-b.started"


def test_a_bundle_has_the_journal_of_what_a_timer_starts() -> None:
    asked = bundle.questions(target("h", {}, {"pylog_spark"}))
    assert "--unit pylog-ingest.timer --unit pylog-ingest.service" in asked["journal-pylog-ingest.timer"]
    asked = bundle.questions(target("h", {}, {"pylog_ship"}))
    assert asked["journal-pylog-ship"].count("--unit") == 1


def test_every_service_notes_its_start_where_it_is_looked_for() -> None:
    roles = {"pylog-load-balancer.service": "load_balancer"}
    for unit in {*PROGRAMS, EXPORTER}:
        if unit.endswith(".service"):
            text = (ROOT / f"templates/etc/systemd/system/{unit}.j2").read_text()
            if unit in roles:
                text += (ROOT / f"roles/{roles[unit]}/vars/main.yml").read_text()
            name = unit.removesuffix(".service")
            noted = (
                f"pylog/{name.removeprefix('pylog-').replace('@', '-%i')}.started" if "@" in unit else f"{name}/started"
            )
            assert f"/run/{noted}" in text, unit


def test_a_variable_that_is_not_set_counts_as_the_roles_take_it() -> None:
    roles = {"audit", "firewall", "ingest", "monitoring"}
    given = [yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text()) for role in roles]
    known = {name: value for defaults in given for name, value in defaults.items()}
    assert {name: known[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("found", "detail", "well"),
    [
        (answers(), "release 0.1.0, running, in sync", True),
        (answers(changed=["/x"]), "release 0.1.0, running, in sync; restart due: /x", False),
        (answers(is_ready=False, reason="not in sync"), "release 0.1.0, running, not ready: not in sync", False),
        (answers(status=None, is_ready=False, reason="silent"), "silent", False),
        (
            answers(status={"release": "0.2.0", "state": "running", "format_level": 2, "newest_format_level": 3}),
            "release 0.2.0, running, in sync, not finalized: formats of level 2",
            True,
        ),
    ],
)
def test_what_is_not_well_is_said(found: dict[str, Any], detail: str, well: bool) -> None:
    assert [row[3] for row in rows("h", found) if row[1] == "pylog-broker@31.service"] == [detail]
    assert is_well(found) == well


def test_an_unreachable_host_does_not_hide_the_others() -> None:
    hosts: list[Target] = [target(name, VARIABLES, GROUPS) for name in ("h1", "h2")]
    lines, all_well = report([(hosts[0], "unreachable: timed out"), (hosts[1], answers())])
    assert not all_well
    assert "unreachable: timed out" in lines[1]
    assert len(lines) == 7


def test_a_vault_that_stays_shut_is_named_with_the_place_of_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def password(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)
        monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / name))

    inventory = tmp_path / "inventory"
    vault = inventory / "group_vars" / "all" / "vault.yml"
    vault.parent.mkdir(parents=True)
    (inventory / "hosts.yml").write_text("all: {hosts: {h1: {ansible_become_password: '{{ vault_sudo }}'}}}")
    password("right", "right\n")
    program = str(Path(sys.executable).with_name("ansible-vault"))
    subprocess.run([program, "encrypt", "--output", str(vault), "-"], input=b"vault_sudo: s3cret", check=True)
    assert load(str(inventory))[0].sudo_password == "s3cret"
    password("wrong", "wrong\n")
    with pytest.raises(InventoryError, match=f"vaults: {vault}; the password was read from {tmp_path}/wrong"):
        load(str(inventory))
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE")
    with pytest.raises(InventoryError, match="the password is missing: ANSIBLE_VAULT_PASSWORD_FILE"):
        load(str(inventory))
