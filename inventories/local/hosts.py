#!/usr/bin/env python3
"""Inventory of the local hosts: who they are stands in the state file that `local/hosts/hosts.py` writes.

PYLOG_HOSTS_FILE names another state file; Molecule's hosts run beside those of `make up` that way.
What differs between hosts stands in host_vars, the same as in production.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENSEMBLES = ("live1", "live2", "live3", "offline1")
# Read by group_vars.
SECRETS = tuple(ROOT / ".local" / f"{name}.secret" for name in ("cluster", "spark", "backup"))
# Made once for this checkout too: the authority of its certificates, passwords of the programs' users and of `demo`.
AUTHORITY = ROOT / ".local" / "ca"
PASSWORDS = ROOT / ".local" / "users"
USERS = (
    "demo", "pylog-admin", "pylog-audit", "pylog-connect", "pylog-console", "pylog-ingest", "pylog-mirror",
    "pylog-probe", "pylog-registry", "pylog-ship", "pylog-stream",
)  # fmt: skip
STATE_FILE = Path(os.environ.get("PYLOG_HOSTS_FILE") or ROOT / ".local" / "hosts.json")
# `sasl_ssl` or `none`, as `make up` made the hosts; the environment says something else for one run.
SECURITY = STATE_FILE.with_name("security")


def variables(state: dict[str, Any], host: str) -> dict[str, Any]:
    """Return how to reach *host* and which disks it has."""
    options = f"-o UserKnownHostsFile={state['known_hosts']} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
    if timeout_s := state.get("variables", {}).get("ansible_timeout"):
        options += f" -o ConnectTimeout={timeout_s}"  # for those who read only this of Ansible's words for SSH
    return {
        "ansible_host": state["hosts"][host]["ip"],
        "pylog_address": state["hosts"][host]["ip"],
        "ansible_user": state.get("user", "root"),
        "ansible_ssh_private_key_file": state["ssh_key"],
        "ansible_ssh_common_args": options,
        "local_disks": state["hosts"][host]["disks"],
        **state.get("variables", {}),
    }


def inventory(state: dict[str, Any]) -> dict[str, Any]:
    """Return the inventory as Ansible's script protocol wants it; a host's name says its datacenter.

    With both datacenters there, the second one mirrors, loads and audits the first, and its registry follows the
    first's. Secured hosts have a registry in any case: its login is one of theirs. Hosts named spark form a standalone
    cluster of Spark without brokers; where there are none, Spark runs beside the offline datacenter's broker.
    """
    hosts = sorted(state["hosts"])
    live = [host for host in hosts if host.startswith("live")]
    offline = [host for host in hosts if host.startswith("offline")]
    spark = [host for host in hosts if host.startswith("spark")]
    groups = {
        "live": live,
        "offline": offline + spark,
        "spark": spark,
        # Hosts that join later bring brokers; the ensemble stays odd.
        "pylog_zookeeper": [host for host in hosts if host in ENSEMBLES],
        "pylog_broker": live + offline,
        "pylog_ship": hosts,
        "pylog_spark": spark[:1] or offline[:1],
        "pylog_spark_master": spark[:1],
        "pylog_spark_worker": spark,
        # Empty, since both need what the demonstration has not: queries, and connectors with their jars.
        "pylog_stream": [],
        "pylog_connect": [],
        "pylog_load_balancer": live[:1],
        "pylog_monitoring": live[1:2],
        "pylog_mirror": offline[:1] if live else [],
        "pylog_registry": live[:1] + offline[:1] if live and (offline or security() != "none") else [],
        "pylog_console": live[:2][-1:],
        "pylog_probe": live[1:2] + offline[:1],
        "pylog_audit": live[:1] + offline[:1] if live and offline else [],
    }
    return {
        "_meta": {"hostvars": {host: variables(state, host) for host in hosts}},
        "all": {"vars": {"pylog_apt_proxy": state.get("apt_proxy") or "", "pylog_security": security()}},
        **{group: {"hosts": members} for group, members in groups.items() if group not in state.get("without", ())},
    }


def security() -> str:
    """Return what the hosts are secured by."""
    told = os.environ.get("SECURITY") or (SECURITY.read_text().strip() if SECURITY.exists() else "")
    if told:
        return told
    # Sets with a state file of their own are those of tests, which say what they want.
    return "none" if os.environ.get("PYLOG_HOSTS_FILE") else "sasl_ssl"


def make_authority(place: Path) -> None:
    """Make ca.pem and ca.key of ten years in *place* unless it is there; of several runs at once the first one wins."""
    if place.exists():
        return
    part = Path(tempfile.mkdtemp(dir=place.parent))
    extensions = ("basicConstraints=critical,CA:TRUE,pathlen:0", "keyUsage=critical,keyCertSign,cRLSign")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "3650", "-subj", "/CN=pylog of this checkout"]
    command += ["-out", str(part / "ca.pem"), "-keyout", str(part / "ca.key")]
    command += [word for one in extensions for word in ("-addext", one)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        part.rename(place)
    except OSError:
        shutil.rmtree(part)
        if not place.exists():
            raise


def make_secret(path: Path) -> None:
    """Write a secret to *path* unless one is there; several runs at once agree on the first one's."""
    if path.exists():
        return
    path.parent.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent) as part:
        part.write(secrets.token_hex(32) + "\n")
        part.flush()
        with contextlib.suppress(FileExistsError):
            os.link(part.name, path)


def main() -> int:
    """Print the inventory."""
    try:
        state = json.loads(STATE_FILE.read_text())
    except FileNotFoundError:
        print(f"{STATE_FILE} is missing: there are no local hosts; run: make hosts", file=sys.stderr)
        return 1
    for path in (*SECRETS, *(PASSWORDS / f"{user}.password" for user in USERS)):
        make_secret(path)
    if security() != "none":
        make_authority(AUTHORITY)
    print(json.dumps(inventory(state), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
