"""The page of alerts, from the rules that role `monitoring` installs."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "roles" / "monitoring" / "files"

_HEAD = """\
# Alerts

What Prometheus watches for where the inventory has a host in `pylog_monitoring` (role `monitoring`). Rules, tests and
dashboards are in `roles/monitoring/files/`; promtool tests each rule with a series that fires it and one that does not.
`make test` raises on live hosts every alert that can be raised without harm; `tests/infra/test_monitoring.py` names the
others, each with its reason.

| alert | severity | after | what is wrong | first step |
|---|---|---|---|---|
"""


def rules() -> list[dict[str, Any]]:
    """Return the alert rules in their order, as Prometheus reads them."""
    groups = yaml.safe_load((FILES / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def page() -> str:
    """Return the page of all alerts as Markdown."""
    return _HEAD + "".join(map(_row, rules()))


def pages() -> dict[Path, str]:
    """Return the page by its path."""
    return {ROOT / "docs" / "alerts.md": page()}


def _row(rule: dict[str, Any]) -> str:
    said = {key: _with_names(text) for key, text in rule["annotations"].items()}
    cells = (f"`{rule['alert']}`", rule["labels"]["severity"], rule["for"], said["summary"], said["remedy"])
    return f"| {' | '.join(cells)} |\n"


def _with_names(text: str) -> str:
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda label: label[1].upper(), text)
