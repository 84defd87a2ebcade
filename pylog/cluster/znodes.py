"""Cluster state as it is written in the store: Kafka's paths and Kafka's JSON, to and from our objects.

Kafka's own tools read these nodes, so keys, their order, and which numbers are written as text are all as Kafka has
them.  Nodes of ours that Kafka does not know live under ``/pylog``.  Every decoder raises ProtocolError, with what it
read, for what is not such a node: the store was written by something else.

Source: protocol of Apache Kafka 3.9 with ZooKeeper, as read from a running one.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote, unquote

from pylog.cluster.formats import NEWEST_LEVEL, OLDEST_LEVEL
from pylog.cluster.image import (
    FIRST_LEVEL,
    BrokerInfo,
    DeletedTopic,
    Move,
    PartitionImage,
    TopicImage,
    parse_topic_id,
    topic_id_text,
)
from pylog.cluster.quotas import QUOTA_KEYS, QuotaEntity, quoted
from pylog.errors import ProtocolError
from pylog.model import MAIN_LISTENER, NodeAddress
from pylog.security.principal import SecurityProtocol
from pylog.security.scram import SCRAM_MECHANISMS

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
FORMAT_LEVEL = "/pylog/format_level"
"""The newest formats that brokers may write; see `pylog.cluster.formats`."""
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CLIENT_CONFIGS = "/config/clients"
USER_CONFIGS = "/config/users"
IP_CONFIGS = "/config/ips"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONSUMERS = "/consumers"
REGISTRY = "/pylog_registry"
"""Where schema registries elect their primary; made by brokers, so that registries need no right on the root."""
DELETED_TOPICS = "/pylog/deleted_topics"
"""One node for each topic incarnation whose data some replica still has to delete."""

BASE_PATHS = (
    CONSUMERS,
    REGISTRY,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    "/brokers/seqid",
    "/isr_change_notification",
    PRODUCER_ID_BLOCK,
    "/log_dir_event_notification",
    TOPIC_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    IP_CONFIGS,
    BROKER_CONFIGS,
    "/cluster",
    DELETED_TOPICS,
)
"""What every broker makes at start if it is missing."""

INTERNAL_LISTENER = "INTERNAL"

PRODUCER_ID_BLOCK_SIZE = 1000


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partition_path(topic: str, partition: int) -> str:
    """Return the path above a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """Return the path of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def consumer_ids_path(group: str) -> str:
    """Return the path above the registrations of a group's consumers that coordinate through ZooKeeper."""
    return f"{CONSUMERS}/{group}/ids"


def is_node_name(name: str) -> bool:
    """Return whether *name* can be a node's without being changed."""
    return bool(name) and "/" not in name and "\0" not in name and name not in {".", ".."}


def topic_config_path(topic: str) -> str:
    """Return the path of a topic's configs."""
    return f"{TOPIC_CONFIGS}/{quote(topic, safe='')}"


def broker_config_path(name: str) -> str:
    """Return the path of a broker's dynamic configs; *name* is its id or ``<default>``."""
    return f"{BROKER_CONFIGS}/{name}"


def quota_path(entity: QuotaEntity) -> str:
    """Return the path of the configs of a user, of a client id, of a client id of a user, or of an address."""
    if entity.ip is not None:
        return f"{IP_CONFIGS}/{entity.ip}"
    if entity.user is None:
        return f"{CLIENT_CONFIGS}/{entity.client_id}"
    if entity.client_id is None:
        return f"{USER_CONFIGS}/{entity.user}"
    return f"{USER_CONFIGS}/{entity.user}/clients/{entity.client_id}"


def user_path(user: str) -> str:
    """Return the path of the credentials and quotas of a user."""
    return f"{USER_CONFIGS}/{quoted(user)}"


def entity_name(node: str) -> str:
    """Return the name that a node under ``/config`` stands for."""
    return unquote(node)


def delete_topic_path(topic: str) -> str:
    """Return the path that orders a topic's deletion."""
    return f"{DELETE_TOPICS}/{topic}"


def deleted_topic_path(topic_id: uuid.UUID) -> str:
    """Return the path that remembers a deletion until every replica has carried it out."""
    return f"{DELETED_TOPICS}/{topic_id_text(topic_id)}"


