"""The alert rules: every metric they read exists, and promtool fires and silences each of them."""

import re
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.docs.alerts import FILES, pages, rules, summary
from pylog.ops.addresses import addresses
from pylog.ops.preflight import GROUPS, load_specs
from pylog.runbooks import RUNBOOKS
from tests.cluster.night import BREAKAGES
from tests.infra.test_monitoring import NOT_RAISED
from tests.rolls.monitored.test_monitored import FAULTS
from tests.servers.certificates import Authority
from tests.templates import render

ROOT = Path(__file__).resolve().parents[2]
# Words of an inventory, which are no metrics.
KNOWN = {*GROUPS, *load_specs(ROOT / "roles")}
RULES = rules()
# Metrics of other people's programs that the rules may use.
FOREIGN = ("up", "node_", "haproxy_", "pylog_threshold", "pylog_expected", "pylog_data_disk")


def metrics_in(expr: str) -> set[str]:
    """Return the names of the metrics that *expr* reads."""
    bare = re.sub(r"\{[^}]*\}|(by|on) \([^)]*\)|\[\w+\]|offset \w+", "", expr)
    words = {
        "sum",
        "rate",
        "increase",
        "abs",
        "time",
        "timestamp",
        "changes",
        "and",
        "or",
        "unless",
        "offset",
        "max",
        "min_over_time",
        "max_over_time",
        "predict_linear",
        "scalar",
        "group_left",
        "count",
    }
    names = set(re.findall(r"[a-zA-Z_]\w+", bare)) - words - {"histogram_quantile"}
    return {re.sub("_(bucket|count)$", "", name) if "_seconds_" in name else name for name in names}


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=FILES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_is_up_to_date() -> None:
    assert {path: path.read_text() for path in pages()} == pages()


def test_each_alert_has_its_way_through_and_no_other_has() -> None:
    assert {name: runbook.what for name, runbook in RUNBOOKS.items()} == {
        rule["alert"]: summary(rule) for rule in RULES
    }
    said = " ".join(text for runbook in RUNBOOKS.values() for text in asdict(runbook).values())
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert [
        name for name in re.findall(r"`(pylog_\w+)`", said) if f"| `{name}` |" not in page and name not in KNOWN
    ] == []
    assert [path for path in re.findall(r"playbooks/\w+\.yml", said) if not (ROOT / path).is_file()] == []


def test_a_retention_that_is_shortened_in_need_is_set_back() -> None:
    shortens = {name for name, runbook in RUNBOOKS.items() if re.search("[Ss]horten|retention.ms=3600000", runbook.act)}
    assert shortens == {"PylogDiskFilling", "PylogDiskFull", "PylogDiskFullSoon"}
    assert [
        name for name in shortens if "pylog topic alter TOPIC --delete retention.ms" not in RUNBOOKS[name].verify
    ] == []


def test_who_is_told_to_set_a_quota_finds_the_command() -> None:
    assert "kafka-configs.sh --bootstrap-server HOST:PORT --alter" in RUNBOOKS["PylogClientsThrottled"].act
    told = {name for name, runbook in RUNBOOKS.items() if "quota" in runbook.act} - {"PylogClientsThrottled"}
    assert told >= {"PylogDiskFullSoon", "PylogIsrChurns"}
    assert [name for name in told if "PylogClientsThrottled has the command" not in RUNBOOKS[name].act] == []


