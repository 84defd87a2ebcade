"""Mirrors as processes between two clusters: kills, cuts, growth, groups that move."""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka import Producer as _Producer
from confluent_kafka import TopicPartition as _TopicPartition
from confluent_kafka.admin import AdminClient

from pylog.client.admin.configs import ConfigAdmin, Holder
from pylog.client.admin.groups import GroupAdmin
from pylog.client.admin.partitions import PartitionAdmin
from pylog.client.connection import Connection
from pylog.client.producer import Producer
from pylog.mirror import follow
from pylog.mirror.config import Cluster
from pylog.mirror.offsets import MapKey, OffsetMap
from pylog.model import TopicPartition
from tests.programs.conftest import Datacenter, first_copies
from tests.programs.program import Program, scrape, wait_until
from tests.servers.ports import free_ports

SOON_LOST = {"session.timeout.ms": "6000"}

HISTORY = 12
"""Records below the source's log start."""


class Mirror(Program):
    def __init__(
        self,
        directory: Path,
        source: Datacenter,
        target: Datacenter,
        *topics: str,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        properties: Mapping[str, str] = SOON_LOST,
        **more: object,
    ) -> None:
        [self.port] = free_ports(1)
        self._host = host
        super().__init__(
            directory,
            "mirror run",
            {
                "source": {**source.end(), "properties": dict(properties)},
                "target": target.end(),
                "topics": list(topics),
                "refresh_ms": 300,
                "commit_ms": 300,
                "internal_replication_factor": 1,
                "metrics_listen": f"{host}:{self.port}",
                "group": f"mirror-{topics[0].replace('.', '').replace('*', '')}",
                **more,
            },
            prefix=prefix,
        )

    def scrape(self) -> dict[str, float]:
        return scrape(self.port, self._host)

    def sample(self, name: str, topic: str, partition: int | None = None) -> float:
        labels = f'topic="{topic}"' if partition is None else f'partition="{partition}",topic="{topic}"'
        return self.scrape().get(f"{name}{{{labels}}}", math.nan)

    def has_caught_up(self, topic: str, partitions: int = 2) -> bool:
        return all(self.sample("pylog_mirror_lag_records", topic, one) == 0 for one in range(partitions))


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, end)]


def is_copied(live: Datacenter, offline: Datacenter, topic: str) -> bool:
    """Say whether the target has all of *topic*.  A mirror's lag is that of the source's ends as it knew them last."""
    if sum(offline.ends(topic)) < sum(live.ends(topic)):
        return False
    return {one: first_copies(values) for one, values in offline.values(topic).items()} == live.values(topic)


