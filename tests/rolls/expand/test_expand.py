"""A fourth broker joins and takes its share; a broker leaves and takes nothing with it; clients go on."""

import json
import subprocess
import sys
from typing import Any

from tests.rolls import cluster

NEW = "live4"
LEAVER = "live2"


def replicas() -> dict[int, int]:
    """Return broker -> how many replicas it has."""
    command = [sys.executable, "-m", "pylog", "cluster", "info", "--bootstrap", cluster.bootstrap(), "--format", "json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {row["id"]: row["replicas"] for row in found["brokers"]}


def test_a_new_broker_takes_its_share() -> None:
    before = cluster.starts()
    cluster.add(NEW)
    with cluster.loaded("expand", cluster.old_bootstrap(NEW)) as load:
        assert cluster.playbook("expand").returncode == 0
    load.check()
    found = replicas()
    assert len(found) == 4
    assert max(found.values()) - min(found.values()) <= 0.2 * sum(found.values()) / 4, found
    after = cluster.starts()
    assert {host: after[host] for host in before} == before, "nobody restarts because another joins"


def test_a_broker_that_leaves_has_nothing_left() -> None:
    with cluster.loaded("decommission", cluster.old_bootstrap(LEAVER)) as load:
        assert cluster.playbook("decommission", {"decommission_host": LEAVER}).returncode == 0
    load.check()
    assert sum(replicas().values()) > 0
    assert cluster.on(LEAVER, "systemctl is-active 'pylog-broker@2' || true") == "inactive"


def test_no_broker_leaves_whose_replicas_have_nowhere_to_go() -> None:
    before = replicas()
    done = cluster.playbook("decommission", {"decommission_host": "live3"})
    assert done.returncode != 0
    assert replicas() == before
