"""Metadata: which brokers there are, and who leads what."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Self
from uuid import UUID

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.operations import NOT_ASKED
from pylog.wire.api.schema import NO_TOPIC_ID, Int16, Int32, Versions
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class MetadataResponseBroker:
    """A live broker, at the listener the request came in on."""

    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, Versions(1)] = None


@dataclass(slots=True, kw_only=True)
class MetadataResponsePartition:
    """A partition: its leader (-1: none), its replicas and those in sync."""

    error_code: Int16 = ErrorCode.NONE
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, Versions(7)] = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: Annotated[list[Int32], Versions(5)] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class MetadataResponseTopic:
    """A topic that was asked for, or why it cannot be described."""

    error_code: Int16 = ErrorCode.NONE
    name: Annotated[str | None, Versions(null_from=12)]
    topic_id: Annotated[UUID, Versions(10)] = NO_TOPIC_ID
    is_internal: Annotated[bool, Versions(1)] = False
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: Annotated[Int32, Versions(8)] = NOT_ASKED


@dataclass(slots=True, kw_only=True)
class MetadataResponse(Message):
    """Brokers, controller (-1: none) and topics."""

    api_key: ClassVar[ApiKey] = ApiKey.METADATA

    throttle_time_ms: Annotated[Int32, Versions(3)] = 0
    brokers: list[MetadataResponseBroker]
    cluster_id: Annotated[str | None, Versions(2)] = None
    controller_id: Annotated[Int32, Versions(1)] = -1
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Annotated[Int32, Versions(8, 10)] = NOT_ASKED


@dataclass(slots=True, kw_only=True)
class MetadataRequestTopic:
    """A topic by name or, from version 12 on, by id alone."""

    topic_id: Annotated[UUID, Versions(10)] = NO_TOPIC_ID
    name: Annotated[str | None, Versions(null_from=10)]


@dataclass(slots=True, kw_only=True)
class MetadataRequest(Request):
    """Ask for topics: ``None`` means all, an empty list none, in every version."""

    api_key: ClassVar[ApiKey] = ApiKey.METADATA

    topics: Annotated[list[MetadataRequestTopic] | None, Versions(null_from=1)]
    allow_auto_topic_creation: Annotated[bool, Versions(4)] = True
    include_cluster_authorized_operations: Annotated[bool, Versions(8, 10)] = False
    include_topic_authorized_operations: Annotated[bool, Versions(8)] = False

    def _fold(self, version: int) -> None:
        # Version 0 has no null array: there an empty one asks for everything.
        if version == 0 and not self.topics:
            self.topics = None

    def _spread(self, version: int) -> Self:
        return replace(self, topics=[]) if version == 0 and self.topics is None else self

    def error_response(self, code: ErrorCode, message: str | None = None) -> MetadataResponse:
        """Return an answer with *code* at every named topic; these versions have no other place for it."""
        topics = [
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in self.topics or []
        ]
        return MetadataResponse(brokers=[], topics=topics)
