"""Incremental fetch sessions: a client with many partitions names them once, and then only what changed (trap 31).

A session is a list of partitions that both sides keep.  The client's next request changes the list, the answer has only
partitions with records, errors, or other offsets than told before.  Whoever is refused a session sends full requests;
a client that names a session we do not know begins another one.

Source: KIP-227.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pylog.errors import ApiError, ErrorCode
from pylog.log.segment import FileSlice
from pylog.model import MAX_TOPIC_NAME_LENGTH, Key
from pylog.security.principal import ANONYMOUS, Principal
from pylog.wire.fetch import FIRST_VERSION_BY_ID, FetchPartition, FetchRequest, FetchResult, session_key

MAX_SESSIONS = 1_000
"""Kafka's number.  Clients beyond it send full requests."""

MAX_SESSIONS_OF_ONE = MAX_SESSIONS // 2
"""Of one principal with a login, so that nobody has them all."""

MAX_PARTITIONS = 5_000
"""Of one session; about 1.5 MB.  A client with more sends full requests."""

MAX_PARTITIONS_IN_ALL = 100_000
"""Of all sessions; about 30 MB, and four times as much if each names another topic with the longest name."""

MIN_IDLE_MS = 120_000
"""How long a session must have been idle before another client may have its place."""

FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1


@dataclass(slots=True, eq=False)
class FetchSession:
    """One client's list.

    Attributes:
        principal: of the client, who alone may go on with it.
        is_by_id: its requests name topics by their ids, as those from version 13 on do.
        next_epoch: of the request that must come next.
        partitions: as last asked, in the order in which they are read.
        told: high watermark and log start offset as last answered.
    """

    session_id: int
    used_ms: int
    principal: Principal = ANONYMOUS
    is_by_id: bool = False
    next_epoch: int = 1
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)
    told: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def change(self, wanted: Iterable[FetchPartition], forgotten: Iterable[Key]) -> None:
        """Take in what a request says of the list."""
        for key in forgotten:
            self.partitions.pop(key, None)
            self.told.pop(key, None)
        for part in wanted:
            self.partitions[session_key(part, is_by_id=self.is_by_id)] = part

    def news(self, results: Iterable[FetchResult[FileSlice]]) -> list[FetchResult[FileSlice]]:
        """Return the results that the client does not know yet, and take note that it does now."""
        found: list[FetchResult[FileSlice]] = []
        for result in results:
            key = session_key(result, is_by_id=self.is_by_id)
            offsets = (result.high_watermark, result.log_start_offset)
            is_fault = (
                result.error is not ErrorCode.NONE or result.diverging is not None or result.preferred_read_replica >= 0
            )
            if not is_fault and not result.records_bytes and self.told.get(key) == offsets:
                continue
            found.append(result)
            if is_fault:
                self.told.pop(key, None)
            else:
                self.told[key] = offsets
            if result.records_bytes and key in self.partitions:
                # To the end: with a byte limit, those that always have records would starve the others.
                self.partitions[key] = self.partitions.pop(key)
        return found


class FetchSessions:
    """All sessions of one broker."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        """Make it; *new_id* returns a random number above 0, so that nobody meets another's session by chance."""
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}  # the one not used for longest first

    def __len__(self) -> int:
        return len(self._sessions)

    def apply(self, request: FetchRequest, now_ms: int, principal: Principal = ANONYMOUS) -> FetchSession | None:
        """Let *request* of *principal* name all partitions it is about; return its session, or None if it has none.

        The session of another principal is none: a number that was guessed shows nobody what others read.

        Raises:
            ApiError: the session is not known or names topics otherwise, or another request comes next in it.
        """
        session = self._sessions.get(request.session_id)
        if session is not None and session.principal != principal:
            session = None
        if session is not None:
            del self._sessions[session.session_id]
        if request.session_epoch <= 0:
            return None if request.session_epoch == FINAL_EPOCH else self._begin(request, now_ms, principal)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        self._sessions[session.session_id] = session
        session.used_ms = now_ms
        if session.is_by_id != (request.version >= FIRST_VERSION_BY_ID):
            # The client heard of topic ids, or of a broker without them; it begins another session.
            message = f"fetch session {request.session_id} began {'with' if session.is_by_id else 'without'} topic ids"
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, message)
        if request.session_epoch != session.next_epoch:
            message = f"request {request.session_epoch} of fetch session {request.session_id}, not {session.next_epoch}"
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, message)
        session.next_epoch = session.next_epoch + 1 if session.next_epoch < _MAX_EPOCH else 1
        if reason := self._change(session, request, now_ms):
            del self._sessions[session.session_id]
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, reason)
        request.partitions = list(session.partitions.values())
        return session

    def _change(self, session: FetchSession, request: FetchRequest, now_ms: int) -> str:
        """Take in what *request* says of the list; return why the session must end, or nothing."""
        if _has_long_name(request):
            return f"topic name of more than {MAX_TOPIC_NAME_LENGTH} characters"
        before = len(session.partitions)
        session.change(request.partitions, request.forgotten)
        if len(session.partitions) > MAX_PARTITIONS:
            return f"more than {MAX_PARTITIONS} partitions"
        if len(session.partitions) > before and not self._make_room(0, 0, now_ms):
            return f"more than {MAX_PARTITIONS_IN_ALL} partitions in all sessions"
        return ""

    def _begin(self, request: FetchRequest, now_ms: int, principal: Principal) -> FetchSession | None:
        count = len(request.partitions)
        if not 0 < count <= MAX_PARTITIONS or _has_long_name(request):
            return None
        if principal != ANONYMOUS:  # which may be all clients that there are
            own = [one for one in self._sessions.values() if one.principal == principal]
            if len(own) >= MAX_SESSIONS_OF_ONE:
                if now_ms - own[0].used_ms < MIN_IDLE_MS:
                    return None
                del self._sessions[own[0].session_id]
        if not self._make_room(1, count, now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        is_by_id = request.version >= FIRST_VERSION_BY_ID
        session = self._sessions[session_id] = FetchSession(session_id, now_ms, principal, is_by_id)
        session.change(request.partitions, ())
        return session

    def _make_room(self, sessions: int, partitions: int, now_ms: int) -> bool:
        """Return whether so many more fit beside those that are there; idle sessions are dropped for them."""
        while self._is_full(sessions, partitions):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < MIN_IDLE_MS:
                return False
            del self._sessions[oldest.session_id]
        return True

    def _is_full(self, sessions: int, partitions: int) -> bool:
        if len(self._sessions) + sessions > MAX_SESSIONS:
            return True
        return partitions + sum(len(one.partitions) for one in self._sessions.values()) > MAX_PARTITIONS_IN_ALL


def _has_long_name(request: FetchRequest) -> bool:
    return any(len(part.topic) > MAX_TOPIC_NAME_LENGTH for part in request.partitions)
