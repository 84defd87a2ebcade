"""One controller's term, fed by hand."""

import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pylog.cluster.controller import MAX_ARRIVALS, Controller, IsrRequest, IsrResult, Snapshot, StateChange
from pylog.cluster.image import BrokerInfo, DeletedTopic, Move, PartitionImage, TopicImage
from pylog.cluster.topics import ClusterConfig, NewTopic
from pylog.errors import ApiError, ErrorCode
from pylog.model import NO_LEADER, NodeAddress


def broker(broker_id: int, epoch: int = 1) -> BrokerInfo:
    address = NodeAddress(broker_id, f"h{broker_id}", 9092)
    return BrokerInfo(broker_id, epoch, None, address, address)


def brokers(*epochs: tuple[int, int]) -> dict[int, BrokerInfo]:
    return {broker_id: broker(broker_id, epoch) for broker_id, epoch in epochs}


def topic(name: str, *partitions: PartitionImage) -> TopicImage:
    return TopicImage(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), dict(enumerate(partitions)))


def led_by(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...], version: int = 3) -> PartitionImage:
    return PartitionImage(leader, 5, isr, replicas, version)


def snapshot(
    live: Mapping[int, BrokerInfo],
    *topics: TopicImage,
    stateless: Mapping[tuple[str, int], tuple[int, ...]] | None = None,
    deletions: tuple[str, ...] = (),
    deleted: tuple[DeletedTopic, ...] = (),
) -> Snapshot:
    return Snapshot(
        live, {one.name: one for one in topics}, stateless or {}, deletions, {one.topic_id: one for one in deleted}, {}
    )


def controller(seen: Snapshot, before: Controller | None = None) -> Controller:
    return Controller(1, 4, "cluster", ClusterConfig(num_partitions=2), seen, before)


def test_a_whole_cluster_needs_no_change() -> None:
    live = brokers((1, 1), (2, 1))
    term = controller(snapshot(live, topic("t", led_by(1, (1, 2), (1, 2)))))
    assert term.settle(live) == []


def test_a_bounce_is_seen_by_the_epoch_alone() -> None:
    term = controller(snapshot(brokers((1, 1), (2, 1)), topic("t", led_by(1, (1, 2), (1, 2)), led_by(1, (1,), (1,)))))
    assert term.settle(brokers((1, 2), (2, 1))) == [
        StateChange("t", 0, PartitionImage(2, 6, (2,), (1, 2), 3)),
        StateChange("t", 1, PartitionImage(1, 6, (1,), (1,), 3)),
    ]


def test_a_bounce_is_seen_once() -> None:
    term = controller(snapshot(brokers((1, 1)), topic("t", led_by(1, (1,), (1,)))))
    now = brokers((1, 2))
    changes = term.settle(now)
    assert term.settle(now) == changes, "until it is written it has to be wanted"
    term.confirm_states(changes)
    term.confirm_brokers(now)
    assert term.settle(now) == []


def test_a_bounce_is_seen_across_a_second_reading_of_the_store() -> None:
    first = controller(snapshot(brokers((1, 1)), topic("t", led_by(1, (1,), (1,)))))
    now = brokers((1, 2))
    second = controller(snapshot(now, topic("t", led_by(1, (1,), (1,)))), before=first)
    assert [change.after.leader_epoch for change in second.settle(now)] == [6]


def test_versions_go_on_across_a_second_reading_of_the_store() -> None:
    first = controller(snapshot({}))
    orders = [first.image().order, first.image().order, controller(snapshot({}), before=first).image().order]
    assert orders == [(4, 1), (4, 2), (4, 3)]


def test_confirmed_states_carry_the_version_they_were_written_with() -> None:
    live = brokers((2, 1))
    term = controller(snapshot(live, topic("t", led_by(1, (1, 2), (1, 2), version=3)), stateless={("t", 1): (2,)}))
    changes = term.settle(live)
    assert [(change.partition, change.is_new) for change in changes] == [(1, True), (0, False)]
    term.confirm_states(changes)
    partitions = term.image().topics["t"].partitions
    assert [(one.leader, one.partition_epoch) for one in partitions.values()] == [(2, 4), (2, 0)]
    assert list(partitions) == [0, 1]
    assert term.settle(live) == []


