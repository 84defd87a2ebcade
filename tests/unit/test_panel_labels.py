"""The labels that panels and alerts name are those of the metrics that they read, or what Prometheus adds."""

import json
import re
from pathlib import Path

import pytest

from local.docs.alerts import FILES, rules
from local.docs.catalogue import labels_of

ADDED = {"host", "datacenter", "broker", "job", "instance", "le"}
"""By the role's configuration of Prometheus, and by Prometheus."""
RECORDED = {
    "pylog_threshold": {"name"},
    "pylog_expected": {"task"},
    "pylog_expected_since_timestamp_seconds": {"task"},
}
"""What the role tells Prometheus itself."""
OURS = re.compile(r"pylog_\w+")
SELECTED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
GROUPED = re.compile(r"\b(?:by|without|on|group_left|group_right)\s*\(([^)]*)\)")
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def unknown_labels(expr: str, legend: str = "") -> set[str]:
    """Return the labels that *expr* and *legend* name and that no metric of *expr* has; none for others' metrics."""
    bare = re.sub(r"\{[^}]*\}", "", expr)
    names = set(OURS.findall(bare))
    if not names or re.search(r"\b(node|haproxy)_|label_replace|count_values", bare):
        return set()
    known = set(ADDED)
    for name in names:
        known |= {*labels_of(re.sub(r"_(bucket|count|sum)$", "", name)), *labels_of(name), *RECORDED.get(name, ())}
    named = {*SELECTED.findall(expr), *LEGEND.findall(legend)}
    for group in GROUPED.findall(expr):
        named |= {label.strip() for label in group.split(",") if label.strip()}
    return named - known


@pytest.mark.parametrize("path", sorted((FILES / "dashboards").glob("*.json")), ids=lambda path: path.stem)
def test_panels_name_labels_that_their_metrics_have(path: Path) -> None:
    wrong = {
        f"{panel['title']}: {target['expr']}": found
        for panel in json.loads(path.read_text())["panels"]
        for target in panel["targets"]
        if (found := unknown_labels(target["expr"], target.get("legendFormat", "")))
    }
    assert wrong == {}


def test_alerts_name_labels_that_their_metrics_have() -> None:
    assert {rule["alert"]: found for rule in rules() if (found := unknown_labels(rule["expr"]))} == {}


def test_a_wrong_label_is_found() -> None:
    assert unknown_labels('sum by (topics) (pylog_topic_log_bytes{broker="1"})', "{{topic}}") == {"topics"}
    assert unknown_labels('pylog_topic_log_bytes{topics="a"}', "{{user}}") == {"topics", "user"}
