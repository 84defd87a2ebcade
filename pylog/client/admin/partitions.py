"""Changes to partitions as an operator makes them: more of them, other leaders."""

from collections.abc import Mapping, Sequence

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as _TopicPartition
from confluent_kafka.admin import NewPartitions

from pylog.client.admin.cluster import Admin
from pylog.client.connection import translate
from pylog.errors import ApiError, ErrorCode, PylogError
from pylog.model import TopicPartition


class PartitionAdmin(Admin):
    """Changes partitions; raises as `Admin` does."""

    def add_partitions(
        self,
        topic: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        is_dry_run: bool = False,
    ) -> None:
        """Give *topic* so many partitions in all; records stay where they are.

        Args:
            topic: its name.
            count: partitions it then has.
            assignments: brokers of each new partition; the controller chooses them otherwise.
            is_dry_run: only ask whether it could be.
        """
        # Not None where there is none: confluent-kafka takes that for a list of the wrong length.
        places = {} if assignments is None else {"replica_assignment": [list(one) for one in assignments]}
        with self._translated():
            self._client.create_partitions(
                [NewPartitions(topic, count, **places)],
                validate_only=is_dry_run,
                operation_timeout=self._cluster.timeout_s,
                request_timeout=self._cluster.timeout_s,
            )[topic].result(self._cluster.timeout_s + 1)

    def places(self) -> dict[int, tuple[str, str]]:
        """Return broker -> its rack, empty if it has none, and its host."""
        with self._translated():
            answer = self._client.describe_cluster(request_timeout=self._cluster.timeout_s)
            nodes = answer.result(self._cluster.timeout_s + 1).nodes
        return {node.id: (node.rack or "", node.host) for node in nodes}

    def elect(
        self, partitions: Sequence[TopicPartition] | None = None, *, is_unclean: bool = False
    ) -> Mapping[TopicPartition, PylogError | None]:
        """Let the first replica lead again, or, if *is_unclean*, any replica where none in sync is left.

        Returns:
            Each partition with why it has no new leader; None if it has. Those that needed none are left out.
        """
        wanted = None if partitions is None else [_TopicPartition(p.topic, p.partition) for p in partitions]
        kind = ElectionType.UNCLEAN if is_unclean else ElectionType.PREFERRED
        with self._translated():
            # Without its time-outs: confluent-kafka 2.16 cannot take any here (SystemError from its C part).
            found = self._client.elect_leaders(kind, wanted).result(self._cluster.timeout_s + 1)
        results: dict[TopicPartition, PylogError | None] = {}
        for partition, problem in found.items():
            error = None if problem is None else translate(getattr(problem, "args", [problem])[0], self._cluster)
            if isinstance(error, ApiError) and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            results[TopicPartition(partition.topic, partition.partition)] = error
        return results
