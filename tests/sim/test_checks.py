"""What the simulator compares, and what it must not take for a fault."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from pylog.broker.data.partitions import Partition
from pylog.cluster.image import PartitionImage
from pylog.cluster.znodes import CONTROLLER, encode_controller
from pylog.errors import ErrorCode
from pylog.model import TopicPartition
from pylog.replica.leader import Leader
from pylog.wire.records import Record, encode_batch, patch
from tests.sim.checks import Checks
from tests.sim.faults import Faults, _has_offline_log
from tests.sim.world import Violation

KEY = TopicPartition("t", 0)
DELETED, PRESENT = UUID(int=1), UUID(int=2)


def host(partition: Partition) -> Any:
    partitions: Any = {(KEY.topic, KEY.partition): partition}
    broker = SimpleNamespace(partitions=SimpleNamespace(get=lambda *key: partitions[key]))
    return SimpleNamespace(broker=broker, damaged=set())


def test_a_leader_of_the_deleted_topic_says_nothing_of_who_is_in_sync_in_the_next_one() -> None:
    leading = Leader(
        1, (1, 2, 3), (1, 2), leader_epoch=0, partition_epoch=0, epoch_start=0, lag_ms=1, min_isr=1, now_ms=0
    )
    partition = Partition(KEY, None, DELETED, leading=leading)
    checks = Checks(SimpleNamespace(hosts={1: host(partition)}, on_tree=lambda watch: None))  # type: ignore[arg-type]
    checks.ids["t"] = PRESENT
    state = PartitionImage(1, 0, (1, 3), (1, 2, 3), 1)
    assert checks._leading(KEY, state) is None
    checks.ids["t"] = DELETED
    assert checks._leading(KEY, state) is leading


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_partition_that_could_not_be_opened_is_offline_unless_it_opens_by_itself(*, is_waiting: bool) -> None:
    class Hosted(list[Partition]):
        _directory = SimpleNamespace(waiting=lambda: (KEY,) if is_waiting else ())

    partition = Partition(KEY, None, PRESENT, fault="Too many open files")
    found: Any = SimpleNamespace(broker=SimpleNamespace(partitions=Hosted([partition])))
    assert _has_offline_log(found) == (not is_waiting)
    assert not _has_offline_log(SimpleNamespace(broker=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_growing", [False, True])
def test_two_brokers_meet_again_where_a_partition_can_only_be_added_behind_a_move(*, is_growing: bool) -> None:
    hosts: Any = {one: SimpleNamespace(broker_id=one, name=f"broker-{one}", damaged=set()) for one in (1, 2, 3)}
    healed: list[tuple[str, str]] = []
    controller = SimpleNamespace(data=encode_controller(3, now_ms=0))
    cluster: Any = SimpleNamespace(
        hosts=hosts,
        is_registered=lambda host: True,
        tree=SimpleNamespace(nodes={CONTROLLER: controller}),
        disks=SimpleNamespace(full=set()),
        network=SimpleNamespace(uncut=lambda *pair: healed.append(pair)),
        world=SimpleNamespace(note=lambda *what: None),
        on_tree=lambda watch: None,
    )
    checks = Checks(cluster)
    checks.is_growing = is_growing
    faults = Faults(cluster, checks, None, is_flushing=False)
    faults._apart = (hosts[1], hosts[2])
    faults.let_back_if_needed()
    assert healed == ([("broker-1", "broker-2"), ("broker-2", "broker-1")] if is_growing else [])


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_a_group_may_be_gone_as_long_as_it_is_unknown_what_became_of_its_deletion(error: ErrorCode) -> None:
    checks = Checks(SimpleNamespace(hosts={}, on_tree=lambda watch: None))  # type: ignore[arg-type]
    assert checks.deletions("g") == 0
    checks.deleting("g")
    assert checks.deletions("g") is None
    checks.deleted("g", error)
    assert checks.deletions("g") is None, "its end may be written, and count when another coordinator loads it"
    checks.deleting("g")
    checks.deleted("g", ErrorCode.NON_EMPTY_GROUP)
    assert checks.deletions("g") is None
    checks.deleting("g")
    checks.deleted("g", ErrorCode.NONE)
    assert checks.deletions("g") == 3


@pytest.mark.parametrize(("start", "is_twice"), [(0, True), (1, False)])
def test_only_what_is_not_deleted_has_to_be_there_once(tmp_path: Path, start: int, *, is_twice: bool) -> None:
    file = tmp_path / "0.log"
    for offset, value in enumerate((b"once-1:t-0:16", b"once-1:t-0:16")):
        batch = memoryview(bytearray(encode_batch([Record(0, 0, None, value)])))
        patch(batch, offset, 0)
        with file.open("ab") as end:
            end.write(batch)
    segment = SimpleNamespace(path=file, size_bytes=file.stat().st_size)
    log: Any = SimpleNamespace(segments=[segment], log_start_offset=start)
    checks = Checks(SimpleNamespace(hosts={}, on_tree=lambda watch: None))  # type: ignore[arg-type]
    with pytest.raises(Violation, match="once-1:t-0:16") if is_twice else nullcontext():
        checks._check_values(SimpleNamespace(broker_id=1), KEY, log, {})  # type: ignore[arg-type]


def test_compacted_logs_may_differ_in_what_compaction_removes_and_in_nothing_else(tmp_path: Path) -> None:
    whole: list[tuple[int, bytes, bytes | None]] = [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"b", None), (3, b"a", b"2")]

    def compare(*replicas: list[tuple[int, bytes, bytes | None]]) -> None:
        logs: dict[int, Any] = {}
        for broker_id, rows in enumerate(replicas, start=1):
            path = tmp_path / f"{broker_id}.log"
            batches = [encode_batch([Record(offset, 1, key, value)], base_offset=offset) for offset, key, value in rows]
            path.write_bytes(b"".join(batches))
            segment = SimpleNamespace(path=path, size_bytes=path.stat().st_size)
            logs[broker_id] = SimpleNamespace(segments=[segment], log_start_offset=0)
        Checks._check_copies(KEY, logs)

    compare(whole, whole[3:], whole[2:], whole[1:])
    for other in (whole[:3], [whole[1], whole[3]], [*whole[:3], (3, b"a", b"3")], [*whole[2:], (9, b"tail", b"1")]):
        with pytest.raises(Violation, match="compacted logs match"):
            compare(whole, other)
