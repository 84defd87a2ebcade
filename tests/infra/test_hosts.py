"""Every host: kernel, disks, units, ports; nothing here changes anything."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

from pylog.ops.preflight import GROUPS
from tests.infra.conftest import ask_broker, named_ports, read_json, setting, want_group

pytestmark = pytest.mark.readonly

ShowJournal = Callable[[str], None]


def in_container(host: Host) -> bool:
    """Say whether *host* shares a kernel: there a written file is all that can be had of a kernel's setting."""
    return bool(host.run("systemd-detect-virt --container").rc == 0)


def test_systemd_has_no_failed_unit(host: Host) -> None:
    failed = host.run("systemctl --failed --plain --no-legend").stdout.split("\n")
    assert not [line for line in failed if "pylog" in line], failed


def test_kernel_settings_are_written_and_applied_where_they_can_be(host: Host, mine: dict[str, Any]) -> None:
    file = host.file("/etc/sysctl.d/99-zz-pylog.conf")
    written = dict(line.split(" = ") for line in file.content_string.splitlines() if " = " in line)
    wanted = {name: str(value) for name, value in setting(mine, "tuning", "tuning_sysctls").items()}
    assert written == wanted
    if not in_container(host):
        assert {name: str(host.sysctl(name)) for name in wanted} == wanted


def test_limits_and_huge_pages_are_written(host: Host, mine: dict[str, Any]) -> None:
    open_files = setting(mine, "tuning", "tuning_open_files")
    assert f"pylog - nofile {open_files}" in host.file("/etc/security/limits.d/60-pylog.conf").content_string
    mode = setting(mine, "tuning", "tuning_transparent_hugepages")
    assert mode in host.file("/etc/tmpfiles.d/60-pylog-hugepages.conf").content_string
    if not in_container(host):
        assert f"[{mode}]" in host.file("/sys/kernel/mm/transparent_hugepage/enabled").content_string


def test_services_can_take_no_rights(host: Host) -> None:
    """But for the packet filter's, which is root's, and a low port for the balancer."""
    shown = host.check_output("systemctl show --property Id,CapabilityBoundingSet,NoNewPrivileges 'pylog-*.service'")
    units = [dict(line.split("=", 1) for line in block.splitlines()) for block in shown.split("\n\n")]
    own = [unit for unit in units if unit["Id"] != "pylog-firewall.service"]
    assert own
    low_port = "pylog-load-balancer.service"
    rights = {unit["Id"]: (unit["CapabilityBoundingSet"], unit["NoNewPrivileges"]) for unit in own}
    assert rights == {name: ("cap_net_bind_service" if name == low_port else "", "yes") for name in rights}


def test_nothing_overrides_a_unit(host: Host) -> None:
    shown = host.check_output("systemctl show --property DropInPaths --value 'pylog-*'")
    assert [path for path in shown.split() if "pylog" in path] == []
    found = host.check_output("find /etc/systemd/system -path '*/pylog-*.d/*'")
    assert found == "", "would hold from the next start on"


def test_systemd_understands_every_line_of_our_units(host: Host, mine: dict[str, Any]) -> None:
    units = host.check_output("find /etc/systemd/system -maxdepth 1 -name 'pylog-*.service'").split()
    assert units
    said = "".join(host.run("systemd-analyze verify --recursive-errors=no %s 2>&1", unit).stdout for unit in units)
    assert [line for line in said.splitlines() if "/pylog-" in line and ("arse" in line or "nknown" in line)] == []


def test_service_users_cannot_log_in(host: Host, mine: dict[str, Any]) -> None:
    found = {name: host.user(name).shell for name in _USERS if host.user(name).exists}
    want_group(mine, *(group for group in mine["group_names"] if group in _WITH_A_USER))
    assert found, "none of pylog's users is there"
    assert set(found.values()) <= {"/usr/sbin/nologin", "/sbin/nologin", "/bin/false"}, found


_USERS = ("pylog", "pylog-zookeeper")
# Not those that have packages of Debian's run alone.
_WITH_A_USER = set(GROUPS) - {"pylog_load_balancer", "pylog_monitoring"}


def test_data_disks_are_xfs_without_access_times_mounted_by_uuid(host: Host, mine: dict[str, Any]) -> None:
    devices = mine.get("disks_devices", [])
    if not devices:
        pytest.skip("the inventory names no data disk on this host")
    found = {row["target"]: row for row in read_json(host, "findmnt --json --real")["filesystems"]} | {
        row["target"]: row
        for top in read_json(host, "findmnt --json --real")["filesystems"]
        for row in top.get("children", [])
    }
    fstab = host.file("/etc/fstab").content_string
    for device in devices:
        mount = found[device["mount"]]
        assert mount["fstype"] == "xfs"
        assert "noatime" in mount["options"].split(",")
        uuid = host.check_output("blkid -s UUID -o value %s", mount["source"])
        line = next(line for line in fstab.splitlines() if device["mount"] in line.split())
        assert uuid in line.split()[0], "mounted by UUID: device names change"


def test_data_disks_are_read_and_written_in_the_order_that_is_wanted(host: Host, mine: dict[str, Any]) -> None:
    read_ahead_kib = setting(mine, "tuning", "tuning_read_ahead_kib")
    scheduler = setting(mine, "tuning", "tuning_io_scheduler")
    # A container's disks are of the machine around it, which its udev rules do not reach.
    for device in [] if in_container(host) else mine.get("disks_devices", []):
        source = host.check_output("findmnt --noheadings --output SOURCE %s", device["mount"])
        found = host.check_output("lsblk --noheadings --nodeps --output RA,SCHED %s", source).split()
        assert found == [str(read_ahead_kib), scheduler or found[1]], source


