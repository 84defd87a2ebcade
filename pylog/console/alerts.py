"""Reads Prometheus: alerts that fire, shown with what to do, and the answers to the queries of `measures`.

    read_alerts("http://127.0.0.1:9090", 3.0) -> [Alert(name, state, severity, summary, labels, since_ms), ...]
    read_samples("http://127.0.0.1:9090", QUERIES["health"], 3.0) -> [Sample(labels, value, at_s), ...]

Prometheus's address stands in the console's file, and the requests are fixed: nothing of them comes from a browser.
Source: Prometheus's HTTP API, ``GET /api/v1/alerts`` and ``GET /api/v1/query``.
"""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from pylog.client.rows import Row
from pylog.console.measures import Sample
from pylog.console.readings import Reading
from pylog.console.screens import missing, paged
from pylog.errors import PylogError, Unreachable
from pylog.runbooks import RUNBOOKS

MAX_BYTES = 8 << 20
"""Of Prometheus's answer: thousands of alerts."""

_T = TypeVar("_T")
_SEVERITIES = ("critical", "warning", "info")
_OPEN_LABELS = frozenset(
    {
        "alertname",
        "severity",
        "topic",
        "partition",
        "group",
        "broker",
        "host",
        "datacenter",
        "instance",
        "job",
        "code",
        "error",
    }
)
"""What an alert may be about that is shown to people who may not describe the cluster: not connectors, for example."""
_HIDDEN_LABELS = frozenset({"alertname", "severity"})


class BadAnswer(PylogError):
    """What Prometheus answered is not what its interface promises."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of Prometheus.

    Attributes:
        name: of its rule.
        state: firing, or pending: its condition holds, but not for long enough yet.
        severity: critical, warning or another word of the rule's.
        summary: what is wrong, in words; empty if the rule has none.
        labels: what it is about.
        since_ms: since when its condition holds; ms since the Unix epoch, None if it is not said.
    """

    name: str
    state: str
    severity: str
    summary: str
    labels: Mapping[str, str]
    since_ms: int | None


def read_alerts(url: str, timeout_s: float) -> list[Alert]:
    """Ask Prometheus at *url* for its alerts.

    Raises:
        Unreachable: it does not answer.
        BadAnswer: its answer cannot be read.
    """
    return _read(url, "/api/v1/alerts", timeout_s, lambda data: [_alert(entry) for entry in data["alerts"]])


def read_samples(url: str, query: str, timeout_s: float) -> list[Sample]:
    """Ask Prometheus at *url* for the values of *query* now.

    Raises:
        Unreachable: it does not answer.
        BadAnswer: its answer cannot be read.
    """
    path = f"/api/v1/query?{urlencode({'query': query})}"
    return _read(url, path, timeout_s, lambda data: [_sample(entry) for entry in data["result"]])


