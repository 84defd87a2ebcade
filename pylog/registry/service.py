"""One instance: reads from its own copy, writes through the primary.

A write is: decide on the state, append to the log, wait until the own copy has read it back and counted it, answer.
A write whose end is unknown (a time-out) leaves the primary in doubt; it claims the topic anew before the next one, so
that whatever still arrives is either read before or passed over after.
"""

import http.client
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple, TypeVar

from pylog.client.connection import Connection
from pylog.client.producer import Producer
from pylog.client.security import ClientSecurity
from pylog.client.web import call
from pylog.daemon.notices import Notices
from pylog.errors import ConfigError, PylogError
from pylog.model import Offset
from pylog.registry import apicurio, faults
from pylog.registry.changes import Change
from pylog.registry.election import Election
from pylog.registry.news import Snapshot, news
from pylog.registry.records import CLAIM, WRITER_HEADER, Claim, Key, Stamp, Value, Version, encode_key, encode_value
from pylog.registry.replica import Replica
from pylog.registry.state import Registry
from pylog.store.base import Store

OFFSET_HEADER = "x-pylog-offset"
"""Of an answer to a change: the asker's copy has the change once it has read so far."""

FORWARD_HEADER = "x-forward"
"""Of a request that was forwarded once and is not forwarded again."""

WRITE_TIMEOUT_S = 20.0
PRIMARY_WAIT_S = 15.0
"""How long a change waits for a primary: a session's time-out and a claim."""

_T = TypeVar("_T")


class PrimaryRequest(NamedTuple):
    """A request to forward; `target` is path and query as they came, `headers` ignores case."""

    method: str
    target: str
    body: bytes
    headers: Mapping[str, str]


class PrimaryAnswer(NamedTuple):
    """What the primary answered."""

    status: int
    body: bytes
    content_type: str


