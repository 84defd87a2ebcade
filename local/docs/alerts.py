"""The page of alerts, from the rules that role `monitoring` installs and the ways through them."""

import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

from pylog.runbooks import RUNBOOKS

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "roles" / "monitoring" / "files"

_HEAD = """\
# Alerts

What Prometheus watches for where the inventory has a host in `pylog_monitoring` (role `monitoring`). Rules, tests and
dashboards are in `roles/monitoring/files/`; promtool tests each rule with a series that fires it and one that does not.
`make test` raises on live hosts every alert that can be raised without harm; `tests/infra/test_monitoring.py` names the
others, each with its reason. `make night` breaks a cluster in seven ways and compares what fires with what is listed
for the fault. [A table](design/metrics.md#what-is-measured-and-what-watches-it) says what is measured, in which
metrics, and which alert watches it.

Each alert has its way through below: look, decide, act, verify. `pylog explain PylogBrokerDown` prints it on a
terminal, and `pylog explain pylog_group_lag_seconds` what a metric means.

Words in capitals stand for values. HOST, BROKER, TOPIC and others that the alert's labels have are those labels, and
VALUE is what its condition measured. The rest is yours to fill in: ID is a broker's id, DIR a data directory, NAME an
inventory. `fab` runs on the control machine and wants `--inventory inventories/NAME`. `pylog` and
`systemctl` run on a broker's host, there with `sudo`; anywhere else `pylog` wants `--bootstrap HOST:PORT`.

Two times stand beside an alert. *Active since*, on Prometheus's page, is when its condition began to hold. *Since*, in
what an Alertmanager sends, is later by the column *after*: the condition had held for so long. What broke may be a
scrape older than *active since*, and some minutes older where the condition compares a rate.

| alert | severity | after | what is wrong |
|---|---|---|---|
"""


def rules() -> list[dict[str, Any]]:
    """Return the alert rules in their order, as Prometheus reads them."""
    groups = yaml.safe_load((FILES / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def page() -> str:
    """Return the page of all alerts as Markdown."""
    return _HEAD + "".join(map(_row, rules())) + "".join(map(_section, rules()))


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    return {ROOT / "docs" / "alerts.md": page()}


def _row(rule: dict[str, Any]) -> str:
    name = rule["alert"]
    cells = (f"[`{name}`](#{name.lower()})", rule["labels"]["severity"], rule["for"], summary(rule))
    return f"| {' | '.join(cells)} |\n"


def _section(rule: dict[str, Any]) -> str:
    runbook = RUNBOOKS[rule["alert"]]
    steps = ("look", "decide", "act", "verify")
    lines = [
        textwrap.fill(
            f"{number}. **{step.capitalize()}.** {getattr(runbook, step)}",
            120,
            subsequent_indent="   ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for number, step in enumerate(steps, 1)
    ]
    return f"\n## {rule['alert']}\n\n{summary(rule)[0].upper()}{summary(rule)[1:]}.\n\n" + "\n".join(lines) + "\n"


def summary(rule: dict[str, Any]) -> str:
    """Return what an alert says, with capitals for its labels and its value, and without what queries add."""
    return _with_names(rule["annotations"]["summary"])


def _with_names(text: str) -> str:
    # What a query adds to the alert, as of how many, is not there to be read before it fires.
    text = re.sub(r"\{\{ range .*?\{\{ end \}\}", "", text)
    text = re.sub(r"\{\{ (printf \"[^\"]*\" )?\$value( \| \w+)? \}\}", "VALUE", text)
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: label[1].upper(), text)
