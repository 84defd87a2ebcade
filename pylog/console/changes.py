"""What may be changed from the console, and the record of who did it.

journal => topic `_console_changes`, one partition, kept for ever; each record is JSON:
           {"version": 1, "id", "state": "begun" | "done" | "failed", "at_ms", "user", "address", "verb", "subject",
            "details": {…}, "error"}

A change is written down before it is done, by the console's own user, so that nobody takes a line out who may only make
changes; what cannot be written down is not done.  A second record says how it ended.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import uuid4

from pylog.client.admin.cluster import OffsetRange
from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.connection import Connection
from pylog.client.producer import Producer
from pylog.client.rows import Row
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError
from pylog.model import Offset, TopicPartition

CHANGES_TOPIC = "_console_changes"
"""Where it is written down who changed what."""

VERSION = 1

WRITE_S = 10.0
"""How long the line may take to be acknowledged by all replicas that are in sync."""

MOVABLE = ("Empty", "Dead")
"""States of a group that nobody reads in: only then it can be moved."""

MAX_RECORD_BYTES = 12_000
"""Of a record that is typed into a form."""


class NotWritten(PylogError):
    """Nothing was changed: that it was about to be could not be written down."""

    fault = 318


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of the journal.

    Attributes:
        id: of the change; the line that it begins with and the one that it ends with share it.
        state: begun, done or failed.
        at_ms: ms since the Unix epoch.
        user: who logged in.
        address: of the browser, or of the proxy in front.
        verb: what was done.
        subject: to which group or topic.
        details: what else the verb says.
        error: why it failed; empty otherwise.
    """

    id: str
    state: str
    at_ms: int
    user: str
    address: str
    verb: str
    subject: str
    details: Mapping[str, Any]
    error: str = ""

    def encode(self) -> bytes:
        """Return the record."""
        return json.dumps({"version": VERSION, **asdict(self)}, ensure_ascii=True).encode()


