"""The keys of the provider whose tokens are accepted: from a file, or fetched over HTTPS.

Only the broker's own file names the place.  A thread of its own fetches, so that a server that hangs holds up a login
for a moment at most.
"""

import http.client
import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from joserfc.jwk import KeySet

from pylog.errors import ConfigError
from pylog.security.exchange import LoginFailed
from pylog.security.oauthbearer import TokenRules, UnknownKey, check_token, parse_keys

_logger = logging.getLogger(__name__)

REFRESH_S = 3600.0
"""After this time the keys are fetched again: a provider takes old ones back."""

RETRY_S = 10.0
"""Earliest next attempt, also for tokens of unknown keys: whoever makes them up must not make us fetch for ever."""

FETCH_TIMEOUT_S = 5.0
WAIT_S = 1.0
"""How long after the begin of a fetch logins wait for it; then they go on with the keys from before, or fail."""

MAX_BYTES = 1 << 20
FILE_SCHEME, WEB_SCHEME = "file://", "https://"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow none: it may lead to another scheme or into the network of the hosts."""


class TokenKeys:
    """The newest keys that could be read."""

    def __init__(
        self, url: str, trust_store: Path | None = None, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Make it; nothing is read yet.

        Args:
            url: ``file:///PATH`` or ``https://…``, of a JWKS document.
            trust_store: PEM file with the authorities of the server; None for the system's.
            now_s: a clock that never goes back.
        """
        self._url = url
        self._trust_store = trust_store
        self._now_s = now_s
        self._lock = threading.Lock()
        self._keys: KeySet | None = None
        self._read_s = 0.0
        self._tried_s = float("-inf")
        self._fetched = threading.Event()  # set but while a fetch is under way
        self._fetched.set()

    def check(self, token: str, rules: TokenRules, wall_s: float) -> tuple[str, float]:
        """Return user and expiry of a token; see `check_token`."""
        keys = self._current()
        try:
            return check_token(token, keys, rules, wall_s)
        except UnknownKey:
            newer = self._current(wants_newer_than=keys)
            if newer is keys:
                raise
            return check_token(token, newer, rules, wall_s)

    def _current(self, wants_newer_than: KeySet | None = None) -> KeySet:
        with self._lock:
            now_s = self._now_s()
            is_due = self._keys is None or self._keys is wants_newer_than or now_s - self._read_s >= REFRESH_S
            if is_due and self._fetched.is_set() and now_s - self._tried_s >= RETRY_S:
                self._tried_s = now_s
                self._fetched.clear()
                threading.Thread(target=self._fetch, args=(now_s,), name="token-keys", daemon=True).start()
            left_s = self._tried_s + WAIT_S - now_s
        if is_due and left_s > 0:
            self._fetched.wait(left_s)
        if self._keys is None:
            raise LoginFailed("the keys of tokens could not be read")
        return self._keys

    def _fetch(self, now_s: float) -> None:
        try:
            self._keys = parse_keys(json.loads(self._read()))
            self._read_s = now_s
        except (OSError, ValueError, ConfigError, http.client.HTTPException) as error:
            _logger.error("keys of tokens not read url=%s reason=%s", self._url, error)
        finally:
            self._fetched.set()

    def _read(self) -> bytes:
        if self._url.startswith(FILE_SCHEME):
            with Path(self._url.removeprefix(FILE_SCHEME)).open("rb") as file:
                return file.read(MAX_BYTES)
        context = ssl.create_default_context(cafile=None if self._trust_store is None else str(self._trust_store))
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())
        with opener.open(self._url, timeout=FETCH_TIMEOUT_S) as answer:
            content: bytes = answer.read(MAX_BYTES)
        return content
