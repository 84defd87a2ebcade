"""After `purge` a host is what it was before `site`, but for the packages and, unless told otherwise, the data."""

import json
from typing import Any

import pytest

from tests.rolls import cluster

BARE = "live4"

# Files, users, units, mounts and kernel settings; without what lives by itself, and what packages bring: they stay.
SNAPSHOT = r"""
import json, os, pathlib, pwd, grp, subprocess
packaged = set()
for lists in pathlib.Path("/var/lib/dpkg/info").glob("*.list"):
    packaged.update(lists.read_text().splitlines())
skipped = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/var/log", "/var/cache", "/var/lib/dpkg",
           "/var/lib/apt", "/var/lib/systemd", "/var/lib/ucf", "/usr/share", "/usr/lib", "/etc/alternatives",
           "/etc/ssl/certs", "/etc/ssh", "/root/.ssh", "/root/.ansible", "/var/lib/private", "/var/lib/misc")
found = {}
for top, directories, files in os.walk("/"):
    directories[:] = [one for one in directories if os.path.join(top, one) not in skipped]
    for name in [*directories, *files]:
        path = os.path.join(top, name)
        if path in packaged:
            continue
        state = os.lstat(path)
        found[path] = oct(state.st_mode)
def lines(*command):
    return sorted(subprocess.run(command, capture_output=True, text=True).stdout.splitlines())
print(json.dumps({
    "files": found,
    "users": sorted(one.pw_name for one in pwd.getpwall()),
    "groups": sorted(one.gr_name for one in grp.getgrall()),
    "units": [line for line in lines("systemctl", "list-unit-files", "--plain", "--no-legend") if "pylog" in line],
    "running": lines("systemctl", "list-units", "--all", "--plain", "--no-legend", "pylog-*"),
    "fstab": pathlib.Path("/etc/fstab").read_text().split("\n"),
    "mounts": [line.split()[1] for line in open("/proc/self/mounts") if "pylog" in line],
    "crontab": lines("ls", "/etc/cron.d"),
    "processes": lines("ps", "-u", "pylog,pylog-zookeeper", "-o", "args="),
    "hugepages": pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(),
    "sysctls": {name: pathlib.Path("/proc/sys", name.replace(".", "/")).read_text().strip()
                for name in ("vm.swappiness", "vm.dirty_background_ratio", "vm.dirty_ratio", "vm.max_map_count")},
}))
"""
# Written by what a package's installation runs: caches of the loader, of certificates and of Java, users' shadows.
BY_PACKAGES = ("/etc/ld.so.cache", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-",
               "/etc/subgid-", "/etc/fonts/", "/etc/lighttpd", "/etc/java", "/etc/ca-certificates", "/etc/.java",
               "/etc/systemd/system/multi-user.target.wants/cron.service", "/usr/local/share", "/usr/local/lib/python3",
               "/etc/machine-id", "/etc/rc", "/usr/bin", "/usr/sbin")  # fmt: skip


def snapshot(host: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.on(host, f"python3 - <<'END'\n{SNAPSHOT}END"))
    return found


def segments(host: str) -> set[str]:
    """Return the segment files of all partitions but those that are being deleted, as a drill's topic may still be."""
    return set(cluster.on(host, "find /var/lib/pylog/disk1 -name '*.log' -not -path '*-delete/*'").split())


@pytest.mark.parametrize("more", [(), ("--limit", "live1")])
def test_another_name_touches_nothing(more: tuple[str, ...]) -> None:
    before = cluster.starts()
    done = cluster.playbook("purge", {"purge_name": "somebody-else", "purge_data": True}, *more)
    assert done.returncode != 0
    assert "nothing was touched" in done.stdout
    assert cluster.starts() == before


def test_the_data_stays_unless_told_otherwise() -> None:
    hosts = [target.name for target in cluster.targets()]
    before = {host: segments(host) for host in hosts}
    done = cluster.playbook("purge", {"purge_name": "local"})
    assert done.returncode == 0
    for host in hosts:
        found = snapshot(host)
        assert (found["running"], found["processes"]) == ([], [])
        assert "pylog" in found["users"]
        assert before[host]
        assert before[host] <= segments(host)


def test_what_was_kept_is_taken_up_again() -> None:
    assert cluster.playbook("site").returncode == 0
    assert cluster.health()["problems"] == []


def test_a_purged_host_is_as_a_bare_one() -> None:
    hosts = [target.name for target in cluster.targets()]
    assert cluster.playbook("purge", {"purge_name": "local", "purge_data": True}).returncode == 0
    cluster.add(BARE, image="bare")
    bare = snapshot(BARE)
    for host in hosts:
        found = snapshot(host)
        left = {path for path in found["files"].keys() - bare["files"].keys() if not path.startswith(BY_PACKAGES)}
        gone = bare["files"].keys() - found["files"].keys()
        changed = {path for path in found["files"].keys() & bare["files"].keys()
                   if found["files"][path] != bare["files"][path]}  # fmt: skip
        assert (sorted(left), sorted(gone), sorted(changed)) == ([], [], []), host
        for part in ("units", "running", "fstab", "mounts", "processes", "sysctls", "hugepages"):
            assert found[part] == bare[part], (host, part)
        assert {*found["crontab"]} - {*bare["crontab"]} == set(), host
        assert not [one for one in (*found["users"], *found["groups"]) if one.startswith("pylog")], host
