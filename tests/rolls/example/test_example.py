"""The example as deployed: sudo with a password in a vault, two networks, a bastion, and nobody in every role."""

import ipaddress
import json
import os
import subprocess
import time
import uuid
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.infra.conftest import Runner, ask_broker
from tests.rolls.cluster import HOSTS_FILE, ROOT, keep_result, kept
from tests.rolls.operator import INVENTORY, playbook, run

ZONE = "example.internal"
TWO_BROKERS = f"log-a1.{ZONE}"
BEHIND = f"log-b1.{ZONE}"
SPARK = f"spark-b1.{ZONE}"
DEADLINE_S = 120


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    found = Runner(INVENTORY)
    yield found
    for name in found.get_hosts():
        found.get_host(name).backend.connection.close()


@pytest.fixture(scope="module")
def state() -> dict[str, Any]:
    return dict(json.loads(HOSTS_FILE.read_text()))


def test_the_suite_passes_as_a_probe(tmp_path: Path) -> None:
    """The command is the handbook's."""
    began_s = time.monotonic()
    words = ["-m", "readonly", "--connection=ansible", "--hosts=all", f"--ansible-inventory={INVENTORY}", "tests/infra"]
    done = run("pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={tmp_path}/probe.xml", *words)
    assert done.returncode == 0
    took_s = time.monotonic() - began_s
    cases = list(ET.parse(tmp_path / "probe.xml").iter("testcase"))
    skipped = [one for case in cases if (one := case.find("skipped")) is not None]
    # What is not deployed on a host is skipped by name, and nothing else is.
    reasons = Counter(str(one.get("message")).partition(" is not in ")[2] or str(one.get("message")) for one in skipped)
    passed = len(cases) - len(skipped)
    row = {"hosts": 10, "passed": passed, "skipped": len(skipped), "seconds": round(took_s)}
    keep_result("example", {"probe": [row], "skipped": [{"not in, or": why, "tests": n} for why, n in reasons.items()]})
    assert passed >= 120