class Service:
    """Reads, changes and forwards.

    Args:
        cluster: where the topic is.
        topic: its name.
        replica: this instance's copy.
        store: a session of its own for the election; None for a single instance.
        writer: names this life of this instance.
        url: where other instances reach it.
        notices: told what matters.
        follows: where the registry is that this one follows; clients then change nothing here.
    """

    _catch_up: Callable[[int], None] | None = None

    def __init__(
        self,
        cluster: Connection,
        topic: str,
        replica: Replica,
        store: Store | None,
        writer: str,
        url: str,
        notices: Notices,
        follows: str | None = None,
    ) -> None:
        self._follows = follows
        self.replica = replica
        self.election = Election(store, writer, url, self._claim, notices)
        self._cluster, self._topic, self._writer, self._url = cluster, topic, writer, url
        # Of the own connection only by whom a server is vouched for: whoever asked is who asks the primary.
        self._trust = ClientSecurity(ca_location=cluster.security().ca_location)
        self._notices = notices
        self._writing = threading.Lock()
        self._number = 0
        self._epoch = 0
        self._is_in_doubt = False
        self._producer: Producer | None = None

    def read(self, ask: Callable[[Registry], _T]) -> _T:
        """Return what *ask* finds in the state."""
        with self.replica.changed:
            return ask(self.replica.registry)

    def read_at(self, ask: Callable[[Registry], _T]) -> tuple[_T, Offset]:
        """Return what *ask* finds in the state, and the offset up to which the state is that of the log."""
        with self.replica.changed:
            return ask(self.replica.registry), self.replica.next_offset

    def change(self, decide: Callable[[Registry], Change]) -> tuple[object, Offset]:
        """Carry a change out; return its answer and the offset behind it.

        Raises:
            RegistryError: it is refused; or 50002, 50004: it may or may not have happened.
        """
        with self._writing:
            self._begin_write()
            change = self.read(decide)
            if change.writes and self._follows is not None:
                raise faults.not_permitted(f"this registry follows {self._follows}; change it there")
            if change.writes:
                self._append(change.writes)
            return change.answer, self.replica.next_offset

    def take_over(self, source: Snapshot) -> list[Version]:
        """Write what the followed registry has and this one lacks.

        Returns:
            What cannot be taken over: versions whose ids stand for other schemas here.

        Raises:
            RegistryError: as of `change`.
        """
        with self._writing:
            self._begin_write()
            found = self.read(lambda registry: news(registry, source))
            if found.writes:
                self._append(found.writes)
            return found.conflicts

    def _begin_write(self) -> None:
        if not self.election.is_primary:
            raise faults.no_primary()
        if self._is_in_doubt:
            self._claim_now()
        self._repair()

    def follow(self, catch_up: Callable[[int], None]) -> None:
        """Have *catch_up* look for an id that is not known here; the primary calls it."""
        self._catch_up = catch_up

    def catch_up(self, schema_id: int, request: PrimaryRequest) -> bool:
        """Wait until this copy has what the followed registry has, if there is one; return whether to look again.

        Args:
            schema_id: that is not known here.
            request: that asks for it.

        Raises:
            RegistryError: 50301, that is not known; or as of `forward`.
        """
        if self._catch_up is None:
            return False
        if self.election.is_primary:
            self._catch_up(schema_id)
        elif self.forward(request).status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise faults.not_followed(schema_id)
        return True

    def forward(self, request: PrimaryRequest) -> PrimaryAnswer:
        """Have the primary answer, and wait until this copy has what it did.

        Raises:
            RegistryError: 50003, the primary does not answer; 50004, there is none.
        """
        url = self.election.primary_url
        if url is None or url == self._url or FORWARD_HEADER in request.headers:
            raise faults.no_primary()
        sent = {FORWARD_HEADER: "true", "Content-Type": request.headers.get("content-type", "application/json")}
        sent |= {name: request.headers[name] for name in apicurio.HEADERS if name in request.headers}
        # The primary judges the user itself: no instance has to be believed.
        login = request.headers.get("authorization")
        if login is not None and url.startswith("https://"):
            sent["Authorization"] = login
        try:
            response = call(
                url,
                request.method,
                request.target,
                request.body,
                sent,
                timeout_s=WRITE_TIMEOUT_S + 5,
                security=self._trust,
            )
        except (OSError, http.client.HTTPException, ConfigError) as error:
            raise faults.forward_failed(f"{url}: {error}") from error
        answer = PrimaryAnswer(response.status, response.body, response.headers.get_content_type())
        offset = response.headers.get(OFFSET_HEADER, "")
        if offset.isdecimal():
            self.replica.wait_offset(int(offset), WRITE_TIMEOUT_S)
        return answer

    def _claim(self) -> None:
        with self._writing:
            self._claim_now()

    def _claim_now(self) -> None:
        """Make this instance's records the ones that count; on return its copy has all that came before."""
        self._epoch = self.read(lambda registry: registry.epoch) + 1
        self._is_in_doubt = False
        # Twice where a record arrived between reading and claiming: the last claim must hold the highest id.
        while True:
            max_id = self.read(lambda registry: registry.max_id)
            self._append([(CLAIM, Claim(max_id))])
            if max_id == self.read(lambda registry: registry.max_id):
                break
        self._repair()

    def _repair(self) -> None:
        """Write again what a record that was passed over stands in front of."""
        keys = self.read(lambda registry: sorted(registry.repairs, key=repr))
        if keys:
            self._notices.tell(time.monotonic(), "warning", "repairs", keys=len(keys))
            self._append(self.read(lambda registry: [(key, registry.current(key)) for key in keys]))

    def _append(self, writes: Sequence[tuple[Key, Value]]) -> None:
        """Write records and wait until they count.

        Raises:
            RegistryError: 50001, the brokers refuse; 50002, the end is unknown; 50004, another is primary.
        """
        producer = self._fresh_producer()
        try:
            for key, value in writes:
                self._number += 1
                stamp = Stamp(self._epoch, self._writer, self._number)
                producer.send(
                    self._topic,
                    encode_value(key, value),
                    encode_key(key),
                    partition=0,
                    headers=[(WRITER_HEADER, stamp.encode())],
                )
            producer.close()
        except PylogError as error:
            self._is_in_doubt, self._producer = True, None
            raise faults.store_failed(str(error)) from error
        counts = self.replica.wait_own(self._number, WRITE_TIMEOUT_S)
        if counts is None:
            self._is_in_doubt = True
            raise faults.timed_out(f"the record was written to {self._topic} but did not come back")
        if not counts:
            self.election.resign()
            raise faults.no_primary()

    def _fresh_producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                self._cluster, linger_ms=0, delivery_timeout_ms=int(WRITE_TIMEOUT_S * 1000), message__max__bytes=8 << 20
            )
        return self._producer
