"""Runs a probe: its threads, and the page of what they found."""

import time
from contextlib import ExitStack
from threading import Thread

from pylog.daemon.notices import Notices
from pylog.daemon.stop import Stop
from pylog.daemon.web import WebServer, metrics_app
from pylog.metrics import Metrics
from pylog.probe.canary import Canary, Scout
from pylog.probe.config import ProbeConfig
from pylog.probe.reader import LagReader
from pylog.probe.zookeeper import ZooKeeperReader
from pylog.process_metrics import measure_process

_JOIN_S = 15.0


def run(config: ProbeConfig, stop: Stop, notices: Notices) -> None:
    """Measure until *stop*, through every failure of what is measured.

    Raises:
        ConfigError: the address of the page cannot be used.
    """
    metrics = Metrics()
    measure_process(metrics)
    threads: list[Thread] = [LagReader(config.cluster, config.lag_interval_s, metrics, stop, notices)]
    if config.canary_topic:
        scout = Scout(config, stop, notices)
        threads += [scout, Canary(config, metrics, scout, stop, notices)]
    if config.zookeeper:
        servers, interval_s = config.zookeeper, config.zookeeper_interval_s
        threads.append(ZooKeeperReader(servers, interval_s, metrics, stop, notices, config.zookeeper_security))
    with ExitStack() as stack:
        server = stack.enter_context(WebServer(*config.listen, metrics_app(metrics), tls=config.metrics_tls))
        for thread in threads:
            thread.start()
            stack.callback(thread.join, _JOIN_S)
        notices.tell(time.monotonic(), "info", "ready", port=server.port)
        while not stop.wait(60.0):
            pass
