"""Cluster images as brokers pull them: whole, or what changed since the one that the puller has.

image     => {"format": 1|2, "level", "controller_epoch", "version", "cluster_id", "controller_id",
              "brokers": [[id, epoch, rack, client host, port, internal host, port, is clean]],
              "topics": [topic], "deleted_topics": [[name, topic id, [replicas]]], "broker_configs": {id: {configs}},
              "client_quotas": [[user, client id, {quotas}]], "ip_quotas": [[address, {quotas}]],
              "scram_credentials": {user: {mechanism: credential}}, "created_ms": {topic name: time},
              "listeners": {broker id: {name: [host, port]}}}
topic     => [name, topic id, [partition], {configs}]                                  (format 1; by number from 0)
           | [name, topic id, {number: partition}, {configs}, {number: [[adding], [removing]]}, {number: [leaving]}]
partition => [leader, leader epoch, partition epoch, [replicas], [isr]]

Format 2 has beside these "since": version of the same controller's image that this one builds upon, or null for a whole
image, and "gone": names of topics that went since; of the other topics it has only those that changed, and of these
only the partitions that did.  "level" is not written while it is 1, and quotas, credentials, times of creation and
listeners not where there are none, so that format 1 is what earlier releases wrote; those skip the names that they do
not know.
A broker of seven fields, as format 1 had it at first, counts as clean.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pylog.cluster.image import (
    FIRST_LEVEL,
    BrokerInfo,
    ClusterImage,
    DeletedTopic,
    Move,
    PartitionImage,
    TopicImage,
    parse_topic_id,
    topic_id_text,
)
from pylog.cluster.quotas import QuotaEntity
from pylog.errors import ProtocolError
from pylog.model import NodeAddress

WHOLE = None

Document = dict[str, Any]


def encode_whole(image: ClusterImage, format_version: int) -> bytes:
    """Return the whole image in this format."""
    document = _head(image, format_version, image.topics)
    if format_version == 1:
        document["topics"] = [_encode_topic_1(topic) for topic in image.topics.values()]
    else:
        document |= {"since": WHOLE, "gone": [], "topics": [_encode_topic(one) for one in image.topics.values()]}
    return _json(document)


def encode_delta(image: ClusterImage, since: int, changed: Mapping[str, Iterable[int]], gone: Iterable[str]) -> bytes:
    """Return what is new in *image* since *since*, in format 2.

    Args:
        image: the newest.
        since: version, under the same controller epoch, of the image that the reader has.
        changed: numbers of changed partitions by topic; none where only the rest of a topic changed.
        gone: topics that are in the reader's image and not in this one.
    """
    topics = [_encode_topic(image.topics[name], numbers) for name, numbers in changed.items()]
    return _json(_head(image, 2, changed) | {"since": since, "gone": list(gone), "topics": topics})


def decode_image(content: bytes, before: ClusterImage) -> ClusterImage | None:
    """Return the image that *content* makes of *before*; None if it builds upon another one.

    Raises:
        ProtocolError: it is none of these formats.
    """
    try:
        document = json.loads(content)
        match document["format"]:
            case 1:
                created = document.get("created_ms", {})
                topics = {entry[0]: _decode_topic_1(entry, created.get(entry[0], 0)) for entry in document["topics"]}
            case 2:
                since = document["since"]
                if since is not WHOLE and before.order != (document["controller_epoch"], since):
                    return None
                topics = _merge(document, {} if since is WHOLE else before.topics)
            case other:
                raise ProtocolError(f"cluster image of format {other!r}; this release reads 1 and 2")
        return _image(document, topics)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ProtocolError(f"not a cluster image: {error!r}") from error


def _json(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _head(image: ClusterImage, format_version: int, names: Iterable[str]) -> Document:
    document: Document = {
        "format": format_version,
        "controller_epoch": image.controller_epoch,
        "version": image.version,
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": [_encode_broker(broker) for broker in image.brokers.values()],
        "topics": [],
        "deleted_topics": [
            [deleted.name, topic_id_text(deleted.topic_id), deleted.replicas]
            for deleted in image.deleted_topics.values()
        ],
        "broker_configs": image.broker_configs,
    }
    quotas = image.client_quotas.items()
    if clients := [[*entity[:2], dict(found)] for entity, found in quotas if entity.ip is None]:
        document["client_quotas"] = clients
    if ips := [[entity.ip, dict(found)] for entity, found in quotas if entity.ip is not None]:
        document["ip_quotas"] = ips  # apart, so that a release that does not know them reads the others
    if image.scram_credentials:
        document["scram_credentials"] = image.scram_credentials
    if listeners := {
        broker.broker_id: {name: address[1:] for name, address in broker.listeners.items()}
        for broker in image.brokers.values()
        if broker.listeners
    }:
        document["listeners"] = listeners
    if created := {name: image.topics[name].created_ms for name in names if image.topics[name].created_ms}:
        document["created_ms"] = created
    return document if image.level == FIRST_LEVEL else document | {"level": image.level}


def _image(document: Document, topics: Mapping[str, TopicImage]) -> ClusterImage:
    listeners = document.get("listeners", {})
    deleted = [DeletedTopic(name, parse_topic_id(one), tuple(at)) for name, one, at in document["deleted_topics"]]
    return ClusterImage(
        document["controller_epoch"],
        document["version"],
        document["cluster_id"],
        document["controller_id"],
        {entry[0]: _decode_broker(entry, listeners.get(str(entry[0]), {})) for entry in document["brokers"]},
        topics,
        {one.topic_id: one for one in deleted},
        document["broker_configs"],
        {QuotaEntity(user, client): quotas for user, client, quotas in document.get("client_quotas", ())}
        | {QuotaEntity(None, None, ip): quotas for ip, quotas in document.get("ip_quotas", ())},
        document.get("level", FIRST_LEVEL),
        document.get("scram_credentials", {}),
    )


def _merge(document: Document, before: Mapping[str, TopicImage]) -> dict[str, TopicImage]:
    topics, created = dict(before), document.get("created_ms", {})
    for name in document["gone"]:
        topics.pop(name, None)
    for name, topic_id, partitions, configs, moves, leaving in document["topics"]:
        found = TopicImage(
            name,
            parse_topic_id(topic_id),
            {int(number): _decode_partition(entry) for number, entry in partitions.items()},
            configs,
            {int(number): Move(tuple(adding), tuple(removing)) for number, (adding, removing) in moves.items()},
            {int(number): tuple(brokers) for number, brokers in leaving.items()},
            created.get(name, 0),
        )
        known = topics.get(name)
        if known is not None and known.topic_id == found.topic_id:
            found = replace(found, partitions=dict(sorted({**known.partitions, **found.partitions}.items())))
        topics[name] = found
    return topics


def _encode_topic(topic: TopicImage, numbers: Iterable[int] | None = None) -> list[object]:
    partitions = topic.partitions
    return [
        topic.name,
        topic_id_text(topic.topic_id),
        {number: _encode_partition(partitions[number]) for number in (partitions if numbers is None else numbers)},
        dict(topic.configs),
        {number: [move.adding, move.removing] for number, move in topic.moves.items()},
        dict(topic.leaving),
    ]


def _encode_topic_1(topic: TopicImage) -> list[object]:
    partitions = [_encode_partition(one) for _, one in sorted(topic.partitions.items())]
    return [topic.name, topic_id_text(topic.topic_id), partitions, dict(topic.configs)]


def _decode_topic_1(entry: Sequence[Any], created_ms: int) -> TopicImage:
    name, topic_id, partitions, configs = entry
    found = {number: _decode_partition(one) for number, one in enumerate(partitions)}
    return TopicImage(name, parse_topic_id(topic_id), found, configs, created_ms=created_ms)


def _encode_partition(one: PartitionImage) -> list[object]:
    return [one.leader, one.leader_epoch, one.partition_epoch, one.replicas, one.isr]


def _decode_partition(entry: Sequence[Any]) -> PartitionImage:
    leader, leader_epoch, partition_epoch, replicas, isr = entry
    return PartitionImage(leader, leader_epoch, tuple(isr), tuple(replicas), partition_epoch)


def _encode_broker(broker: BrokerInfo) -> list[object]:
    return [broker.broker_id, broker.epoch, broker.rack, *broker.client[1:], *broker.internal[1:], broker.is_clean]


def _decode_broker(entry: Sequence[Any], listeners: Mapping[str, Sequence[Any]]) -> BrokerInfo:
    broker_id, epoch, rack, client_host, client_port, internal_host, internal_port, *rest = entry
    client, internal = (
        NodeAddress(broker_id, client_host, client_port),
        NodeAddress(broker_id, internal_host, internal_port),
    )
    [is_clean] = rest or [True]
    addresses = {name: NodeAddress(broker_id, host, port) for name, (host, port) in listeners.items()}
    return BrokerInfo(broker_id, epoch, rack, client, internal, is_clean, listeners=addresses)


def changed_parts(before: TopicImage | None, after: TopicImage) -> list[int] | None:
    """Return the numbers of *after*'s partitions that differ from *before*; None if nothing of the topic does."""
    if before is after:
        return None
    if before is None or before.topic_id != after.topic_id:
        return list(after.partitions)
    known = before.partitions
    numbers = [
        number for number, state in after.partitions.items() if (old := known.get(number)) is not state and old != state
    ]
    rest = (before.configs, before.moves, before.leaving) == (after.configs, after.moves, after.leaving)
    return None if rest and not numbers else numbers


