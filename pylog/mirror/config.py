"""What a mirror is told."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pylog.client.connection import Connection
from pylog.mirror.offsets import MAP_TOPIC_PREFIX
from pylog.mirror.plan import GROUPS_TOPIC_PREFIX, PARKED_TOPIC_PREFIX

if TYPE_CHECKING:
    from pylog.security.server_tls import TlsConfig


@dataclass(frozen=True, slots=True)
class Cluster:
    """One end: *name* is what its records carry as their origin."""

    name: str
    connection: Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """One mirror; every instance of it has the same.

    Attributes:
        source: pulled from.
        target: produced to.
        topics: patterns, each matching whole names.
        exclude: patterns that win over those.
        group: in the source; instances of one mirror share it.
        replication_factor: of topics made in the target; -1 leaves it to its brokers.
        internal_replication_factor: of the topic with the offset maps.
        metrics_listen: where ``/metrics`` is answered.
        metrics_tls: encryption of that address, and whose clients may read it; None for plain HTTP to everybody.
        refresh_s: between two looks for new topics, partitions and settings.
        commit_s: between two commits, so at most so much is sent again after a crash.
        groups_s: between two looks at what the source's groups committed, which is carried to the target.
        buffered_bytes: records in memory at most.
        flush_s: how long a partition that is taken away may still wait for its acknowledgements.
        audit_topic: of the target, told up to when everything has arrived; None tells nobody.
    """

    source: Cluster
    target: Cluster
    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    group: str
    replication_factor: int = -1
    internal_replication_factor: int = 3
    metrics_listen: tuple[str, int] | None = None
    metrics_tls: "TlsConfig | None" = None
    refresh_s: float = 30.0
    commit_s: float = 5.0
    groups_s: float = 10.0
    buffered_bytes: int = 64 << 20
    flush_s: float = 120.0
    audit_topic: str | None = "_audit"
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def map_topic(self) -> str:
        """Where the offset maps are."""
        return MAP_TOPIC_PREFIX + self.source.name

    @property
    def groups_topic(self) -> str:
        """Where it is written down what the source's groups committed."""
        return GROUPS_TOPIC_PREFIX + self.source.name

    @property
    def parked_topic(self) -> str:
        """Where the records are that the target refused in their own topics."""
        return PARKED_TOPIC_PREFIX + self.source.name
