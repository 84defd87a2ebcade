"""Partitions as the command line names them.

named => topic [":" partition ("," partition)*]      (no number: all of them)
"""

from collections.abc import Iterable

from pylog import faults
from pylog.cli.failure import Failure
from pylog.client.admin.cluster import Admin
from pylog.model import TopicPartition


def named_partitions(admin: Admin, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that *texts* name, in order.

    Raises:
        Failure: a topic has no such partition.
    """
    wanted: set[TopicPartition] = set()
    for text in texts:
        name, separator, numbers = text.partition(":")
        known = {str(one.partition) for one in admin.topic(name).partitions}
        named = set(numbers.split(",")) if separator else known
        if wrong := named - known:
            raise Failure(
                faults.NO_SUCH_PARTITION,
                where=name,
                found=", ".join(sorted(wrong)) or "''",
                wanted=f"0 to {len(known) - 1}",
                next=f"pylog topic describe {name}",
            )
        wanted |= {TopicPartition(name, int(number)) for number in named}
    return sorted(wanted)
