"""The suite of the hosts finds every one of these drifts, and reading them changes nothing on a host."""

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.rolls import cluster

_KEEP = "cp --archive {0} {0}.before-drift"
_BACK = "mv {0}.before-drift {0}"


@dataclass(frozen=True)
class Drift:
    """What somebody did by hand on a host, how to undo it, and which test must say so, in which words."""

    seed: str
    undo: str
    test: str
    words: str


def edited(path: str, line: str, test: str, words: str) -> Drift:
    return Drift(f"{_KEEP.format(path)}; echo '{line}' >> {path}", _BACK.format(path), test, words)


def removed(path: str, test: str, words: str) -> Drift:
    return Drift(f"mv {path} {path}.before-drift", _BACK.format(path), test, words)


DISK = "/var/lib/pylog/disk1"
# Beside each other on one host only where another test finds each.
DRIFTS: Mapping[str, Mapping[str, Drift]] = {
    "live1": {
        "sysctl changed": edited("/etc/sysctl.d/99-zz-pylog.conf", "vm.swappiness = 60", "test_kernel_settings", "60"),
        "limits gone": removed("/etc/security/limits.d/60-pylog.conf", "test_limits_and_huge_pages", "nofile"),
        "mount option": Drift(
            f"mount -o remount,strictatime {DISK}", f"mount -o remount,noatime {DISK}", "test_data_disks", "noatime"),
        "unit override": Drift(
            "mkdir /etc/systemd/system/pylog-ship.service.d; "
            "printf '[Service]\\nNice=5\\n' > /etc/systemd/system/pylog-ship.service.d/drift.conf",
            "rm -r /etc/systemd/system/pylog-ship.service.d", "test_nothing_overrides_a_unit", "drift.conf"),
        "cron entry gone": removed("/etc/cron.d/pylog-retention", "test_retention_is_in_cron", "missing"),
        "unexpected listener": Drift(
            "systemd-run --quiet --unit=drift-listener --uid=pylog python3 -m http.server 9999; sleep 1",
            "systemctl stop drift-listener", "test_only_the_ports", "9999"),
        "configuration edited": edited(
            "/etc/pylog/broker-1.yml", "# by hand", "test_servers_run_with_the_files", "broker-1.yml"),
        "secret readable": Drift(
            "chmod 644 /etc/pylog/cluster.secret", "chmod 600 /etc/pylog/cluster.secret", "test_secrets_are", "mode"),
    },
    "live2": {
        "huge pages": removed("/etc/tmpfiles.d/60-pylog-hugepages.conf", "test_limits_and_huge_pages", "hugepages"),
        "mounted by device": Drift(
            f"{_KEEP.format('/etc/fstab')}; sed -i 's|^UUID=[^ ]*  *{DISK}|/dev/drift {DISK}|' /etc/fstab",
            _BACK.format("/etc/fstab"), "test_data_disks", "UUID"),
        "wrong release": Drift(
            "cp --archive /opt/pylog/current /opt/pylog/current.before-drift; "
            "cp --archive --link $(readlink -f /opt/pylog/current) /opt/pylog/releases/0.0.0-drift; "
            "ln -sfn /opt/pylog/releases/0.0.0-drift /opt/pylog/current",
            "mv -T /opt/pylog/current.before-drift /opt/pylog/current; rm -r /opt/pylog/releases/0.0.0-drift",
            "test_the_release_is_whole", "0.0.0-drift"),
        "login shell": Drift(
            "usermod --shell /bin/bash pylog", "usermod --shell /usr/sbin/nologin pylog", "test_service_users", "bash"),
        "shipper stopped": Drift(
            "systemctl stop pylog-ship", "systemctl start pylog-ship", "test_the_shipper_runs", "is_running"),
        "broker not at boot": Drift(
            "systemctl disable --quiet pylog-broker@2", "systemctl enable --quiet pylog-broker@2",
            "test_servers_start_at_boot", "pylog-broker@2"),
        "packet filter gone": Drift(
            "nft delete table inet pylog", "nft --file /etc/pylog-firewall/rules.nft",
            "test_packets_are_filtered", "False"),
        "ensemble edited": edited(
            "/etc/pylog-zookeeper/zoo.cfg", "maxClientCnxns=1", "test_servers_run_with_the_files", "zoo.cfg"),
    },
    "live3": {
        "cron stopped": Drift(
            "systemctl stop cron", "systemctl start cron", "test_retention_is_in_cron", "is_running"),
        "wrong myid": Drift(
            "cp -a /var/lib/pylog-zookeeper/myid /root/myid; echo 9 > /var/lib/pylog-zookeeper/myid",
            "mv /root/myid /var/lib/pylog-zookeeper/myid", "test_zookeeper_runs", "9"),
        "data open to all": Drift(
            f"chmod 755 {DISK}/broker-3", f"chmod 750 {DISK}/broker-3", "test_data_lies_on_a_data_disk", "493"),
        "release writable": Drift(
            "chmod o+w /opt/pylog/current/requirements.lock", "chmod o-w /opt/pylog/current/requirements.lock",
            "test_the_release_is_whole", "requirements.lock"),
        "failed unit": Drift(
            "systemd-run --quiet --unit=pylog-drift false; sleep 1", "systemctl reset-failed pylog-drift",
            "test_systemd_has_no_failed_unit", "pylog-drift"),
        "unit edited": edited(
            "/etc/systemd/system/pylog-broker@.service", "# by hand", "test_servers_run_with_the_files",
            "pylog-broker@.service"),
    },
}  # fmt: skip


