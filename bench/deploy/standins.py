"""What `plan` and a `site` without changes cost the control machine as the number of hosts grows (F18).

    python -m bench.deploy.standins [--hosts 60 200] [--write]

Hosts are stand-ins: a connection plugin answers what each module would say on a host that is as it should be.  So the
figures are those of the control machine's own processes, without SSH and without anything that hosts do.  Processor
seconds count all processes of a run; wall time depends on what else the machine does, and is given beside its load.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PAGE = ROOT / "docs" / "bench" / "deploy.md"
HOSTS = (60, 200)
SERVERS = 5
RATIO, CPU_S = 3.6, 1.0
"""What is promised: T(200) / T(60) at most, and processor seconds a host at most."""
ALWAYS = {"__tuning_differs": False, "__retention_differs": False, "__backup_differs": False,
          "__ship_differs": False, "__broker_is_unfinished": False, "__zookeeper_differs": False,
          "__release_differs": False}  # fmt: skip
HELD = {"/var/lib/pylog-former.json": "x", "/var/lib/pylog-zookeeper/version-2": "directory"}
"""Files of a host that has been deployed before, beside those that roles write."""
HEAD = """# What a deployment costs the control machine

`python -m bench.deploy.standins --write` measures this page: `plan`, and a `site` that finds nothing to do, on stand-in
hosts. A connection plugin answers for each host as one that is as it should be, so SSH and the hosts' own work are not
in it. Every host has a broker and a shipper, five have a ZooKeeper server.

Promised: T(200) at most 3.6 times T(60), and at most 1 s of processor time a host.

"""


def inventory(count: int) -> dict[str, Any]:
    """Return an inventory of *count* hosts in one datacenter."""
    names = [f"host{number:03}" for number in range(1, count + 1)]
    hosts: dict[str, dict[str, Any]] = {
        name: {
            "pylog_address": f"10.{number // 200}.{number % 200}.7",
            "pylog_broker_instances": [
                {"id": number, "port": 9092, "internal_port": 9192, "data_dir": "/var/lib/pylog/data"}
            ],
        }
        for number, name in enumerate(names, start=1)
    }
    for number, name in enumerate(names[:SERVERS], start=1):
        hosts[name]["zookeeper_id"] = number
    groups = {"pylog_zookeeper": names[:SERVERS], "pylog_broker": names, "pylog_ship": names}
    variables = {
        "ansible_connection": "standin", "pylog_cluster_name": "standin", "pylog_datacenter": "east",
        "pylog_cluster_secret": "0123456789abcdef0123456789abcdef",
    }  # fmt: skip
    children: dict[str, Any] = {group: {"hosts": {name: {} for name in members}} for group, members in groups.items()}
    return {
        "all": {"children": {"east": {"hosts": hosts, "vars": variables}, **children}},
    }


def facts_of(wanted: Mapping[str, Any], broker_id: int) -> dict[str, Any]:
    """Return what `pylog.ops.host` would read of a host that is as *wanted*."""
    units = [f"pylog-broker@{broker_id}.service", "pylog-ship.service", "pylog-zookeeper.service"]
    packages = ["cron", "libzookeeper-java", "openjdk-17-jre-headless", "python3-pip-whl", "xfsprogs"]
    return {
        "os": {"id": "debian", "version": "12", "arch": "x86_64"}, "memory_bytes": 64 << 30, "container": "",
        "python": [3, 11], "init": "systemd", "packages": packages, "listeners": [], "addresses": ["10.0.0.7"],
        "ssh_ports": [22], "disks": {}, "files": {**HELD, **wanted.get("files", {})},
        "users": {"pylog": ["systemd-journal"], "pylog-zookeeper": []}, "settled_units": units, "outdated_units": [],
        "enabled_units": units[:2], "started_with": {}, "fstab": [], "mounts": [], "sysctls": {}, "packet_filter": "",
        "resolved": {}, "kernel": {"hugepages": "", "queues": {}}, "clock_ms": 0, "free_bytes": {},
    }  # fmt: skip


def answers_of(wanted: Mapping[str, Any], broker_id: int) -> dict[str, Any]:
    """Return all that a stand-in answers."""
    broker = {
        "id": broker_id, "unit": f"pylog-broker@{broker_id}.service", "is_active": True, "is_off": False, "restarts": 0,
        "changed_files": [], "started_with": wanted.get("started_with", {}), "current": wanted.get("release", ""),
        "marker": {"state": "done"}, "asked_ms": 0, "free_percent": 50, "is_ready": True, "reason": "", "lacking": 0,
        "status": {"state": "running", "controller_id": 1, "started_ms": 1}, "config_hash": "",
    }  # fmt: skip
    server = {
        "id": broker_id, "unit": "pylog-zookeeper.service", "is_active": True, "mode": "follower", "started_with": {},
        "synced_followers": 4, "changed_files": [], "status": {"started_ms": 1}, "marker": None, "asked_ms": 0,
    }  # fmt: skip
    well = {"is_ready": True, "is_well": True, "is_over": True, "reason": "", "waited": {}}
    return {
        "facts": facts_of(wanted, broker_id),
        "brokers": {"brokers": [broker], "is_hopeless": False, "is_recovering": False, "lacking": 0, **well},
        "zookeeper": {**server, **well},
    }


def environment(directory: Path) -> dict[str, str]:
    """Return the environment of a run over stand-ins."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return kept | {
        "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "bench" / "deploy" / "connection"),
        "STANDIN_DIR": str(directory), "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_PIPELINING": "true",
    }  # fmt: skip


