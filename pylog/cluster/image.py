"""The cluster image: everything a broker must know to lead, follow, and answer Metadata.

Only the controller makes images; the other brokers pull them.  An image is immutable, and two images share the topics
that did not change, so that a reader finds the difference by identity.
"""

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylog.cluster.quotas import ClientQuotas, QuotaEntity
from pylog.errors import ProtocolError
from pylog.model import NodeAddress

FORMAT = 1
"""Version of the encoded image; a release reads its own and the previous one."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker.

    Attributes:
        broker_id: its number, explicit in its configuration.
        epoch: czxid of its registration; a bounce makes a higher one.
        rack: where it stands, if told.
        client: where clients reach it.
        internal: where brokers reach it.
        is_clean: its last stop was clean, or a controller has settled what an unclean one may have lost.
    """

    broker_id: int
    epoch: int
    rack: str | None
    client: NodeAddress
    internal: NodeAddress
    is_clean: bool = True


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
class TopicImage:
    """One topic: partitions by number from 0, and the configs that were set for it."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionImage]
    configs: Mapping[str, str] = field(default_factory=dict)


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
    _by_id: dict[uuid.UUID, TopicImage] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {topic.topic_id: topic for topic in self.topics.values()})

    @property
    def order(self) -> tuple[int, int]:
        """What images are ordered by: a broker drops any image below the highest it has seen."""
        return self.controller_epoch, self.version

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicImage | None:
        """Return the topic with this id, or None."""
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


def encode_image(image: ClusterImage) -> bytes:
    """Return the image as the JSON that brokers pull.

    image     => {"format", "controller_epoch", "version", "cluster_id", "controller_id",
                  "brokers": [[id, epoch, rack, client host, port, internal host, port, is clean]],
                  "topics": [[name, topic id, [partition], {configs}]],       (partitions by number from 0)
                  "deleted_topics": [[name, topic id, [replicas]]], "broker_configs": {id: {configs}},
                  "client_quotas": [[user, client id, {quotas}]]}
    partition => [leader, leader epoch, partition epoch, [replicas], [isr]]
    """
    document = {
        "format": FORMAT,
        "controller_epoch": image.controller_epoch,
        "version": image.version,
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": [
            [broker.broker_id, broker.epoch, broker.rack, *broker.client[1:], *broker.internal[1:], broker.is_clean]
            for broker in image.brokers.values()
        ],
        "topics": [encode_topic(topic) for topic in image.topics.values()],
        "deleted_topics": [
            [deleted.name, topic_id_text(deleted.topic_id), deleted.replicas]
            for deleted in image.deleted_topics.values()
        ],
        "broker_configs": image.broker_configs,
        "client_quotas": [[*entity, dict(quotas)] for entity, quotas in image.client_quotas.items()],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def encode_topic(topic: TopicImage) -> list[object]:
    """Return one entry of "topics" as `encode_image` has it."""
    partitions = [
        [one.leader, one.leader_epoch, one.partition_epoch, one.replicas, one.isr]
        for _, one in sorted(topic.partitions.items())
    ]
    return [topic.name, topic_id_text(topic.topic_id), partitions, dict(topic.configs)]


def decode_image(content: bytes) -> ClusterImage:
    """Return the image that `encode_image` wrote; raise ProtocolError for anything else."""
    try:
        document = json.loads(content)
        if document["format"] != FORMAT:
            raise ProtocolError(f"cluster image of format {document['format']!r}; this release reads {FORMAT}")
        return ClusterImage(
            document["controller_epoch"],
            document["version"],
            document["cluster_id"],
            document["controller_id"],
            {entry[0]: _decode_broker(entry) for entry in document["brokers"]},
            {entry[0]: decode_topic(entry) for entry in document["topics"]},
            {
                deleted.topic_id: deleted
                for deleted in (
                    DeletedTopic(name, parse_topic_id(topic_id), tuple(replicas))
                    for name, topic_id, replicas in document["deleted_topics"]
                )
            },
            document["broker_configs"],
            {QuotaEntity(user, client): quotas for user, client, quotas in document.get("client_quotas", ())},
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ProtocolError(f"not a cluster image: {error!r}") from error


def decode_topic(entry: Sequence[Any]) -> TopicImage:
    """Return the topic that `encode_topic` wrote."""
    name, topic_id, partitions, configs = entry
    return TopicImage(
        name,
        parse_topic_id(topic_id),
        {
            number: PartitionImage(leader, leader_epoch, tuple(isr), tuple(replicas), partition_epoch)
            for number, (leader, leader_epoch, partition_epoch, replicas, isr) in enumerate(partitions)
        },
        configs,
    )


def _decode_broker(entry: Sequence[Any]) -> BrokerInfo:
    broker_id, epoch, rack, client_host, client_port, internal_host, internal_port, is_clean = entry
    client = NodeAddress(broker_id, client_host, client_port)
    return BrokerInfo(broker_id, epoch, rack, client, NodeAddress(broker_id, internal_host, internal_port), is_clean)


