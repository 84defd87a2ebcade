"""The table of APIs: each request that clients may send, and the handler that answers it."""

from collections.abc import Mapping

from pylog.broker.control import client_quotas, configs, metadata, producer_ids
from pylog.broker.control.link import CONTROLLER_APIS
from pylog.broker.group_handlers import GROUP_APIS
from pylog.broker.handler import Handler
from pylog.broker.offsets import list_offsets
from pylog.broker.partition_handlers import PARTITION_APIS
from pylog.wire.api import ApiKey
from pylog.wire.api.cluster import DescribeClusterRequest
from pylog.wire.api.configs import DescribeConfigsRequest
from pylog.wire.api.message import Request
from pylog.wire.api.metadata import MetadataRequest
from pylog.wire.api.offsets import ListOffsetsRequest
from pylog.wire.api.producers import InitProducerIdRequest
from pylog.wire.api.quotas import DescribeClientQuotasRequest

APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.METADATA: (MetadataRequest, metadata.handle_metadata),
    ApiKey.DESCRIBE_CLUSTER: (DescribeClusterRequest, metadata.handle_describe_cluster),
    ApiKey.INIT_PRODUCER_ID: (InitProducerIdRequest, producer_ids.handle_init),
    ApiKey.DESCRIBE_CONFIGS: (DescribeConfigsRequest, configs.handle_describe),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (DescribeClientQuotasRequest, client_quotas.handle_describe),
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, list_offsets),
    **{key: (row.request, row.handle) for key, row in CONTROLLER_APIS.items()},
    **GROUP_APIS,
    **PARTITION_APIS,
}
"""Every API but the two hot ones and ApiVersions; a test compares it with the table of served APIs."""