def pylog(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "pylog", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def offset_maps(target: Datacenter) -> dict[MapKey, OffsetMap]:
    """Return the maps that the target holds of the source `live`."""
    held = target.records("pylog.offsets.live")[0]
    return {MapKey.decode(one.key or b""): OffsetMap.decode(one.value or b"") for one in held}


def start_above_zero(live: Datacenter, topic: str) -> None:
    """Leave a topic whose log begins above 0, so that no offset is the same in the target."""
    live.send(topic, numbered(900_000, 900_000 + 2 * HISTORY), keys=HISTORY)
    admin = AdminClient({"bootstrap.servers": live.bootstrap})
    for future in admin.delete_records([_TopicPartition(topic, one, HISTORY) for one in (0, 1)]).values():
        future.result(20)


def test_records_arrive_in_order_with_everything_about_them(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic, compression__type="zstd")
    start_above_zero(live, topic)
    live.send(topic, numbered(0, 500), keys=3)
    with Mirror(tmp_path, live, offline, topic) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        assert mirror.stop() == 0
    sources, copies = live.records(topic), offline.records(topic)
    for partition, expected in sources.items():
        found = copies[partition]
        assert [(one.key, one.value, one.timestamp_ms) for one in found] == [
            (one.key, one.value, one.timestamp_ms) for one in expected
        ]
        assert [one.offset for one in expected] == [one.offset + HISTORY for one in found]
        [topic_id] = follow.topic_ids(Cluster("live", Connection(bootstrap=live.bootstrap)), [topic]).values()
        origin = [("pylog.origin", b"live"), ("pylog.origin.id", topic_id.encode())]
        for one, copy in zip(expected, found, strict=True):
            assert copy.headers == [*origin, ("pylog.origin.offset", b"%d" % one.offset)]
    assert offline.admin.topic_config(topic)["compression.type"].value == "zstd"


def test_records_keep_the_source_s_times_however_late_they_come(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    """A source that stamps them itself, and takes none that is older than an instant."""
    live.create(topic, message__timestamp__type="LogAppendTime", message__timestamp__before__max__ms="1")
    live.send(topic, numbered(0, 100))
    with Mirror(tmp_path, live, offline, topic) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
    sources, copies = live.records(topic), offline.records(topic)
    for partition, expected in sources.items():
        assert [(one.value, one.timestamp_ms) for one in copies[partition]] == [
            (one.value, one.timestamp_ms) for one in expected
        ]


def test_a_group_with_unread_records_of_a_topic_that_is_not_mirrored_does_not_move(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    for name in (topic, f"{topic}-at-home"):
        live.create(name)
        live.send(name, numbered(0, 20))
    with Mirror(tmp_path, live, offline, topic) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        read = {TopicPartition(topic, one): 10 for one in (0, 1)}
        GroupAdmin(live.bootstrap).commit("mixed", read | {TopicPartition(f"{topic}-at-home", 0): 4})
        move = ["mirror", "move", "mixed", f"--config={mirror.config_path}", "--prove", "--execute", "--format=json"]
        done = subprocess.run([sys.executable, "-m", "pylog", *move], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "would skip 6 records" in done.stderr
        assert not GroupAdmin(offline.bootstrap).committed("mixed")
        GroupAdmin(live.bootstrap).commit("mixed", {TopicPartition(f"{topic}-at-home", 0): 10})
        rows = json.loads(pylog(*move))
    assert [row["target_offset"] for row in rows if row["topic"] == f"{topic}-at-home"] == [None]
    assert GroupAdmin(offline.bootstrap).committed("mixed") == read


def test_a_group_moves_and_skips_nothing_where_no_offset_is_equal(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    """A log start above 0, a compacted topic with holes, and copies from kills of the mirror."""
    live.create(topic, segment__bytes="8192", min__cleanable__dirty__ratio="0.01")
    offline.create(topic)
    offline.send(topic, [b"somebody else"] * 6)
    start_above_zero(live, topic)
    ConfigAdmin(live.bootstrap).alter(Holder.TOPIC, topic, {"cleanup.policy": "compact"})
    # One commit and many kills: every kill after the first commit sends records again.
    mirror = Mirror(tmp_path, live, offline, topic, commit_ms=700)
    try:
        for part in range(3):
            live.send(topic, numbered(part * 400, part * 400 + 400), keys=100)
            before = sum(offline.ends(topic))
            mirror.start()
            wait_until(lambda before=before: sum(offline.ends(topic)) >= before + 400, lambda: mirror.log)
            mirror.kill()
        wait_until(lambda: len(live.records(topic)[0]) < 500, "the cleaner leaves holes")
        mirror.start()
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        assert mirror.stop() == 0
    finally:
        if not mirror.has_ended:
            mirror.kill()
    sources, copies = live.records(topic), offline.records(topic)
    assert sum(offline.ends(topic)) - 6 > sum(live.ends(topic)) - 2 * HISTORY, "nothing came twice"
    group = GroupAdmin(live.bootstrap)
    for share in (0, 3, 5, 10):
        offsets = {
            partition: records[min(len(records) - 1, len(records) * share // 10)].offset + (share == 10)
            for partition, records in sources.items()
        }
        group.commit("readers", {TopicPartition(topic, one): offset for one, offset in offsets.items()})
        moved = json.loads(
            pylog("mirror", "move", "readers", f"--config={mirror.config_path}", "--execute", "--format=json")
        )
        committed = GroupAdmin(offline.bootstrap).committed("readers")
        for row in moved:
            partition = row["partition"]
            place = committed[TopicPartition(topic, partition)]
            assert row["target_offset"] == place
            unread = [one for one in sources[partition] if one.offset >= offsets[partition]]
            reread = [one for one in copies[partition] if one.offset >= place]
            # The target's cleaner may have been at work too: nothing that it left is skipped, and no key's last value.
            left = {one.value for one in copies[partition]}
            assert {one.value for one in unread} & left <= {one.value for one in reread}
            assert {one.key: one.value for one in unread}.items() <= {one.key: one.value for one in reread}.items()
            if share == 10:
                assert (unread, row["mapped"]) == ([], True)
    standing = json.loads(pylog("mirror", "status", f"--config={mirror.config_path}", "--format=json"))
    assert [row["lag"] for row in standing] == [0, 0]


def test_a_group_moves_over_and_back_and_each_way_is_proven(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic)
    start_above_zero(live, topic)
    with Mirror(tmp_path, live, offline, topic) as mirror:
        live.send(topic, numbered(0, 600))
        config = f"--config={mirror.config_path}"
        pylog("mirror", "status", config, "--wait=30")
        GroupAdmin(live.bootstrap).commit("travellers", {TopicPartition(topic, one): HISTORY + 200 for one in (0, 1)})
        over = json.loads(pylog("mirror", "move", "travellers", config, "--prove", "--execute", "--format=json"))
        assert [(row["unread"], row["lost"]) for row in over] == [(100, 0), (100, 0)]
        # It reads on there, and half of what comes later.
        live.send(topic, numbered(600, 800))
        pylog("mirror", "status", config, "--wait=30")
        GroupAdmin(offline.bootstrap).commit("travellers", {TopicPartition(topic, one): 350 for one in (0, 1)})
        back = json.loads(
            pylog("mirror", "move", "travellers", config, "--back", "--prove", "--execute", "--format=json")
        )
        assert [(row["unread"], row["lost"]) for row in back] == [(50, 0), (50, 0)]
        committed = GroupAdmin(live.bootstrap).committed("travellers")
        assert all(HISTORY + 200 <= offset <= HISTORY + 350 for offset in committed.values()), committed
        # Somebody else writes to the target: what it wrote there is not in the source, and the way back says so.
        offline.send(topic, numbered(990_000, 990_010))
        done = subprocess.run(
            [sys.executable, "-m", "pylog", "mirror", "move", "travellers", config, "--back", "--prove", "--execute"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert "would skip 10 records" in done.stderr
        assert GroupAdmin(live.bootstrap).committed("travellers") == committed


def test_a_group_goes_on_although_the_source_is_lost(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic)
    start_above_zero(live, topic)
    live.send(topic, numbered(0, 200))
    partitions = [TopicPartition(topic, one) for one in (0, 1)]
    with Mirror(tmp_path, live, offline, topic, groups_ms=200) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        GroupAdmin(live.bootstrap).commit("survivors", dict.fromkeys(partitions, HISTORY + 60))
        move = ["mirror", "move", "survivors", f"--config={mirror.config_path}", "--source-lost", "--format=json"]

        def is_carried() -> bool:
            asked = subprocess.run([sys.executable, "-m", "pylog", *move], capture_output=True, text=True, check=False)
            return asked.returncode == 0

        wait_until(is_carried, lambda: mirror.log)
        live.broker_signal(signal.SIGSTOP)
        try:
            rows = json.loads(pylog(*move, "--execute"))
        finally:
            live.broker_signal(signal.SIGCONT)
        entered = GroupAdmin(offline.bootstrap).committed("survivors")
        refused = subprocess.run(
            [sys.executable, "-m", "pylog", *move, "--prove"], capture_output=True, text=True, check=False
        )
    assert refused.returncode == 2
    assert "neither --back nor --prove" in refused.stderr
    assert [row["source_offset"] for row in rows] == [HISTORY + 60] * 2
    sources, copies = live.records(topic), offline.records(topic)
    for partition in partitions:
        unread = [one.value for one in sources[partition.partition] if one.offset >= HISTORY + 60]
        reread = [one.value for one in copies[partition.partition] if one.offset >= entered[partition]]
        assert len(unread) == 40
        assert set(unread) <= set(reread)


def test_new_topics_partitions_and_settings_follow(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic, partitions=1)
    with Mirror(tmp_path, live, offline, f"{topic}.*") as mirror:
        live.send(topic, numbered(0, 10), partitions=1)
        wait_until(lambda: mirror.has_caught_up(topic, 1), lambda: mirror.log)
        live.create(f"{topic}-later", partitions=3)
        PartitionAdmin(live.bootstrap).add_partitions(topic, 3)
        ConfigAdmin(live.bootstrap).alter(Holder.TOPIC, topic, {"retention.ms": "123456789"})
        live.send(f"{topic}-later", numbered(0, 30), partitions=3)
        live.send(topic, numbered(10, 40), partitions=3)
        for name in (topic, f"{topic}-later"):
            wait_until(
                lambda name=name: (
                    name in offline.admin.cluster().topics and sum(offline.ends(name)) >= sum(live.ends(name))
                ),
                lambda: mirror.log,
            )
            assert {one: first_copies(values) for one, values in offline.values(name).items()} == live.values(name)
        wait_until(lambda: offline.admin.topic_config(topic)["retention.ms"].value == "123456789", lambda: mirror.log)


def test_nothing_returns_to_where_it_came_from(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    for one in (live, offline):
        one.create(topic)
    live.send(topic, [b"from live"] * 20)
    offline.send(topic, [b"from offline"] * 20)
    with (
        Mirror(tmp_path / "there", live, offline, topic) as there,
        Mirror(tmp_path / "back", offline, live, topic) as back,
    ):
        for mirror, end in ((there, offline), (back, live)):
            wait_until(lambda end=end: sum(end.ends(topic)) >= 40, lambda mirror=mirror: mirror.log)
        for mirror in (there, back):
            wait_until(lambda mirror=mirror: mirror.has_caught_up(topic), lambda mirror=mirror: mirror.log)
            assert mirror.sample("pylog_mirror_returned_total", topic) == 20
    assert sum(live.ends(topic)) == sum(offline.ends(topic)) == 40


def test_a_group_does_not_move_behind_a_record_that_came_late_from_the_other_side(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    """Of two mirrors that face each other, one is away while the other notes pairs."""
    for one in (live, offline):
        one.create(topic)
    offline.send(topic, [b"late"] * 2)
    live.send(topic, numbered(0, 40))
    with Mirror(tmp_path / "there", live, offline, topic) as there:
        wait_until(lambda: there.has_caught_up(topic), lambda: there.log)
        GroupAdmin(live.bootstrap).commit("facing", {TopicPartition(topic, one): 20 for one in (0, 1)})

        def entered() -> list[int]:
            moved = pylog("mirror", "move", "facing", f"--config={there.config_path}", "--format=json")
            return [row["target_offset"] for row in json.loads(moved)]

        wait_until(lambda: entered() == [21, 21], lambda: there.log)
        with Mirror(tmp_path / "back", offline, live, topic) as back:
            wait_until(lambda: sum(live.ends(topic)) == 42, lambda: back.log)
            wait_until(lambda: there.sample("pylog_mirror_returned_total", topic) == 2, lambda: there.log)
            wait_until(lambda: entered() == [0, 0], lambda: there.log)


def test_what_was_made_of_copies_goes_back(tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str) -> None:
    """A program in the target that keeps the headers of what it reads, as many frameworks do."""
    made = f"{topic}-made"
    for one in (live, offline):
        one.create(topic)
        one.create(made)
    with (
        Mirror(tmp_path / "there", live, offline, topic, made) as there,
        Mirror(tmp_path / "back", offline, live, topic, made) as back,
    ):
        live.send(topic, numbered(0, 20))
        wait_until(lambda: sum(offline.ends(topic)) == 20, lambda: there.log)
        with Producer(offline.bootstrap) as producer:
            for records in offline.records(topic).values():
                for record in records:
                    producer.send(made, record.value, headers=record.headers, partition=record.partition)
        wait_until(lambda: sum(live.ends(made)) == 20, lambda: back.log)
        for mirror in (there, back):
            for name in (topic, made):
                wait_until(
                    lambda mirror=mirror, name=name: mirror.has_caught_up(name), lambda mirror=mirror: mirror.log
                )
    assert [sum(one.ends(name)) for one in (live, offline) for name in (topic, made)] == [20, 20, 20, 20]


def test_a_source_that_lost_its_end_is_not_mirrored_once_more(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic)
    live.send(topic, numbered(0, 40))
    mirror = Mirror(tmp_path, live, offline, topic)
    with mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        assert mirror.stop() == 0
    # As if each partition had held ten records more, which a power cut took.
    group = Consumer({"bootstrap.servers": live.bootstrap, "group.id": f"mirror-{topic}"})
    stood = group.committed([_TopicPartition(topic, one) for one in (0, 1)], timeout=20)
    assert all(one.offset == 20 and one.leader_epoch is not None for one in stood)
    lost = [_TopicPartition(topic, one.partition, 30, one.metadata, one.leader_epoch) for one in stood]
    group.commit(offsets=lost, asynchronous=False)
    group.close()
    # A pair that was noted of the lost ones: a group that moved back by it would skip what takes their place.
    maps = offset_maps(offline)
    with Producer(offline.bootstrap) as producer:
        for (topic_id, partition), known in maps.items():
            if known.topic == topic:
                known.note(30, 20)
                producer.send("pylog.offsets.live", known.encode(), MapKey(topic_id, partition).encode(), partition=0)
    with mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        live.send(topic, numbered(40, 60))  # where the lost ones were
        wait_until(lambda: sum(offline.ends(topic)) >= 60, lambda: mirror.log)
        assert mirror.stop() == 0
    assert "source_lost_its_end" in mirror.log
    assert offline.values(topic) == live.values(topic)
    own = [known for known in offset_maps(offline).values() if known.topic == topic]
    assert [(known.translate_back(20), known.translate_back(30)) for known in own] == [(20, 30), (20, 30)]


def test_a_record_that_the_target_refuses_is_parked_and_the_others_go_on(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    """A topic that became compacted while it held records without a key."""
    live.create(topic, min__compaction__lag__ms="3600000")
    live.send(topic, numbered(0, 20), keys=5)
    live.send(topic, numbered(900, 904))
    live.send(topic, numbered(20, 40), keys=5)
    ConfigAdmin(live.bootstrap).alter(Holder.TOPIC, topic, {"cleanup.policy": "compact"})
    offline.create(topic, cleanup__policy="compact", min__compaction__lag__ms="3600000")
    with Mirror(tmp_path, live, offline, topic) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        assert mirror.scrape()[f'pylog_mirror_parked_total{{error="INVALID_RECORD",topic="{topic}"}}'] == 4
        copied = sum(offline.ends(topic))
        live.send(topic, numbered(40, 60), keys=5)
        # Not by its lag, which is that of the source's ends as it knew them last.
        wait_until(lambda: sum(offline.ends(topic)) >= copied + 20, lambda: mirror.log)
        assert mirror.stop() == 0
    expected = {
        partition: [one for one in values if one is None or not one.startswith(b"0009")]
        for partition, values in live.values(topic).items()
    }
    assert {one: first_copies(values) for one, values in offline.values(topic).items()} == expected
    kept = offline.records("pylog.parked.live")[0]
    marks = [json.loads(dict(one.headers)["pylog.parked"] or b"") for one in kept]
    assert sorted(one.value or b"" for one in kept) == numbered(900, 904)
    assert {mark["topic"] for mark in marks} == {topic}
    assert sorted((mark["partition"], mark["offset"]) for mark in marks) == [(0, 10), (0, 11), (1, 10), (1, 11)]

    def resend(*more: str, exit_code: int = 0) -> list[dict[str, object]]:
        command = ["mirror", "resend", "--config", str(mirror.config_path), "--format", "json", *more]
        done = subprocess.run([sys.executable, "-m", "pylog", *command], capture_output=True, text=True, check=False)
        assert done.returncode == exit_code, done.stderr
        found: list[dict[str, object]] = json.loads(done.stdout)
        return found

    parked = [(topic, one, offset) for one in (0, 1) for offset in (10, 11)]

    def places(rows: list[dict[str, object]], state: str) -> list[tuple[object, ...]]:
        assert {row["state"] for row in rows} <= {state}
        return sorted((row["topic"], row["partition"], row["source_offset"]) for row in rows)

    assert places(resend(), "parked") == parked
    assert places(resend("--execute", exit_code=1), "parked") == parked, "the topic is compacted still"
    assert places(resend(), "parked") == parked, "each once, whatever was tried"
    ConfigAdmin(offline.bootstrap).alter(Holder.TOPIC, topic, {"cleanup.policy": "delete"})
    assert places(resend("--execute"), "sent") == parked
    assert resend() == resend("--execute") == []
    sent = {one: values[-2:] for one, values in offline.values(topic).items()}
    assert sent == {one: values[10:12] for one, values in live.values(topic).items()}
    headers = [name for one in offline.records(topic)[0] for name, _ in one.headers]
    assert "pylog.parked" not in headers
    assert headers.count("pylog.origin.offset") == len(offline.records(topic)[0])


def test_a_small_record_that_unpacks_to_much_stops_no_topic(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    """One larger than the mirror's buffer arrives; one larger than librdkafka unpacks is left out, and counted."""
    live.create(topic, partitions=1)
    live.send(topic, numbered(0, 5), partitions=1)
    first = send_zeros(live, topic, "gzip", 70 << 20)
    live.send(topic, numbered(5, 10), partitions=1)
    last = send_zeros(live, topic, "zstd", 120 << 20)
    live.send(topic, numbered(10, 15), partitions=1)
    assert (first, last) == (5, 11)
    with Mirror(tmp_path, live, offline, topic) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic, 1), lambda: mirror.log)
        assert mirror.sample("pylog_mirror_left_out_total", topic) == 1
        assert f"event=left_out partition={topic}-0 first=11 last=11" in mirror.log
        assert "session_ended" not in mirror.log
        assert mirror.stop() == 0
    values = first_copies(offline.values(topic)[0])
    assert values == [*numbered(0, 5), bytes(70 << 20), *numbered(5, 15)]


def send_zeros(datacenter: Datacenter, topic: str, codec: str, size: int) -> int:
    """Produce one record of zeros, packed; return its offset."""
    offsets: list[int] = []
    producer = _Producer(
        {
            "bootstrap.servers": datacenter.bootstrap,
            "compression.type": codec,
            "message.max.bytes": 1_000_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    producer.produce(topic, bytes(size), partition=0, on_delivery=lambda _, sent: offsets.append(sent.offset() or 0))
    assert producer.flush(60) == 0
    return offsets[0]


def test_topics_of_one_partition_are_shared_too(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    names = [f"{topic}-{number}" for number in range(4)]
    for name in names:
        live.create(name, partitions=1)
    with (
        Mirror(tmp_path / "1", live, offline, f"{topic}-.*") as one,
        Mirror(tmp_path / "2", live, offline, f"{topic}-.*") as two,
    ):

        def share(mirror: Mirror) -> int:
            return sum(not math.isnan(mirror.sample("pylog_mirror_lag_seconds", name, 0)) for name in names)

        wait_until(lambda: share(one) + share(two) == 4 and share(one) and share(two), lambda: one.log + two.log)
        assert share(one) == share(two) == 2


def test_instances_share_the_work_and_hand_over_without_a_copy(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic, partitions=4)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        live.send(topic, numbered(sent, sent + count), partitions=4)
        sent += count

    def arrived() -> bool:
        return sum(offline.ends(topic)) >= sent

    def share(mirror: Mirror) -> int:
        return sum(not math.isnan(mirror.sample("pylog_mirror_lag_seconds", topic, one)) for one in range(4))

    with Mirror(tmp_path / "1", live, offline, topic) as one, Mirror(tmp_path / "2", live, offline, topic) as two:
        send(2000)
        wait_until(arrived, lambda: one.log + two.log)
        wait_until(lambda: share(one) == share(two) == 2, lambda: f"{share(one)} {share(two)} {one.log} {two.log}")
        send(2000)
        assert two.stop() == 0  # in the middle of it
        send(2000)
        wait_until(lambda: share(one) == 4 and one.has_caught_up(topic, 4), lambda: one.log)
    assert offline.values(topic) == live.values(topic)


def test_t27_clusters_that_stand_still_delay_and_lose_nothing(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    """A source that answers nothing, then a target that takes nothing: late, in order, nothing left out."""
    live.create(topic)
    live.send(topic, numbered(0, 1000))
    with Mirror(tmp_path, live, offline, topic, buffered_bytes=1 << 20) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        live.broker_signal(signal.SIGSTOP)
        try:
            seen: list[float] = []

            def is_late() -> bool:
                seen.append(mirror.sample("pylog_mirror_lag_seconds", topic, 0))
                return seen[-1] > 16

            wait_until(is_late, lambda: f"{seen[-5:]} {mirror.log}")
            assert all(one >= 0 for one in seen)
            assert len(set(seen)) > 5, "the lag stood still"
            assert math.isnan(mirror.sample("pylog_mirror_lag_records", topic, 0))
        finally:
            live.broker_signal(signal.SIGCONT)
        live.send(topic, numbered(1000, 2000))
        wait_until(lambda: is_copied(live, offline, topic), lambda: mirror.log)
        offline.broker_signal(signal.SIGSTOP)
        try:
            live.send(topic, [b"%07d" % number + bytes(1000) for number in range(8000)])  # far more than it may keep
            wait_until(lambda: mirror.sample("pylog_mirror_lag_records", topic, 0) >= 3000, lambda: mirror.log)
        finally:
            offline.broker_signal(signal.SIGCONT)
        wait_until(lambda: is_copied(live, offline, topic), lambda: mirror.log)
        wait_until(lambda: mirror.sample("pylog_mirror_lag_seconds", topic, 0) < 5, lambda: mirror.log)


def test_a_topic_that_is_made_again_begins_again(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic)
    live.send(topic, numbered(0, 100))
    with Mirror(tmp_path, live, offline, topic) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        live.admin.delete_topic(topic)
        live.create(topic)
        live.send(topic, numbered(100, 400))
        wait_until(
            lambda: len({value for values in offline.values(topic).values() for value in values}) == 400,
            lambda: mirror.log,
        )


def test_a_topic_that_is_made_again_at_the_target_gets_a_map_of_its_own(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic)
    live.send(topic, numbered(0, 100))
    with Mirror(tmp_path, live, offline, topic) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        offline.admin.delete_topic(topic)
        wait_until(lambda: f"topic {topic} was deleted and made again at the target" in mirror.log, lambda: mirror.log)
        live.send(topic, numbered(100, 140))
        wait_until(lambda: sum(offline.ends(topic)) >= 40, lambda: mirror.log)
        cluster = Cluster("offline", Connection(bootstrap=offline.bootstrap))
        expected = {(follow.topic_ids(cluster, [topic])[topic], 70)}
        wait_until(
            lambda: (
                {
                    (known.target_id, known.pairs[-1].source)
                    for known in offset_maps(offline).values()
                    if known.topic == topic and known.pairs
                }
                == expected
            ),
            lambda: mirror.log,
        )


def test_what_the_source_forgot_is_said_and_counted_of_all_partitions_at_once(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    live.create(topic, partitions=3)
    live.send(topic, numbered(0, 30), partitions=3)
    with Mirror(tmp_path, live, offline, topic) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic, 3), lambda: mirror.log)
        mirror.stop()
        live.send(topic, numbered(30, 60), partitions=3)
        admin = AdminClient({"bootstrap.servers": live.bootstrap})
        gone = [_TopicPartition(topic, 0, 15), _TopicPartition(topic, 2, 13)]
        for future in admin.delete_records(gone).values():
            future.result(20)
        mirror.start()
        wait_until(lambda: mirror.has_caught_up(topic, 3), lambda: mirror.log)
        wait_until(lambda: mirror.sample("pylog_mirror_forgotten_total", topic) == 8, lambda: mirror.log)
        assert mirror.scrape()["pylog_mirror_sessions_total"] == 2, "one more session serves all partitions"
    assert f"partition={topic}-0 wanted=10 missing=5 goes_on_at=15" in mirror.log
    assert f"partition={topic}-2 wanted=10 missing=3 goes_on_at=13" in mirror.log
    everything = numbered(0, 60)
    assert offline.values(topic) == {
        0: everything[::3][:10] + everything[::3][15:],
        1: everything[1::3],
        2: everything[2::3][:10] + everything[2::3][13:],
    }


def test_a_topic_that_the_target_refuses_holds_up_no_other(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    for one in (live, offline):
        one.create(f"{topic}-taken")
    live.create(f"{topic}-refused")
    for name in ("taken", "refused"):
        live.send(f"{topic}-{name}", numbered(0, 100))
    # The target has one broker.
    with Mirror(tmp_path, live, offline, f"{topic}-.*", replication_factor=3) as mirror:
        wait_until(lambda: mirror.has_caught_up(f"{topic}-taken"), lambda: mirror.log)
        assert mirror.scrape()["pylog_mirror_refused_topics"] == 1
    assert offline.values(f"{topic}-taken") == live.values(f"{topic}-taken")
    assert f"event=topic_refused topic={topic}-refused" in mirror.log


def test_a_group_that_is_lost_while_the_target_is_away_leaves_nothing_out(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    """What was under way then arrives late, beside the same records sent again: neither is taken for the other."""
    live.create(topic)
    with Mirror(tmp_path, live, offline, topic, buffered_bytes=1 << 20) as mirror:
        live.send(topic, numbered(0, 100))
        wait_until(lambda: mirror.has_caught_up(topic), lambda: mirror.log)
        offline.broker_signal(signal.SIGSTOP)
        try:
            live.send(topic, [b"%07d" % number + bytes(1000) for number in range(4000)])
            wait_until(lambda: mirror.sample("pylog_mirror_lag_records", topic, 0) >= 1500, lambda: mirror.log)
            live.broker_signal(signal.SIGSTOP)
            try:
                wait_until(lambda: "gave this instance's partitions away" in mirror.log, lambda: mirror.log)
            finally:
                live.broker_signal(signal.SIGCONT)
        finally:
            offline.broker_signal(signal.SIGCONT)
        wait_until(lambda: is_copied(live, offline, topic), lambda: mirror.log)
        assert mirror.scrape()["pylog_mirror_sessions_total"] >= 2
        assert not mirror.has_ended
