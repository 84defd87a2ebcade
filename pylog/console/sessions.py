"""Who is logged in: sessions, the tokens of forms, and how often somebody may try to log in.

cookie => id "." signature      (id: 32 random bytes, signature: HMAC-SHA-256 of it, both URL-safe base64)

Everything is in memory, and the key is made at start: a restart ends all sessions.  Times are seconds of any clock that
does not go back.
"""

import base64
import hashlib
import hmac
import os
import threading
from dataclasses import dataclass
from typing import Generic, TypeVar

_T = TypeVar("_T")

SESSION_S = 8 * 3600.0
"""A session ends after a working day, however busy it is."""

IDLE_S = 1800.0
"""A session that nobody used for so long is over."""

MAX_SESSIONS = 200
"""Of all users; each holds connections to the brokers."""

MAX_SESSIONS_OF_USER = 5
"""One more ends the oldest: one user must not take all sessions."""


@dataclass(slots=True)
class _Session(Generic[_T]):
    user: str
    owner: _T
    began_s: float
    used_s: float


class Sessions(Generic[_T]):
    """All sessions, each with its *owner*: what the console holds for the person."""

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session[_T]] = {}

    def new_cookie(self) -> str:
        """Return a cookie that stands for no session yet: a login form is bound to it."""
        number = _text(os.urandom(32))
        return f"{number}.{self._signature('cookie', number)}"

    def is_cookie(self, cookie: str) -> bool:
        """Return whether this process made *cookie*."""
        number, _, signature = cookie.partition(".")
        return _is_same(signature, self._signature("cookie", number))

    def form_token(self, cookie: str) -> str:
        """Return what a form must bring back that was shown to the holder of *cookie*."""
        return self._signature("form", cookie)

    def is_form_token(self, cookie: str, token: str) -> bool:
        """Return whether *token* is the one of *cookie*, and that one is ours."""
        return self.is_cookie(cookie) and _is_same(token, self.form_token(cookie))

    def begin(self, user: str, owner: _T, now_s: float) -> str | None:
        """Begin a session; return its cookie, or None if there are too many."""
        with self._lock:
            self._drop_expired(now_s)
            own = [cookie for cookie, one in self._sessions.items() if one.user == user]
            for cookie in own[: max(0, len(own) - MAX_SESSIONS_OF_USER + 1)]:
                del self._sessions[cookie]
            if len(self._sessions) >= MAX_SESSIONS:
                return None
            cookie = self.new_cookie()
            self._sessions[cookie] = _Session(user, owner, now_s, now_s)
            return cookie

    def find(self, cookie: str, now_s: float) -> _T | None:
        """Return the owner of a session that goes on, and count that as use."""
        with self._lock:
            self._drop_expired(now_s)
            session = self._sessions.get(cookie)
            if session is None:
                return None
            session.used_s = now_s
            return session.owner

    def owners(self, user: str) -> list[_T]:
        """Return the owners of the sessions that a user has."""
        with self._lock:
            return [one.owner for one in self._sessions.values() if one.user == user]

    def end(self, cookie: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(cookie, None)

    def end_owner(self, owner: _T) -> None:
        """End all sessions of an owner."""
        with self._lock:
            for cookie in [cookie for cookie, one in self._sessions.items() if one.owner is owner]:
                del self._sessions[cookie]

    def _drop_expired(self, now_s: float) -> None:
        for cookie, one in list(self._sessions.items()):
            if now_s - one.began_s >= SESSION_S or now_s - one.used_s >= IDLE_S:
                del self._sessions[cookie]

    def _signature(self, purpose: str, text: str) -> str:
        return _text(hmac.digest(self._key, f"{purpose} {text}".encode(), hashlib.sha256))


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
