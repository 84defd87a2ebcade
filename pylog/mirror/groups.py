"""What the groups of the source committed, written down in the target all the time: for when the source is gone.

key   => {"group": string, "topic": string}
value => {"version": 1, "at_ms": int, "id": topic's id in the source, "offsets": [[partition, offset]]}
(JSON, one compacted record for each topic of a group, in `pylog.groups.<source>`)

Offsets are the source's own; the offset maps, which are in the target too, translate them when a group moves.
"""

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from pylog.client.admin.groups import GroupAdmin
from pylog.client.consumer import Consumer
from pylog.client.producer import Producer
from pylog.daemon.notices import Notices
from pylog.errors import ApiError, PylogError
from pylog.mirror import follow
from pylog.mirror.config import MirrorConfig
from pylog.mirror.meters import Meters, now_ms
from pylog.mirror.scout import Scout
from pylog.model import Offset, TopicPartition

_VERSION = 1
_CLOSE_S = 5.0


class GroupTopic(NamedTuple):
    """A topic that a group reads: the key of a checkpoint."""

    group: str
    topic: str

    def encode(self) -> bytes:
        """Return the record's key."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, data: bytes) -> "GroupTopic":
        """Return what `encode` was given; raise ValueError if it is nothing like it."""
        try:
            body = json.loads(data)
            return cls(str(body["group"]), str(body["topic"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{data[:200]!r} is no key of a checkpoint: {error!r}") from error


class Checkpoint(NamedTuple):
    """What a group committed in the partitions of one life of a topic."""

    topic_id: str
    offsets: dict[int, Offset]

    def encode(self, at_ms: int) -> bytes:
        """Return the record's value."""
        offsets = sorted(self.offsets.items())
        return json.dumps({"version": _VERSION, "at_ms": at_ms, "id": self.topic_id, "offsets": offsets}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Checkpoint":
        """Return what `encode` was given; raise ValueError if it is nothing like it, or of a later release."""
        try:
            body = json.loads(data)
            if body["version"] != _VERSION:
                raise ValueError(f"checkpoint of version {body['version']!r}; {_VERSION} is known")
            return cls(str(body["id"]), {int(partition): int(offset) for partition, offset in body["offsets"]})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{data[:200]!r} is no checkpoint of a group: {error!r}") from error


def checkpoints(
    committed: Mapping[str, Mapping[TopicPartition, Offset]], ids: Mapping[str, str]
) -> dict[GroupTopic, Checkpoint]:
    """Return what is to be written down.

    Args:
        committed: offsets by group.
        ids: of the topics that are mirrored; what a group committed in others is left out.
    """
    found: dict[GroupTopic, Checkpoint] = {}
    for group, offsets in committed.items():
        for partition, offset in offsets.items():
            if partition.topic in ids:
                key = GroupTopic(group, partition.topic)
                found.setdefault(key, Checkpoint(ids[partition.topic], {})).offsets[partition.partition] = offset
    return found


class Written:
    """What is written down, and what is to be.

    What a group committed is taken for gone once its coordinator said so in two looks, one after the other: a source
    that loses its brokers lists groups no more that would be needed when all of it is gone.

    Args:
        known: what is in the target.
    """

    def __init__(self, known: Mapping[GroupTopic, Checkpoint]) -> None:
        self._known = dict(known)
        self._missing: frozenset[GroupTopic] = frozenset()

    @property
    def groups(self) -> set[str]:
        """The groups of which something is written down."""
        return {key.group for key in self._known}

    def news(
        self, seen: Mapping[GroupTopic, Checkpoint], unknown: Collection[str] = ()
    ) -> dict[GroupTopic, Checkpoint | None]:
        """Take a look; return what is to be written, None for what is gone.

        Args:
            seen: what the groups have committed now.
            unknown: groups of which no coordinator said anything.
        """
        missing = frozenset(key for key in self._known.keys() - seen.keys() if key.group not in unknown)
        gone = missing & self._missing
        self._missing = missing - gone
        found: dict[GroupTopic, Checkpoint | None] = {
            key: one for key, one in seen.items() if self._known.get(key) != one
        }
        self._known = {key: one for key, one in {**self._known, **seen}.items() if key not in gone}
        return found | dict.fromkeys(gone)


def load(config: MirrorConfig) -> dict[GroupTopic, Checkpoint]:
    """Return the last checkpoints, from the target.

    Raises:
        PylogError: the target does not answer, or has none.
        ValueError: a later release wrote one.
    """
    found: dict[GroupTopic, Checkpoint] = {}
    with Consumer(config.target.connection) as consumer:
        consumer.assign_topic(config.groups_topic)
        for record in consumer.records_to_end():
            if record.key is None:
                continue
            key = GroupTopic.decode(record.key)
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = Checkpoint.decode(record.value)
    return found


def is_carrier(topics: Sequence[str], partitions: Collection[TopicPartition]) -> bool:
    """Return whether the instance with *partitions* carries the offsets: it has the first of all that are mirrored.

    Args:
        topics: without those that the target refuses: nobody has partitions of them.
        partitions: that the instance mirrors.
    """
    return bool(topics) and TopicPartition(topics[0], 0) in partitions


def ask(
    groups: Collection[str],
    committed: Callable[[str], dict[TopicPartition, Offset]],
    tell: Callable[[PylogError], None],
) -> tuple[dict[str, dict[TopicPartition, Offset]], set[str]]:
    """Return what each of *groups* has committed, and the groups that did not answer.

    Args:
        groups: by name.
        committed: asks for one group; raises `PylogError`.
        tell: told each error.
    """
    found: dict[str, dict[TopicPartition, Offset]] = {}
    for group in sorted(groups):
        try:
            found[group] = committed(group)
        except PylogError as error:
            tell(error)
            if not isinstance(error, ApiError) or error.retriable:
                break  # it came after the whole time-out, and each of the others may take as long
    return found, {*groups} - found.keys()


class Carrier:
    """Carries the groups' offsets over, from a thread of its own; see `is_carrier` for which instance does it.

    Args:
        config: of the mirror.
        scout: knows which topics the target takes.
        meters: which partitions this instance has.
        notices: told what an operator should know.
    """

    def __init__(self, config: MirrorConfig, scout: Scout, meters: Meters, notices: Notices) -> None:
        self._config, self._scout, self._meters, self._notices = config, scout, meters, notices
        self._written: Written | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="groups", daemon=True)

    def start(self) -> None:
        """Begin.

        Each instance counts as the carrier until it knows better: one that is started while the source is away cannot
        know, and nobody carries anything then.
        """
        self._meters.begin_carrying()
        self._thread.start()

    def close(self) -> None:
        """Carry no more."""
        self._end.set()
        self._thread.join(_CLOSE_S)  # the source may not answer

    def _run(self) -> None:
        while not self._end.wait(self._config.groups_s):
            try:
                self._carry()
            except (PylogError, ValueError) as error:
                self._written = None
                self._tell(error)

    def _tell(self, error: Exception) -> None:
        self._notices.tell(time.monotonic(), "warning", "groups_not_carried", reason=error)

    def _carry(self) -> None:
        source = GroupAdmin(self._config.source.connection)
        names = follow.mirrored(self._config, source.cluster().topics)
        if not self._scout.is_ready:
            return  # one cluster did not answer yet: nobody knows the carrier, and the age grows
        if not names or not is_carrier(self._scout.topics, self._meters.partitions()):
            self._written = None  # another instance carries them, and what is written down changes
            self._meters.forget_carried()
            return
        self._meters.begin_carrying()
        if self._written is None:
            follow.create_compacted(
                self._config.target, self._config.groups_topic, self._config.internal_replication_factor
            )
            self._written = Written(load(self._config))
        ids = follow.topic_ids(self._config.source, names)
        committed, unknown = self._committed(source, self._written.groups)
        if news := self._written.news(checkpoints(committed, ids), unknown):
            at_ms = now_ms()
            with Producer(self._config.target.connection) as producer:
                for key, one in news.items():
                    value = None if one is None else one.encode(at_ms)
                    producer.send(self._config.groups_topic, value, key.encode(), partition=0)
        if not unknown:
            self._meters.carried()

    def _committed(
        self, source: GroupAdmin, known: Collection[str]
    ) -> tuple[dict[str, dict[TopicPartition, Offset]], set[str]]:
        """Return what each group has committed, and the groups of which no coordinator says it.

        A group whose coordinator is gone is listed by nobody, and that is no error: it is asked for by its name.
        """
        listed = {one.group_id for one in source.groups() if one.group_id != self._config.group}
        committed = {group: source.committed(group) for group in sorted(listed)}
        unlisted, unknown = ask({*known} - listed, source.committed, self._tell)
        return committed | unlisted, unknown
