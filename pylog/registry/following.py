"""Follows another registry: its schemas come here by the protocol that clients speak, with their ids.

So both datacenters of a mirror have a registry, and a record means the same in each.  The log of one must not be
copied into the other's: each registry counts only what its own primary wrote.  While a registry follows, clients
change nothing in it, because an id that it gave could be given by the other to another schema.
"""

import http.client
import json
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from pylog.client.security import ClientSecurity
from pylog.client.web import call
from pylog.daemon.notices import Notices
from pylog.errors import PylogError
from pylog.registry import faults
from pylog.registry.avro import Level
from pylog.registry.news import Snapshot
from pylog.registry.records import Key, Kind, Version, decode_value
from pylog.registry.service import OFFSET_HEADER, Service

FOLLOW_S = 5.0
"""Between two looks at the other registry."""

_LEAST_S = 0.1
"""Between two looks, however many wait for one."""

_CATCH_UP_S = 4.0
"""How long a question may wait for a look; clients wait five seconds for its answer."""

_FAR = 10_000
"""Beyond the highest id that was ever given: so many are not given between two looks.  What only looks framed mostly
names such ids."""

_AT_ONCE = 16
"""Questions about subjects on the way at once: the other registry is in another datacenter."""

_ASK_S = 20.0


class FollowFailed(PylogError):
    """The other registry does not answer, or not as registries do."""


class Source:
    """Reads another registry.

    Args:
        urls: its instances; each is asked until one answers.
        security: authorities that an ``https`` instance is checked by, and the user who logs in there.
    """

    def __init__(self, urls: Sequence[str], security: ClientSecurity | None = None) -> None:
        self._urls, self._security = urls, security

    def offset(self) -> str | None:
        """Return how far it is; the same text means that nothing changed, None that it does not tell."""
        return self._ask("/")[1]

    def snapshot(self) -> Snapshot:
        """Return what it has.

        Raises:
            FollowFailed: it does not answer.
        """
        # In this order: what is registered in between is in the second answer, what is deleted only in the first.
        everything, live = self._versions("?deleted=true"), self._versions("")
        versions = {(one.subject, one.version): replace(one, is_deleted=True) for one in everything}
        versions |= {(one.subject, one.version): one for one in live}
        levels: dict[str | None, Level] = {None: Level(self._ask("/config")[0]["compatibilityLevel"])}
        with ThreadPoolExecutor(_AT_ONCE, "levels") as threads:
            subjects = sorted({one.subject for one in versions.values()})
            asked = zip(subjects, threads.map(self._level, subjects), strict=True)
            levels |= {subject: level for subject, level in asked if level is not None}
        max_id = 0
        if versions:
            known = next(iter(versions.values())).schema_id
            max_id = int(self._ask(f"/schemas/ids/{known}?fetchMaxId=true")[0].get("maxId", 0))
        return Snapshot(list(versions.values()), levels, max_id)

    def _level(self, subject: str) -> Level | None:
        body = self._ask(f"/config/{quote(subject, safe='')}", missing={})[0]
        return Level(body["compatibilityLevel"]) if "compatibilityLevel" in body else None

    def _versions(self, query: str) -> list[Version]:
        found = []
        for body in self._ask(f"/schemas{query}")[0]:
            key = Key(Kind.SCHEMA, str(body["subject"]), int(body["version"]))
            value = decode_value(key, json.dumps(body).encode())
            assert isinstance(value, Version), value
            found.append(value)
        return found

    def _ask(self, target: str, *, missing: object = None) -> tuple[Any, str | None]:
        failures = []
        for url in self._urls:
            try:
                answer = call(url, "GET", target, timeout_s=_ASK_S, security=self._security)
                body = json.loads(answer.body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                failures.append(f"{url}: {error}")
                continue
            if answer.status == http.client.OK:
                return body, answer.headers.get(OFFSET_HEADER)
            if answer.status == http.client.NOT_FOUND and missing is not None:
                return missing, None
            failures.append(f"{url}{target}: {body}")
        raise FollowFailed("; ".join(failures))


class Follower:
    """Keeps a registry like another one, from a thread of its own on each instance; only the primary's writes.

    Args:
        service: of this instance.
        source: the other registry.
        notices: told what an operator should know.

    Attributes:
        conflicts: versions that cannot come because their ids stand for other schemas here.
        followed_s: when all that the other had was here; of a clock that does not go back, None until then.
    """

    def __init__(self, service: Service, source: Source, notices: Notices) -> None:
        self.conflicts = 0
        self.followed_s: float | None = None
        self._service, self._source, self._notices = service, source, notices
        self._offset: str | None = None
        self._looked = threading.Condition()
        self._heard_s = self._failed_s = -math.inf  # when the last look began that ended so
        self._end = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Follow no more."""
        self._end.set()
        self._wake.set()
        self._thread.join()

    def catch_up(self, schema_id: int) -> None:
        """Wait until all is here that the other had when this was called, for an id that is not known here.

        A mirrored record may be here before the schema that it names.

        Raises:
            RegistryError: 50301, nobody knows whether the other has more.
        """
        if schema_id > self._service.read(lambda registry: registry.max_id) + _FAR:
            return
        asked_s = time.monotonic()
        with self._looked:
            self._wake.set()
            self._looked.wait_for(lambda: max(self._heard_s, self._failed_s) >= asked_s, _CATCH_UP_S)
            if self._heard_s < asked_s:
                raise faults.not_followed(schema_id)

    def _run(self) -> None:
        while not self._end.wait(_LEAST_S):
            self._wake.wait(FOLLOW_S)
            self._wake.clear()
            if self._end.is_set():
                return
            if not self._service.election.is_primary:
                self._offset = self.followed_s = None
                continue
            began_s = time.monotonic()
            try:
                self.look()
                self._note(heard_s=began_s)
            except (PylogError, KeyError, TypeError, ValueError) as error:
                self._offset = None
                self._note(failed_s=began_s)
                self._notices.tell(time.monotonic(), "warning", "cannot_follow", reason=error)

    def _note(self, *, heard_s: float = -math.inf, failed_s: float = -math.inf) -> None:
        with self._looked:
            self._heard_s, self._failed_s = max(self._heard_s, heard_s), max(self._failed_s, failed_s)
            self._looked.notify_all()

    def look(self) -> None:
        """Take over what is new.

        Raises:
            PylogError: the other does not answer, or this one cannot write; try again.
        """
        offset = self._source.offset()
        if offset is None or offset != self._offset:
            found = self._service.take_over(self._source.snapshot())
            self.conflicts = len(found)
            for one in found:
                self._notices.tell(
                    time.monotonic(),
                    "error",
                    "id_conflict",
                    about=f"{one.subject} {one.version}",
                    subject=one.subject,
                    version=one.version,
                    id=one.schema_id,
                )
        self._offset, self.followed_s = offset, time.monotonic()