def prepare(directory: Path, count: int) -> Path:
    """Make an inventory and its stand-ins below *directory*; return the inventory.

    Raises:
        RuntimeError: a playbook failed.
    """
    path = directory / "hosts.yml"
    path.write_text(yaml.safe_dump(inventory(count)))
    wheels = directory / "wheels"
    wheels.mkdir()
    (wheels / "pylog_cluster-0.1.0-py3-none-any.whl").write_bytes(b"")
    (wheels / "broker.txt").write_text("pylog-cluster==0.1.0 --hash=sha256:0\n")
    given = {"pylog_wheelhouse": str(wheels), "release_archives": str(directory / "archives")}
    (directory / "group_vars").mkdir()
    (directory / "group_vars" / "all.yml").write_text(yaml.safe_dump(given))
    names = [f"host{number:03}" for number in range(1, count + 1)]
    for number, name in enumerate(names, start=1):
        (directory / f"{name}.json").write_text(json.dumps(answers_of({}, number)))
    learn = [str(BIN / "ansible-playbook"), "-i", str(path), "bench/deploy/learn.yml"]
    run([*learn, "-e", json.dumps({**ALWAYS, "learn_dir": str(directory)})], directory)
    for number, name in enumerate(names, start=1):
        wanted = json.loads((directory / f"{name}.wanted").read_text())
        (directory / f"{name}.json").write_text(json.dumps(answers_of(wanted, number)))
    return path


def run(command: Sequence[str], directory: Path) -> tuple[str, float, float]:
    """Run *command*; return what it printed, its wall seconds and the processor seconds of all its processes.

    Raises:
        RuntimeError: it failed.
    """
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=environment(directory), capture_output=True, text=True, check=False
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
        )
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, time.monotonic() - began_s, used_s


def measure(count: int) -> list[dict[str, Any]]:
    """Return what `plan` and `site` cost on *count* stand-ins."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        path = prepare(directory, count)
        verbs = {
            "plan": [sys.executable, "-m", "pylog.ops.plan", str(path)],
            "site": [str(BIN / "ansible-playbook"), "-i", str(path), "playbooks/site.yml"],
        }
        rows = []
        for verb, command in verbs.items():
            load = os.getloadavg()[0]
            said, wall_s, used_s = run(command, directory)
            # A stand-in that differs from what is wanted would make a run dearer than one without changes.
            if verb == "plan" and "nothing would restart" not in said:
                raise RuntimeError(said)
            if verb == "site" and "changed=0" not in said:
                raise RuntimeError(said[-3000:])
            rows.append({"verb": verb, "hosts": count, "wall_s": wall_s, "cpu_s": used_s, "load": load})
            print(json.dumps(rows[-1]), file=sys.stderr)
        return rows


def page(rows: Sequence[Mapping[str, Any]], machine: str) -> str:
    """Return the page for *rows*."""
    lines = ["| verb | hosts | CPU s | CPU s a host | s | load before |", "|---|--:|--:|--:|--:|--:|"]
    for row in rows:
        costs = f"{row['cpu_s']:.0f} | {row['cpu_s'] / row['hosts']:.2f} | {row['wall_s']:.0f} | {row['load']:.1f}"
        lines.append(f"| `{row['verb']}` | {row['hosts']} | {costs} |")
    lines.append("")
    for verb in dict.fromkeys(row["verb"] for row in rows):
        mine = [row for row in rows if row["verb"] == verb]
        few, many = mine[0], mine[-1]
        if few is not many:
            ratio, used = many["wall_s"] / few["wall_s"], many["cpu_s"] / few["cpu_s"]
            is_kept = ratio <= RATIO and all(row["cpu_s"] / row["hosts"] <= CPU_S for row in mine)
            lines.append(
                f"`{verb}`: {many['hosts']} hosts take {ratio:.1f} times as long as {few['hosts']}, and "
                f"{used:.1f} times the processor time: {'as promised' if is_kept else '**not as promised**'}."
            )
    return HEAD + "\n".join(lines) + f"\n\nMeasured on {machine}.\n"


def main(arguments: Sequence[str]) -> int:
    """Measure, print the page, and write it if asked."""
    parser = argparse.ArgumentParser(prog="standins", description="What a deployment costs the control machine.")
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    rows = [row for count in options.hosts for row in measure(count)]
    text = page(
        sorted(rows, key=lambda row: row["verb"]), f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d', time.gmtime())}"
    )
    print(text)
    if options.write:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