# Beside Kafka's fields; its tools ignore names that they do not know.
_UNCLEAN = "pylog_unclean"
_SAME_BOOT = "pylog_same_boot"
_LEAVING = "pylog_leaving_replicas"
_CREATED = "pylog_created_ms"
_FORMATS = "pylog.formats"  # a feature of a broker, in Kafka's form; the versions are levels


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker tells of itself when it registers.

    Attributes:
        client: where clients reach it on its main listener.
        internal: where brokers reach it.
        rack: where it stands, if told.
        cluster_id: the cluster that its data belongs to, None for an empty data directory.
        is_clean: its last stop was clean; False says that its logs may have lost their ends.
        has_memory: its host has not been started anew since the process before this one.
        protocol: what clients speak on the main listener, by Kafka's name.
        name: of the main listener.
        more: the other listeners for clients by name, with their protocols.
        internal_protocol: what other brokers speak.
    """

    broker_id: int
    client: NodeAddress
    internal: NodeAddress
    rack: str | None = None
    cluster_id: str | None = None
    is_clean: bool = True
    has_memory: bool = False
    protocol: str = "PLAINTEXT"
    name: str = MAIN_LISTENER
    more: Mapping[str, tuple[str, NodeAddress]] = field(default_factory=dict)
    internal_protocol: str = "PLAINTEXT"

    @property
    def hosts(self) -> set[str]:
        """All that it is reached by."""
        return {self.client.host, self.internal.host, *(address.host for _, address in self.more.values())}


@dataclass(frozen=True, slots=True)
class Assignment:
    """A topic's node: its id and each partition's replicas, the preferred leader first; the rest as in `TopicImage`.

    Attributes:
        created_ms: 0 where the node does not say: release 0.1.0 and Kafka do not write it.
    """

    topic_id: uuid.UUID
    replicas: Mapping[int, tuple[int, ...]]
    moves: Mapping[int, Move]
    leaving: Mapping[int, tuple[int, ...]]
    created_ms: int = 0


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _decoder(decode: Callable[_P, _R]) -> Callable[_P, _R]:
    @wraps(decode)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return decode(*args, **kwargs)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ProtocolError(f"{decode.__name__}: {error!r} in store node {args!r:.500}") from error

    return checked


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def registered_name(listener: str, protocol: str) -> str:
    """Return the name under which a listener for clients is registered.

    `MAIN_LISTENER` is registered under its protocol, as Kafka's only listener is by default.
    """
    return protocol if listener == MAIN_LISTENER else listener.upper()


def encode_broker(broker: BrokerRegistration, now_ms: int) -> bytes:
    """Return the data of ``/brokers/ids/N``, version 5."""
    listeners = {broker.name: (broker.protocol, broker.client), **broker.more}
    rows = [(registered_name(name, protocol), protocol, at) for name, (protocol, at) in listeners.items()]
    rows.append((INTERNAL_LISTENER, broker.internal_protocol, broker.internal))
    document: dict[str, Any] = {
        "features": {_FORMATS: {"min_version": OLDEST_LEVEL, "max_version": NEWEST_LEVEL}},
        "listener_security_protocol_map": {name: protocol for name, protocol, _ in rows},
        "endpoints": [_endpoint(name, address) for name, _, address in rows],
    }
    if broker.rack is not None:
        document["rack"] = broker.rack
    if not broker.is_clean:
        document[_UNCLEAN] = True
        if broker.has_memory:
            document[_SAME_BOOT] = True
    return _json(
        document
        | {
            "jmx_port": -1,
            # Release 0.1.0 and clients of ZooKeeper's time know one address only: that of the main listener.
            "port": broker.client.port,
            "host": broker.client.host,
            "version": 5,
            "timestamp": str(now_ms),
        }
    )


@_decoder
def decode_broker(broker_id: int, data: bytes, czxid: int) -> BrokerInfo:
    """Return the broker that ``/brokers/ids/N`` describes; versions 2 to 5."""
    document = json.loads(data)
    endpoints = dict(_parse_endpoint(broker_id, text) for text in document["endpoints"])
    clients = {_listener_name(name): address for name, address in endpoints.items() if name != INTERNAL_LISTENER}
    is_alone = len(clients) == 1
    client = next(iter(clients.values())) if is_alone else NodeAddress(broker_id, document["host"], document["port"])
    listeners = {} if is_alone and MAIN_LISTENER in clients else clients
    internal = endpoints.get(INTERNAL_LISTENER, client)
    max_level = document.get("features", {}).get(_FORMATS, {}).get("max_version", FIRST_LEVEL)
    is_clean, has_memory = _UNCLEAN not in document, _SAME_BOOT in document
    return BrokerInfo(
        broker_id, czxid, document.get("rack"), client, internal, is_clean, max_level, has_memory, listeners
    )


@_decoder
def without_doubt(data: bytes) -> bytes:
    """Return a broker's node once a controller has settled what its unclean stop may have cost."""
    return _json({name: value for name, value in json.loads(data).items() if name not in (_UNCLEAN, _SAME_BOOT)})


def _listener_name(registered: str) -> str:
    return MAIN_LISTENER if registered in list(SecurityProtocol) else registered.lower()


def _endpoint(listener: str, address: NodeAddress) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{listener}://{host}:{address.port}"


