"""The benchmark of `plan` and `site` on hosts that are not there (F18): what it deploys to and what its page says."""

from pathlib import Path
from typing import Any

from bench.deploy.standins import RATIO, facts_of, inventory, page
from pylog.ops.preflight import judge, table

ROOT = Path(__file__).parents[3]


def row(hosts: int, cpu_s: float, wall_s: float) -> dict[str, Any]:
    return {"verb": "plan", "hosts": hosts, "cpu_s": cpu_s, "wall_s": wall_s, "load": 1.0}


def test_f18_the_stand_ins_pass_preflight() -> None:
    children = inventory(60)["all"]["children"]
    east = children["east"]
    groups = {name: list(entry["hosts"]) for name, entry in children.items()}
    hosts = {
        name: {**east["vars"], **variables, "__preflight_reading": {"answer": facts_of({}, number)}}
        for number, (name, variables) in enumerate(east["hosts"].items(), start=1)
    }
    found = judge({"groups": groups | {"all": list(hosts)}, "hosts": hosts}, ROOT / "roles")
    assert table(found)[1:] == []


def test_f18_a_page_says_whether_the_promise_is_kept() -> None:
    assert "`plan`: 200 hosts take 3.0 times as long as 60, and 3.0 times the" in page(
        [row(60, 60, 10), row(200, 180, 30)], "m"
    )
    assert "**not as promised**" not in page([row(60, 60, 10), row(200, 180, 30)], "m")
    assert "**not as promised**" in page([row(60, 30, 10), row(200, 90, 10 * RATIO + 1)], "m"), "by the clock"
    assert "**not as promised**" not in page([row(60, 30, 10), row(200, 30 * RATIO + 1, 30)], "m"), "0.54 s a host"
    assert "**not as promised**" in page([row(60, 61, 10), row(200, 180, 30)], "m"), "more than a second a host"
