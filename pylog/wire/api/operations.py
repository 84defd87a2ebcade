"""What a client may do with a topic, a group or the cluster, as bit fields.

Source: AclOperation and AclEntry.supportedOperations of Apache Kafka 3.9.
"""

from enum import IntEnum

NOT_ASKED = -(1 << 31)
"""The bit field where the client did not ask for one."""


class Operation(IntEnum):
    """Number of the bit that stands for an operation."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def bit_field(*operations: Operation) -> int:
    """Return the bit field with *operations*."""
    return sum(1 << operation for operation in operations)


# All that there is to do: everybody may do it until access control exists.
CLUSTER_OPERATIONS = bit_field(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
TOPIC_OPERATIONS = bit_field(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS = bit_field(Operation.READ, Operation.DELETE, Operation.DESCRIBE)