def _parse_endpoint(broker_id: int, text: str) -> tuple[str, NodeAddress]:
    listener, _, rest = text.partition("://")
    host, _, port = rest.rpartition(":")
    return listener, NodeAddress(broker_id, host.strip("[]"), int(port))


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    """Return the data of ``/controller``, version 2."""
    return _json({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


@_decoder
def decode_controller(data: bytes) -> int:
    """Return the broker id that ``/controller`` names."""
    return int(json.loads(data)["brokerid"])


def encode_controller_epoch(epoch: int) -> bytes:
    """Return the data of ``/controller_epoch``: the bare number."""
    return str(epoch).encode()


@_decoder
def decode_controller_epoch(data: bytes) -> int:
    """Return the epoch that ``/controller_epoch`` holds."""
    return int(data)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the data of ``/cluster/id``; its version is a text."""
    return _json({"version": "1", "id": cluster_id})


@_decoder
def decode_cluster_id(data: bytes) -> str:
    """Return the id that ``/cluster/id`` holds."""
    return str(json.loads(data)["id"])


def encode_level(level: int) -> bytes:
    """Return the data of ``/pylog/format_level``: ``{"version":1,"level":N}``."""
    return _json({"version": 1, "level": level})


@_decoder
def decode_level(data: bytes) -> int:
    """Return the level that ``/pylog/format_level`` holds."""
    return int(json.loads(data)["level"])


def encode_assignment(topic: TopicImage) -> bytes:
    """Return the data of ``/brokers/topics/T``, version 3."""
    document = {
        "partitions": {str(number): one.replicas for number, one in sorted(topic.partitions.items())},
        "topic_id": topic_id_text(topic.topic_id),
        "adding_replicas": {str(number): move.adding for number, move in topic.moves.items() if move.adding},
        "removing_replicas": {str(number): move.removing for number, move in topic.moves.items() if move.removing},
        "version": 3,
    }
    if topic.leaving:
        document[_LEAVING] = {str(number): brokers for number, brokers in topic.leaving.items()}
    if topic.created_ms:
        document[_CREATED] = topic.created_ms
    return _json(document)


@_decoder
def decode_assignment(data: bytes) -> Assignment:
    """Return topic id and replicas that ``/brokers/topics/T`` holds."""
    document = json.loads(data)
    replicas, adding, removing, leaving = (
        {int(number): tuple(brokers) for number, brokers in found.items()}
        for found in (
            document["partitions"],
            *(document.get(name, {}) for name in ("adding_replicas", "removing_replicas", _LEAVING)),
        )
    )
    moves = {number: Move(adding.get(number, ()), removing.get(number, ())) for number in sorted({*adding, *removing})}
    moves = {number: move for number, move in moves.items() if move != Move()}
    topic_id, created_ms = parse_topic_id(document["topic_id"]), int(document.get(_CREATED, 0))
    return Assignment(topic_id, dict(sorted(replicas.items())), moves, leaving, created_ms)


def encode_state(partition: PartitionImage, controller_epoch: int) -> bytes:
    """Return the data of ``…/partitions/P/state``, version 1."""
    return _json(
        {
            "controller_epoch": controller_epoch,
            "leader": partition.leader,
            "version": 1,
            "leader_epoch": partition.leader_epoch,
            "isr": partition.isr,
        }
    )


@_decoder
def decode_state(data: bytes, version: int, replicas: tuple[int, ...]) -> PartitionImage:
    """Return the partition that ``…/partitions/P/state`` describes, together with its node's version and replicas."""
    document = json.loads(data)
    return PartitionImage(document["leader"], document["leader_epoch"], tuple(document["isr"]), replicas, version)


def encode_configs(configs: Mapping[str, str]) -> bytes:
    """Return the data of ``/config/<entity>/NAME``, version 1."""
    return _json({"version": 1, "config": dict(configs)})


@_decoder
def decode_configs(data: bytes) -> dict[str, str]:
    """Return the configs that ``/config/<entity>/NAME`` holds."""
    return {str(name): str(value) for name, value in json.loads(data)["config"].items()}


@_decoder
def decode_quotas(data: bytes) -> dict[str, float]:
    """Return the quotas among the configs of a user, client id or address; credentials may stand beside them."""
    return {name: float(value) for name, value in json.loads(data)["config"].items() if name in QUOTA_KEYS}


def encode_config_notice(entity: str) -> bytes:
    """Return the data of ``/config/changes/config_change_N``, version 2; *entity* is a path below ``/config``."""
    return _json({"version": 2, "entity_path": entity})


@_decoder
def decode_credentials(data: bytes) -> dict[str, str]:
    """Return the SCRAM credentials among the configs of a user, by mechanism; quotas may stand beside them."""
    return {name: str(value) for name, value in json.loads(data)["config"].items() if name in SCRAM_MECHANISMS}


def encode_producer_id_block(broker_id: int, first: int) -> bytes:
    """Return the data of ``/latest_producer_id_block``: the block from *first* on, both ends as text."""
    last = first + PRODUCER_ID_BLOCK_SIZE - 1
    return _json({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


@_decoder
def next_producer_id(data: bytes) -> int:
    """Return the first producer id that no block has; the node is empty before the first block."""
    return int(json.loads(data)["block_end"]) + 1 if data else 0


def encode_deleted_topic(deleted: DeletedTopic) -> bytes:
    """Return the data of ``/pylog/deleted_topics/ID``: ``{"version":1,"topic":T,"replicas":[…]}``."""
    return _json({"version": 1, "topic": deleted.name, "replicas": deleted.replicas})


@_decoder
def decode_deleted_topic(topic_id: str, data: bytes) -> DeletedTopic:
    """Return the deletion that ``/pylog/deleted_topics/ID`` remembers."""
    document = json.loads(data)
    return DeletedTopic(document["topic"], parse_topic_id(topic_id), tuple(document["replicas"]))
