"""Moving partitions: what Kafka does with replicas, ISR and leader from the first order to the last broker gone."""

import uuid
from dataclasses import replace

import pytest

from pylog.cluster.election import elect
from pylog.cluster.image import Move, PartitionImage, TopicImage
from pylog.cluster.reassignment import begin_move, finish_move
from pylog.errors import ApiError, ErrorCode
from pylog.model import NO_LEADER

LIVE = {1, 2, 3, 4, 5}


def topic(leader: int = 1, isr: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2)) -> TopicImage:
    return TopicImage("t", uuid.UUID(int=1), {0: PartitionImage(leader, 5, isr, replicas, 9)})


def with_isr(moving: TopicImage, isr: tuple[int, ...]) -> TopicImage:
    return replace(moving, partitions={0: replace(moving.partitions[0], isr=isr)})


def test_a_move_has_both_sets_of_replicas_until_it_is_done() -> None:
    moving = begin_move(topic(), 0, [3, 2], LIVE)
    assert moving.partitions[0] == PartitionImage(1, 6, (1, 2), (3, 2, 1), 9)
    assert moving.moves == {0: Move(adding=(3,), removing=(1,))}
    assert moving.factor(0) == 2
    assert finish_move(moving, 0, LIVE) is None, "3 is not in sync yet"


def test_when_all_are_in_sync_the_others_go_and_the_leader_with_them() -> None:
    moving = with_isr(begin_move(topic(), 0, [3, 2], LIVE), (3, 2, 1))
    done = finish_move(moving, 0, LIVE)
    assert done is not None
    assert done.partitions[0] == PartitionImage(3, 7, (3, 2), (3, 2), 9)
    assert done.moves == {}
    assert done.leaving == {0: (1,)}


def test_a_leader_that_stays_keeps_its_epoch_when_the_others_go() -> None:
    moving = with_isr(begin_move(topic(leader=2), 0, [3, 2], LIVE), (3, 2, 1))
    done = finish_move(moving, 0, LIVE)
    assert done is not None
    assert done.partitions[0] == PartitionImage(2, 6, (3, 2), (3, 2), 9)


def test_whoever_comes_follows_in_a_new_epoch_also_where_a_move_is_under_way() -> None:
    """What it fetched as a replica of before, which it is about to delete, must not count."""
    back = begin_move(topic(leader=2), 0, [2, 3], LIVE)
    assert back.partitions[0].leader_epoch == 6
    assert begin_move(back, 0, [2, 4], LIVE).partitions[0].leader_epoch == 7
    assert begin_move(back, 0, [3, 2], LIVE).partitions[0].leader_epoch == 6, "nobody comes"


def test_a_move_waits_while_nobody_it_leads_to_lives() -> None:
    moving = with_isr(begin_move(topic(), 0, [3], LIVE), (3, 2, 1))
    assert finish_move(moving, 0, {1, 2}) is None
    assert finish_move(moving, 0, {1, 2, 3}) is not None


def test_a_move_is_not_done_by_an_unclean_election_of_who_it_adds() -> None:
    """The others would be ordered to delete what it lacks."""
    moving = begin_move(topic(), 0, [3], LIVE)
    elected = replace(moving.partitions[0], leader=NO_LEADER, leader_epoch=7)
    elected = elect(elected, {3}, move=moving.moves[0], unclean=True)
    assert (elected.leader, elected.isr) == (3, (3,))
    moving = replace(moving, partitions={0: elected})
    assert finish_move(moving, 0, LIVE) is None
    done = finish_move(with_isr(moving, (3, 2)), 0, LIVE)
    assert done is not None, "a replica from before the move has followed since"
    assert done.leaving == {0: (1, 2)}


def test_a_move_of_several_that_only_have_each_other_is_not_done() -> None:
    moving = with_isr(begin_move(topic(), 0, [3, 4], LIVE), (3, 4))
    assert finish_move(moving, 0, LIVE) is None
    assert finish_move(with_isr(moving, (3, 4, 1)), 0, LIVE) is not None


def test_a_new_order_lets_go_of_brokers_that_do_not_come_back() -> None:
    moving = begin_move(topic(), 0, [3, 4], LIVE)
    moving = replace(moving, partitions={0: replace(moving.partitions[0], leader=3, isr=(3, 4))})
    again = begin_move(moving, 0, [3, 4], {3, 4, 5})
    assert again.partitions[0].replicas == (3, 4)
    assert again.moves == {}
    assert again.leaving == {0: (1, 2)}
    other = begin_move(moving, 0, [5, 4], {3, 4, 5})
    assert other.partitions[0] == PartitionImage(3, 7, (3, 4), (5, 4, 3), 9)
    assert other.moves == {0: Move((5,), (3,))}


