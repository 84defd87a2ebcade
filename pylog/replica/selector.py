"""Which replica a consumer reads from: the leader, or one in its own rack.

Source: KIP-392; Kafka's RackAwareReplicaSelector.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pylog.model import Offset


class Candidate(NamedTuple):
    """A follower in sync: its rack, None if not told, and start and end of its log as its last fetch showed them."""

    broker_id: int
    rack: str | None
    log_start_offset: Offset
    log_end_offset: Offset


def nearer_replica(
    rack: str, leaders_rack: str | None, followers: Iterable[Candidate], fetch_offset: Offset
) -> int | None:
    """Return the follower that a consumer in *rack* should read from, or None if the leader is as near."""
    if leaders_rack == rack:
        return None
    # Each replica deletes by itself what is too old, so that a follower may begin above the leader.
    near = [one for one in followers if one.rack == rack and one.log_start_offset <= fetch_offset <= one.log_end_offset]
    return max(near, key=lambda one: one.log_end_offset).broker_id if near else None