def test_nobody_logs_in_as_root_and_the_bastion_is_the_only_way_to_its_hosts(state: dict[str, Any]) -> None:
    def login(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["ssh", "-F", str(HOSTS_FILE.parent / "ssh_config"), *words, "sudo -n true || id -un"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    for refused in (f"root@{TWO_BROKERS}", f"deploy@{BEHIND}"):
        assert login(refused).returncode == 255, refused
        assert "Permission denied" in login(refused).stderr
    assert login(f"deploy@{TWO_BROKERS}").stdout == "deploy\n"
    assert login("-J", f"deploy@bastion.{ZONE}", f"deploy@{BEHIND}").stdout == "deploy\n"
    assert set(state["behind"]) == {name for name in state["hosts"] if "-b" in name}


def test_servers_reach_each_other_in_the_network_for_data_alone(runner: Runner, state: dict[str, Any]) -> None:
    data = ipaddress.ip_network(state["data_subnet"])
    seen = Counter[str]()
    for name in runner.get_hosts():
        for line in runner.get_host(name).check_output("ss -H -t -n state established").splitlines():
            here, there = (ipaddress.ip_address(one.rpartition(":")[0].strip("[]")) for one in line.split()[2:4])
            port = line.split()[2].rpartition(":")[2]
            ways = [getattr(one, "ipv4_mapped", None) or one for one in (here, there)]
            if port == "22" or any(one.is_loopback for one in ways):
                continue
            assert all(one in data for one in ways), f"{name}: {line}"
            seen[name] += 1
    assert {name for name, count in seen.items() if count} == set(runner.get_hosts()), "somebody speaks to nobody"
    asked = "/opt/pylog/current/bin/pylog cluster info --format json --bootstrap %s"
    entry = f"zk-a1.data.{ZONE}:9092"
    found = json.loads(runner.get_host(f"zk-a3.{ZONE}").check_output(asked, entry))
    assert {(one["host"], one["port"]) for one in found["brokers"]} == {
        (f"log-a{number}.data.{ZONE}", port) for number in (1, 2, 3) for port in (9092, 9093)
    }


def test_no_host_has_a_way_out_nor_needs_one(runner: Runner) -> None:
    """They had Debian's packages before; wheels came from here."""
    for name in runner.get_hosts():
        assert runner.get_host(name).check_output("ip route show default") == "", name


def test_a_checkout_works_at_a_site_without_a_package_index(state: dict[str, Any]) -> None:
    """As the handbook says: packed with .venv and unpacked at the same path, here on the bastion, a bare Debian."""
    wanted = [".venv", "ansible.cfg", "inventories", "playbooks", "plugins", "pylog", "roles", "templates"]
    left_out = ["--exclude=.venv/lib/python3.11/site-packages/pyspark", "--exclude=__pycache__"]
    own = [str(HOSTS_FILE.parent.relative_to(ROOT) / one) for one in ("inventory", "vault.secret")]
    exec_there = ["podman", "exec", "--interactive", state["hosts"][state["bastion"]]["container"]]
    with subprocess.Popen(["tar", "-C", str(ROOT), "-c", *left_out, *wanted, *own], stdout=subprocess.PIPE) as packed:
        unpack = f"mkdir -p {ROOT} && tar -C {ROOT} -x"
        subprocess.run([*exec_there, "sh", "-c", unpack], stdin=packed.stdout, check=True)
    command = f"cd {ROOT} && .venv/bin/ansible-playbook -i {INVENTORY} playbooks/check_inventory.yml"
    vault = f"export ANSIBLE_VAULT_PASSWORD_FILE={os.environ['ANSIBLE_VAULT_PASSWORD_FILE']}"
    done = subprocess.run(
        [*exec_there, "sh", "-c", f"{vault}; {command}"], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_fab_reaches_every_host_with_the_inventorys_own_login(runner: Runner) -> None:
    done = run("fab", "status", "--inventory", INVENTORY)
    assert done.returncode == 0
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} >= set(runner.get_hosts())
    shown = run("fab", "logs", "--host", BEHIND, "--unit", "pylog-broker@11", "--inventory", INVENTORY)
    assert shown.returncode == 0
    assert "pylog" in shown.stdout


def test_a_line_of_a_live_journal_arrives_in_the_lake(runner: Runner) -> None:
    """Shipped through the balancer, mirrored by the other datacenter, landed by Spark on a host of its own."""
    # In halves, because sudo writes the command into the journal too.
    halves = f"example-{uuid.uuid4().hex}", uuid.uuid4().hex
    marker = ".".join(halves)
    runner.get_host(f"zk-a1.{ZONE}").check_output("printf '%%s.%%s' %s %s | logger -t pylog-example", *halves)
    script = (
        "import glob, sys, pyarrow.parquet as parquet\n"
        "paths = glob.glob('/var/lib/pylog/lake/topic=host.journal/*/*/*.parquet')\n"
        "found = [v for p in paths for v in parquet.read_table(p, columns=['value']).column('value').to_pylist()]\n"
        "print(sum(sys.argv[1].encode() in (one or b'') for one in found))\n"
    )
    host, deadline_s = runner.get_host(SPARK), time.monotonic() + DEADLINE_S
    while True:
        load = host.run("systemctl start pylog-ingest.service")
        assert load.rc == 0, host.run("journalctl --no-pager -n 40 -u pylog-ingest.service").stdout
        if int(host.check_output("/opt/pylog/spark/current/bin/python -c %s %s", script, marker)) == 1:
            return
        assert time.monotonic() < deadline_s, f"{marker} did not arrive"


def test_two_brokers_of_one_host_restart_one_after_the_other(runner: Runner) -> None:
    def started() -> dict[int, int]:
        found = {}
        for name in runner.get_hosts("live"):
            for broker in runner.targets[name].broker_ids:
                found[broker] = int(ask_broker(runner.get_host(name), broker, "/status")["started_ms"])
        return found

    before = started()
    assert sorted(before) == [11, 12, 21, 22, 31, 32]
    began_s = time.monotonic()
    assert playbook("rolling_restart", "--limit", TWO_BROKERS).returncode == 0
    after = started()
    assert {broker for broker in before if before[broker] != after[broker]} == {11, 12}
    # The second one waited for the first, whose gates take three readings of the cluster, a second apart.
    assert abs(after[11] - after[12]) >= 3000
    times = [*kept("example").get("verbs", []), {"verb": "rolling_restart of two brokers on one host",
                                                 "seconds": round(time.monotonic() - began_s)}]  # fmt: skip
    keep_result("example", {"verbs": times})


def test_plan_finds_nothing_to_change() -> None:
    began_s = time.monotonic()
    assert run("python", "-m", "pylog.ops.plan", INVENTORY).returncode == 0
    row = {"verb": "plan without changes", "seconds": round(time.monotonic() - began_s)}
    keep_result("example", {"verbs": [*kept("example").get("verbs", []), row]})


def test_a_wrong_password_of_sudo_is_told_for_every_host(runner: Runner) -> None:
    done = playbook("preflight", "-e", "vault_sudo_password=wrong")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "censored" not in said
    assert [name for name in runner.get_hosts() if f"{name}]" not in said and f"{name} " not in said] == []
    assert "password" in said.lower()


def test_a_wrong_password_of_the_vault_is_told_before_any_host_is_asked(tmp_path: Path) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("wrong\n")
    for done in (
        playbook("preflight", ANSIBLE_VAULT_PASSWORD_FILE=str(wrong)),
        run("fab", "status", "--inventory", INVENTORY, ANSIBLE_VAULT_PASSWORD_FILE=str(wrong)),
    ):
        assert done.returncode != 0
        assert "Decryption failed" in done.stdout + done.stderr
    assert f"{INVENTORY}/group_vars/all/vault.yml" in done.stdout + done.stderr, "fab names the file"