def test_an_image_shares_what_did_not_change() -> None:
    live = brokers((1, 1), (2, 1))
    term = controller(snapshot(live, topic("a", led_by(1, (1,), (1,))), topic("b", led_by(2, (2,), (2,)))))
    before = term.image()
    changes = term.settle(brokers((1, 1)))
    term.confirm_states(changes)
    after = term.image()
    assert after.topics["a"] is before.topics["a"]
    assert before.topics["b"].partitions[0].leader == 2, "an image does not change"
    assert after.topics["b"].partitions[0].leader == NO_LEADER


def test_a_topic_under_deletion_is_not_shown_and_not_tended() -> None:
    term = controller(
        snapshot(brokers((1, 1)), topic("t", led_by(2, (2,), (2,))), stateless={("t", 1): (3,)}, deletions=("t",))
    )
    assert "t" not in term.image().topics
    assert term.settle(brokers((1, 1))) == []
    deleted = term.deletion_of("t")
    assert deleted is not None
    assert deleted.replicas == (2, 3), "also who holds a partition that never got a state"
    term.confirm_deletion("t", deleted)
    assert list(term.image().deleted_topics.values()) == [deleted]
    assert term.deletion_of("t") is None


def test_a_deletion_is_forgotten_with_the_last_replica() -> None:
    one = DeletedTopic("t", uuid.UUID(int=1), (1, 2))
    term = controller(snapshot({}, deleted=(one,)))
    assert term.after_cleanup(3, [one.topic_id]) == []
    assert term.after_cleanup(1, [uuid.UUID(int=9)]) == []
    [left] = term.after_cleanup(1, [one.topic_id])
    assert left.replicas == (2,)
    term.confirm_cleanup(left)
    assert term.image().deleted_topics == {one.topic_id: left}
    [none] = term.after_cleanup(2, [one.topic_id])
    term.confirm_cleanup(none)
    assert not term.image().deleted_topics


def test_topics_of_one_request_take_turns_on_the_brokers() -> None:
    term = controller(snapshot(brokers((1, 1), (2, 1), (3, 1))))
    planned, refused = term.plan_topics([(NewTopic(name), uuid.uuid4()) for name in ("a", "b", "c")])
    assert not refused
    assert [one.leader for each in planned for one in each.partitions.values()] == [1, 2, 3, 1, 2, 3]
    term.confirm_topic(planned[0])
    later, _ = term.plan_topics([(NewTopic("d", 1), uuid.uuid4())])
    assert later[0].partitions[0].leader == 3, "the next request goes on where the last one ended"


