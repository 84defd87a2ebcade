"""Every drill on live hosts: the cluster stands it, and the hosts are as before."""

import json
import re

import pytest

from pylog.ops.drills import DRILLS
from tests.rolls import cluster
from tests.rolls.upkeep.test_bundle import fab

# What a host cannot do stands with the drill; that must be the only reason not to begin.
LACKING = {code: one.lacking for code, one in DRILLS.items() if one.lacking}
DONE: dict[str, dict[str, object]] = {}


@pytest.mark.parametrize("code", DRILLS)
def test_the_cluster_stands(code: str) -> None:
    done = fab("drill", f"--name={code}")
    print(done.stdout, done.stderr)
    if code in LACKING and LACKING[code] in done.stderr:
        DONE[code] = {"not possible here": LACKING[code]}
    else:
        assert done.returncode == 0, done.stdout + done.stderr
        DONE[code] = json.loads(re.findall(r"^\{.*\}$", done.stdout, re.MULTILINE)[-1])
    cluster.keep_result("drills", {"drills": DONE})


def test_what_is_no_drill_says_why() -> None:
    done = fab("drill", "--name=T34")
    assert done.returncode == 2
    assert "no authentication yet" in done.stderr
