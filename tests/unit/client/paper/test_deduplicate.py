"""Telling repetitions apart (F76)."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from pylog.client.message import ReceivedMessage
from pylog.client.paper.deduplicate import Deduplicate
from pylog.errors import ConfigError
from pylog.model import TopicPartition
from tests.unit.client.paper.test_stream import Fetched


class Keyed(Fetched):
    def __init__(self, partition: int, offset: int, key: bytes | None = None, topic: str = "t") -> None:
        super().__init__(TopicPartition(topic, partition), offset)
        self._key = key

    def key(self) -> bytes | None:
        return self._key


def messages(*rows: Keyed) -> list[ReceivedMessage]:
    return list(ReceivedMessage.each(rows))  # type: ignore[arg-type]


def offsets(found: Iterable[ReceivedMessage]) -> list[int]:
    return [one.offset() for one in found]


def test_by_offset_what_comes_again_is_dropped_in_each_partition(tmp_path: Path) -> None:
    with Deduplicate(tmp_path / "seen") as new:
        assert offsets(new(messages(Keyed(0, 5), Keyed(0, 6), Keyed(1, 5), Keyed(0, 5), Keyed(0, 6), Keyed(0, 9)))) == [
            5,
            6,
            5,
            9,
        ]
    with Deduplicate(tmp_path / "seen") as new:
        assert offsets(new(messages(Keyed(0, 9), Keyed(1, 5), Keyed(0, 10), Keyed(0, 10, topic="u")))) == [10, 10]


def test_by_key_what_was_sent_twice_is_dropped_over_a_restart(tmp_path: Path) -> None:
    with Deduplicate(tmp_path / "seen", by="key") as new:
        rows = messages(Keyed(0, 1, b"a"), Keyed(0, 2, b"a"), Keyed(0, 3), Keyed(0, 4), Keyed(1, 9, b"a", "u"))
        assert offsets(new(rows)) == [1, 3, 4, 9]
    with Deduplicate(tmp_path / "seen", by="key") as new:
        assert offsets(new(messages(Keyed(0, 5, b"a"), Keyed(0, 6, b"b")))) == [6]


def test_by_a_function(tmp_path: Path) -> None:
    with Deduplicate(tmp_path / "seen", by=lambda message: (message.key() or b"")[:1]) as new:
        assert offsets(new(messages(Keyed(0, 1, b"a1"), Keyed(0, 2, b"a2"), Keyed(0, 3, b"b")))) == [1, 3]


def test_the_oldest_keys_are_forgotten(tmp_path: Path) -> None:
    with Deduplicate(tmp_path / "seen", by="key", capacity=3) as new:
        assert len(list(new(messages(*(Keyed(0, n, b"%d" % n) for n in range(2_500)))))) == 2_500
    with Deduplicate(tmp_path / "seen", by="key", capacity=3) as new:
        again = [Keyed(1, n, b"%d" % n) for n in (2_499, 2_498, 2_497, 2_496, 0)]
        assert offsets(new(messages(*again))) == [2_496, 0]
    with Deduplicate(tmp_path / "seen", by="key", capacity=3) as new:
        assert new._database.execute("SELECT count(*) FROM keys").fetchone() == (3,)


def test_a_message_is_seen_only_when_the_next_is_asked_for(tmp_path: Path) -> None:
    with Deduplicate(tmp_path / "seen") as new:
        first = new(messages(Keyed(0, 1), Keyed(0, 2)))
        next(first)
        next(first)
    with Deduplicate(tmp_path / "seen") as new:
        assert offsets(new(messages(Keyed(0, 1), Keyed(0, 2)))) == [2]


@pytest.mark.parametrize("by", ["offset", "key"])
def test_a_killed_process_forgets_nothing(tmp_path: Path, by: str) -> None:
    program = (
        "import os, signal, sys\n"
        "from tests.unit.client.paper.test_deduplicate import *\n"
        "new = Deduplicate(sys.argv[1], by=sys.argv[2])\n"
        "list(new(messages(*(Keyed(0, n, b'%d' % n) for n in range(50)))))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "seen"), by],
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    )
    assert killed.returncode == -signal.SIGKILL
    with Deduplicate(tmp_path / "seen", by=by) as new:
        assert offsets(new(messages(*(Keyed(0, n, b"%d" % n) for n in range(52))))) == [50, 51]


def test_what_it_cannot_do_is_refused(tmp_path: Path) -> None:
    for wrong in ({"by": "value"}, {"capacity": 0}):
        with pytest.raises(ConfigError, match="wanted"):
            Deduplicate(tmp_path / "seen", **wrong)