def run_suite(reports: Path, *more: str) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run what reads the hosts alone, as an operator does, on all at once; each host's result goes to *reports*."""
    # testinfra asks the path for Ansible; the locked one is beside this interpreter.
    environment = cluster.environment() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(host: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "readonly", "--connection=ansible",
            f"--ansible-inventory={cluster.INVENTORY}", f"--hosts={host}", f"--junitxml={reports / host}.xml",
            "--deselect=tests/infra/test_deployment.py::test_a_second_deployment_would_change_nothing", *more, *SUITE,
        ]  # fmt: skip
        return subprocess.run(command, cwd=cluster.ROOT, env=environment, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(len(DRIFTS)) as pool:
        return dict(zip(DRIFTS, pool.map(run, DRIFTS), strict=True))


SUITE = ("tests/infra/test_hosts.py", "tests/infra/test_deployment.py", "tests/infra/test_cluster.py")


def failures(reports: Path) -> dict[tuple[str, str], str]:
    """Return (host, test) -> why it failed."""
    found = {}
    for host in DRIFTS:
        for case in ET.parse(reports / f"{host}.xml").iter("testcase"):
            for problem in [*case.findall("failure"), *case.findall("error")]:
                found[host, case.get("name", "").partition("[")[0]] = f"{problem.get('message')} {problem.text}"
    return found


def test_a_host_as_deployed_has_nothing_to_say_and_is_not_written_to(tmp_path: Path) -> None:
    for host in DRIFTS:
        cluster.on(host, "touch /run/readonly-mark")
    sizes = {host: cluster.on(host, SIZES) for host in DRIFTS}
    time.sleep(1)
    for done in run_suite(tmp_path).values():
        assert done.returncode == 0, done.stdout[-4000:]
    for host in DRIFTS:
        assert cluster.on(host, WRITTEN) == "", host
    assert {host: cluster.on(host, SIZES) for host in DRIFTS} == sizes, "nobody made or wrote to a topic"


SIZES = f"""
for directory in {DISK}/broker-*/*-[0-9]*; do
  case $directory in */host.journal-*) ;; *) echo "$directory $(cat "$directory"/*.log | wc -c)";; esac
done
"""
"""How much each partition holds, but for those that the hosts' own journals go to."""

WRITTEN = """
find / -xdev \\( -path /proc -o -path /sys -o -path /run -o -path /dev -o -path /var/log/journal \
  -o -path '/var/lib/pylog*' -o -path /var/lib/systemd/timers \\) -prune -o -newer /run/readonly-mark \
  -not -name wtmp -not -name lastlog -not -name btmp -print; rm /run/readonly-mark
"""
"""What a host wrote since the mark, beside its own services: logs of logins, the journal, the servers' data."""


def test_every_seeded_drift_is_found_by_name(tmp_path: Path) -> None:
    assert sum(map(len, DRIFTS.values())) >= 20
    try:
        for host, drifts in DRIFTS.items():
            for name, drift in drifts.items():
                print(host, name, cluster.on(host, f"set -e; {drift.seed}"))
        run_suite(tmp_path)
        found = failures(tmp_path)
    finally:
        for host, drifts in DRIFTS.items():
            for drift in drifts.values():
                cluster.on(host, drift.undo)
    print("\n".join(f"{host} {test}: {words[:160]!r}" for (host, test), words in sorted(found.items())))
    missed = [
        f"{host}: {name}"
        for host, drifts in DRIFTS.items()
        for name, drift in drifts.items()
        if not any(
            one == host and test.startswith(drift.test) and drift.words in words for (one, test), words in found.items()
        )
    ]
    assert missed == []
    table = [{"host": host, "count": len(drifts), "found": ", ".join(drifts)} for host, drifts in DRIFTS.items()]
    cluster.keep_result("upkeep", {"drifts": table})


def test_as_a_probe_it_says_one_line_and_has_nagios_exit_codes(tmp_path: Path) -> None:
    """Runs last: what the drifts' test put right is right."""
    options = ("--nagios", "-k", "test_service_users or test_systemd")
    done = run_suite(tmp_path, *options)["live1"]
    assert (done.returncode, done.stdout.splitlines()[0][:14]) == (0, "TESTINFRA OK -"), done.stdout
    cluster.on("live1", "usermod --shell /bin/bash pylog")
    try:
        done = run_suite(tmp_path, *options)["live1"]
    finally:
        cluster.on("live1", "usermod --shell /usr/sbin/nologin pylog")
    assert done.returncode == 2
    assert done.stdout.startswith("TESTINFRA CRITICAL - "), done.stdout
