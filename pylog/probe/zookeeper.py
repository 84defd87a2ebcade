"""What each ZooKeeper server says of itself, by the four-letter word ``mntr``."""

import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.metrics import Metrics
from pylog.ops.host import monitored
from pylog.store.zookeeper_handler import client_context
from pylog.store.zookeeper_security import PLAIN, ZooKeeperSecurity

TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 1 << 20
"""An answer has about 20 KB; whoever sends more is no ZooKeeper."""

KEYS: Mapping[str, str] = {
    "zk_avg_latency": "Average time to answer a request since the start, in milliseconds.",
    "zk_max_latency": "Longest time to answer a request since the start, in milliseconds.",
    "zk_outstanding_requests": "Requests that wait.",
    "zk_num_alive_connections": "Open connections.",
    "zk_znode_count": "Nodes of the tree.",
    "zk_watch_count": "Watches.",
    "zk_ephemerals_count": "Ephemeral nodes: one of each broker's session, and more of the paper's consumers.",
    "zk_approximate_data_size": "Bytes of the tree.",
    "zk_open_file_descriptor_count": "Open file descriptors.",
    "zk_max_file_descriptor_count": "File descriptors it may open.",
    "zk_synced_followers": "Followers in sync; shown by the leader.",
    "zk_pending_syncs": "Syncs that the leader waits for.",
    "zk_max_fsynctime": "Longest time to sync its log since the start, in milliseconds.",
    "zk_max_election_time": "Longest time that an election took since the start, in milliseconds.",
    "zk_cnt_election_time": "Elections since the start.",
    "zk_throttled_ops": "Requests that were throttled.",
}
"""What is shown of the several hundred values."""

COUNTERS: Mapping[str, tuple[str, float, str]] = {
    "zk_cnt_updatelatency": ("updates_total", 1, "Requests answered that change the tree."),
    "zk_sum_updatelatency": (
        "update_seconds_total",
        1e-3,
        "Seconds spent on requests that change the tree; divide by pylog_zookeeper_updates_total.",
    ),
    "zk_cnt_readlatency": ("reads_total", 1, "Requests answered that read."),
    "zk_sum_readlatency": (
        "read_seconds_total",
        1e-3,
        "Seconds spent on requests that read; divide by pylog_zookeeper_reads_total.",
    ),
    "zk_cnt_fsynctime": ("syncs_total", 1, "Syncs of its log."),
    "zk_sum_fsynctime": (
        "sync_seconds_total",
        1e-3,
        "Seconds spent on syncs of its log; divide by pylog_zookeeper_syncs_total.",
    ),
}
"""Name, unit and help of what only grows.  Averages and percentiles of ``mntr`` are since the start: those of a server
that has run for months hardly move when it becomes slow, and the rates of these do."""

_Row = tuple[str]
Values = Mapping[str, str]


def ask(server: str, timeout_s: float = TIMEOUT_S, context: ssl.SSLContext | None = None) -> dict[str, str]:
    """Return what *server*, ``host:port``, answers within *timeout_s*; empty when it does not.

    With *context* the connection is encrypted, and the server's certificate must name its host.

    Raises:
        ssl.SSLError: one side does not take the other's certificate or protocol; the server may be well.
    """
    deadline_s = time.monotonic() + timeout_s
    host, _, port = server.rpartition(":")
    answer = bytearray()
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host.strip("[]"), int(port)), timeout_s))
            if context is not None:
                connection = stack.enter_context(context.wrap_socket(connection, server_hostname=host.strip("[]")))
            connection.sendall(b"mntr")
            while len(answer) < MAX_ANSWER_BYTES:
                # For the whole answer: one that comes byte by byte would hold up the other servers for hours.
                connection.settimeout(max(0.001, deadline_s - time.monotonic()))
                part = connection.recv(65536)
                if not part:
                    break
                answer += part
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return {}  # it went away
    except ssl.SSLError:
        raise
    except OSError:
        return {}
    return monitored(answer.decode(errors="replace"))


def numbers(found: Mapping[str, Values], key: str) -> dict[_Row, float]:
    """Return the values of *key* by server; one that is missing or no number is left out."""
    values = {}
    for server, monitor in found.items():
        try:
            values[server,] = float(monitor[key])
        except (KeyError, ValueError):
            continue
    return values


class ZooKeeperReader(threading.Thread):
    """Asks every server in turn; one that is silent holds up the others by `TIMEOUT_S`, and no scrape.

    Args:
        servers: ``host:port`` of each.
        interval_s: between two rounds.
        metrics: where the answers show.
        stop: the end.
        notices: told why servers cannot be asked.
        security: encryption and the certificate that is shown; its files are read anew for each round.
    """

    def __init__(
        self,
        servers: Sequence[str],
        interval_s: float,
        metrics: Metrics,
        stop: Stop,
        notices: Notices,
        security: ZooKeeperSecurity = PLAIN,
    ) -> None:
        super().__init__(name="zookeeper", daemon=True)
        self._servers = servers
        self._security = security
        self._interval_s = interval_s
        self._stop_asked = stop
        self._notices = notices
        self._found: Mapping[str, Values] = {server: {} for server in servers}
        help = "1 if the server answers and serves: it leads, follows or stands alone."
        metrics.table("pylog_zookeeper_up", "gauge", help, ("server",), self._up)
        metrics.gauge(
            "pylog_zookeeper_unasked_servers",
            "Servers that cannot be asked, since the probe's keys cannot be read or one side refuses the other's: "
            "whether they are up is not known, and they are not in pylog_zookeeper_up.",
            read=lambda: len(self._servers) - len(self._found),
        )
        help = "1 for the role that a server has."
        metrics.table("pylog_zookeeper_role", "gauge", help, ("server", "role"), self._roles)
        for key, help in KEYS.items():
            name = f"pylog_zookeeper_{key.removeprefix('zk_')}"
            metrics.table(name, "gauge", help, ("server",), lambda key=key: numbers(self._found, key))  # type: ignore[misc]
        for key, (suffix, unit, help) in COUNTERS.items():

            def read(key: str = key, unit: float = unit) -> dict[_Row, float]:
                return {row: value * unit for row, value in numbers(self._found, key).items()}

            metrics.table(f"pylog_zookeeper_{suffix}", "counter", help, ("server",), read)

    def run(self) -> None:
        """Ask until the end."""
        while not self._stop_asked.is_wanted:
            self.ask_all()
            self._stop_asked.wait(self._interval_s)

    def ask_all(self) -> None:
        """Ask each server once; those that cannot be asked are left out, since nothing is known of them."""
        found: dict[str, Values] = {}
        try:
            context = self._context()
            for server in self._servers:
                try:
                    found[server] = ask(server, context=context)
                except ssl.SSLError as error:
                    self._tell(server, error)
        except OSError as error:  # its files are missing or about to be replaced
            self._tell("keys", error)
        self._found = found

    def _tell(self, server: str, reason: Exception) -> None:
        self._notices.tell(time.monotonic(), "warning", "zookeeper_unasked", about=server, what=server, reason=reason)

    def _context(self) -> ssl.SSLContext | None:
        trust_store = self._security.trust_store
        return None if trust_store is None else client_context(trust_store, self._security.key_store)

    def _up(self) -> dict[_Row, float]:
        return {(server,): float("zk_server_state" in found) for server, found in self._found.items()}

    def _roles(self) -> dict[tuple[str, str], float]:
        return {
            (server, found["zk_server_state"]): 1.0
            for server, found in self._found.items()
            if "zk_server_state" in found
        }
