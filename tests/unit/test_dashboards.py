"""The dashboards: Prometheus takes every expression, and every panel has a place, a title and a unit of its own."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.docs.alerts import FILES
from tests.templates import render

DASHBOARDS = sorted((FILES / "dashboards").glob("*.json"))
COLUMNS = 24  # of Grafana's grid


def _panels(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["panels"])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_prometheus_takes_every_expression(path: Path, tmp_path: Path) -> None:
    expressions = [target["expr"] for panel in _panels(path) for target in panel["targets"]]
    assert expressions
    recorded = [
        {"record": f"panel:{number}", "expr": expression.replace("$datacenter", ".*")}
        for number, expression in enumerate(expressions)
    ]
    rules = tmp_path / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": path.stem, "rules": recorded}]}))
    done = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(expressions)} rules found" in done.stdout


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_panel_lies_on_another_and_each_says_what_it_is(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in _panels(path):
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert place["x"] + place["w"] <= COLUMNS, panel["title"]
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_only_declared_variables_are_used(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    declared = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard["panels"])))
    assert {name for name in used if not name.startswith("__")} <= declared, "Grafana's own begin so"


def test_the_overview_leads_to_every_dashboard_that_it_names() -> None:
    overview = next(path for path in DASHBOARDS if path.stem == "pylog-overview")
    uids = {json.loads(path.read_text())["uid"] for path in DASHBOARDS}
    asking = [panel for panel in _panels(overview) if panel["type"] != "row"]
    for panel in _panels(overview):
        assert panel["title"].endswith("?"), "each asks something"
    led_to = {re.match(r"/d/([\w-]+)\?", link["url"])[1] for panel in asking for link in panel["links"]}  # type: ignore[index]
    assert all(panel["links"] for panel in asking)
    assert led_to < uids
    assert {"pylog-broker", "pylog-hosts", "pylog-probe", "pylog-lake", "pylog-mirror", "pylog-audit"} <= led_to


def test_grafana_is_told_of_the_dashboards_and_of_a_source_that_they_can_choose() -> None:
    given = {"ansible_managed": "managed", "monitoring_scrape_interval_s": 15, "__monitoring_dir": "/d"}

    def read(name: str) -> dict[str, Any]:
        path = f"etc/pylog-monitoring/grafana/{name}/pylog.yml.j2"
        return dict(yaml.safe_load(render(path, monitoring_grafana_source="[::1]:9090", **given)))

    dashboards, sources = read("dashboards"), read("datasources")
    [provider], [source] = dashboards["providers"], sources["datasources"]
    assert (dashboards["apiVersion"], sources["apiVersion"]) == (1, 1)
    assert (provider["type"], provider["options"]) == ("file", {"path": "/d/dashboards"})
    assert (source["url"], source["access"], source["jsonData"]) == (
        "http://[::1]:9090",
        "proxy",
        {"timeInterval": "15s"},
    )
    chosen = {
        variable["query"]
        for path in DASHBOARDS
        for variable in json.loads(path.read_text())["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert chosen == {source["type"]}
