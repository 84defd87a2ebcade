"""Every role dials the addresses that the operator says, and never the one by which Ansible logs in."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROGRAM = str(Path(sys.executable).with_name("ansible-playbook"))
ROLES = ("broker", "registry", "topics", "ship", "mirror", "ingest", "audit", "spark", "load_balancer", "monitoring")
ASKED = (
    "broker_advertised_host", "broker_internal_advertised_host", "broker_store_hosts", "broker_bootstrap",
    "registry_bootstrap", "registry_zookeeper", "registry_advertised_url", "topics_bootstrap", "ship_bootstrap",
    "mirror_source_bootstrap", "mirror_target_bootstrap", "ingest_bootstrap", "audit_bootstrap", "spark_master",
)  # fmt: skip
TEMPLATES = (
    "etc/pylog-zookeeper/zoo.cfg", "etc/pylog-load-balancer/haproxy.cfg", "etc/pylog-monitoring/prometheus.yml",
    "etc/systemd/system/pylog-audit-report.service", "etc/systemd/system/pylog-spark-worker.service",
    "etc/pylog/spark/spark-defaults.conf",
)  # fmt: skip
# The names that Ansible logs in to, but where they label a host's metrics, and an address that it might use for that.
LOGIN = re.compile(r"""(?<!host: ")\b\w+-[ab]\d\.example\.internal|192\.0\.2\.""")


@pytest.fixture(scope="module")
def dialled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what log-b1 of the example would be told, whose hosts log in at other addresses than they serve at."""
    directory = tmp_path_factory.mktemp("addresses")
    variables = "\n".join(f"{name}: {{{{ {name} }}}}" for name in ASKED)
    written = "\n".join(
        f"{{{{ lookup('ansible.builtin.template', '{ROOT}/templates/{name}.j2') }}}}" for name in TEMPLATES
    )
    (directory / "asked.j2").write_text(f"{variables}\n{written}\n")
    tasks = [
        {"ansible.builtin.include_role": {"name": "preflight", "tasks_from": "judge"}},
        {"ansible.builtin.copy": {"content": f"{{{{ lookup('ansible.builtin.template', '{directory}/asked.j2') }}}}",
                                  "dest": f"{directory}/log-b1.txt"}},
    ]  # fmt: skip
    # One role with the defaults of all, so that the inventory is stronger than they, as in a deployment.
    for kind in ("defaults", "vars"):
        files = [ROOT / "roles" / role / kind / "main.yml" for role in (*ROLES, "zookeeper")]
        merged = {
            key: value for path in files if path.exists() for key, value in yaml.safe_load(path.read_text()).items()
        }
        place = directory / "roles" / "every" / kind
        place.mkdir(parents=True)
        (place / "main.yml").write_text(yaml.safe_dump(merged))
    play = {
        "hosts": "log-b1.example.internal",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_become": False},
        "roles": ["every"],
        "tasks": tasks,
    }
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    more = {
        "vault_cluster_secret": "s" * 32,
        "vault_sudo_password": "s",
        "vault_spark_secret": "t" * 32,
        "spark_secret": "t" * 32,
    }
    groups = {"pylog_spark_master": ["spark-b1.example.internal"], "pylog_spark_worker": ["spark-b1.example.internal"]}
    hosts: dict[str, object] = {name: {"hosts": {member: {} for member in members}} for name, members in groups.items()}
    (directory / "more").mkdir()
    (directory / "more" / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": hosts}}))
    (directory / "more" / "group_vars").mkdir()
    (directory / "more" / "group_vars" / "servers.yml").write_text(
        yaml.safe_dump({"ansible_host": "192.0.2.7", "ansible_become": False})
    )
    command = [PROGRAM, "-i", "inventories/example", "-i", str(directory / "more"), str(directory / "play.yml")]
    done = subprocess.run(
        [*command, "-e", json.dumps(more)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_ROLES_PATH": f"{directory}/roles:{ROOT}/roles"},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return (directory / "log-b1.txt").read_text()


def test_no_address_of_a_login_is_dialled(dialled: str) -> None:
    # The label `host` says which host of the inventory a value is about; nobody connects to it.
    lines = [line for line in dialled.splitlines() if "target_label: host" not in line]
    assert [line for line in lines if LOGIN.search(line)] == []


def test_each_part_dials_what_the_operator_says(dialled: str) -> None:
    lines = dict(line.split(": ", 1) for line in dialled.splitlines()[: len(ASKED)])
    live = ",".join(f"log-a{host}.data.example.internal:{port}" for host in (1, 2, 3) for port in (9092, 9093))
    offline = ",".join(f"log-b{host}.data.example.internal:9092" for host in (1, 2, 3))
    ensemble = ",".join(f"log-b{host}.data.example.internal:2181" for host in (1, 2, 3))
    assert lines == {
        "broker_advertised_host": "log-b1.data.example.internal",
        "broker_internal_advertised_host": "log-b1.data.example.internal",
        "broker_store_hosts": ensemble,
        "broker_bootstrap": offline,
        "registry_bootstrap": offline,
        "registry_zookeeper": ensemble,
        "registry_advertised_url": "http://log-b1.data.example.internal:8081",
        "topics_bootstrap": offline,
        "ship_bootstrap": "zk-a1.data.example.internal:9092,zk-a2.data.example.internal:9092",
        "mirror_source_bootstrap": live,
        "mirror_target_bootstrap": offline,
        "ingest_bootstrap": offline,
        "audit_bootstrap": offline,
        "spark_master": "spark://spark-b1.data.example.internal:7077",
    }
    said = dialled
    assert "server.2=log-b2.data.example.internal:2888:3888" in said
    assert "server broker-11 log-b1.data.example.internal:9092" in said
    assert f"--ledger {live} --ledger {offline} " in said
    assert '- targets: ["log-a2.data.example.internal:9402"]' in said
    assert "spark.driver.host log-b1.data.example.internal" in said
