"""What the groups of the source committed, written down in the target all the time: for when the source is gone.

key   => {"group": string, "topic": string}
value => {"version": 1, "at_ms": int, "id": topic's id in the source, "offsets": [[partition, offset]]}
(JSON, one compacted record for each topic of a group, in `pylog.groups.<source>`)

Offsets are the source's own; the offset maps, which are in the target too, translate them when a group moves.
"""

import json
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from pylog.client.admin.groups import GroupAdmin
from pylog.client.consumer import Consumer
from pylog.client.producer import Producer
from pylog.daemon.notices import Notices
from pylog.errors import PylogError
from pylog.mirror import follow
from pylog.mirror.config import MirrorConfig
from pylog.mirror.meters import Meters, now_ms
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


def changed(
    seen: Mapping[GroupTopic, Checkpoint], known: Mapping[GroupTopic, Checkpoint]
) -> dict[GroupTopic, Checkpoint | None]:
    """Return what differs from what is written down; None for what is no more."""
    found: dict[GroupTopic, Checkpoint | None] = {key: one for key, one in seen.items() if known.get(key) != one}
    return found | dict.fromkeys(known.keys() - seen.keys())


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


class Carrier:
    """Carries the groups' offsets over, from a thread of its own; the instance with the first partition does it.

    Args:
        config: of the mirror.
        meters: which partitions this instance has.
        notices: told what an operator should know.
    """

    def __init__(self, config: MirrorConfig, meters: Meters, notices: Notices) -> None:
        self._config, self._meters, self._notices = config, meters, notices
        self._known: dict[GroupTopic, Checkpoint] | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="groups", daemon=True)

    def start(self) -> None:
        """Begin."""
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
                self._known = None
                self._notices.tell(time.monotonic(), "warning", "groups_not_carried", reason=error)

    def _carry(self) -> None:
        source = GroupAdmin(self._config.source.connection)
        names = follow.mirrored(self._config, source.cluster().topics)
        if not names or TopicPartition(names[0], 0) not in self._meters.partitions():
            self._known = None  # another instance carries them, and what is written down changes
            self._meters.forget_carried()
            return
        if self._known is None:
            follow.create_compacted(
                self._config.target, self._config.groups_topic, self._config.internal_replication_factor
            )
            self._known = load(self._config)
        ids = follow.topic_ids(self._config.source, names)
        groups = [one.group_id for one in source.groups() if one.group_id != self._config.group]
        seen = checkpoints({group: source.committed(group) for group in groups}, ids)
        if news := changed(seen, self._known):
            at_ms = now_ms()
            with Producer(self._config.target.connection) as producer:
                for key, one in news.items():
                    value = None if one is None else one.encode(at_ms)
                    producer.send(self._config.groups_topic, value, key.encode(), partition=0)
        self._known = seen
        self._meters.carried()
