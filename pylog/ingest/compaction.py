"""Which small files of closed hours become one; decides only."""

from collections import defaultdict
from collections.abc import Iterable

from pylog.ingest.lake import File

TARGET_BYTES = 128 << 20
"""Size from which a file is left alone and below which new ones are kept; what readers of Parquet like."""

_WORTH_IT = 4
# A file joins others only if they are at least this part of it together: a late record must not have 128 MB written
# again every hour.


def plan_compaction(
    files: Iterable[File], closed_before_s: float, target_bytes: int = TARGET_BYTES
) -> list[list[File]]:
    """Return the sets of files that each become one; none has fewer than two.

    Args:
        files: those that count.
        closed_before_s: hours that ended by then, in seconds since 1970, get no more files, late records apart.
        target_bytes: about the size of what comes out.
    """
    by_hour: dict[str, list[File]] = defaultdict(list)
    for file in files:
        if file.size_bytes < target_bytes and file.hour_ended_s <= closed_before_s:
            by_hour[file.group].append(file)
    return [one for group in sorted(by_hour) for one in _filled(by_hour[group], target_bytes)]


def _filled(files: list[File], target_bytes: int) -> list[list[File]]:
    # By path, which begins with the load's number: what comes out holds neighbouring offsets.
    sets: list[list[File]] = [[]]
    filled = 0
    for file in sorted(files, key=lambda file: file.path.rpartition("/")[2]):
        if sets[-1] and filled + file.size_bytes > target_bytes:
            sets.append([])
            filled = 0
        sets[-1].append(file)
        filled += file.size_bytes
    return [worth for one in sets if len(worth := _worth_it(one)) > 1]


def _worth_it(files: list[File]) -> list[File]:
    """Return those of *files* that are not much larger than all smaller ones together."""
    rest = sorted(files, key=lambda file: file.size_bytes)
    total = sum(file.size_bytes for file in rest)
    while rest and rest[-1].size_bytes > _WORTH_IT * (total - rest[-1].size_bytes):
        total -= rest.pop().size_bytes
    return [file for file in files if file in rest]