def test_only_alerts_that_exist_are_referred_to() -> None:
    said = " ".join(text for runbook in RUNBOOKS.values() for text in asdict(runbook).values())
    assert [name for name in re.findall(r"\bPylog[A-Z]\w+", said) if name not in RUNBOOKS] == []


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_metric_an_alert_reads_is_in_the_catalogue(rule: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    read = metrics_in(rule["expr"])
    assert read
    for name in read:
        assert name.startswith(FOREIGN) or f"| `{name}` |" in page, name


def test_alerts_have_names_of_their_own() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_prometheus_takes_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", "alerts.yml")


def test_prometheus_shows_its_certificate_to_secured_hosts_and_asks_the_others_plainly(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keys = authority.issue("tls.pem")
    instances = {"pylog_broker_instances": [{"id": 1, "metrics_port": 9400}]}
    hosts = {
        "h1": {"pylog_address": "192.0.2.1", "pylog_security": "sasl_ssl", **instances},
        "h2": {"pylog_address": "192.0.2.2", "pylog_datacenter": "open", **instances},
    }
    path = tmp_path / "prometheus.yml"
    path.write_text(
        render(
            "etc/pylog-monitoring/prometheus.yml.j2",
            ansible_managed="managed",
            hostvars=hosts,
            groups={
                name: ["h1", "h2"] for name in ("pylog_broker", "pylog_mirror", "pylog_probe", "pylog_load_balancer")
            }
            | {"pylog_registry": ["h1"], "pylog_audit": ["h1"]},
            monitoring_scrape_interval_s=15,
            monitoring_alertmanagers=[],
            monitoring_alertmanager={},
            monitoring_exporter_port=9100,
            __monitoring_rules=str(FILES / "alerts.yml"),
            __monitoring_thresholds_file=str(FILES / "alerts.yml"),
            __monitoring_hosts=["h1", "h2"],
            __monitoring_has_keys=True,
            __preflight_stages={"all": {"pages": "secured"}, "open": {"pages": "open"}},
            __monitoring_keys=str(keys),
            __monitoring_authority=str(authority.trusted),
            __preflight_addresses=addresses(hosts, {}),
        )
    )
    assert "SUCCESS" in promtool("check", "config", str(path))
    for job in yaml.safe_load(path.read_text())["scrape_configs"]:
        schemes = {one["labels"]["host"]: one["labels"].get("__scheme__", "http") for one in job["static_configs"]}
        assert schemes["h1"] == "https", job["job_name"]
        assert schemes.get("h2", "http") == "http"
        assert job["tls_config"]["cert_file"] == str(keys)


def test_prometheus_takes_the_configuration_that_the_role_writes(tmp_path: Path) -> None:
    hosts = {
        name: {
            "pylog_address": f"192.0.2.{n}",
            "pylog_broker_instances": [{"id": n, "metrics_port": 9400}, {"id": n + 5}],
            "zookeeper_client_port": 2181,
        }
        for n, name in enumerate(("h1", "h2"), 1)
    }
    path = tmp_path / "prometheus.yml"
    path.write_text(
        render(
            "etc/pylog-monitoring/prometheus.yml.j2",
            ansible_managed="managed",
            hostvars=hosts,
            groups={
                "pylog_broker": ["h1", "h2"],
                "pylog_mirror": ["h2"],
                "pylog_probe": ["h1"],
                "pylog_zookeeper": ["h1", "h2"],
            },
            monitoring_scrape_interval_s=15,
            monitoring_alertmanagers=["192.0.2.9:9093"],
            monitoring_alertmanager={},
            monitoring_exporter_port=9100,
            __monitoring_rules=str(FILES / "alerts.yml"),
            __monitoring_thresholds_file=str(FILES / "alerts.yml"),
            __monitoring_hosts=["h1", "h2"],
            __preflight_addresses=addresses(hosts, {}),
            __preflight_stages={"all": {"pages": "open"}},
        )
    )
    assert "SUCCESS" in promtool("check", "config", str(path))
    configs = yaml.safe_load(path.read_text())["scrape_configs"]
    jobs = {one["job_name"]: one["static_configs"] for one in configs}
    assert [one["targets"] for one in jobs["pylog-broker"]] == [["192.0.2.1:9400"], ["192.0.2.2:9400"]]
    assert jobs["pylog-mirror"] == [{"targets": ["192.0.2.2:9181"], "labels": {"host": "h2", "datacenter": "all"}}]
    assert jobs["pylog-registry"] is None
    [probe] = [one for one in configs if one["job_name"] == "pylog-probe"]
    hosts_of_servers = {
        server: rule["replacement"]
        for rule in probe["metric_relabel_configs"]
        for server in ("192.0.2.1:2181", "192.0.2.2:2181", "192.0.2.122181", "192.0.212:2181")
        if rule["target_label"] == "host" and re.fullmatch(rule["regex"], server)
    }
    assert hosts_of_servers == {"192.0.2.1:2181": "h1", "192.0.2.2:2181": "h2"}


def test_promtool_fires_and_silences_each_rule(tmp_path: Path) -> None:
    """As `promtool test rules alerts_test.yml`, but each series meets only the rules that its case names.

    promtool evaluates all rules at each step of each case, which takes seven times the work.
    """
    tests = yaml.safe_load((FILES / "alerts_test.yml").read_text())
    cases = [case for test in tests["tests"] for case in test["alert_rule_test"]]
    named = {rule["alert"] for rule in RULES}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == named
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == named
    assert tests["rule_files"] == ["alerts.yml"]
    by_names: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for test in tests["tests"]:
        by_names.setdefault(tuple(sorted({case["alertname"] for case in test["alert_rule_test"]})), []).append(test)
    files: list[str] = []
    for names, some in by_names.items():
        rules_file, file = tmp_path / f"{names[0]}-{len(files)}.yml", tmp_path / f"{names[0]}-{len(files)}-test.yml"
        group = {"name": "pylog", "rules": [rule for rule in RULES if rule["alert"] in names]}
        rules_file.write_text(yaml.safe_dump({"groups": [group]}))
        file.write_text(yaml.safe_dump(tests | {"rule_files": [str(rules_file)], "tests": some}))
        files.append(str(file))
    assert promtool("test", "rules", *files).count("SUCCESS") == len(files)


def test_the_table_of_what_is_measured_names_every_alert_and_where_it_is_raised() -> None:
    raised: dict[str, str] = {}
    for line in (ROOT / "docs/design/metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        if line.startswith("| ") and len(cells) == 5 and not cells[3].startswith("named by"):
            for name in re.findall(r"`(Pylog\w+)`", cells[3]):
                assert name not in raised, f"{name}: twice"
                raised[name] = cells[4]
    names = {rule["alert"] for rule in RULES}
    places = {
        "live": names - NOT_RAISED.keys(),
        "monitored": {name for one in FAULTS for name, _ in one.fires},
        "night": {name for one in BREAKAGES for name in one.fires},
    }
    assert raised == {name: ", ".join(place for place, there in places.items() if name in there) for name in names}
