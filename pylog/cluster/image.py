"""The cluster image: everything a broker must know to lead, follow, and answer Metadata.

Only the controller makes images; the other brokers pull them.  An image is immutable, and two images share the topics
that did not change, so that a reader finds the difference by identity.
"""

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from pylog.cluster.quotas import ClientQuotas
from pylog.model import MAIN_LISTENER, NodeAddress

FIRST_LEVEL = 1
"""Formats of a cluster that was never finalized, and of an image that names no level."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker.

    Attributes:
        broker_id: its number, explicit in its configuration.
        epoch: czxid of its registration; a bounce makes a higher one.
        rack: where it stands, if told.
        client: where clients reach it on its main listener.
        internal: where brokers reach it.
        is_clean: its last stop was clean, or a controller has settled what an unclean one may have lost.
        max_level: newest formats that its release reads.
        has_memory: its process was killed, but its host runs on, and so its page cache has all that was written; only
            the controller knows this.
        listeners: where clients reach it, by the name of the listener; empty if it has only one, `MAIN_LISTENER`.
    """

    broker_id: int
    epoch: int
    rack: str | None
    client: NodeAddress
    internal: NodeAddress
    is_clean: bool = True
    max_level: int = FIRST_LEVEL
    has_memory: bool = False
    listeners: Mapping[str, NodeAddress] = field(default_factory=dict)

    def address(self, listener: str) -> NodeAddress | None:
        """Return where clients reach this broker that came to another one by *listener*; None if they cannot."""
        if self.listeners:
            return self.listeners.get(listener)
        return self.client if listener == MAIN_LISTENER else None


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Who leads one partition, and who has all of it.

    Invariant: the ISR is never empty and holds the leader, unless that is NO_LEADER.

    Attributes:
        leader: broker id, or NO_LEADER.
        leader_epoch: grows whenever leadership is given anew.
        isr: replicas that have everything acknowledged with acks=all.
        replicas: all replicas; the first is the preferred leader.
        partition_epoch: version of the state node; grows with every change of it.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's way to other brokers; both are among its replicas until it has arrived.

    Attributes:
        adding: brokers that come.
        removing: brokers that go.
    """

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic.

    Attributes:
        partitions: by number from 0.
        configs: those that were set for it.
        moves: partitions that are being reassigned.
        leaving: brokers that held a partition and still have to delete it: an order, as a `DeletedTopic` is.
        created_ms: when it was created, by the wall clock of its controller; 0 if that is not known.
    """

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionImage]
    configs: Mapping[str, str] = field(default_factory=dict)
    moves: Mapping[int, Move] = field(default_factory=dict)
    leaving: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    created_ms: int = 0

    def factor(self, number: int) -> int:
        """Return how many replicas a partition shall have: those that only come for now do not count."""
        move = self.moves.get(number)
        return len(self.partitions[number].replicas) - (len(move.adding) if move is not None else 0)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """An order to delete one incarnation of a topic, kept until every replica has done so.

    A replica's data goes only when name and id both fit; that a topic is absent from an image orders nothing.
    """

    name: str
    topic_id: uuid.UUID
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The whole cluster at one moment.

    Attributes:
        controller_epoch: of the controller that made it.
        version: counts that controller's images from 1.
        brokers: live brokers by id.
        topics: by name; a topic under deletion is not among them.
        deleted_topics: what replicas still have to delete, by topic id.
        broker_configs: dynamic broker configs by broker id as text; "<default>" holds for all.
        client_quotas: what clients may use.
        level: newest formats that may be written, see `pylog.cluster.formats`.
        scram_credentials: of each user, by mechanism, as `ScramCredential.text` writes them.
    """

    controller_epoch: int
    version: int
    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    deleted_topics: Mapping[uuid.UUID, DeletedTopic] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    client_quotas: ClientQuotas = field(default_factory=dict)
    level: int = FIRST_LEVEL
    scram_credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    _by_id: dict[bytes, TopicImage] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {topic.topic_id.bytes: topic for topic in self.topics.values()})

    @property
    def order(self) -> tuple[int, int]:
        """What images are ordered by: a broker drops any image below the highest it has seen."""
        return self.controller_epoch, self.version

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicImage | None:
        """Return the topic with this id, or None."""
        return self._by_id.get(topic_id.bytes)

    def topic_by_id_bytes(self, topic_id: bytes) -> TopicImage | None:
        """Return the topic whose id has these 16 bytes, or None; a fetch names topics so, and a UUID costs more."""
        return self._by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """Return one partition, or None."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)


def topic_id_text(topic_id: uuid.UUID) -> str:
    """Return the 22 characters by which topic ids are written down: base64url of the 16 bytes, no padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def parse_topic_id(text: str) -> uuid.UUID:
    """Return the id that `topic_id_text` wrote; raise ValueError for anything else."""
    return uuid.UUID(bytes=base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
