"""THE table of APIs: what ApiVersions answers, what is served, and where flexible encoding begins.

Serving one more API means moving its row from `PLANNED` to `SERVED` and giving the broker a handler.

Source: Kafka protocol guide, "API keys"; the flexible versions are those of the 4.x message definitions.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """Request kinds, by the number that travels in the request header."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


NEVER_FLEXIBLE = 32767
"""``flexible_from`` of an API that has no flexible version yet."""


class ApiVersionRange(NamedTuple):
    """One row: versions a client is told about, versions answered, first flexible version.

    Invariant: min_advertised <= min_served <= max_advertised; all from min_served to max_advertised are served.
    """

    min_advertised: int
    max_advertised: int
    min_served: int
    flexible_from: int = NEVER_FLEXIBLE


SERVED: Mapping[ApiKey, ApiVersionRange] = {
    # librdkafka before 2.11.1 silently stops compressing unless Produce is advertised from version 0.
    ApiKey.PRODUCE: ApiVersionRange(0, 12, 3, flexible_from=9),
    ApiKey.FETCH: ApiVersionRange(4, 17, 4, flexible_from=12),
    ApiKey.LIST_OFFSETS: ApiVersionRange(1, 9, 1, flexible_from=6),
    ApiKey.METADATA: ApiVersionRange(0, 12, 0, flexible_from=9),
    ApiKey.OFFSET_COMMIT: ApiVersionRange(2, 8, 2, flexible_from=8),
    ApiKey.OFFSET_FETCH: ApiVersionRange(1, 8, 1, flexible_from=6),
    ApiKey.FIND_COORDINATOR: ApiVersionRange(0, 4, 0, flexible_from=3),
    ApiKey.JOIN_GROUP: ApiVersionRange(0, 9, 0, flexible_from=6),
    ApiKey.HEARTBEAT: ApiVersionRange(0, 4, 0, flexible_from=4),
    ApiKey.LEAVE_GROUP: ApiVersionRange(0, 5, 0, flexible_from=4),
    ApiKey.SYNC_GROUP: ApiVersionRange(0, 5, 0, flexible_from=4),
    ApiKey.DESCRIBE_GROUPS: ApiVersionRange(0, 5, 0, flexible_from=5),
    ApiKey.LIST_GROUPS: ApiVersionRange(0, 5, 0, flexible_from=3),
    ApiKey.SASL_HANDSHAKE: ApiVersionRange(0, 1, 0),
    ApiKey.API_VERSIONS: ApiVersionRange(0, 4, 0, flexible_from=3),
    ApiKey.CREATE_TOPICS: ApiVersionRange(2, 7, 2, flexible_from=5),
    ApiKey.DELETE_TOPICS: ApiVersionRange(1, 6, 1, flexible_from=4),
    ApiKey.INIT_PRODUCER_ID: ApiVersionRange(0, 4, 0, flexible_from=2),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiVersionRange(0, 3, 0, flexible_from=3),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiVersionRange(0, 4, 0, flexible_from=3),
    # From these versions on, and version 12 of Produce, each transaction has an epoch of its own (KIP-890).
    ApiKey.END_TXN: ApiVersionRange(0, 5, 0, flexible_from=3),
    ApiKey.TXN_OFFSET_COMMIT: ApiVersionRange(0, 5, 0, flexible_from=3),
    ApiKey.DESCRIBE_CONFIGS: ApiVersionRange(1, 4, 1, flexible_from=4),
    ApiKey.DELETE_GROUPS: ApiVersionRange(0, 2, 0, flexible_from=2),
    ApiKey.OFFSET_DELETE: ApiVersionRange(0, 0, 0),
    ApiKey.DELETE_RECORDS: ApiVersionRange(0, 2, 0, flexible_from=2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiVersionRange(2, 4, 2, flexible_from=4),
    ApiKey.DESCRIBE_ACLS: ApiVersionRange(1, 3, 1, flexible_from=2),
    ApiKey.CREATE_ACLS: ApiVersionRange(1, 3, 1, flexible_from=2),
    ApiKey.DELETE_ACLS: ApiVersionRange(1, 3, 1, flexible_from=2),
    ApiKey.ALTER_CONFIGS: ApiVersionRange(0, 2, 0, flexible_from=2),
    ApiKey.DESCRIBE_LOG_DIRS: ApiVersionRange(1, 4, 1, flexible_from=2),
    ApiKey.SASL_AUTHENTICATE: ApiVersionRange(0, 2, 0, flexible_from=2),
    ApiKey.CREATE_PARTITIONS: ApiVersionRange(0, 3, 0, flexible_from=2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiVersionRange(0, 1, 0, flexible_from=1),
    ApiKey.ELECT_LEADERS: ApiVersionRange(0, 2, 0, flexible_from=2),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiVersionRange(0, 1, 0, flexible_from=1),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiVersionRange(0, 1, 0, flexible_from=1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiVersionRange(0, 0, 0, flexible_from=0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiVersionRange(0, 0, 0, flexible_from=0),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiVersionRange(0, 0, 0, flexible_from=0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiVersionRange(0, 0, 0, flexible_from=0),
    ApiKey.DESCRIBE_CLUSTER: ApiVersionRange(0, 1, 0, flexible_from=0),
    ApiKey.DESCRIBE_PRODUCERS: ApiVersionRange(0, 0, 0, flexible_from=0),
    # Version 2 is of transactions with an epoch of their own.
    ApiKey.WRITE_TXN_MARKERS: ApiVersionRange(1, 1, 1, flexible_from=1),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiVersionRange(0, 0, 0, flexible_from=0),
    # Version 2 takes a regular expression from anybody who may connect.
    ApiKey.LIST_TRANSACTIONS: ApiVersionRange(0, 1, 0, flexible_from=0),
}
"""What this release answers, which is exactly what ApiVersions says."""

PLANNED: Mapping[ApiKey, ApiVersionRange] = {}
"""Messages that can be encoded and decoded but have no handler yet; never advertised."""

KNOWN: Mapping[ApiKey, ApiVersionRange] = {**SERVED, **PLANNED}


def is_served(api_key: int, api_version: int) -> bool:
    """Return whether this release answers *api_key* at *api_version*."""
    row = SERVED.get(api_key)  # type: ignore[call-overload]  # an IntEnum key equals and hashes like its number
    return row is not None and row.min_served <= api_version <= row.max_advertised


def is_flexible(api_key: int, api_version: int) -> bool:
    """Return whether this version of *api_key* uses compact lengths and tagged fields; unknown keys do not."""
    row = KNOWN.get(api_key)  # type: ignore[call-overload]
    return row is not None and api_version >= row.flexible_from