def test_zookeeper_runs_with_its_own_id(host: Host, mine: dict[str, Any], on_failure_show_journal: ShowJournal) -> None:
    want_group(mine, "pylog_zookeeper")
    on_failure_show_journal("pylog-zookeeper")
    assert host.service("pylog-zookeeper").is_running
    directory = setting(mine, "zookeeper", "zookeeper_data_dir")
    assert host.check_output("cat %s/myid", directory) == str(mine["zookeeper_id"])


def test_brokers_run_the_release_in_use(
    host: Host, instances: list[dict[str, Any]], on_failure_show_journal: ShowJournal
) -> None:
    release = host.check_output("PYTHONDONTWRITEBYTECODE=1 /opt/pylog/current/bin/pylog --version").split()[-1]
    for instance in instances:
        unit = f"pylog-broker@{instance['id']}"
        on_failure_show_journal(unit)
        assert host.service(unit).is_running
        status = ask_broker(host, instance["id"], "/status")
        assert (status["release"], status["state"], status["is_registered"]) == (release, "running", True)


def brokers_on(mine: dict[str, Any]) -> list[dict[str, Any]]:
    return mine["pylog_broker_instances"] if "pylog_broker" in mine["group_names"] else []


def test_servers_start_at_boot(host: Host, mine: dict[str, Any]) -> None:
    want_group(mine, "pylog_zookeeper", "pylog_broker")
    units = [f"pylog-broker@{instance['id']}" for instance in brokers_on(mine)]
    units += ["pylog-zookeeper"] if "pylog_zookeeper" in mine["group_names"] else []
    assert [unit for unit in units if not host.service(unit).is_enabled] == []


def test_brokers_are_ready(host: Host, instances: list[dict[str, Any]]) -> None:
    for instance in instances:
        assert ask_broker(host, instance["id"], "/ready") == {"ready": True, "reason": "", "lacking": 0}


def test_only_the_ports_of_the_inventory_listen(host: Host, mine: dict[str, Any]) -> None:
    is_voter = "pylog_zookeeper" in mine["group_names"]
    wanted = {setting(mine, "zookeeper", "zookeeper_client_port")} if is_voter else set()
    for instance in brokers_on(mine):
        wanted |= {instance["port"], instance["internal_port"]}
    lines = _listening(host)
    listening = {_port(line) for line in lines}
    assert wanted <= listening, f"missing {wanted - listening}"
    # What root or other services serve is the host's own affair; who serves with our users is ours.
    uids = {str(host.user(name).uid) for name in _USERS if host.user(name).exists}
    ours = {_port(line) for line in lines if (uid := re.search(r" uid:(\d+)", line)) and uid[1] in uids}
    allowed = wanted | named_ports(mine) | {instance.get("metrics_port") for instance in brokers_on(mine)}
    if any(group.startswith("pylog_spark") for group in mine["group_names"]):
        return  # Spark takes the next free port wherever one is in use
    strange = {port for port in ours - allowed if port < _EPHEMERAL}
    assert not strange, f"unexpected {strange}"


_EPHEMERAL = 32_768
"""Above it ports are given out by the kernel, as for ZooKeeper's JMX."""


def _port(line: str) -> int:
    return int(line.split()[3].rpartition(":")[2])


def _listening(host: Host) -> list[str]:
    return str(host.check_output("ss -H -l -n -t -e")).splitlines()


def test_packets_are_filtered_where_that_is_wanted(host: Host, mine: dict[str, Any]) -> None:
    is_loaded = host.run("/usr/sbin/nft list table inet pylog").rc == 0
    is_enabled = host.run("systemctl is-enabled pylog-firewall.service").rc == 0
    wanted = setting(mine, "firewall", "firewall_enabled")
    assert (is_loaded, is_enabled) == (wanted, wanted)


def test_brokers_have_room_for_their_files(host: Host, instances: list[dict[str, Any]]) -> None:
    for instance in instances:
        pid = host.check_output("systemctl show -p MainPID --value pylog-broker@%s", str(instance["id"]))
        limits = host.file(f"/proc/{pid}/limits").content_string
        [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert int(line.split()[3]) >= 10_000


def test_secrets_are_for_the_service_only(host: Host, instances: list[dict[str, Any]]) -> None:
    secret = host.file("/etc/pylog/cluster.secret")
    assert secret.user in ("pylog", "root")
    assert secret.mode & 0o007 == 0
    for instance in instances:
        assert secret.content_string.strip() not in host.file(f"/etc/pylog/broker-{instance['id']}.yml").content_string


def test_retention_is_in_cron_and_cron_runs(host: Host, instances: list[dict[str, Any]]) -> None:
    assert host.service("cron").is_running
    entry = host.file("/etc/cron.d/pylog-retention")
    assert entry.exists, "missing /etc/cron.d/pylog-retention"
    assert "pylog retention" in entry.content_string


def test_backups_are_in_cron(host: Host, mine: dict[str, Any], instances: list[dict[str, Any]]) -> None:
    line = host.file("/etc/cron.d/pylog-backup").content_string.splitlines()[-1]
    assert f"pylog cluster backup --config /etc/pylog/broker-{instances[0]['id']}.yml" in line
    directory = host.file(setting(mine, "backup", "backup_directory"))
    assert (directory.user, directory.mode) == ("pylog", 0o700)


def test_the_shipper_runs_and_knows_where_it_is(
    host: Host, mine: dict[str, Any], on_failure_show_journal: ShowJournal
) -> None:
    want_group(mine, "pylog_ship")
    on_failure_show_journal("pylog-ship")
    assert host.service("pylog-ship").is_running
    assert host.file("/var/lib/pylog-ship/cursor").content_string.strip()
