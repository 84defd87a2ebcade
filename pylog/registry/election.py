"""Which instance is the primary: an ephemeral node in the store, and who it belongs to.

/pylog_registry/primary => {"version": 1, "writer": string, "url": string}        (ephemeral)

Being elected is a licence to claim the topic, no more: whose records count is decided by the log (`state.py`).
"""

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable

from pylog.cluster.znodes import REGISTRY
from pylog.daemon.notices import Notices
from pylog.errors import PylogError
from pylog.store.base import NodeExists, NoNode, NotConnected, SessionLost, SessionState, Store, StoreError, WatchEvent

PRIMARY_PATH = f"{REGISTRY}/primary"
_VERSION = 1
_RETRY_S = 1.0
_LOOK_S = 10.0
"""A watch tells of every change; this is for one that got lost with its connection."""


class Election:
    """One candidate.

    Args:
        store: this candidate's own session, not yet connected; None where there is no other candidate.
        writer: names this life of this instance.
        url: where other instances forward to.
        take_office: called on the election's thread once elected; a `PylogError` from it means "try again".
        notices: told of every change.

    Attributes:
        is_primary: whether it is elected and has taken office.
        primary_url: where the primary is; None while there is none.
    """

    def __init__(
        self, store: Store | None, writer: str, url: str, take_office: Callable[[], None], notices: Notices
    ) -> None:
        self.is_primary = False
        self.primary_url: str | None = None
        self._store, self._writer, self._url = store, writer, url
        self._take_office, self._notices = take_office, notices
        self._events: queue.SimpleQueue[WatchEvent | SessionState | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def start(self) -> None:
        """Stand for election until closed."""
        self._thread.start()

    def close(self) -> None:
        """Resign at once."""
        self._is_closed = True
        self._events.put(None)
        self._thread.join()
        if self._store is not None:
            self._store.close()

    def resign(self) -> None:
        """Note that another's claim is in the log: stop at once, and stand again."""
        self._become(None, is_primary=False)
        self._events.put(None)

    def wait_primary(self, timeout_s: float) -> bool:
        """Wait until there is a primary, this instance or another."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_primary or self.primary_url is not None, timeout_s)

    def _run(self) -> None:
        if self._store is not None:
            self._store.listen(self._events.put)
        is_connected = False
        while not self._is_closed:
            try:
                if self._store is not None and not is_connected:
                    self._store.connect()
                    is_connected = True
                wait_s = self._stand()
            except SessionLost:
                wait_s = _RETRY_S  # the listener's LOST, which renews, is on its way
            except (NotConnected, PylogError) as error:
                self._notices.tell(time.monotonic(), "warning", "election_waits", reason=error)
                wait_s = _RETRY_S
            self._wait(wait_s)
        self._become(None, is_primary=False)

    def _stand(self) -> float:
        """Look who is primary, be it if nobody is; return how long to wait for news."""
        owner = self._owner()
        if owner != (self._writer, self._url):
            self._become(owner[1] if owner else None, is_primary=False)
            return _LOOK_S if owner else 0
        if not self.is_primary:
            self._take_office()
            self._become(self._url, is_primary=True)
            self._notices.tell(time.monotonic(), "info", "primary", url=self._url)
        return _LOOK_S

    def _owner(self) -> tuple[str, str] | None:
        """Return (writer, url) of the node, which is made if missing."""
        if self._store is None:
            return self._writer, self._url
        body = json.dumps({"version": _VERSION, "writer": self._writer, "url": self._url}).encode()
        with contextlib.suppress(NodeExists):
            self._store.create(PRIMARY_PATH, body, ephemeral=True, make_parents=True)
        try:
            found = json.loads(self._store.get(PRIMARY_PATH, self._events.put)[0])
            return str(found["writer"]), str(found["url"])
        except NoNode:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(PRIMARY_PATH, message=f"{PRIMARY_PATH} is not this registry's: {error!r}") from error

    def _wait(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not self._is_closed:
            try:
                event = self._events.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                return
            if event is SessionState.LOST:
                self._become(None, is_primary=False)
                assert self._store is not None
                self._store.renew()
            # A cut link alone changes nothing: the log fences whoever acts too long.
            elif event is not SessionState.SUSPENDED:
                return

    def _become(self, url: str | None, *, is_primary: bool) -> None:
        with self._changed:
            self.primary_url, self.is_primary = url, is_primary
            self._changed.notify_all()