class Journal:
    """Writes down who changed what.

    Args:
        cluster: the console's own connection.
        clock_ms: ms since the Unix epoch.
    """

    def __init__(self, cluster: Connection, clock_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._clock_ms = clock_ms

    def carry_out(
        self,
        user: str,
        address: str,
        verb: str,
        subject: str,
        details: Mapping[str, Any],
        act: Callable[[], Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        """Write down a change, make it by *act*, write down how it ended; return what *act* returned.

        Raises:
            NotWritten: it could not be written down; *act* was not called.
            PylogError: *act* failed, which is written down.
        """
        begun = Change(
            id=uuid4().hex, state="begun", at_ms=self._clock_ms(), user=user, address=address, verb=verb,
            subject=subject, details=details,
        )  # fmt: skip
        try:
            self._write(begun)
        except PylogError as error:
            raise NotWritten(f"nothing was changed: topic {CHANGES_TOPIC} cannot be written: {error}") from error
        try:
            result = act()
        except PylogError as error:
            self._write_end(replace(begun, state="failed", at_ms=self._clock_ms(), error=str(error)))
            raise
        self._write_end(replace(begun, state="done", at_ms=self._clock_ms(), details={**details, **result}))
        return result

    def _write_end(self, change: Change) -> None:
        try:
            self._write(change)
        except PylogError:
            return  # it stands there as begun; what came of it, the cluster shows

    def _write(self, change: Change) -> None:
        if change.state == "begun":
            ensure_topic(self._cluster)
        timeout_ms = int(WRITE_S * 1000)
        # A line that is there twice does no harm, and idempotence takes a right of its own.
        limits: dict[str, Any] = {"enable__idempotence": False}
        with Producer(self._cluster, sync=True, delivery_timeout_ms=timeout_ms, **limits) as producer:
            producer.send(CHANGES_TOPIC, change.encode(), change.subject.encode(), partition=0)


_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of `CHANGES_TOPIC`, by which nothing is ever deleted from it."""


def ensure_topic(cluster: Connection) -> None:
    """Make `CHANGES_TOPIC` unless it is there.

    Raises:
        ConfigError: it is there, with settings by which lines are deleted.
    """
    admin = ConfigAdmin(cluster)
    if CHANGES_TOPIC in admin.cluster().topics:
        check_settings({one.name: one.value for one in admin.settings(Holder.TOPIC, CHANGES_TOPIC)})
        return
    try:
        # As many replicas as the brokers give a topic.
        admin.create_topic(CHANGES_TOPIC, partitions=1, config=_KEPT)
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def check_settings(settings: Mapping[str, str | None]) -> None:
    """Check that topic `CHANGES_TOPIC` keeps its lines for ever.

    Raises:
        ConfigError: it does not.
    """
    for name, wanted in _KEPT.items():
        if settings.get(name) != wanted:
            raise ConfigError(f"{name} must be {wanted}, so that no line is ever deleted, got {settings.get(name)}")


def changes_data(values: Iterable[bytes | None]) -> list[Row]:
    """Return the lines of the journal, the newest first; of a record that is no line, that it is none."""
    rows: list[Row] = []
    for value in values:
        try:
            body = json.loads(value or b"")
            row = {name: body[name] for name in ("id", "state", "at_ms", "user", "address", "verb", "subject", "error")}
            row["details"] = json.dumps(body["details"], ensure_ascii=False)
            if not isinstance(row["at_ms"], int):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            row = {
                "id": "", "state": "no line of a console", "at_ms": None, "user": "", "address": "", "verb": "",
                "subject": "", "error": "", "details": (value or b"")[:200].decode(errors="replace"),
            }  # fmt: skip
        rows.append(row)
    return rows[::-1]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a group is moved to in every partition.

    Attributes:
        kind: earliest, latest, offset or time.
        number: the offset, or ms since the Unix epoch.
    """

    kind: str
    number: int = 0


def parse_target(text: str, parse_time: Callable[[str], int]) -> Target:
    """Return what a form says.

    Args:
        text: earliest, latest, an offset, or a time.
        parse_time: reads a time.

    Raises:
        ConfigError: it is none of these.
    """
    if text in ("earliest", "latest"):
        return Target(text)
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return Target("offset", int(text))
    try:
        return Target("time", parse_time(text))
    except ConfigError:
        raise ConfigError(
            f'to must be earliest, latest, an offset, or a time like 2030-01-31T12:00, got "{text[:40]}"'
        ) from None


def new_offsets(
    target: Target, held: Mapping[TopicPartition, OffsetRange], by_time: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset]:
    """Return where a group goes on; what is outside of what is kept becomes its nearest end.

    Args:
        target: where to.
        held: first offset and end of each partition.
        by_time: first offset of the target's time; only for that kind.
    """
    found = {}
    for place, one in held.items():
        wanted = {"earliest": one.start, "latest": one.end, "offset": target.number}.get(target.kind)
        if wanted is None:
            wanted = by_time[place]
        found[place] = min(max(wanted, one.start), one.end)
    return found


def rehearsal_data(
    group: str,
    state: str,
    to: str,
    committed: Mapping[TopicPartition, Offset],
    planned: Mapping[TopicPartition, Offset],
    *,
    is_allowed: bool,
) -> Row:
    """Return what a move of a group would do, partition by partition.

    Args:
        group: its id.
        state: of the group.
        to: the target as it was typed; empty if none was.
        committed: where it would go on now.
        planned: where it would go on after.
        is_allowed: whether this person may do it here.
    """
    rows: list[Row] = []
    for place in sorted(committed.keys() | planned.keys()):
        before, after = committed.get(place), planned.get(place)
        step = None if before is None or after is None else after - before
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed_offset": before,
                "new_offset": after,
                "again": max(0, -step) if step is not None else None,
                "skipped": max(0, step) if step is not None else None,
            }
        )
    again = sum(row["again"] or 0 for row in rows)
    skipped = sum(row["skipped"] or 0 for row in rows)
    is_alive = state not in MOVABLE
    if not to:
        sentence = "Say where the group is to go on. Nothing is changed by looking."
    elif is_alive:
        sentence = f"The group is {state}: only a group without members can be moved. Stop its consumers first."
    elif not rows:
        sentence = "The group has committed nothing, so there is nothing to move."
    else:
        sentence = f"It would read {again:,} offsets again, and skip {skipped:,} that it has not read."
    return {
        "group": group,
        "state": state,
        "to": to,
        "sentence": sentence,
        "partitions": rows,
        "can_do": bool(to) and bool(rows) and not is_alive and is_allowed,
        "is_allowed": is_allowed,
        "unknown": [],
    }
