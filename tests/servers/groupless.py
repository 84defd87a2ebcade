"""The command `pylog` with a broker that knows no consumer group: it neither advertises nor answers their APIs."""

from pylog.__main__ import main
from pylog.wire.api import SERVED, ApiKey

GROUP_APIS = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
)

if __name__ == "__main__":
    assert isinstance(SERVED, dict)
    for key in GROUP_APIS:
        del SERVED[key]
    main()
