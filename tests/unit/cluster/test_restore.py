"""What a restored store holds, by a backup and by what lies on the brokers' disks: design rule 17."""

import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pylog.cluster import znodes
from pylog.cluster.image import DeletedTopic, Move, PartitionImage, TopicImage
from pylog.cluster.restore import (
    EPOCH_MARGIN,
    LONG_AGO_MS,
    FoundBroker,
    FoundLog,
    Origin,
    Restoration,
    RestoredTopic,
    RestoreRefused,
    plan_restore,
)
from pylog.model import NO_LEADER, TopicPartition

CLUSTER = "c-1"
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def state(leader: int = 1, epoch: int = 5, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionImage:
    return PartitionImage(leader, epoch, replicas, replicas, 0)


def backup(*topics: TopicImage, **more: bytes) -> dict[str, bytes]:
    nodes = {
        znodes.CLUSTER_ID: znodes.encode_cluster_id(CLUSTER),
        znodes.CONTROLLER_EPOCH: znodes.encode_controller_epoch(7),
        znodes.PRODUCER_ID_BLOCK: znodes.encode_producer_id_block(1, 3_000),
        "/brokers/topics": b"",
        "/consumers/g/offsets/t/0": b"11",
        znodes.FORMAT_LEVEL: znodes.encode_level(2),
    }
    for topic in topics:
        nodes[znodes.topic_path(topic.name)] = znodes.encode_assignment(topic)
        nodes[znodes.topic_config_path(topic.name)] = znodes.encode_configs(topic.configs)
        for number, one in topic.partitions.items():
            nodes[znodes.state_path(topic.name, number)] = znodes.encode_state(one, 7)
    return nodes | more


def topic(name: str = "t", topic_id: uuid.UUID = OLD, *states: PartitionImage) -> TopicImage:
    return TopicImage(name, topic_id, dict(enumerate(states or (state(),))), {"retention.ms": "1000"})


def log(
    end: int = 10,
    *epochs: tuple[int, int],
    topic_id: uuid.UUID | None = OLD,
    name: str = "t",
    number: int = 0,
    start: int = 0,
) -> FoundLog:
    return FoundLog(TopicPartition(name, number), topic_id, epochs or ((5, 0),), start, end, {"retention.ms": "2000"})


def emptied(end: int) -> FoundLog:
    """Return a log whose records were all deleted and that does not say under which epoch they were written."""
    return replace(log(end, start=end), epochs=())


def brokers(logs: Mapping[int, list[FoundLog]], cluster_id: str | None = CLUSTER) -> list[FoundBroker]:
    return [FoundBroker(number, cluster_id, {one.key: one for one in found}, 4_500) for number, found in logs.items()]


def only(made: Restoration) -> RestoredTopic:
    [found] = made.topics
    return found


def written(made: Restoration, name: str = "t", number: int = 0) -> PartitionImage:
    assignment = znodes.decode_assignment(made.nodes[znodes.topic_path(name)])
    return znodes.decode_state(made.nodes[znodes.state_path(name, number)], 0, assignment.replicas[number])


def test_logs_that_agree_are_in_sync_and_nobody_leads_before_a_controller_says_so() -> None:
    made = plan_restore(backup(topic()), brokers({1: [log()], 2: [log()], 3: [log()]}))
    assert written(made) == PartitionImage(NO_LEADER, 5 + EPOCH_MARGIN, (1, 2, 3), (1, 2, 3), 0)
    assert only(made).origin is Origin.BOTH
    assert made.nodes[znodes.topic_config_path("t")] == znodes.encode_configs({"retention.ms": "1000"})


def test_no_epoch_goes_backwards() -> None:
    newer = {1: [log(10, (5, 0), (15, 8))], 2: [log(10, (5, 0), (15, 8))], 3: [log(8)]}
    made = plan_restore(backup(topic()), brokers(newer))
    assert written(made).leader_epoch > 15
    assert znodes.decode_controller_epoch(made.nodes[znodes.CONTROLLER_EPOCH]) == made.controller_epoch > 7
    assert znodes.next_producer_id(made.nodes[znodes.PRODUCER_ID_BLOCK]) > 4_500


def test_the_highest_epoch_wins_over_the_longest_log() -> None:
    made = plan_restore(backup(topic()), brokers({1: [log(99)], 2: [log(50, (5, 0), (6, 50 - 1))], 3: [log(40)]}))
    assert written(made).isr == (2,)
    assert only(made).catching_up == (0,)


def test_equal_ends_of_different_epochs_do_not_agree() -> None:
    made = plan_restore(
        backup(topic()),
        brokers({1: [log(10, (5, 0), (7, 9))], 2: [log(10, (5, 0), (6, 8), (7, 9))], 3: [log(10, (5, 0), (7, 9))]}),
    )
    assert written(made).isr == (1, 3)


def test_logs_agree_from_where_both_begin() -> None:
    kept = log(10, (4, 0), (5, 6))
    expired = log(10, (5, 7), start=7)
    assert kept.agrees(expired)
    assert not kept.agrees(log(10, (6, 7), start=7))


@pytest.mark.parametrize("starts", [(0, 4, 4), (0, 10, 0), (0, 0, 0)])
def test_of_logs_that_agree_those_that_begin_last_are_in_sync(starts: tuple[int, int, int]) -> None:
    """One that was away when records were deleted would show them again as a leader."""
    made = plan_restore(
        backup(topic()), brokers({one: [log(10, (5, start), start=start)] for one, start in enumerate(starts, 1)})
    )
    assert written(made).isr == tuple(one for one, start in enumerate(starts, 1) if start == max(starts))
    assert written(made).replicas == (1, 2, 3)
    assert only(made).catching_up == (() if len(set(starts)) == 1 else (0,))


def test_a_log_that_is_behind_is_not_in_sync_for_beginning_last() -> None:
    made = plan_restore(backup(topic()), brokers({1: [log(10)], 2: [log(8, (5, 8), start=8)], 3: [log(10)]}))
    assert written(made).isr == (1, 3)


@pytest.mark.parametrize(("end", "isr"), [(90, (1, 2)), (100, (1, 2)), (120, (3,))])
def test_emptied_logs_without_an_epoch_are_compared_by_where_they_end(end: int, isr: tuple[int, ...]) -> None:
    """What was deleted had been committed: a log that ends below lacks some of it, whatever its epoch."""
    made = plan_restore(backup(topic()), brokers({1: [emptied(100)], 2: [emptied(100)], 3: [log(end)]}))
    assert written(made).isr == isr
    assert only(made).catching_up == (0,)


def test_of_emptied_logs_without_an_epoch_the_longest_is_in_sync() -> None:
    made = plan_restore(backup(topic()), brokers({1: [emptied(80)], 2: [emptied(100)], 3: [log(90)]}))
    assert written(made).isr == (2,)


def test_a_log_that_never_had_records_is_behind_one_that_has_some() -> None:
    made = plan_restore(backup(topic()), brokers({1: [emptied(0)], 2: [log(7)], 3: [emptied(0)]}))
    assert written(made).isr == (2,)


def test_a_foreign_cluster_is_refused() -> None:
    with pytest.raises(RestoreRefused, match="cluster c-1, but the data of broker 1 is of cluster c-2"):
        plan_restore(backup(topic()), brokers({1: [log()], 2: [], 3: []}, "c-2"))


def test_a_broker_that_was_not_read_is_named() -> None:
    with pytest.raises(RestoreRefused, match=r"broker 3 holds replicas.*--lost 3"):
        plan_restore(backup(topic()), brokers({1: [log()], 2: [log()]}))


def test_a_broker_read_twice_is_refused() -> None:
    with pytest.raises(RestoreRefused, match="broker 1 was read twice"):
        plan_restore(backup(topic()), [*brokers({1: []}), *brokers({1: []})])


def test_what_only_a_lost_broker_had_waits_for_it() -> None:
    made = plan_restore(backup(topic()), brokers({1: [], 2: []}), lost=[3])
    assert written(made).isr == (3,)
    assert only(made).waiting == (0,)


def test_a_lost_broker_may_have_had_more() -> None:
    made = plan_restore(backup(topic()), brokers({1: [log()], 2: [log()]}), lost=[3])
    assert written(made) == PartitionImage(NO_LEADER, 5 + EPOCH_MARGIN, (1, 2), (1, 2, 3), 0)
    assert (only(made).uncertain, only(made).catching_up) == ((0,), (0,))


def test_a_topic_on_no_disk_begins_empty() -> None:
    made = plan_restore(backup(topic()), brokers({1: [], 2: [], 3: []}))
    assert only(made).origin is Origin.BACKUP
    assert written(made).isr == (1, 2, 3)


def test_a_topic_made_after_the_backup_is_found_on_the_disks() -> None:
    both = [log(4, (0, 0), topic_id=NEW, name="new", number=number) for number in (0, 1)]
    new = {broker: [log(), *both] for broker in (1, 2, 3)}
    made = plan_restore(backup(topic()), brokers(new))
    found = made.topics[0]
    assert (found.name, found.origin, found.image.topic_id) == ("new", Origin.DISKS, NEW)
    assert written(made, "new", 1).isr == (2, 3, 1), "each partition prefers another leader"
    assert znodes.decode_configs(made.nodes[znodes.topic_config_path("new")]) == {"retention.ms": "2000"}


def test_a_topic_made_anew_keeps_the_id_of_the_disks() -> None:
    made = plan_restore(backup(topic()), brokers({number: [log(3, (0, 0), topic_id=NEW)] for number in (1, 2, 3)}))
    assert (only(made).origin, only(made).image.topic_id) == (Origin.REMADE, NEW)
    assert znodes.decode_configs(made.nodes[znodes.topic_config_path("t")]) == {"retention.ms": "2000"}


def test_topics_of_two_ids_are_refused() -> None:
    with pytest.raises(RestoreRefused, match="different topics named t"):
        plan_restore(backup(topic()), brokers({1: [log()], 2: [log(topic_id=NEW)], 3: []}))


def test_partitions_that_came_after_the_backup_are_there() -> None:
    grown = {number: [log(), log(6, number=1)] for number in (1, 2, 3)}
    made = plan_restore(backup(topic()), brokers(grown))
    assert written(made, number=1).isr == (2, 3, 1)


def test_where_a_partition_moved_to_it_stays() -> None:
    nodes = backup(topic("t", OLD, state(replicas=(1, 2))))
    made = plan_restore(nodes, brokers({1: [log(4)], 2: [log(10)], 3: [log(10)]}))
    assert written(made).replicas == (2, 3)
    assert made.left_out == ["broker 1: t-0: it has as many replicas as it shall have without this one"]


def test_a_move_that_was_under_way_is_not_repeated() -> None:
    moving = replace(topic("t", OLD, state(replicas=(3, 1, 2))), moves={0: Move(adding=(3,), removing=(1,))},
                     leaving={0: (4,)})  # fmt: skip
    made = plan_restore(backup(moving), brokers({1: [log()], 2: [log()], 3: [log(2)]}))
    found = znodes.decode_assignment(made.nodes[znodes.topic_path("t")])
    assert (found.replicas, found.moves, found.leaving) == ({0: (1, 2)}, {}, {})


@pytest.mark.parametrize(("known_ms", "restored_ms"), [(7, 7), (0, LONG_AGO_MS)])
def test_a_restored_topic_is_as_old_as_it_was(known_ms: int, restored_ms: int) -> None:
    nodes = backup(replace(topic(), created_ms=known_ms))
    made = plan_restore(nodes, brokers({1: [log()], 2: [log()], 3: [log()]}))
    # Its new node is younger than commits that are the topic's own.
    assert znodes.decode_assignment(made.nodes[znodes.topic_path("t")]).created_ms == restored_ms


def test_a_deletion_by_id_goes_on_and_one_by_name_is_dropped() -> None:
    order = znodes.deleted_topic_path(NEW)
    nodes = backup(topic()) | {
        order: znodes.encode_deleted_topic(DeletedTopic("gone", NEW, (3,))),
        znodes.delete_topic_path("t"): b"",
    }
    gone = log(topic_id=NEW, name="gone")
    made = plan_restore(nodes, brokers({1: [log()], 2: [log()], 3: [log(), gone]}))
    assert [one.name for one in made.topics] == ["t"]
    assert order in made.nodes
    assert znodes.delete_topic_path("t") not in made.nodes
    assert made.dropped_orders == ["t"]


def test_a_directory_without_topic_id_is_left_alone_and_told() -> None:
    made = plan_restore(backup(topic()), brokers({1: [log()], 2: [log()], 3: [log(topic_id=None)]}))
    assert made.left_out == ["broker 3: t-0: it names no topic id"]
    assert written(made).isr == (1, 2)


def test_a_topic_whose_creation_was_interrupted_is_there() -> None:
    nodes = backup(topic())
    del nodes[znodes.state_path("t", 0)]
    made = plan_restore(nodes, brokers({1: [log(0, (0, 0))], 2: [], 3: []}))
    assert written(made).replicas == (1, 2, 3)


def test_settings_and_offsets_are_as_they_were() -> None:
    nodes = backup(topic()) | {"/config/users/u": b'{"version":1,"config":{}}'}
    made = plan_restore(nodes, brokers({1: [log()], 2: [log()], 3: [log()]}))
    assert made.nodes["/config/users/u"] == nodes["/config/users/u"]
    assert made.nodes["/consumers/g/offsets/t/0"] == b"11"
    assert znodes.decode_level(made.nodes[znodes.FORMAT_LEVEL]) == made.level == 2


def test_a_backup_from_before_transactions_does_not_forbid_those_that_the_disks_have() -> None:
    def restored(nodes: Mapping[str, bytes], end: int) -> Restoration:
        transactions = log(end, topic_id=NEW, name="__transaction_state")
        return plan_restore(nodes, brokers({1: [log(), transactions], 2: [log()], 3: [log()]}))

    made = restored(backup(topic()), 1)
    assert znodes.decode_level(made.nodes[znodes.FORMAT_LEVEL]) == made.level == 4
    assert made.backup_level == 2
    assert restored(backup(topic()) | {znodes.FORMAT_LEVEL: znodes.encode_level(5)}, 1).level == 5
    assert restored(backup(topic()), 0).level == 2, "only brokers write there, so a log without records proves nothing"


def test_a_backup_that_names_no_level_is_of_the_first_one() -> None:
    nodes = backup(topic())
    del nodes[znodes.FORMAT_LEVEL]
    assert plan_restore(nodes, brokers({1: [log()], 2: [log()], 3: [log()]})).level == 1


def test_a_backup_without_cluster_is_refused() -> None:
    with pytest.raises(RestoreRefused, match="names no cluster"):
        plan_restore({}, [])
