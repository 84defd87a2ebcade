"""A producer that sends while a cluster is secured, and what became of its records."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.infra.load import Tally, librdkafka, paced, read_back, report_of
from tests.rolls import cluster


class Sender:
    """An idempotent producer of librdkafka; `report` has what became of its records once the block has ended."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        self._config, self._topic = config, topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.tally = Tally()
        self.sent = 0
        self.report: dict[str, Any] = {}

    def __enter__(self) -> "Sender":
        self._began_s = time.monotonic()
        self._thread.start()
        try:
            cluster.wait_for(lambda: self.tally.acked)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end()
        if kind is None:
            took_s = time.monotonic() - self._began_s
            found = read_back(self._config["bootstrap.servers"], self._topic, self._config)
            self.report = report_of("librdkafka, idempotent", self.tally, self.sent, found, took_s)

    def check(self) -> None:
        """Fail unless each record was acknowledged, and lies in the topic once."""
        print(self.report)
        assert self.report["first_failures"] == []
        assert (self.report["failed"], self.report["lost"], self.report["duplicates"]) == (0, 0, 0)
        assert self.report["acked"] == self.report["sent"] > 100

    def _end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        settings = self._config | {"enable.idempotence": True, "log_level": 0}
        librdkafka(self._config["bootstrap.servers"], self._topic, self.tally, self._numbers(), settings)

    def _numbers(self) -> Iterator[int]:
        for number in paced(self._is_over):
            self.sent += 1
            self.tally.send(number, time.monotonic())
            yield number
