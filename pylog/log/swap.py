"""Replace neighbouring segments by one that was compacted, so that a crash leaves either the old ones or the new one.

    B.{log,index,timeindex,txnindex}.cleaned   being written; removed by the next start
    B.log.swap                                 whole and synced: stands for all segments from B up to its last offset,
                                               which the next start removes before it takes the name B.log
    B.txnindex.swap                            the index of B.log.swap; removed by the next start if that is missing

Source: Kafka's Cleaner.
"""

import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from pylog.log.aborted import SUFFIX as ABORTED_SUFFIX
from pylog.log.aborted import TransactionIndex
from pylog.log.checkpoint import sync_path
from pylog.log.segment import Segment
from pylog.log.transactions import AbortedTransaction
from pylog.model import Offset

_logger = logging.getLogger(__name__)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def cleaned_segment(directory: Path, base_offset: Offset) -> Segment:
    """Return a new segment whose files are not yet part of the log."""
    segment = Segment(directory, base_offset)
    for part in (segment, segment.index, segment.time_index):
        part.path = part.path.with_name(part.path.name + CLEANED_SUFFIX)
        part.path.unlink(missing_ok=True)
    segment.create()
    return segment


def add_cleaned_index(segment: Segment, rows: Sequence[AbortedTransaction]) -> None:
    """Give a segment of `cleaned_segment` its transaction index, on the disk.

    Raises:
        ApiError: no descriptor or no room now.
        OSError: the disk refuses.
        StorageError: the disk fails.
    """
    name = f"{segment.base_offset:020d}{ABORTED_SUFFIX}{CLEANED_SUFFIX}"
    index = segment.aborted = TransactionIndex(segment.path.with_name(name), is_new=True)
    index.clear()
    for row in rows:
        index.append(row)
    index.flush()
    sync_path(index.path)
    index.forget()


def put_in_place(old: Sequence[Segment], new: Segment) -> list[Path]:
    """Give *new*, written and synced, the names of *old*; return the files that are left to be removed.

    Raises:
        OSError: the disk refuses; the next start finds out how far this came.
    """
    if new.aborted is not None:
        new.aborted.path = new.aborted.path.rename(new.aborted.path.with_suffix(SWAP_SUFFIX))
    swap = new.path.with_suffix(SWAP_SUFFIX)
    new.path.rename(swap)  # from here on the new segment holds, whatever happens
    gone: list[Path] = []
    for segment in old:
        for path in (*segment.index_paths, segment.path):
            deleted = path.with_name(path.name + ".deleted")
            with contextlib.suppress(FileNotFoundError):
                path.rename(deleted)
                gone.append(deleted)
    if new.aborted is not None:
        new.aborted.path = new.aborted.path.rename(new.aborted.path.with_suffix(""))
    new.path = swap.with_suffix("")
    swap.rename(new.path)
    for index in (new.index, new.time_index):
        final = index.path.with_suffix("")
        index.path.rename(final)
        index.path = final
    return gone


def finish_swaps(directory: Path) -> None:
    """Finish what a crash interrupted: see the module.

    Raises:
        OSError: the disk refuses.
        StorageError: a swap file is damaged, though it was synced before it got its name.
    """
    # Plain names: a start with thousands of partitions looks into each of their directories.
    names = [name for name in os.listdir(directory) if name.endswith(SWAP_SUFFIX)]  # noqa: PTH208
    swaps = sorted(name for name in names if name.endswith(f".log{SWAP_SUFFIX}"))
    aborted_swaps = {name for name in names if name.endswith(f"{ABORTED_SUFFIX}{SWAP_SUFFIX}")}
    for name in swaps:
        if not name.partition(".")[0].isdigit():
            continue
        swap, base_offset = directory / name, int(name.partition(".")[0])
        end_offset = swap_end(swap)
        for path in directory.glob("*.log"):
            if path.stem.isdigit() and base_offset <= int(path.stem) < end_offset:
                for suffix in (".index", ".timeindex", ABORTED_SUFFIX, ".log"):
                    path.with_suffix(suffix).unlink(missing_ok=True)
        index_name = f"{base_offset:020d}{ABORTED_SUFFIX}{SWAP_SUFFIX}"
        if index_name in aborted_swaps:
            (directory / index_name).rename(directory / index_name.removesuffix(SWAP_SUFFIX))
            aborted_swaps.discard(index_name)
        swap.rename(swap.with_suffix(""))
        sync_path(directory)
        _logger.info("finished compaction log=%s", swap)
    for name in aborted_swaps:
        (directory / name).unlink()


def swap_end(swap: Path) -> Offset:
    """Return the offset up to which the segment of a swap file replaces others.

    Raises:
        OSError: the disk refuses.
        StorageError: the file is damaged, though it was synced before it got its name.
    """
    segment = Segment(swap.parent, int(swap.name.partition(".")[0]))
    segment.path = swap
    end_offset = segment.base_offset + 1
    try:
        for _, header in segment.batches(0, swap.stat().st_size):
            end_offset = header.last_offset + 1
    finally:
        segment.release()
    return end_offset


def remove_cleaned(directory: Path) -> None:
    """Remove what a pass that failed has written."""
    with contextlib.suppress(OSError):  # even a descriptor to list the directory may be wanting
        for path in directory.glob(f"*{CLEANED_SUFFIX}"):
            path.unlink(missing_ok=True)
