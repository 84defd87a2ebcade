"""A broker is killed, loses its disk, loses its host: repaired by the playbooks, while clients go on."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from pylog.client.admin.cluster import Admin
from pylog.client.admin.partitions import PartitionAdmin
from pylog.model import TopicPartition
from tests.rolls import cluster

VICTIM = "live2"
NUMBER = 2
DISK = "/var/lib/pylog/disk1"
FILLED = "filled"
FILLED_MIB = 48
UNIT = f"pylog-broker@{NUMBER}"
MONITOR = (
    "import socket; s = socket.create_connection(('localhost', 2181)); s.sendall(b'mntr'); print(s.makefile().read())"
)
REPLACED = {"replace_host": VICTIM, "replace_mount": DISK}


@pytest.fixture(scope="module", autouse=True)
def filled() -> None:
    """Give every broker something to lose."""
    cluster.fill(FILLED, FILLED_MIB)


def repaired(loss: str, verb: str, extra: Mapping[str, Any], began_s: float) -> None:
    """Repair by a playbook, and see that everything is back."""
    done = cluster.playbook(verb, extra)
    assert done.returncode == 0
    assert cluster.health()["problems"] == []
    held_mib = cluster.on(VICTIM, f"du -cm {DISK}/broker-{NUMBER}/{FILLED}-* | tail -n 1 | cut -f 1")
    assert int(held_mib) >= FILLED_MIB, "three hosts, three replicas: it has all of it"
    leads = {row["id"]: row["leads"] for row in cluster.said("cluster", "info")["brokers"]}
    assert leads[NUMBER] > 0, "it leads again"
    seconds = round(time.monotonic() - began_s)
    cluster.keep_more("broker_loss", "losses", {"loss": loss, "verb": verb, "seconds": seconds})


def state(unit: str) -> str:
    return cluster.on(VICTIM, f"systemctl show --property=SubState --value {unit}")


def test_a_killed_broker_comes_back_by_itself() -> None:
    before = cluster.starts()[VICTIM]
    with cluster.loaded("killed") as load:
        cluster.on(VICTIM, f"systemctl kill --signal=KILL {UNIT}")
        cluster.wait_for(lambda: cluster.starts()[VICTIM] not in (0, before))
        assert cluster.health()["problems"] == []
    load.check()
    cluster.keep_result("broker_loss", {"losses": [{"loss": "kill -9", "verb": "none", "clients": load.reports}]})


@pytest.mark.parametrize(
    ("verb", "extra", "told"),
    [
        ("replace_broker", {}, "replace_host: found nothing, wanted one or more of live1, live2, live3"),
        ("replace_broker", {"replace_host": "live2,live9"}, "replace_host: found live2,live9, wanted one or more of"),
        ("replace_disk", {"replace_host": "live9"}, "replace_host: found live9, wanted one of live1, live2, live3"),
        ("replace_disk", {"replace_host": "live2", "replace_mount": "/srv"},
         "replace_mount: found /srv, wanted a mount of its disks_devices: /var/lib/pylog/disk1, /var/lib/pylog/disk2"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_a_host_is_touched(verb: str, extra: dict[str, str], told: str) -> None:
    done = cluster.playbook(verb, extra)
    assert done.returncode != 0
    assert told in " ".join(done.stdout.split())
    assert "changed=1" not in done.stdout


def test_a_disk_is_not_taken_away_that_has_the_only_copy() -> None:
    starts = cluster.starts()
    Admin(cluster.bootstrap()).create_topic("alone", partitions=1, replication_factor=1)
    admin = PartitionAdmin(cluster.bootstrap())
    admin.reassign_partitions({TopicPartition("alone", 0): [NUMBER]})
    cluster.wait_for(lambda: not admin.reassignments() and admin.topic("alone").partitions[0].isr == (NUMBER,))
    done = cluster.playbook("replace_disk", {**REPLACED, "broker_ready_timeout_s": 10})
    admin.delete_topic("alone")
    assert done.returncode != 0
    assert "alone-0: in sync only on 2: whatever that loses, nobody else has" in done.stdout
    assert cluster.starts() == starts


def test_a_lost_disk_is_replaced_and_copied_from_the_others() -> None:
    device = cluster.on(VICTIM, f"findmnt --noheadings --output SOURCE {DISK}")
    began_s = time.monotonic()
    with cluster.loaded("disk") as load:
        # From now on every read and write of this file system fails, as with a disk that died.
        cluster.on(VICTIM, f"xfs_io -x -c shutdown {DISK}")
        cluster.wait_for(lambda: state(UNIT) != "running")
        cluster.on(VICTIM, f"wipefs --all --force --quiet {device}")
        refused = cluster.playbook("preflight")
        assert refused.returncode != 0
        assert f"replace_disk.yml -e replace_host={VICTIM} -e replace_mount={DISK}" in refused.stdout
        repaired("disk", "replace_disk", REPLACED, began_s)
    load.check()
    cluster.keep_more("broker_loss", "losses", {"loss": "disk", "clients": load.reports})
    assert cluster.on(VICTIM, f"findmnt --noheadings --output SOURCE {DISK}") == device
    assert cluster.on(VICTIM, f"grep -c {DISK} /etc/fstab") == "1"


def test_replacing_a_disk_that_is_well_changes_nothing_but_restarts_its_broker() -> None:
    others = {host: started for host, started in cluster.starts().items() if host != VICTIM}
    uuid = cluster.on(VICTIM, f"findmnt --noheadings --output UUID {DISK}")
    assert cluster.playbook("replace_disk", REPLACED).returncode == 0
    assert cluster.on(VICTIM, f"findmnt --noheadings --output UUID {DISK}") == uuid
    assert {host: started for host, started in cluster.starts().items() if host != VICTIM} == others


def test_a_lost_host_is_installed_anew_under_its_old_name() -> None:
    began_s = time.monotonic()
    with cluster.loaded("host") as load:
        cluster.lose(VICTIM)
        repaired("host", "replace_broker", {"replace_host": VICTIM}, began_s)
    load.check()
    cluster.keep_more("broker_loss", "losses", {"loss": "host", "clients": load.reports})
    monitor = dict(line.split("\t") for line in cluster.on(VICTIM, f'python3 -c "{MONITOR}"').splitlines() if line)
    assert monitor["zk_server_state"] == "follower", "its ZooKeeper server had lost everything too"
    assert int(monitor["zk_znode_count"]) > 50
