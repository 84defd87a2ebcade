"""Alerts as the console shows them."""

import http.server
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from pylog.console.alerts import Alert, BadAnswer, alerts_data, read_alerts, runbook_data, visible
from pylog.console.readings import Reading
from pylog.errors import Unreachable


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def alert(name: str, state: str = "firing", severity: str = "warning", since_ms: int = 0) -> Alert:
    return Alert(name, state, severity, "", {"alertname": name, "severity": severity, "host": "h1"}, since_ms)


def test_nobody_learns_of_topics_and_groups_by_alerts() -> None:
    def about(**labels: str) -> Alert:
        return Alert("A", "firing", "warning", "", {"host": "h1", **labels}, 0)

    shown = [about(), about(topic="mine"), about(group="us", topic="mine")]
    hidden = [about(topic="other"), about(group="them"), about(group="us", topic="other")]
    reading: Reading[Sequence[Alert]] = Reading([*shown, *hidden], 1, "", None, 1)
    assert visible(reading, {"mine"}, {"us"}, is_all=True).value == shown
    nothing: Reading[Sequence[Alert]] = Reading(None, None, "no answer", 2, 2)
    assert visible(nothing, set(), set(), is_all=False) == nothing


def test_what_is_neither_topic_nor_group_is_for_those_who_may_describe_the_cluster() -> None:
    alerts = [
        Alert("A", "firing", "warning", "", labels, 0)
        for labels in ({"host": "h1"}, {"connector": "payroll"}, {"topic": "mine", "query": "payroll"})
    ]
    reading: Reading[Sequence[Alert]] = Reading(alerts, 1, "", None, 1)
    assert visible(reading, {"mine"}, set(), is_all=False).value == alerts[:1]
    assert visible(reading, {"mine"}, set(), is_all=True).value == alerts


@pytest.mark.parametrize("labels", [{"code": "PYLOG-0701"}, {"error": "INVALID_RECORD"}])
def test_who_may_see_a_topic_sees_that_it_is_loaded_no_longer_or_parked(labels: dict[str, str]) -> None:
    one = Alert("A", "firing", "warning", "", {"host": "h1", "topic": "mine", **labels}, 0)
    reading: Reading[Sequence[Alert]] = Reading([one], 1, "", None, 1)
    assert visible(reading, {"mine"}, set(), is_all=False).value == [one]
    assert visible(reading, {"other"}, set(), is_all=False).value == []


def test_alerts_that_are_not_shown_are_counted() -> None:
    quiet: Reading[Sequence[Alert]] = Reading([], 1, "", None, 1)
    page = alerts_data(quiet, 1, hidden=2)
    assert (page["verdict"], page["sentence"]) == ("unknown", "No alert fires. 2 more are about what you may not see.")
    assert alerts_data(quiet, 1)["verdict"] == "healthy"
    assert alerts_data(Reading([alert("A")], 1, "", None, 1), 1, 1)["sentence"].startswith("1 alert fires. 1 more is")


def test_the_most_urgent_alert_comes_first() -> None:
    alerts = [
        alert("Pending", "pending", "critical"),
        alert("Young", since_ms=20),
        alert("Old", since_ms=10),
        alert("Worst", severity="critical", since_ms=30),
    ]
    page = alerts_data(Reading(alerts, 1, "", None, 1), 1)
    assert [row["name"] for row in page["alerts"]] == ["Worst", "Old", "Young", "Pending"]
    assert (page["verdict"], page["sentence"]) == ("unhealthy", "3 alerts fire; 1 is about to.")
    assert page["alerts"][0]["labels"] == {"host": "h1"}


def test_what_prometheus_said_last_is_not_what_it_says() -> None:
    page = alerts_data(Reading([alert("A")], 1_000, "no answer", 2_000, 2_000), 1)
    assert (page["verdict"], page["sentence"]) == ("unknown", "Unknown: no answer. Before that: 1 alert fires.")
    assert page["unknown"][0]["since_ms"] == 2_000


def test_each_alert_of_the_rules_has_a_page_with_what_to_do() -> None:
    names = [row["name"] for row in alerts_data(None, 1)["runbooks"]]
    assert "PylogBrokerDown" in names
    for name in names:
        book = runbook_data(name, None)
        assert book is not None
        assert all(book[step] for step in ("what", "look", "decide", "act", "verify"))
    assert runbook_data("Nothing", None) is None


def test_an_alert_s_page_says_where_it_fires() -> None:
    book = runbook_data("PylogBrokerDown", Reading([alert("PylogBrokerDown"), alert("Other")], 1, "", None, 1))
    assert book is not None
    assert [row["labels"] for row in book["alerts"]] == [{"host": "h1"}]


def test_times_have_nanoseconds() -> None:
    body = (
        b'{"data": {"alerts": [{"labels": {"alertname": "A"}, "state": "firing",'
        b' "activeAt": "2030-01-01T00:00:00.123456789Z"}]}}'
    )
    with answering(200, body) as url:
        [found] = read_alerts(url, 5.0)
    assert found.since_ms == 1_893_456_000_123


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"data": {}}', b'{"data": {"alerts": [1]}}'])
def test_an_answer_of_something_else_is_named(body: bytes) -> None:
    with answering(200, body) as url, pytest.raises(BadAnswer, match="cannot be read"):
        read_alerts(url, 5.0)


def test_a_refusal_and_silence_are_named() -> None:
    with answering(503, b"") as url, pytest.raises(Unreachable, match="status 503"):
        read_alerts(url, 5.0)
    with pytest.raises(Unreachable, match="does not answer: Connection refused"):
        read_alerts("http://127.0.0.1:1", 5.0)
