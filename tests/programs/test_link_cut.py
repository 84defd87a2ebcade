"""A mirror whose link to the source is cut by a firewall that drops, for as long as ``PYLOG_CUT_S`` says.

`make test` cuts for seconds, with every time-out that could pass shorter than that; ``PYLOG_CUT_S=3600`` is the hour,
with time-outs as they are delivered.  docs/results/mirror-link-cut.md has the last of those.
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pylog.client.consumer import Consumer
from pylog.client.producer import Producer
from pylog.config import load_mirror_config
from pylog.mirror import follow
from pylog.testing import BrokerProcess
from tests.cluster.network import Network
from tests.programs.conftest import CONFIG, Datacenter
from tests.programs.program import wait_until
from tests.programs.test_mirror import Mirror

CUT_S = int(os.environ.get("PYLOG_CUT_S", "30"))
IS_HOUR = CUT_S >= 3600
RATE, VALUE_BYTES, PARTITIONS = (50, 1000, 2) if IS_HOUR else (200, 1000, 2)
BUFFERED_BYTES = 1 << 20
ROOM_BYTES = 96 << 20
"""What the mirror may grow by, whatever waits at the source: its buffers, librdkafka's, a fetch under way."""

PROPERTIES = {} if IS_HOUR else {"session.timeout.ms": "6000", "socket.timeout.ms": "6000"}
HISTORY_S = 2
MIRROR, LIVE, OFFLINE = 1, 2, 3


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as found:
        yield found


