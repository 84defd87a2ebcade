"""Looks at both clusters from a thread of its own, so that one that does not answer holds nothing up."""

import threading
import time
from collections.abc import Callable

from pylog.client.admin.cluster import Admin
from pylog.daemon.notices import Notices
from pylog.errors import PylogError
from pylog.mirror import follow
from pylog.mirror.config import MirrorConfig
from pylog.mirror.meters import Meters, now_ms

_LOOK_S = 1.0
_ASK_S = 30.0
"""Between two questions to the target, whose only use is to know that it answers."""


class Scout:
    """Follows topics and looks at the source's ends, for as long as the mirror runs.

    Attributes:
        is_ready: whether both clusters have answered once.
        topics: names to mirror, as the source had them last; the target has each of them.
        ids: of those topics at the source.
        target_ids: of those topics at the target.
        batch_bytes: most that each of those topics takes in one batch.
        has_audit: whether the target has the topic that is told of progress.
    """

    def __init__(self, config: MirrorConfig, meters: Meters, notices: Notices) -> None:
        self.is_ready = False
        self.topics: list[str] = []
        self.ids: dict[str, str] = {}
        self.target_ids: dict[str, str] = {}
        self.batch_bytes = follow.MAX_BATCH_BYTES
        self.has_audit = False
        self._config, self._meters, self._notices = config, meters, notices
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scout", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        for cluster in (self._config.source, self._config.target):
            self._meters.hear(cluster.name)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        followed_s = asked_s = -self._config.refresh_s
        while not self._end.is_set():
            if not self.is_ready or time.monotonic() - followed_s >= self._config.refresh_s:
                self._try(self._follow)
                followed_s = asked_s = time.monotonic()
            elif time.monotonic() - asked_s >= _ASK_S:
                self._try(self._ask_target)
                asked_s = time.monotonic()
            self._try(self._look)
            self._end.wait(_LOOK_S)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except PylogError as error:
            self._notices.tell(time.monotonic(), "warning", "cannot_look", reason=error)

    def _ask_target(self) -> None:
        Admin(self._config.target.connection).cluster()
        self._meters.hear(self._config.target.name)

    def _look(self) -> None:
        asked_ms = now_ms()
        admin = Admin(self._config.source.connection)
        for partition, end in admin.ends(admin.led(self._meters.partitions())).items():
            self._meters.saw_end(partition, end, asked_ms)
        self._meters.hear(self._config.source.name)

    def _follow(self) -> None:
        follow.ensure_map_topic(self._config)
        self._meters.hear(self._config.target.name)
        topics, refused = follow.follow(self._config)
        self._meters.refused = len(refused)
        for name, error in refused.items():
            self._notices.tell(time.monotonic(), "error", "topic_refused", about=name, topic=name, reason=error)
        self.batch_bytes = follow.batch_bytes(self._config, topics)
        self.ids = follow.topic_ids(self._config.source, topics) if topics else {}
        self.target_ids = follow.topic_ids(self._config.target, topics) if topics else {}
        self.has_audit = self._config.audit_topic in Admin(self._config.target.connection).cluster().topics
        self.topics = topics
        self.is_ready = True
