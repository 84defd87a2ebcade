"""CreateTopics and DeleteTopics."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Self
from uuid import UUID

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.schema import NO_TOPIC_ID, Int8, Int16, Int32, Versions
from pylog.wire.api.table import ApiKey


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfigs:
    """A configuration value the new topic has."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False


@dataclass(slots=True, kw_only=True)
class CreatableTopicResult:
    """How the creation of one topic ended; counts are -1 after a failure."""

    name: str
    topic_id: Annotated[UUID, Versions(7)] = NO_TOPIC_ID
    error_code: Int16 = ErrorCode.NONE
    error_message: Annotated[str | None, Versions(1)] = None
    topic_config_error_code: Annotated[Int16, Versions(5, tag=0)] = ErrorCode.NONE
    num_partitions: Annotated[Int32, Versions(5)] = -1
    replication_factor: Annotated[Int16, Versions(5)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, Versions(5)] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class CreateTopicsResponse(Message):
    """One result a topic."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS

    throttle_time_ms: Annotated[Int32, Versions(2)] = 0
    topics: list[CreatableTopicResult]


@dataclass(slots=True, kw_only=True)
class CreatableReplicaAssignment:
    """The brokers that shall hold one partition, the preferred leader first."""

    partition_index: Int32
    broker_ids: list[Int32]


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfig:
    """A configuration value the client wants."""

    name: str
    value: str | None


@dataclass(slots=True, kw_only=True)
class CreatableTopic:
    """A topic to create: -1 partitions or replicas stand for the defaults, or for the assignments."""

    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class CreateTopicsRequest(Request):
    """Create topics, or only say whether it would work."""

    api_key: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS

    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60_000
    validate_only: Annotated[bool, Versions(1)] = False

    def error_response(self, code: ErrorCode, message: str | None = None) -> CreateTopicsResponse:
        """Return an answer with *code* at every topic."""
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=code, error_message=message) for topic in self.topics
            ]
        )


@dataclass(slots=True, kw_only=True)
class DeletableTopicResult:
    """How the deletion of one topic ended."""

    name: Annotated[str | None, Versions(null_from=6)]
    topic_id: Annotated[UUID, Versions(6)] = NO_TOPIC_ID
    error_code: Int16 = ErrorCode.NONE
    error_message: Annotated[str | None, Versions(5)] = None


@dataclass(slots=True, kw_only=True)
class DeleteTopicsResponse(Message):
    """One result a topic."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    responses: list[DeletableTopicResult]


@dataclass(slots=True, kw_only=True)
class DeleteTopicState:
    """A topic to delete, by name or by id."""

    name: str | None
    topic_id: UUID = NO_TOPIC_ID


@dataclass(slots=True, kw_only=True)
class DeleteTopicsRequest(Request):
    """Delete topics; read ``topics``, which is filled in every version."""

    api_key: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS

    topics: Annotated[list[DeleteTopicState], Versions(6)] = field(default_factory=list)
    topic_names: Annotated[list[str], Versions(0, 5)] = field(default_factory=list)
    timeout_ms: Int32 = 60_000

    def _fold(self, version: int) -> None:
        if version < 6:
            self.topics = [DeleteTopicState(name=name) for name in self.topic_names]

    def _spread(self, version: int) -> Self:
        if version >= 6:
            return self
        return replace(self, topic_names=[topic.name or "" for topic in self.topics])

    def error_response(self, code: ErrorCode, message: str | None = None) -> DeleteTopicsResponse:
        """Return an answer with *code* at every topic."""
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)
                for topic in self.topics
            ]
        )