def test_a_new_order_lets_go_of_nobody_while_nobody_leads() -> None:
    """Those that come may be dead now, and one that goes be about to lead, with more than they have."""
    moving = begin_move(topic(), 0, [3], LIVE)
    moving = replace(moving, partitions={0: replace(moving.partitions[0], leader=NO_LEADER, isr=(3,))})
    again = begin_move(moving, 0, [3], LIVE)
    assert again.moves == {0: Move((3,), (1, 2))}
    assert again.leaving == {}


def test_fewer_replicas_are_a_move_that_is_done_at_once() -> None:
    moving = begin_move(topic(), 0, [2], LIVE)
    done = finish_move(moving, 0, LIVE)
    assert done is not None
    assert done.partitions[0] == PartitionImage(2, 6, (2,), (2,), 9)
    assert done.leaving == {0: (1,)}


def test_another_order_is_no_move() -> None:
    turned = begin_move(topic(), 0, [2, 1], LIVE)
    assert turned.partitions[0] == PartitionImage(1, 5, (1, 2), (2, 1), 9)
    assert turned.moves == {}


def test_a_second_order_starts_where_the_first_began() -> None:
    moving = with_isr(begin_move(topic(), 0, [3, 4], LIVE), (1, 2, 3))
    again = begin_move(moving, 0, [5, 2], LIVE)
    assert again.partitions[0].replicas == (5, 2, 1)
    assert again.partitions[0].isr == (1, 2), "3 was only on its way"
    assert again.moves == {0: Move((5,), (1,))}
    assert again.leaving == {0: (3, 4)}


def test_a_move_that_is_called_off_leaves_everything_as_it_was() -> None:
    moving = with_isr(begin_move(topic(), 0, [3, 4], LIVE), (1, 2, 3))
    back = begin_move(moving, 0, None, LIVE)
    assert back.partitions[0] == PartitionImage(1, 6, (1, 2), (1, 2), 9)
    assert back.moves == {}
    assert back.leaving == {0: (3, 4)}


def test_calling_off_takes_leadership_from_who_only_came() -> None:
    moving = begin_move(topic(), 0, [3], LIVE)
    moving = replace(moving, partitions={0: replace(moving.partitions[0], leader=3, isr=(2, 3))})
    assert begin_move(moving, 0, None, LIVE).partitions[0] == PartitionImage(2, 7, (2,), (1, 2), 9)


def test_calling_off_is_refused_while_only_who_comes_is_in_sync() -> None:
    moving = with_isr(begin_move(topic(), 0, [3], LIVE), (3,))
    with pytest.raises(ApiError) as refusal:
        begin_move(moving, 0, None, LIVE)
    assert refusal.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("live", [{1, 2, 3}, {1}, set()])
@pytest.mark.parametrize("wanted", [None, [1]], ids=["called off", "replaced"])
def test_while_nobody_leads_no_replica_that_was_in_sync_goes(live: set[int], wanted: list[int] | None) -> None:
    """After a power cut it may be the only one that has what was acknowledged."""
    in_doubt = with_isr(begin_move(topic(), 0, [3], LIVE), (1, 3))
    state = replace(in_doubt.partitions[0], leader=NO_LEADER)
    in_doubt = replace(in_doubt, partitions={0: state})
    with pytest.raises(ApiError, match="has no leader") as refused:
        begin_move(in_doubt, 0, wanted, live)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_who_left_and_comes_back_has_nothing_to_delete() -> None:
    left = replace(topic(), leaving={0: (3, 4)})
    assert begin_move(left, 0, [1, 3], LIVE).leaving == {0: (4,)}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([3, 3], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
    ids=["empty", "twice", "negative", "unknown broker", "nothing to call off"],
)
def test_orders_that_make_no_sense_are_refused(wanted: list[int] | None, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refusal:
        begin_move(topic(), 0, wanted, LIVE)
    assert refusal.value.code is code


def test_a_partition_that_is_not_there_is_refused() -> None:
    with pytest.raises(ApiError) as refusal:
        begin_move(topic(), 7, [1], LIVE)
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_dead_replica_may_stay_one() -> None:
    assert begin_move(topic(), 0, [1, 2, 3], {1, 3}).partitions[0].replicas == (1, 2, 3)