def test_a_refused_topic_does_not_stop_the_others() -> None:
    term = controller(snapshot(brokers((1, 1)), topic("old", led_by(1, (1,), (1,)))))
    planned, refused = term.plan_topics([(NewTopic(name), uuid.uuid4()) for name in ("new", "old", "bad/name")])
    assert [each.name for each in planned] == ["new"]
    assert {name: error.code for name, error in refused.items()} == {
        "old": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_topics_of_other_tools_are_adopted() -> None:
    live = brokers((1, 1))
    term = controller(snapshot(live))
    term.adopt_topics({"t": topic("t")}, {("t", 0): (1,), ("t", 1): (2,)})
    term.confirm_states(term.settle(live))
    assert [one.leader for one in term.image().topics["t"].partitions.values()] == [1, NO_LEADER]


@pytest.mark.parametrize("unclean", [False, True])
def test_unclean_elections_are_a_choice(unclean: bool) -> None:
    term = Controller(
        1,
        4,
        "c",
        ClusterConfig(unclean_elections=unclean),
        snapshot(brokers((2, 1)), topic("t", led_by(1, (1,), (1, 2)))),
    )
    assert [change.after.leader for change in term.settle(brokers((2, 1)))] == [2 if unclean else NO_LEADER]


@pytest.mark.parametrize("is_asked_for", [False, True], ids=["by the topic's choice", "by an operator"])
def test_who_a_move_adds_is_elected_last_and_does_not_end_it(is_asked_for: bool) -> None:
    """It may have next to nothing, and where the move ended the others would be ordered to delete what they have."""
    moving = replace(topic("t", led_by(NO_LEADER, (1,), (3, 1, 2))), moves={0: Move((3,), (1, 2))})
    live = brokers((2, 1), (3, 1))
    term = Controller(1, 4, "c", ClusterConfig(unclean_elections=not is_asked_for), snapshot(live, moving))

    def elected() -> list[StateChange]:
        return term.plan_elections([("t", 0)], unclean=True)[0] if is_asked_for else term.settle(term.brokers)

    assert [change.after.leader for change in elected()] == [2]
    term.confirm_brokers(brokers((3, 1)))
    changes = elected()
    assert [change.after.leader for change in changes] == [3], "nobody else lives"
    term.confirm_states(changes)
    assert term.plan_arrivals().topics == []


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("text", ["true", "false"])
def test_a_topic_s_own_choice_wins(default: bool, text: str) -> None:
    found = replace(topic("t", led_by(1, (1,), (1, 2))), configs={"unclean.leader.election.enable": text})
    term = Controller(1, 4, "c", ClusterConfig(unclean_elections=default), snapshot(brokers((2, 1)), found))
    assert [change.after.leader for change in term.settle(brokers((2, 1)))] == [2 if text == "true" else NO_LEADER]


def unclean(broker_id: int, epoch: int = 1) -> BrokerInfo:
    return replace(broker(broker_id, epoch), is_clean=False)


def in_doubt(*members: int, isr: tuple[int, ...] = (1, 2)) -> tuple[Controller, tuple[uuid.UUID, int]]:
    """Return a term that has only *members*, all after unclean stops, and the partition that waits for them."""
    live = {member: unclean(member) for member in members}
    found = topic("t", led_by(NO_LEADER, isr, (1, 2, 3)))
    term = controller(snapshot(live, found))
    assert term.settle(live) == []
    return term, (found.topic_id, 0)


def test_rule_3_the_longest_log_leads_once_all_have_said_what_they_have() -> None:
    term, key = in_doubt(1, 2)
    assert term.plan_recovery(1, 1, {key: (5, 10)}, now_ms=0) == []
    assert not term.is_recovered(1)
    changes = term.plan_recovery(2, 1, {key: (5, 12)}, now_ms=0)
    assert changes == [StateChange("t", 0, PartitionImage(2, 6, (2,), (1, 2, 3), 3))]
    term.confirm_states(changes)
    assert term.is_recovered(1)
    assert term.is_recovered(2)
    term.confirm_recovery(2)
    assert term.image().brokers[2].is_clean


@pytest.mark.parametrize("has_memory", [(True, True), (True, False)])
def test_possible_loss_is_said_only_of_hosts_that_may_have_lost_their_memory(
    caplog: pytest.LogCaptureFixture, has_memory: tuple[bool, bool]
) -> None:
    live = {one: replace(unclean(one), has_memory=has_memory[one - 1]) for one in (1, 2)}
    found = topic("t", led_by(NO_LEADER, (1, 2), (1, 2, 3)))
    term = controller(snapshot(live, found))
    for one in live:
        term.plan_recovery(one, 1, {(found.topic_id, 0): (5, 10)}, now_ms=0)
    assert ("possible loss" in caplog.text) is not all(has_memory)


def test_a_topic_that_may_lose_records_waits_for_nobody_who_is_away() -> None:
    found = replace(topic("t", led_by(1, (1, 2), (1, 2, 3))), configs={"unclean.leader.election.enable": "true"})
    live = {1: unclean(1), 3: broker(3)}
    term = controller(snapshot(live, found))
    changes = term.settle(live)
    assert [(change.after.leader, change.after.leader_epoch) for change in changes] == [(NO_LEADER, 6)]
    term.confirm_states(changes)
    [change] = term.plan_recovery(1, 1, {(found.topic_id, 0): (5, 10)}, now_ms=7)
    assert (change.after.leader, change.after.isr, change.after.leader_epoch) == (1, (1,), 7)


def test_a_topic_that_may_lose_records_waits_for_those_who_are_back_to_say_what_they_have() -> None:
    found = replace(
        topic("t", led_by(NO_LEADER, (1, 2, 3), (1, 2, 3))), configs={"unclean.leader.election.enable": "true"}
    )
    live = {1: unclean(1), 2: unclean(2)}
    term = controller(snapshot(live, found))
    assert term.settle(live) == []
    assert term.plan_recovery(1, 1, {(found.topic_id, 0): (5, 10)}, now_ms=7) == []
    [change] = term.plan_recovery(2, 1, {(found.topic_id, 0): (5, 12)}, now_ms=8)
    assert (change.after.leader, change.after.isr) == (2, (2,)), "broker 3 is away"


def test_a_topic_that_may_lose_records_does_not_wait_for_a_log_that_cannot_be_read() -> None:
    found = replace(
        topic("t", led_by(NO_LEADER, (1, 2), (1, 2, 3))), configs={"unclean.leader.election.enable": "true"}
    )
    term = controller(snapshot({1: unclean(1), 2: unclean(2)}, found))
    assert term.plan_recovery(2, 1, {}, now_ms=7) == []
    [change] = term.plan_recovery(1, 1, {(found.topic_id, 0): (5, 10)}, now_ms=8)
    assert (change.after.leader, change.after.isr) == (1, (1,))


def test_rule_3_waiting_for_the_missing_ends() -> None:
    term, key = in_doubt(1)
    wait_ms = term.config.unclean_recovery_wait_ms
    assert term.plan_recovery(1, 1, {key: (5, 10)}, now_ms=7) == []
    assert term.plan_recovery(1, 1, {key: (5, 10)}, now_ms=7 + wait_ms - 1) == []
    [change] = term.plan_recovery(1, 1, {key: (5, 10)}, now_ms=7 + wait_ms)
    assert (change.after.leader, change.after.isr) == (1, (1,))


@pytest.mark.parametrize("asked", [[("t", 0)], None])
def test_rule_3_a_partition_in_doubt_waits_whoever_asks_for_another_leader(asked: list[tuple[str, int]] | None) -> None:
    term, _ = in_doubt(1, 2)
    changes, results = term.plan_elections(asked, unclean=False)
    assert (changes, results) == ([], {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE})
    assert term.plan_shutdown(2, 1) == [], "the broker that stops may have what the other one lost"


def test_rule_3_a_log_that_cannot_be_read_is_not_elected() -> None:
    term, _ = in_doubt(1, isr=(1,))
    assert term.plan_recovery(1, 1, {}, now_ms=0) == []
    assert term.plan_recovery(1, 1, {}, now_ms=term.config.unclean_recovery_wait_ms) == []


def test_rule_3_a_report_of_an_earlier_process_is_refused() -> None:
    term, key = in_doubt(1, 2)
    with pytest.raises(ApiError) as refusal:
        term.plan_recovery(1, 0, {key: (5, 10)}, now_ms=0)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_rule_3_a_replica_in_doubt_joins_no_isr_before_it_has_said_what_it_has() -> None:
    live = {1: broker(1), 2: unclean(2)}
    term = controller(snapshot(live, topic("t", led_by(1, (1,), (1, 2)))))
    wish = IsrRequest(uuid.uuid5(uuid.NAMESPACE_DNS, "t"), 0, 5, 3, ((1, 1), (2, 1)))
    refused = term.plan_isr(1, 1, wish)
    assert isinstance(refused, IsrResult)
    assert refused.error is ErrorCode.STALE_BROKER_EPOCH
    term.plan_recovery(2, 1, {}, now_ms=0)
    assert isinstance(term.plan_isr(1, 1, wish), StateChange)
    assert term.settle(live) == [], "what it has said counts for partitions that are led"


def test_a_broker_that_stops_hands_over_and_joins_no_isr_again() -> None:
    live = brokers((1, 1), (2, 1))
    states = led_by(1, (1, 2), (1, 2)), led_by(2, (2, 1), (1, 2)), led_by(1, (1,), (1,))
    term = controller(snapshot(live, topic("t", *states)))
    changes = term.plan_shutdown(1, 1)
    assert changes == [
        StateChange("t", 0, PartitionImage(2, 6, (2,), (1, 2), 3)),
        StateChange("t", 1, PartitionImage(2, 5, (2,), (1, 2), 3)),
    ], "what nobody else has stays"
    term.confirm_states(changes)
    wish = IsrRequest(uuid.uuid5(uuid.NAMESPACE_DNS, "t"), 0, 6, 4, ((1, 1), (2, 1)))
    refused = term.plan_isr(2, 1, wish)
    assert isinstance(refused, IsrResult)
    assert refused.error is ErrorCode.STALE_BROKER_EPOCH
    bounced = brokers((1, 2), (2, 1))
    term.confirm_brokers(bounced)
    assert isinstance(term.plan_isr(2, 1, replace(wish, isr=((1, 2), (2, 1)))), StateChange)
    with pytest.raises(ApiError):
        term.plan_shutdown(1, 1)


def test_elections_on_request_have_a_result_for_each() -> None:
    live = brokers((1, 1), (2, 1))
    states = (
        led_by(2, (2, 1), (1, 2)),
        led_by(1, (1, 2), (1, 2)),
        led_by(2, (2,), (1, 2)),
        led_by(NO_LEADER, (3,), (3, 2)),
    )
    term = controller(snapshot(live, topic("t", *states)))
    changes, results = term.plan_elections([("t", 0), ("t", 1), ("t", 2), ("u", 0)], unclean=False)
    assert changes == [StateChange("t", 0, PartitionImage(1, 6, (2, 1), (1, 2), 3))]
    assert list(results.values()) == [
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert ("t", 1) not in term.plan_elections(None, unclean=False)[1], "of all, only what something came of"
    changes, results = term.plan_elections([("t", 0), ("t", 3)], unclean=True)
    assert changes == [StateChange("t", 3, PartitionImage(2, 6, (2,), (3, 2), 3))]
    assert list(results.values()) == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.NONE]


def test_a_leader_whose_log_cannot_be_used_gives_up_to_another_member() -> None:
    live = brokers((1, 1), (2, 1))
    term = controller(snapshot(live, topic("t", led_by(1, (1, 2), (1, 2, 3)), led_by(1, (1, 3), (1, 2, 3)))))
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, "t")
    assert term.plan_isr(1, 1, IsrRequest(topic_id, 0, 5, 3, ((2, -1),))) == StateChange(
        "t", 0, PartitionImage(2, 6, (2,), (1, 2, 3), 3)
    )
    refused = term.plan_isr(1, 1, IsrRequest(topic_id, 1, 5, 3, ((3, -1),)))
    assert refused == IsrResult(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, (1, 3), 3), "3 is not there to take over"
    outsider = term.plan_isr(1, 1, IsrRequest(topic_id, 0, 5, 3, ((3, -1),)))
    assert isinstance(outsider, IsrResult)
    assert outsider.error is ErrorCode.INVALID_REQUEST