def _read(url: str, path: str, timeout_s: float, of: Callable[[Any], list[_T]]) -> list[_T]:
    # Straight to the address in the file: a proxy of the environment has no business between the two.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.rstrip('/')}{path}", timeout=timeout_s) as answer:
            body = answer.read(MAX_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        said = f"status {error.code}" if isinstance(error, urllib.error.HTTPError) else _reason(error)
        raise Unreachable(f"Prometheus at {url} does not answer: {said}") from error
    if len(body) > MAX_BYTES:
        raise BadAnswer(f"the answer of Prometheus at {url} has more than {MAX_BYTES} bytes")
    try:
        return of(json.loads(body)["data"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadAnswer(f"the answer of Prometheus at {url} cannot be read") from error


def _sample(entry: Mapping[str, Any]) -> Sample:
    at_s, value = entry["value"]
    return Sample({str(name): str(one) for name, one in entry["metric"].items()}, float(value), float(at_s))


def visible(
    reading: Reading[Sequence[Alert]], topics: Container[str], groups: Container[str], *, is_all: bool
) -> Reading[Sequence[Alert]]:
    """Return *reading* without the alerts whose labels name something of which the person may not know.

    Args:
        reading: all alerts.
        topics: that the person may see.
        groups: that the person may see.
        is_all: whether the person may know of all that is neither a topic nor a group.
    """

    def is_shown(alert: Alert) -> bool:
        if not is_all and not alert.labels.keys() <= _OPEN_LABELS:
            return False
        topic, group = alert.labels.get("topic"), alert.labels.get("group")
        return (topic is None or topic in topics) and (group is None or group in groups)

    return replace(reading, value=None if reading.value is None else [one for one in reading.value if is_shown(one)])


def alerts_data(reading: Reading[Sequence[Alert]] | None, page: int, hidden: int = 0) -> Row:
    """Return the model of the page of alerts.

    Args:
        reading: the alerts that the person may see; None if the console's file names no Prometheus.
        page: from 1.
        hidden: how many others there are.
    """
    alerts = sorted(reading.value or [] if reading else [], key=_urgency)
    firing = [alert for alert in alerts if alert.state == "firing"]
    rows, pages = paged(alerts, page)
    return {
        "verdict": _verdict(reading, len(firing), hidden),
        "sentence": _sentence(reading, len(firing), len(alerts) - len(firing)) + _others(hidden),
        "query": "",
        **pages,
        "alerts": [
            {
                "name": alert.name,
                "state": alert.state,
                "severity": alert.severity,
                "summary": alert.summary,
                "labels": {name: value for name, value in alert.labels.items() if name not in _HIDDEN_LABELS},
                "since_ms": alert.since_ms,
                "has_runbook": alert.name in RUNBOOKS,
            }
            for alert in rows
        ],
        "runbooks": [{"name": name, "what": book.what} for name, book in sorted(RUNBOOKS.items())],
        "unknown": missing(alerts=reading) if reading else [],
    }


def runbook_data(name: str, reading: Reading[Sequence[Alert]] | None) -> Row | None:
    """Return what to do about an alert, and where it fires; None if there is no such alert."""
    book = RUNBOOKS.get(name)
    if book is None:
        return None
    alerts = sorted(reading.value or [] if reading else [], key=_urgency)
    return {
        "name": name,
        "what": book.what,
        "look": book.look,
        "decide": book.decide,
        "act": book.act,
        "verify": book.verify,
        "alerts": [
            {
                "state": alert.state,
                "summary": alert.summary,
                "labels": {name: value for name, value in alert.labels.items() if name not in _HIDDEN_LABELS},
                "since_ms": alert.since_ms,
            }
            for alert in alerts
            if alert.name == name
        ],
        "unknown": missing(alerts=reading) if reading else [],
    }


def _verdict(reading: Reading[Sequence[Alert]] | None, firing: int, hidden: int) -> str:
    if reading is None or reading.error:
        return "unknown"
    return "unhealthy" if firing else "unknown" if hidden else "healthy"


def _others(hidden: int) -> str:
    if not hidden:
        return ""
    return f" {hidden:,} more {'is' if hidden == 1 else 'are'} about what you may not see."


def _sentence(reading: Reading[Sequence[Alert]] | None, firing: int, pending: int) -> str:
    if reading is None:
        return "Unknown: the console's file names no Prometheus. What to do about each alert stands below."
    if reading.value is None:
        return f"Unknown: {reading.error}."
    said = {0: "No alert fires", 1: "1 alert fires"}.get(firing, f"{firing:,} alerts fire")
    if pending:
        said += f"; {pending:,} {'is' if pending == 1 else 'are'} about to"
    return f"Unknown: {reading.error}. Before that: {said}." if reading.error else f"{said}."


def _urgency(alert: Alert) -> tuple[bool, int, int, str]:
    place = _SEVERITIES.index(alert.severity) if alert.severity in _SEVERITIES else len(_SEVERITIES)
    return alert.state != "firing", place, alert.since_ms or 0, alert.name


def _alert(entry: Mapping[str, Any]) -> Alert:
    labels = {str(name): str(value) for name, value in entry["labels"].items()}
    annotations = entry.get("annotations") or {}
    return Alert(
        labels.get("alertname", ""),
        str(entry["state"]),
        labels.get("severity", ""),
        str(annotations.get("summary", "")),
        labels,
        _time_ms(str(entry.get("activeAt", ""))),
    )


def _time_ms(text: str) -> int | None:
    # Go writes nanoseconds, of which Python reads six digits.
    head, point, rest = text.partition(".")
    digits = rest.rstrip("Z")
    try:
        return int(datetime.fromisoformat(f"{head}{point}{digits[:6]}Z" if point else text).timestamp() * 1000)
    except ValueError:
        return None


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", error)
    return getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
