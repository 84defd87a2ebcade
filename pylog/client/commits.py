"""The commits of a group, as its coordinator wrote them down: when and which offset.

Asking for a group's offsets tells only the last commit, and not its time.  The topic `__consumer_offsets` has them all,
with the coordinator's own clock, until compaction takes the older ones of closed segments.  Offsets that a transaction
commits count from when they are written, also if it aborts: the group's next commit corrects them.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from pylog.client.admin.cluster import Admin
from pylog.client.admin.groups import Progress
from pylog.client.admin.lag import PATIENCE_MS, WINDOW_COMMITS, Commit, Status, evaluate
from pylog.client.connection import Connection
from pylog.client.consumer import Consumer
from pylog.errors import ApiError, ErrorCode
from pylog.group.records import OffsetKey, decode_key, decode_offset, partition_for
from pylog.model import IsolationLevel, Offset, OnProgress, TopicPartition, nobody

OFFSETS_TOPIC = "__consumer_offsets"

_MAX_RECORDS = 50_000
"""What is read at most, the latest: other groups write to the same partition."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one partition is consumed; `committed_at_ms` is None if the last commit is older than what was looked at."""

    status: Status
    committed_at_ms: int | None


class CommitHistory:
    """Judges how groups consume.

    Args:
        cluster: where they are.
    """

    def __init__(self, cluster: Connection) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)

    def verdicts(
        self,
        group_id: str,
        progress: Mapping[TopicPartition, Progress],
        now_ms: int,
        window_ms: int,
        on_progress: OnProgress = nobody,
    ) -> dict[TopicPartition, Verdict]:
        """Judge every partition of *progress* that the group has committed an offset of.

        Args:
            group_id: the group.
            progress: how far it is.
            now_ms: the time.
            window_ms: how far back commits count.
            on_progress: told how many records of commits were read.
        """
        history = self.commits(group_id, now_ms - window_ms, on_progress)
        judged = {
            one: found for one, found in progress.items() if found.committed is not None and found.held is not None
        }
        behind = [one for one, found in judged.items() if found.lag]
        recent_ends = self._admin.offsets_at(behind, now_ms - PATIENCE_MS)
        commits = self._with_ends({one: history.get(one, [])[-WINDOW_COMMITS:] for one in behind})
        verdicts = {}
        for one, found in judged.items():
            assert found.committed is not None
            assert found.held is not None
            end = found.held.end
            status = evaluate(commits.get(one, []), found.committed, end, recent_ends.get(one, end), now_ms)
            times = history.get(one)
            verdicts[one] = Verdict(status, times[-1][0] if times else None)
        return verdicts

    def commits(
        self, group_id: str, since_ms: int, on_progress: OnProgress = nobody
    ) -> dict[TopicPartition, list[tuple[int, Offset]]]:
        """Return times and offsets of the commits since *since_ms*, the oldest first."""
        try:
            count = len(self._admin.topic(OFFSETS_TOPIC).partitions)
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return {}  # nobody ever committed
            raise
        kept = TopicPartition(OFFSETS_TOPIC, partition_for(group_id, count))
        end = self._admin.offsets([kept])[kept].end
        start = max(self._admin.offsets_at([kept], max(0, since_ms))[kept], end - _MAX_RECORDS)
        found: dict[TopicPartition, list[tuple[int, Offset]]] = defaultdict(list)
        # An open transaction of one group must not hide the commits of others.
        with Consumer(self._cluster, isolation__level=IsolationLevel.READ_UNCOMMITTED.value) as consumer:
            consumer.assign({kept: start})
            for record in consumer.records_to_end(on_progress):
                key = decode_key(record.key or b"")
                if not isinstance(key, OffsetKey) or key.group_id != group_id:
                    continue
                partition = TopicPartition(key.topic, key.partition)
                if record.value is None:
                    found.pop(partition, None)
                else:
                    commit = decode_offset(record.value)
                    found[partition].append((commit.commit_timestamp, commit.offset))
        return found

    def _with_ends(
        self, commits: Mapping[TopicPartition, list[tuple[int, Offset]]]
    ) -> dict[TopicPartition, list[Commit]]:
        """Return the commits with where each log ended then: before the first record of a later time."""
        found: dict[TopicPartition, list[Commit]] = {one: [] for one in commits}
        for place in range(WINDOW_COMMITS):
            times = {one: pairs[place] for one, pairs in commits.items() if place < len(pairs)}
            ends = self._admin.offsets_at_each({one: at_ms for one, (at_ms, _) in times.items()})
            for one, (at_ms, offset) in times.items():
                found[one].append(Commit(at_ms, offset, ends[one]))
        return found
