"""DescribeCluster and DescribeLogDirs: brokers and their disks."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pylog.errors import ErrorCode
from pylog.wire.api.message import Message, Request
from pylog.wire.api.operations import NOT_ASKED
from pylog.wire.api.schema import Int8, Int16, Int32, Int64, Versions
from pylog.wire.api.table import ApiKey

BROKERS = 1
"""``endpoint_type`` of broker addresses; the other one, controllers, belongs to clusters without ZooKeeper."""


@dataclass(slots=True, kw_only=True)
class DescribeClusterBroker:
    """A live broker."""

    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@dataclass(slots=True, kw_only=True)
class DescribeClusterResponse(Message):
    """The cluster's id, brokers and controller (-1: none)."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLUSTER

    throttle_time_ms: Int32 = 0
    error_code: Int16 = ErrorCode.NONE
    error_message: str | None = None
    endpoint_type: Annotated[Int8, Versions(1)] = BROKERS
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: Int32 = NOT_ASKED


@dataclass(slots=True, kw_only=True)
class DescribeClusterRequest(Request):
    """Ask what the cluster looks like."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_CLUSTER

    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[Int8, Versions(1)] = BROKERS

    def error_response(self, code: ErrorCode, message: str | None = None) -> DescribeClusterResponse:
        """Return an answer with *code* and no brokers."""
        return DescribeClusterResponse(error_code=code, error_message=message)


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsPartition:
    """The size of one replica, and how many records it lacks."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool = False


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsTopic:
    """The replicas of one topic."""

    name: str
    partitions: list[DescribeLogDirsPartition]


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResult:
    """One data directory and the bytes of its file system; -1 where unknown."""

    error_code: Int16 = ErrorCode.NONE
    log_dir: str
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: Annotated[Int64, Versions(4)] = -1
    usable_bytes: Annotated[Int64, Versions(4)] = -1


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResponse(Message):
    """One result a data directory."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_LOG_DIRS

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Versions(3)] = ErrorCode.NONE
    results: list[DescribeLogDirsResult] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribableLogDirTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsRequest(Request):
    """Ask what lies on a broker's disks; None asks for all partitions."""

    api_key: ClassVar[ApiKey] = ApiKey.DESCRIBE_LOG_DIRS

    topics: list[DescribableLogDirTopic] | None = None

    def error_response(self, code: ErrorCode, message: str | None = None) -> DescribeLogDirsResponse:
        """Return an answer with *code* and no directories."""
        return DescribeLogDirsResponse(error_code=code)
