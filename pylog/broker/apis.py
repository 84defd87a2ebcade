"""The table of APIs: each request that clients may send, and the handler that answers it."""

from collections.abc import Mapping
from typing import Protocol

from pylog.broker.control import acls, client_quotas, configs, metadata, users
from pylog.broker.control.link import CONTROLLER_APIS
from pylog.broker.data import handlers as data
from pylog.broker.data.handlers import PARTITION_APIS
from pylog.broker.groups.handlers import GROUP_APIS
from pylog.broker.handler import Answer, Caller, Handler
from pylog.broker.transactions import handlers as transactions
from pylog.broker.transactions import tools
from pylog.broker.transactions.handlers import TRANSACTION_APIS
from pylog.broker.transactions.tools import TOOL_APIS
from pylog.errors import ApiError, ErrorCode
from pylog.wire.api import ApiKey
from pylog.wire.api.acls import DescribeAclsRequest
from pylog.wire.api.cluster import DescribeClusterRequest
from pylog.wire.api.configs import DescribeConfigsRequest
from pylog.wire.api.message import Request
from pylog.wire.api.metadata import MetadataRequest
from pylog.wire.api.quotas import DescribeClientQuotasRequest
from pylog.wire.api.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from pylog.wire.api.scram import DescribeUserScramCredentialsRequest


class Cluster(transactions.Cluster, tools.Cluster, data.Cluster, Protocol):
    """What all handlers use of the broker."""


def refuse_login(cluster: Cluster, request: Request, caller: Caller) -> Answer:
    """Refuse a login where there is none: `pylog.broker.login` handles it on the listeners that have one."""
    raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, f"listener {caller.session.listener_name} has no login")


APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.SASL_HANDSHAKE: (SaslHandshakeRequest, refuse_login),
    ApiKey.SASL_AUTHENTICATE: (SaslAuthenticateRequest, refuse_login),
    ApiKey.METADATA: (MetadataRequest, metadata.handle_metadata),
    ApiKey.DESCRIBE_CLUSTER: (DescribeClusterRequest, metadata.handle_describe_cluster),
    ApiKey.DESCRIBE_CONFIGS: (DescribeConfigsRequest, configs.handle_describe),
    ApiKey.DESCRIBE_ACLS: (DescribeAclsRequest, acls.handle_describe),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (DescribeClientQuotasRequest, client_quotas.handle_describe),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (DescribeUserScramCredentialsRequest, users.handle_describe),
    **{key: (row.request, row.handle) for key, row in CONTROLLER_APIS.items()},
    **GROUP_APIS,
    **PARTITION_APIS,
    **TRANSACTION_APIS,
    **TOOL_APIS,
}
"""Every API but the two hot ones and ApiVersions; a test compares it with the table of served APIs."""
