"""Runs an instance of a mirror: one session after the other."""

import time
from contextlib import ExitStack

from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.daemon.web import WebServer, metrics_app
from pylog.errors import PylogError
from pylog.metrics import Metrics
from pylog.mirror.config import MirrorConfig
from pylog.mirror.groups import Carrier
from pylog.mirror.meters import Meters
from pylog.mirror.parking import Suspects
from pylog.mirror.scout import Scout
from pylog.mirror.session import RecordRefused, Relay, Session
from pylog.process_metrics import measure_process

_FIRST_BACKOFF_S = 0.5
_LAST_BACKOFF_S = 30.0
_GOOD_SESSION_S = 60.0
_WAIT_S = 0.2


def run(config: MirrorConfig, stop: Stop, notices: Notices, relay: Relay | None = None) -> None:
    """Mirror until *stop*, through every failure of both clusters.

    Args:
        config: what and where.
        stop: the end.
        notices: told what an operator should know.
        relay: what becomes of records; as `Relay` does it unless given.

    Raises:
        ConfigError: the address for metrics cannot be used.
    """
    metrics = Metrics()
    measure_process(metrics)
    meters = Meters(metrics)
    sessions = metrics.counter("pylog_mirror_sessions_total", "Sessions begun; each but the first repeats records.")
    backoff_s = _FIRST_BACKOFF_S
    suspects = Suspects()
    with ExitStack() as stack:
        if config.metrics_listen is not None:
            server = stack.enter_context(
                WebServer(*config.metrics_listen, metrics_app(metrics), tls=config.metrics_tls)
            )
            notices.tell(time.monotonic(), "info", "ready", port=server.port)
        scout = Scout(config, meters, notices)
        scout.start()
        stack.callback(scout.close)
        carrier = Carrier(config, scout, meters, notices)
        carrier.start()
        stack.callback(carrier.close)
        while not (scout.is_ready or stop.wait(_WAIT_S)):
            pass
        while not stop.is_wanted:
            sessions.add()
            begun_s = time.monotonic()
            try:
                relay = relay or Relay(config.source.name, config.target.name)
                Session(config, relay, scout, meters, notices, suspects).run(stop)
            except RecordRefused as error:
                # The next session knows which records to send by themselves: nothing is to be waited for.
                notices.tell(time.monotonic(), "warning", "batch_refused", reason=error)
            except PylogError as error:
                if time.monotonic() - begun_s > _GOOD_SESSION_S:
                    backoff_s = _FIRST_BACKOFF_S
                notices.tell(time.monotonic(), "warning", "session_ended", reason=error, retry_s=backoff_s)
                stop.wait(backoff_s)
                backoff_s = min(backoff_s * 2, _LAST_BACKOFF_S)
