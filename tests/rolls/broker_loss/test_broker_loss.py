"""A broker is killed, loses its disk, loses its host: repaired by the playbooks, while clients go on."""

import time

from tests.rolls import cluster

VICTIM = "live2"


def broker_id() -> int:
    return int(cluster.readings()[VICTIM]["id"])


def replace() -> None:
    assert cluster.playbook("replace_broker", {"replace_host": VICTIM}).returncode == 0
    assert cluster.health()["problems"] == []


def test_a_killed_broker_comes_back_by_itself() -> None:
    with cluster.loaded("killed") as load:
        cluster.on(VICTIM, f"systemctl kill --signal=KILL pylog-broker@{broker_id()}")
        time.sleep(15)  # its session ends, others lead, it starts again
        assert cluster.health()["problems"] == []
    load.check()


def test_a_lost_disk_is_copied_from_the_others() -> None:
    number = broker_id()
    with cluster.loaded("disk") as load:
        cluster.on(VICTIM, f"systemctl kill --signal=KILL pylog-broker@{number}; systemctl stop pylog-broker@{number}; "
                           f"rm -rf /var/lib/pylog/disk1/broker-{number}")  # fmt: skip
        replace()
    load.check()
    assert int(cluster.on(VICTIM, f"du -sk /var/lib/pylog/disk1/broker-{number} | cut -f 1")) > 100


def test_a_lost_host_is_installed_anew_under_its_old_name() -> None:
    with cluster.loaded("host") as load:
        cluster.lose(VICTIM)
        replace()
    load.check()
