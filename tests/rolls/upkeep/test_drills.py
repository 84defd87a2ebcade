"""Every drill on live hosts: the cluster stands it, and the hosts are as before."""

import json
import re

import pytest

from pylog.ops.drills import DRILLS
from tests.rolls import cluster
from tests.rolls.upkeep.test_bundle import fab

# What some machines' containers cannot do, in the drill's own words; all else that drills want, these hosts have.
LACKING = {"T36": DRILLS["T36"].lacking}


@pytest.mark.parametrize("code", DRILLS)
def test_the_cluster_stands(code: str) -> None:
    # A drill begins only on a cluster that is well, and the one before has only just given its topic back.
    assert cluster.health()["problems"] == []
    done = fab("drill", f"--name={code}")
    print(done.stdout, done.stderr)
    if code in LACKING and LACKING[code] in done.stderr:
        found = {"drill": code, "not possible": LACKING[code]}
    else:
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(re.findall(r"^\{.*\}$", done.stdout, re.MULTILINE)[-1])
    cluster.keep_more("upkeep", "drills", found)


def test_what_is_no_drill_says_why() -> None:
    done = fab("drill", "--name=T34")
    assert done.returncode == 2
    assert "tests/net/test_login.py" in done.stderr