def test_a_follower_that_cannot_write_leaves_the_isr_and_nothing_else_changes() -> None:
    live = brokers((1, 1), (2, 1), (3, 1))
    states = (led_by(1, (1, 2, 3), (1, 2, 3)), led_by(1, (1, 2), (1, 2, 3)), led_by(NO_LEADER, (2, 3), (2, 3)))
    term = controller(snapshot(live, topic("t", *states)))
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, "t")
    wish = IsrRequest(topic_id, 0, 5, 3, ((1, -1), (2, -1)))
    assert term.plan_isr(3, 1, wish) == StateChange("t", 0, PartitionImage(1, 5, (1, 2), (1, 2, 3), 3))

    def refusal(broker_id: int, broker_epoch: int, wanted: IsrRequest) -> ErrorCode:
        found = term.plan_isr(broker_id, broker_epoch, wanted)
        assert isinstance(found, IsrResult)
        return found.error

    assert refusal(2, 1, wish) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "a follower takes nobody else out"
    assert refusal(3, 1, replace(wish, isr=((1, 1), (2, 1), (3, 1), (4, 1)))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(3, 1, replace(wish, partition=1, isr=((1, -1),))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(3, 1, replace(wish, partition=2, isr=((2, -1),))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(3, 2, wish) is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(3, 1, replace(wish, leader_epoch=4)) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(3, 1, replace(wish, partition_epoch=2)) is ErrorCode.INVALID_UPDATE_VERSION


def moving_term() -> Controller:
    seen = replace(
        snapshot(brokers((1, 1), (2, 1), (3, 1)), topic("t", led_by(1, (1, 2), (1, 2)), led_by(2, (2,), (2,)))), level=2
    )
    return controller(seen)


def test_a_move_is_finished_by_the_isr_change_that_completes_it() -> None:
    term = moving_term()
    rewrite, refused = term.plan_moves({("t", 0): [3, 2], ("t", 9): [1], ("u", 0): None})
    assert {key: error.code for key, error in refused.items()} == {
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    [begun] = rewrite.states
    assert (begun.after.leader, begun.after.leader_epoch) == (1, 6), "in a new epoch"
    term.confirm_rewrite(rewrite)
    assert term.topics["t"].partitions[0].replicas == (3, 2, 1)
    assert not term.plan_arrivals().topics
    wish = IsrRequest(term.topics["t"].topic_id, 0, 6, 4, ((1, 1), (2, 1), (3, 1)))
    late = term.plan_isr(1, 1, replace(wish, leader_epoch=5, partition_epoch=3))
    assert isinstance(late, IsrResult)
    assert late.error is ErrorCode.FENCED_LEADER_EPOCH, "who comes may not be let in for what it had before"
    plan = term.plan_isr(1, 1, wish)
    assert isinstance(plan, StateChange)
    term.confirm_states([plan])
    done = term.plan_arrivals()
    [change] = done.states
    assert (change.after.leader, change.after.leader_epoch, change.after.isr, change.after.partition_epoch) == (
        3, 7, (3, 2), 5
    )  # fmt: skip
    term.confirm_rewrite(done)
    assert term.topics["t"].partitions[0] == PartitionImage(3, 7, (3, 2), (3, 2), 6)
    assert term.topics["t"].leaving == {0: (1,)}
    [cleaned] = term.after_removal(1, [(term.topics["t"].topic_id, 0)])
    assert cleaned.leaving == {}


def test_a_new_controller_finishes_what_only_half_was_written() -> None:
    term = moving_term()
    rewrite, _ = term.plan_moves({("t", 0): [3, 2]})
    # The state of the finished move stands in the store, the assignment still says that it is under way.
    [before] = rewrite.topics
    partitions = {**before.partitions, 0: replace(before.partitions[0], leader=3, leader_epoch=6, isr=(3, 2))}
    successor = controller(
        replace(snapshot(brokers((1, 1), (2, 1), (3, 1)), replace(before, partitions=partitions)), level=2)
    )
    done = successor.plan_arrivals()
    assert done.states == []
    assert done.topics[0].partitions[0].replicas == (3, 2)


def test_no_more_moves_of_a_topic_end_at_once_than_fit_one_write() -> None:
    count = 2 * MAX_ARRIVALS + 1
    moving = topic("t", *[led_by(1, (1, 2), (2, 1))] * count)
    moving = replace(moving, moves={number: Move((), (1,)) for number in range(count)})
    term = controller(replace(snapshot(brokers((1, 1), (2, 1)), moving), level=2))
    ended = []
    while (rewrite := term.plan_arrivals()).topics:
        ended.append(len(rewrite.states))
        term.confirm_rewrite(rewrite)
    assert ended == [MAX_ARRIVALS, MAX_ARRIVALS, 1]
    assert not term.topics["t"].moves


def test_growing_a_topic_waits_for_its_moves() -> None:
    term = moving_term()
    term.confirm_rewrite(term.plan_moves({("t", 0): [3, 2]})[0])
    with pytest.raises(ApiError) as refusal:
        term.plan_growth("t", 3, None)
    assert refusal.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_a_deleted_topic_is_deleted_too_where_it_was_before_a_move() -> None:
    seen = replace(topic("t", led_by(1, (1,), (1,))), leaving={0: (2,)})
    term = controller(snapshot(brokers((1, 1)), seen))
    deleted = term.deletion_of("t")
    assert deleted is not None
    assert deleted.replicas == (1, 2)


def test_the_second_wish_for_a_partition_in_one_request_is_refused() -> None:
    term = controller(snapshot(brokers((1, 1), (2, 1)), topic("t", led_by(1, (1, 2), (1, 2)))))
    wish = IsrRequest(term.topics["t"].topic_id, 0, 5, 3, ((1, 1),))
    first, second = term.plan_isrs(1, 1, [wish, wish])
    assert isinstance(first, StateChange)
    assert second == IsrResult(ErrorCode.INVALID_REQUEST)


def test_formats_are_finalized_once_no_broker_is_behind() -> None:
    live = brokers((1, 1), (2, 1))
    term = controller(snapshot({**live, 1: replace(live[1], max_level=5), 2: replace(live[2], max_level=4)}))
    with pytest.raises(ApiError, match="2 still run") as refusal:
        term.plan_finalize()
    assert refusal.value.code is ErrorCode.FEATURE_UPDATE_FAILED
    ready = {one: replace(broker, max_level=5) for one, broker in live.items()}
    assert controller(snapshot(ready)).plan_finalize() == 5


def test_nobody_leads_transactional_ids_who_may_lack_some() -> None:
    name = "__transaction_state"
    found = replace(topic(name, led_by(1, (1,), (1, 2))), configs={"unclean.leader.election.enable": "true"})
    term = Controller(1, 4, "c", ClusterConfig(unclean_elections=True), snapshot(brokers((2, 1)), found))
    (change,) = term.settle(brokers((2, 1)))
    assert change.after.leader == NO_LEADER
    term.topics[name] = replace(found, partitions={0: change.after})
    assert term.plan_elections([(name, 0)], unclean=True) == ([], {(name, 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE})


def test_rule_3_transactional_ids_wait_for_all_missing_ends_however_long() -> None:
    found = topic("__transaction_state", led_by(NO_LEADER, (1, 2), (1, 2, 3)))
    key = (found.topic_id, 0)
    live = {1: unclean(1), 2: unclean(2)}
    term = controller(snapshot(live, found))
    assert term.settle(live) == []
    wait_ms = term.config.unclean_recovery_wait_ms
    assert term.plan_recovery(1, 1, {key: (5, 10)}, now_ms=7) == []
    assert term.plan_recovery(1, 1, {key: (5, 10)}, now_ms=7 + wait_ms) == []
    assert term.plan_recovery(2, 1, {}, now_ms=8 + wait_ms) == [], "its log cannot be read"
    assert term.plan_recovery(1, 1, {key: (5, 10)}, now_ms=8 + 2 * wait_ms) == []
    [change] = term.plan_recovery(2, 1, {key: (5, 12)}, now_ms=9 + 2 * wait_ms)
    assert (change.after.leader, change.after.isr) == (2, (2,))


@pytest.mark.parametrize("name", ["__transaction_state", "__consumer_offsets"])
def test_topics_whose_keys_belong_to_a_partition_by_its_number_do_not_grow(name: str) -> None:
    term = Controller(1, 4, "c", ClusterConfig(), snapshot(brokers((1, 1)), topic(name, led_by(1, (1,), (1,)))))
    with pytest.raises(ApiError, match="keeps its partitions") as refused:
        term.plan_growth(name, 3, None)
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS
