"""What files of a lake held when they were read: files never change, so that a count need not read them again.

memory => {"version": 1, "window_ms": int, "files": {path: {"state": [bytes, modified ns, changed ns],
           "topic_id": text or null, "unstamped": int, "seen": [[topic id, partition, ranges], ...],
           "windows": [[producer, window, host, count, content, ranges], ...]}}}                           (JSON)
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pylog.audit.counting import WindowCount
from pylog.audit.reports import WindowKey
from pylog.audit.sequences import Range, Sequences

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Held:
    """What one file holds.

    Attributes:
        topic_id: of the topic that it was read as a part of.
        unstamped: rows without a stamp.
        windows: stamped ones.
        seen: offsets by the topic id and partition that rows were first written to.
    """

    topic_id: str | None
    unstamped: int
    windows: Mapping[WindowKey, WindowCount]
    seen: Mapping[tuple[str, int], list[Range]]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "topic_id": self.topic_id,
            "unstamped": self.unstamped,
            "windows": [
                [*key, one.host, one.count, one.content, list(one.sequences.ranges())]
                for key, one in self.windows.items()
            ],
            "seen": [[*key, ranges] for key, ranges in self.seen.items()],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Return what `to_json` was given of."""
        windows = {
            (producer, window_ms): WindowCount(host, count, content, Sequences(ranges))
            for producer, window_ms, host, count, content, ranges in body["windows"]
        }
        seen = {(topic_id, partition): [(a, b) for a, b in ranges] for topic_id, partition, ranges in body["seen"]}
        return cls(body["topic_id"], body["unstamped"], windows, seen)


@dataclass(slots=True)
class Memory:
    """What is known of files; of those that nobody asks for, nothing is kept.

    Attributes:
        window_ms: how long a window is.
        known: by path, a file's state and what it held then.
        asked: the same, of those that were asked for.
    """

    window_ms: int
    known: Mapping[str, tuple[list[int], Held]] = field(default_factory=dict)
    asked: dict[str, tuple[list[int], Held]] = field(default_factory=dict)

    def held(self, path: Path, topic_id: str | None, read: Callable[[Path], Held]) -> Held:
        """Return what a file holds, by *read* if it is not known or is another than it was.

        Raises:
            OSError: it is not there, or whatever *read* raises.
        """
        found = path.stat()
        # Whoever edits a file can set back when it was modified, and not when it was changed.
        state = [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
        known = self.known.get(str(path))
        held = known[1] if known is not None and known[0] == state and known[1].topic_id == topic_id else read(path)
        self.asked[str(path)] = state, held
        return held

    def encode(self) -> str:
        """Return what was asked for as text."""
        files = {path: {"state": state, **held.to_json()} for path, (state, held) in self.asked.items()}
        body = {"version": _VERSION, "window_ms": self.window_ms, "files": files}
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str, window_ms: int) -> Self:
        """Return what `encode` made; without files where it is none, or is of windows of another length."""
        try:
            body = json.loads(text)
            if (body["version"], body["window_ms"]) != (_VERSION, window_ms):
                return cls(window_ms)
            return cls(window_ms, {path: (one["state"], Held.from_json(one)) for path, one in body["files"].items()})
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls(window_ms)
