"""The nouns that every part shares."""

import ipaddress
import re
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

Offset: TypeAlias = int
"""Number of a record in its partition, counted from 0; int64 on the wire and on disk."""

OnProgress: TypeAlias = Callable[[int, int], None]
"""Told by long work how much is done, and how much that is of; the second may still grow."""


def nobody(done: int, total: int) -> None:
    """Be an `OnProgress` where nobody looks."""


NO_LEADER = -1
"""Leader of a partition that has none: no live replica may lead it."""

TRANSACTIONS_TOPIC = "__transaction_state"
"""Keeps transactional ids.  Going back in it would give epochs out twice, so nobody leads it who may lack something.
An id belongs to one of as many partitions as it was made with."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", TRANSACTIONS_TOPIC})
"""Topics that brokers write themselves; clients may read but not write them."""

OWN_TOPICS = re.compile(r"__.*|_audit|_schemas|_pylog_canary|_console_changes|pylog\.(?:offsets|groups|parked)\..*")
"""Topics that brokers and programs of pylog keep for themselves: no pattern means them; they can be read by name."""

MAX_TOPIC_NAME_LENGTH = 249
"""A directory name is ``<topic>-<partition>`` and file systems stop at 255 bytes (Kafka's own limit)."""


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as its directory is named."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Key: TypeAlias = tuple[str, int]
"""A topic's name and a partition, as a key of mappings: a plain tuple or a `TopicPartition`, which are equal."""


class IsolationLevel(StrEnum):
    """Which records of transactions a reader gets; the values are those of Kafka's setting ``isolation.level``."""

    READ_COMMITTED = "read_committed"
    """None of transactions that are open or aborted; the reader waits before the first open one."""
    READ_UNCOMMITTED = "read_uncommitted"
    """All that every in-sync replica has."""

    @property
    def number(self) -> int:
        """The level as requests carry it, int8."""
        return int(self is IsolationLevel.READ_COMMITTED)


MAIN_LISTENER = "client"
"""Name of the listener for clients where a broker has only one; brokers of release 0.1.0 know no other."""


def is_loopback(host: str) -> bool:
    """Whether nothing that is sent to *host*, a name or an address, leaves this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class NodeAddress(NamedTuple):
    """Where a broker listens."""

    node_id: int
    host: str
    port: int
