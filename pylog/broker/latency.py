"""How long requests take, from the read that brought them to the answer that is handed to the socket.

Every request is timed once, never every record.  Those that are answered at once are noted in `Connection.answered`:
they share the looks at the clock with all requests of the same read.  Others cost two looks and one observation, about
0.3 microseconds.

A fetch that waits for records does so because its client asked for it.  Of such a fetch only the time beyond its
`max_wait_ms` counts, so that a quiet topic does not look like a slow broker.
"""

import time

from pylog.metrics import Histogram, Metrics
from pylog.wire.api import SERVED, ApiKey

_NAME = "pylog_request_seconds"
_HELP = (
    "From reading a request to handing its answer to the socket. api: produce, fetch (by clients), follower_fetch (by "
    "brokers), metadata, list_offsets and what groups ask; other is all the rest. part: total; or replicas, the wait "
    "for in-sync replicas with acks=all. Of a fetch that waits for records, the time beyond its max_wait_ms."
)

# Those whose time says something by itself; the others share one histogram, to bound the number of series.
_TOLD_APART = (
    ApiKey.METADATA,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
)

now_ns = time.perf_counter_ns


class Latency:
    """The histograms of a broker's requests.

    Attributes:
        produce: by acks.
        replicas: the part of acks=all that is spent waiting for followers.
        fetch: by consumers.
        follower_fetch: by other brokers.
        by_api: of every API but produce and fetch.
    """

    def __init__(self, metrics: Metrics) -> None:
        def of(api: str, acks: str = "", part: str = "total") -> Histogram:
            return metrics.histogram(_NAME, _HELP, api=api, acks=acks, part=part)

        self.produce = {-1: of("produce", "all"), 1: of("produce", "1"), 0: of("produce", "0")}
        self.replicas = of("produce", "all", "replicas")
        self.fetch = of("fetch")
        self.follower_fetch = of("follower_fetch")
        other = of("other")
        self.by_api = {int(key): of(key.name.lower()) if key in _TOLD_APART else other for key in SERVED}
