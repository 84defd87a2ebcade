"""Which topics are mirrored, and what the target's must become.  Decides; waits for nothing."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pylog.model import OWN_TOPICS

PARKED_TOPIC_PREFIX = "pylog.parked."
"""Of the topic in the target with the records that it refused in their own; the source cluster's name follows."""

GROUPS_TOPIC_PREFIX = "pylog.groups."
"""Of the topic in the target with what the source's groups committed; the source cluster's name follows."""

PARKED_HEADER = "pylog.parked"
"""Of a parked record: topic, partition, offset and reason, as JSON."""

LOCAL_SETTINGS = frozenset(
    {
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "flush.messages",
        "flush.ms",
        # A record keeps the time it has in the source, however long it was under way.
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
    }
)
"""Settings that say how a cluster takes and keeps a topic, not what the topic is; the target's operator has the say."""


MAX_MESSAGE = "max.message.bytes"
HEADROOM_BYTES = 1024
"""The origin's header makes records longer: the target takes so much more than the source."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the plan sees it.

    Attributes:
        partitions: how many.
        config: what the topic itself sets.
        max_message_bytes: what it takes, whoever says so.
    """

    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    max_message_bytes: int = 1048588


@dataclass(frozen=True, slots=True)
class Create:
    """Make a topic."""

    name: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Grow:
    """Give a topic more partitions."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Alter:
    """Change a topic's settings."""

    name: str
    set_: Mapping[str, str]
    delete: Sequence[str]


def chosen(names: Iterable[str], include: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """Return the names that one pattern of *include* matches as a whole and none of *exclude* does.

    `OWN_TOPICS` are never among them, not even by name: the target has its own topics of these names, in which the
    source's records would be wrong.  Of two registries each gives ids in its own topic, for instance.
    """
    return sorted(
        name
        for name in names
        if any(re.fullmatch(pattern, name) for pattern in include)
        and not any(re.fullmatch(pattern, name) for pattern in exclude)
        and not OWN_TOPICS.fullmatch(name)
    )


def changes(source: Mapping[str, Topic], target: Mapping[str, Topic]) -> list[Create | Grow | Alter]:
    """Return what makes the target's topics like the source's.

    Nothing is ever taken away: a topic or a partition that the source lost stays in the target.
    """
    found: list[Create | Grow | Alter] = []
    for name, wanted in sorted(source.items()):
        config = {key: value for key, value in wanted.config.items() if key not in LOCAL_SETTINGS}
        config[MAX_MESSAGE] = str(wanted.max_message_bytes + HEADROOM_BYTES)
        there = target.get(name)
        if there is None:
            found.append(Create(name, wanted.partitions, config))
            continue
        if there.partitions < wanted.partitions:
            found.append(Grow(name, wanted.partitions))
        set_ = {key: value for key, value in config.items() if there.config.get(key) != value}
        delete = sorted(there.config.keys() - config.keys() - LOCAL_SETTINGS)
        if set_ or delete:
            found.append(Alter(name, set_, delete))
    return found
