from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pylog.broker.client_counts import MAX_LABEL_CHARS, MAX_PRINCIPALS, MAX_SOFTWARE, ClientCounts
from pylog.metrics import Metrics
from pylog.security.principal import ANONYMOUS, Principal, SecurityProtocol, Session


def _listener(name: str = "client") -> Any:
    return SimpleNamespace(name=name, connections=set(), on_closed=None)


class _Connection(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


def _connect(
    listener: Any,
    *,
    principal: str = "a",
    software: tuple[str, str] = ("", ""),
    requests: int = 1,
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
) -> Any:
    session = Session(
        principal=Principal("User", principal),
        client_host="h",
        listener_name=listener.name,
        security_protocol=protocol,
    )
    connection = _Connection(session=session, software=software, requests=requests, read_ns=1)
    listener.connections.add(connection)
    return connection


def _shown(*listeners: Any) -> Metrics:
    metrics = Metrics()
    ClientCounts(listeners).show(metrics)
    return metrics


def test_connections_are_counted_by_the_software_that_they_name() -> None:
    listener = _listener()
    metrics = _shown(listener)
    _connect(listener, software=("librdkafka", "2.3.0"))
    _connect(listener, software=("librdkafka", "2.3.0"))
    _connect(listener)
    assert 'pylog_client_connections{software="librdkafka",version="2.3.0"} 2' in metrics.render()


def test_names_that_change_at_each_connection_do_not_grow_the_page() -> None:
    listener = _listener()
    metrics = _shown(listener)
    for number in range(MAX_SOFTWARE * 10):
        _connect(listener, software=(f"{number:04}-" + "x" * 100, "1"))
    lines = [line for line in metrics.render().splitlines() if line.startswith("pylog_client_connections{")]
    assert len(lines) == MAX_SOFTWARE + 1
    assert all(len(line.split('"')[1]) <= MAX_LABEL_CHARS for line in lines)
    assert f'software="other",version="other"}} {MAX_SOFTWARE * 9}' in lines[-1]


def test_a_client_that_changes_its_name_at_each_request_has_one_row() -> None:
    listener = _listener()
    metrics = _shown(listener)
    connection = _connect(listener)
    for number in range(1_000):
        connection.software = (f"client-{number}", "1")
        connection.requests += 1
        assert metrics.render().count("pylog_client_connections{") == 1
    assert 'pylog_client_connections{software="client-999",version="1"} 1' in metrics.render()
    assert 'pylog_principal_requests_total{listener="client",principal="a"} 1001' in metrics.render()


def test_requests_of_closed_connections_stay_counted() -> None:
    listener = _listener()
    metrics = _shown(listener)
    connection = _connect(listener, requests=5)
    _connect(listener, requests=2)
    listener.connections.discard(connection)
    listener.on_closed(connection)
    assert 'pylog_principal_requests_total{listener="client",principal="a"} 7' in metrics.render()


def test_when_a_principal_was_last_here_is_kept() -> None:
    listener = _listener()
    metrics = _shown(listener)
    connection = _connect(listener, principal="ANONYMOUS")
    listener.connections.discard(connection)
    listener.on_closed(connection)
    name = 'pylog_principal_last_request_timestamp_seconds{listener="client",principal="ANONYMOUS"}'
    assert name in metrics.render()


def test_who_never_asked_anything_was_never_here() -> None:
    listener = _listener()
    metrics = _shown(listener)
    _connect(listener, requests=0)
    assert "timestamp_seconds{" not in metrics.render()


def test_principals_beyond_the_limit_are_one() -> None:
    listener = _listener()
    metrics = _shown(listener)
    for number in range(MAX_PRINCIPALS + 5):
        _connect(listener, principal=f"{number}", requests=1)
    lines = [line for line in metrics.render().splitlines() if line.startswith("pylog_principal_requests_total{")]
    assert len(lines) == MAX_PRINCIPALS + 1
    assert 'pylog_principal_requests_total{listener="client",principal="other"} 5' in lines


def test_a_login_that_failed_is_no_use_by_an_anonymous_client() -> None:
    listener = _listener()
    counts = ClientCounts([listener])
    connection = _connect(listener, principal=ANONYMOUS.name, protocol=SecurityProtocol.SASL_SSL, requests=3)
    assert counts.last_requests() == {}
    listener.connections.discard(connection)
    listener.on_closed(connection)
    assert counts.last_requests() == {}


def test_requests_keep_their_label_when_a_client_logs_in() -> None:
    listener = _listener()
    metrics = _shown(listener)
    connection = _connect(listener, principal=ANONYMOUS.name, protocol=SecurityProtocol.SASL_SSL, requests=3)
    assert "pylog_principal_requests_total{" not in metrics.render()
    connection.session = replace(connection.session, principal=Principal("User", "alice"))
    connection.requests += 1
    page = metrics.render()
    assert 'pylog_principal_requests_total{listener="client",principal="alice"} 4' in page
    assert ANONYMOUS.name not in page


def test_anonymous_clients_and_those_of_another_listener_are_told_apart_from_a_crowd() -> None:
    crowded, quiet = _listener("crowded"), _listener("quiet")
    metrics = _shown(crowded, quiet)
    for number in range(MAX_PRINCIPALS + 5):
        _connect(crowded, principal=f"{number}")
    metrics.render()
    _connect(crowded, principal=ANONYMOUS.name)
    _connect(quiet, principal="late")
    page = metrics.render()
    assert 'pylog_principal_requests_total{listener="crowded",principal="ANONYMOUS"} 1' in page
    assert 'pylog_principal_requests_total{listener="quiet",principal="late"} 1' in page
