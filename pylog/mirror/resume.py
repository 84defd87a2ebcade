"""Where the mirror goes on in a partition of the source.  Decides; waits for nothing."""

from typing import NamedTuple

from pylog.client.admin.cluster import OffsetRange
from pylog.model import Offset


class Resume(NamedTuple):
    """Where to go on.

    Attributes:
        offset: the next to read.
        forgotten: offsets that the source deleted before they were mirrored.
        cut: offsets that were mirrored and that the source lost: it cut its log and writes them anew.
    """

    offset: Offset
    forgotten: int = 0
    cut: int = 0


def resume(wanted: Offset, held: OffsetRange, epoch_end: Offset | None) -> Resume:
    """Return where a mirror goes on that is to read *wanted* next.

    Args:
        wanted: everything below it is in the target; negative if nothing is known.
        held: what the source has.
        epoch_end: where the leader epoch of the last mirrored record ends at the source, which is where the log was
            cut if it lies below *wanted*; None if it is not known.
    """
    if wanted < 0:
        return Resume(held.start)
    if epoch_end is not None:
        kept = min(wanted, epoch_end)
        return Resume(max(kept, held.start), max(0, held.start - kept), wanted - kept)
    if wanted > held.end:
        # The log was cut, and nobody knows where.  What was written since may lie anywhere below the end.
        return Resume(held.start, cut=wanted - held.end)
    return Resume(max(wanted, held.start), max(0, held.start - wanted))
