"""What a comparison read of `_audit`, kept for the next one.

kept => {"version": 1, "clusters": [{"topic_id": of its `_audit`, "offset": of the last report that was read,
         "crc": of its value and its time} or null], "ledger": as `pylog.audit.ledger` has it}               (JSON)
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zlib import crc32

from pylog.audit.ledger import Ledger
from pylog.client.consumer import ConsumedRecord
from pylog.log.checkpoint import write_atomically
from pylog.model import Offset

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Place:
    """One report in `_audit`.

    Attributes:
        offset: of the report.
        crc: of its value and its time: after a loss, another report may have its offset.
    """

    offset: Offset
    crc: int

    @classmethod
    def of(cls, record: ConsumedRecord) -> Self:
        """Return where a report is."""
        return cls(record.offset, crc32(record.value or b"", record.timestamp_ms & 0xFFFF_FFFF))


@dataclass(frozen=True, slots=True)
class Kept:
    """What was read.

    Attributes:
        ledger: what all reports add up to.
        places: the last report that was read of each cluster; None of one that had none.
    """

    ledger: Ledger
    places: Sequence[Place | None]


class KeptFile:
    """Holds what was read between two comparisons.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, topic_ids: Sequence[str], from_ms: int, silent_ms: int) -> Kept | None:
        """Return what the file holds, as if nothing from before these times had been read; None if it is of no use.

        Args:
            topic_ids: of `_audit` of each cluster.
            from_ms: windows that begin earlier are left out.
            silent_ms: whoever was last heard of before is left out.
        """
        try:
            body = json.loads(self._path.read_text())
            if body["version"] != _VERSION or body["ledger"]["from_ms"] > from_ms:
                return None
            clusters = body["clusters"]
            if len(clusters) != len(topic_ids):
                return None
            for one, topic_id in zip(clusters, topic_ids, strict=True):
                if one is not None and one["topic_id"] != topic_id:
                    return None
            places = [None if one is None else Place(int(one["offset"]), int(one["crc"])) for one in clusters]
            ledger = Ledger.from_json(body["ledger"])
        except (OSError, AttributeError, KeyError, TypeError, ValueError):
            return None
        ledger.move_to(from_ms, silent_ms)
        return Kept(ledger, places)

    def write(self, kept: Kept, topic_ids: Sequence[str]) -> None:
        """Replace the file.

        Raises:
            StorageError: it cannot be written.
        """
        clusters = [
            None if place is None else {"topic_id": topic_id, "offset": place.offset, "crc": place.crc}
            for topic_id, place in zip(topic_ids, kept.places, strict=True)
        ]
        body = {"version": _VERSION, "clusters": clusters, "ledger": kept.ledger.to_json()}
        write_atomically(self._path, json.dumps(body, separators=(",", ":")), durable=False)