class ImageHistory:
    """What changed in a controller's images, by the version that changed it; from it come the answers to pulls."""

    MAX_GONE = 10_000
    """Topics that went and are remembered; beyond it whoever lags is sent a whole image."""

    def __init__(self) -> None:
        self._image = ClusterImage(-1, 0, "", -1)
        self._since = 0
        self._topics: dict[str, int] = {}
        self._partitions: dict[str, dict[int, int]] = {}
        self._gone: dict[str, int] = {}

    @property
    def order(self) -> tuple[int, int]:
        """Order of the newest image."""
        return self._image.order

    def advance(self, image: ClusterImage) -> None:
        """Take note of the controller's next image."""
        before, self._image = self._image, image
        if before.controller_epoch != image.controller_epoch:
            self._forget(image.version)
            return
        for name in before.topics.keys() - image.topics.keys():
            self._gone[name] = image.version
            self._topics.pop(name, None)
            self._partitions.pop(name, None)
        for name, topic in image.topics.items():
            old = before.topics.get(name)
            numbers = changed_parts(old, topic)
            if numbers is None:
                continue
            if old is not None and old.topic_id != topic.topic_id:
                self._gone[name] = image.version
                self._partitions.pop(name, None)
            self._topics[name] = image.version
            self._partitions.setdefault(name, {}).update(dict.fromkeys(numbers, image.version))
        if len(self._gone) > self.MAX_GONE:
            self._forget(image.version)

    def answer(self, order: tuple[int, int], format_version: int) -> bytes:
        """Return the newest image for a broker that has the one of this order, as a delta if that can be."""
        image = self._image
        epoch, since = order
        if format_version == 1 or epoch != image.controller_epoch or since < self._since:
            return encode_whole(image, format_version)
        changed = {
            name: [number for number, version in self._partitions[name].items() if version > since]
            for name, version in self._topics.items()
            if version > since
        }
        gone = [name for name, version in self._gone.items() if version > since]
        return encode_delta(image, since, changed, gone)

    def _forget(self, version: int) -> None:
        self._since = version
        self._topics.clear()
        self._partitions.clear()
        self._gone.clear()