class Stream:
    """Records numbered from 0 on, at a steady rate."""

    def __init__(self, live: Datacenter, topic: str) -> None:
        self._producer = Producer(live.bootstrap)
        self._topic = topic
        self.count = 0

    def run(self, seconds: float) -> None:
        """Produce for so long; come back when all of it is acknowledged."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for _ in range(RATE // 10):
                value = b"%09d" % self.count + bytes(VALUE_BYTES)
                self._producer.send(self._topic, value, partition=self.count % PARTITIONS)
                self.count += 1
            time.sleep(0.1)
        self._producer.flush()


def numbers(datacenter: Datacenter, topic: str) -> dict[int, list[int]]:
    """Return the records of each partition by their numbers."""
    found: dict[int, list[int]] = {one: [] for one in range(PARTITIONS)}
    with Consumer(datacenter.bootstrap) as consumer:
        consumer.assign_topic(topic)
        for record in consumer.records_to_end():
            found[record.partition].append(int((record.value or b"")[:9]))
    return found


def resident_bytes(pid: int) -> int:
    """Return the process's memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """Return the CPU time the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_t27_mirror_link_cut_1h(
    tmp_path: Path, network: Network, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The source lives on behind the cut; the mirror says how late it is, is restarted once, and leaves nothing out."""
    topic = "clicks"
    with ExitStack() as stack:
        live, offline = (
            Datacenter(
                name,
                stack.enter_context(
                    BrokerProcess(
                        tmp_path / name, config=CONFIG, host=network.address(place),
                        prefix=network.prefix(place), is_open=True,
                    )
                ),
            )
            for name, place in (("live", LIVE), ("offline", OFFLINE))
        )  # fmt: skip
        live.create(topic, PARTITIONS)
        stream = Stream(live, topic)
        mirror = stack.enter_context(
            Mirror(
                tmp_path, live, offline, topic, host=network.address(MIRROR), prefix=network.prefix(MIRROR),
                buffered_bytes=BUFFERED_BYTES, properties=PROPERTIES,
            )
        )  # fmt: skip
        stream.run(HISTORY_S)
        wait_until(lambda: mirror.has_caught_up(topic, PARTITIONS), lambda: mirror.log)
        stream.run(HISTORY_S)
        before_bytes, before_cpu_s = resident_bytes(mirror.pid), cpu_s(mirror.pid)
        network.cut(LIVE, network.address(MIRROR))
        cut_s, cut_at_ms, before = time.monotonic(), time.time() * 1000, stream.count
        largest_bytes = 0

        def look() -> dict[str, float]:
            nonlocal largest_bytes
            largest_bytes = max(largest_bytes, resident_bytes(mirror.pid))
            since_s = time.monotonic() - cut_s
            found = mirror.scrape()
            for name, value in found.items():
                if "_lag_" in name:
                    assert not value < 0, (name, value)
                if "_lag_seconds" in name and not math.isnan(value):
                    assert value >= since_s, f"{name} says {value} s, {since_s} s after the cut"
            return found

        # Two thirds as one process: sessions, connections and requests time out, and it stays.
        while time.monotonic() - cut_s < CUT_S * 2 / 3:
            stream.run(1)
            samples = look()
        assert not mirror.has_ended
        assert len([name for name in samples if "_lag_seconds" in name]) == PARTITIONS
        assert all(math.isnan(value) for name, value in samples.items() if "_lag_records" in name)
        silent_s, heard_s = (samples[f'pylog_mirror_silence_seconds{{cluster="{one}"}}'] for one in ("live", "offline"))
        assert silent_s > heard_s, "the target answers"
        cpu_in_the_cut_s = cpu_s(mirror.pid) - before_cpu_s
        # And one that is started meanwhile has no lag to tell yet, and says that nobody answers.
        assert mirror.stop() == 0
        mirror.start()
        while time.monotonic() - cut_s < CUT_S:
            stream.run(1)
            look()
        silence = 'pylog_mirror_silence_seconds{cluster="live"}'
        wait_until(lambda: look().get(silence, 0) > 1, lambda: mirror.log)
        # When it goes on, it knows from before how late it is.
        known = follow.load_maps(load_mirror_config(mirror.config_path)).values()
        assert [one.complete_ms is not None and one.complete_ms <= cut_at_ms for one in known] == [True] * PARTITIONS
        waiting = stream.count - before

        network.heal()
        healed_s = time.monotonic()
        late: list[float] = []

        def has_arrived() -> bool:
            nonlocal largest_bytes
            largest_bytes = max(largest_bytes, resident_bytes(mirror.pid))
            lags = {name: value for name, value in mirror.scrape().items() if "_lag_" in name and not math.isnan(value)}
            assert all(value >= 0 for value in lags.values()), lags
            late.extend(value for name, value in lags.items() if "_seconds" in name)
            return sum(offline.ends(topic)) >= stream.count

        wait_until(has_arrived, lambda: mirror.log, CUT_S + 60)
        drained_s = time.monotonic() - healed_s
        wait_until(lambda: mirror.has_caught_up(topic, PARTITIONS), lambda: mirror.log)
        wait_until(lambda: mirror.sample("pylog_mirror_lag_seconds", topic, 0) < 5, lambda: mirror.log)
        assert mirror.stop() == 0
        produced, copies = numbers(live, topic), numbers(offline, topic)
    assert {one: list(dict.fromkeys(found)) for one, found in copies.items()} == produced
    assert sum(len(found) for found in produced.values()) == stream.count
    doubled = sum(len(copies[one]) - len(produced[one]) for one in produced)
    assert largest_bytes - before_bytes < ROOM_BYTES, (before_bytes, largest_bytes)
    result = {
        "cut_s": CUT_S,
        "records_that_waited": waiting,
        "bytes_that_waited": waiting * (VALUE_BYTES + 9),
        "drained_s": round(drained_s, 1),
        "longest_lag_told_after_the_heal_s": round(max(late, default=0)),
        "records": stream.count,
        "records_twice": doubled,
        "mirror_grew_by_mib": round((largest_bytes - before_bytes) / (1 << 20), 1),
        "cpu_s_in_the_first_two_thirds": round(cpu_in_the_cut_s, 1),
    }
    for name, value in result.items():
        record_property(name, value)
    with capsys.disabled():
        print("\n" + "\n".join(f"{name}: {value}" for name, value in result.items()))
