"""Who uses a broker: its connections by the client's software, its requests by listener and principal.

Each connection counts its own requests.  They are summed at scrape time, and what closed connections had counted is
kept by principal, so that the hot path pays one addition.
"""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from pylog.metrics import OTHER, Metrics, keep_largest
from pylog.net.connection import Connection
from pylog.net.listener import Listener
from pylog.security.principal import ANONYMOUS

MAX_SOFTWARE = 50
"""Pairs of a client's name and version that are told apart; the connections of the rest are one number."""

MAX_PRINCIPALS = 100
"""Principals of a listener that are told apart.  The first ones are kept, since a counter must not change its label;
ANONYMOUS is always one of them."""

MAX_LABEL_CHARS = 64
"""Longest label that a client's own words make; the rest is cut off."""

_Row = tuple[str, str]


class ClientCounts:
    """Sums up the connections of all listeners."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self._listeners = list(listeners)
        self._closed: Counter[_Row] = Counter()
        self._last_ns: dict[_Row, int] = {}
        self._known: defaultdict[str, set[str]] = defaultdict(lambda: {ANONYMOUS.name})
        for listener in self._listeners:
            listener.on_closed = self._note_closed

    def show(self, metrics: Metrics) -> None:
        """Show the tables in *metrics*."""
        metrics.table(
            "pylog_client_connections",
            "gauge",
            "Open connections of clients by the software that they name; the commonest are told apart.",
            ("software", "version"),
            self._software,
        )
        columns = ("listener", "principal")
        help = "Requests by listener and who sent them."
        metrics.table("pylog_principal_requests_total", "counter", help, columns, self._requests)
        help = "When the last request came in, since the Unix epoch, by listener and who sent it."
        metrics.table("pylog_principal_last_request_timestamp_seconds", "gauge", help, columns, self._last_requests)

    def last_requests(self) -> dict[tuple[str, str], int]:
        """Return (listener, principal) -> when the last request came in, in ms since the Unix epoch."""
        return {row: int(at_s * 1000) for row, at_s in self._last_requests().items()}

    def _software(self) -> Mapping[_Row, float]:
        found: dict[_Row, float] = {}
        for connection in self._connections():
            name, version = connection.software
            if name:
                row = name[:MAX_LABEL_CHARS], version[:MAX_LABEL_CHARS]
                found[row] = found.get(row, 0) + 1
        return keep_largest(found, MAX_SOFTWARE)

    def _requests(self) -> Mapping[_Row, float]:
        found = Counter(self._closed)
        for connection in filter(_is_counted, self._connections()):
            found[self._row(connection)] += connection.requests
        return found

    def _last_requests(self) -> Mapping[_Row, float]:
        found: dict[_Row, float] = dict(self._last_ns)
        for connection in filter(_is_counted, self._connections()):
            row = self._row(connection)
            found[row] = max(found.get(row, 0), connection.read_ns)
        since_epoch_ns = time.time_ns() - time.perf_counter_ns()
        return {row: (since_epoch_ns + read_ns) / 1e9 for row, read_ns in found.items()}

    def _connections(self) -> Iterator[Connection]:
        return itertools.chain.from_iterable(listener.connections for listener in self._listeners)

    def _note_closed(self, connection: Connection) -> None:
        if _is_counted(connection):
            row = self._row(connection)
            self._closed[row] += connection.requests
            self._last_ns[row] = max(self._last_ns.get(row, 0), connection.read_ns)

    def _row(self, connection: Connection) -> _Row:
        listener, principal = connection.session.listener_name, connection.session.principal.name[:MAX_LABEL_CHARS]
        known = self._known[listener]
        if principal not in known:
            if len(known) > MAX_PRINCIPALS:
                return listener, OTHER
            known.add(principal)
        return listener, principal


def _is_counted(connection: Connection) -> bool:
    """Whether *connection* sent requests, and it is known whose.

    Before its login a client has no name yet.  Counted as ANONYMOUS, its requests would change their label with the
    login, and after a wrong password they would look like those of a client that needs an open listener.
    """
    session = connection.session
    is_before_login = session.security_protocol.has_sasl and session.principal == ANONYMOUS
    return connection.requests > 0 and not is_before_login
