"""Owner nodes and committed offsets: two consumers in one tree, and sessions that end when it hurts most."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from pylog.client.paper.ownership import OffsetRegistry, OwnerConflict, Ownership, OwnershipLost
from pylog.client.paper.registries import (
    Subscription,
    decode_subscription,
    encode_subscription,
    id_path,
    offset_path,
    owner_path,
    read_snapshot,
    reset_offsets,
)
from pylog.cluster.image import topic_id_text
from pylog.errors import ConfigError, ProtocolError
from pylog.model import Offset, TopicPartition
from pylog.store.base import NoNode, NotConnected, Operation, Result, SessionState, Store
from pylog.store.embedded import EmbeddedTree
from tests.servers.stores import Backend, embedded_backend

GROUP = "g"
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
FIRST = 100


LOG_START = 7
FORMER, PRESENT = UUID(int=1), UUID(int=2)


def first_offsets(partitions: list[TopicPartition]) -> Mapping[TopicPartition, Offset]:
    return {one: FIRST + one.partition for one in partitions}


def log_starts(partitions: list[TopicPartition]) -> Mapping[TopicPartition, Offset]:
    return dict.fromkeys(partitions, LOG_START)


class Consumer:
    """A registered consumer, as far as the tree knows it."""

    def __init__(self, backend: Backend, name: str) -> None:
        self.name = name
        self.store = backend.connect()
        self.register()
        self.owns = Ownership(self.store, GROUP, name, OffsetRegistry(self.store, GROUP, first_offsets, log_starts))

    def register(self) -> None:
        self.store.create(id_path(GROUP, self.name), b"{}", ephemeral=True, make_parents=True)

    def claim(self, *partitions: TopicPartition) -> dict[TopicPartition, Offset]:
        return self.owns.claim(dict.fromkeys(partitions, f"{self.name}-0"))


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    tree = EmbeddedTree(tmp_path / "tree")
    made = embedded_backend(tree)
    yield made
    made.close()
    tree.close()


@pytest.fixture
def a(backend: Backend) -> Consumer:
    return Consumer(backend, "a")


@pytest.fixture
def b(backend: Backend) -> Consumer:
    return Consumer(backend, "b")


def committed(store: Store, partition: TopicPartition) -> int:
    return int(store.get(offset_path(GROUP, partition))[0])


def test_a_claim_makes_kafkas_nodes_and_writes_down_where_a_new_group_begins(a: Consumer) -> None:
    assert a.claim(P0, P1) == {P0: 100, P1: 101}
    data, stat = a.store.get("/consumers/g/owners/t/0")
    assert (data, stat.ephemeral_owner) == (b"a-0", a.store.session_id)
    assert a.store.get("/consumers/g/offsets/t/1")[0] == b"101"
    assert a.store.get("/consumers/g/offsets/t/1")[1].ephemeral_owner == 0


def test_what_is_owned_cannot_be_claimed(a: Consumer, b: Consumer) -> None:
    a.claim(P1)
    with pytest.raises(OwnerConflict, match="/consumers/g/owners/t/1 is a-0"):
        b.claim(P0, P1, P2)
    assert b.owns.streams() == {}
    assert b.store.exists(owner_path(GROUP, P0)) is None


def test_a_release_hands_over_with_the_offset(a: Consumer, b: Consumer) -> None:
    a.claim(P0, P1)
    a.owns.release([P0], {P0: 150})
    assert a.owns.streams() == {P1: "a-0"}
    assert b.claim(P0) == {P0: 150}


def test_commits_never_go_back(a: Consumer) -> None:
    a.claim(P0)
    assert a.owns.commit({P0: 120}) == {P0: 120}
    assert a.owns.commit({P0: 110}) == {P0: 120}
    assert committed(a.store, P0) == 120


def test_a_commit_of_what_is_not_owned_is_refused_whole(a: Consumer) -> None:
    a.claim(P0)
    with pytest.raises(OwnershipLost, match="t-1"):
        a.owns.commit({P0: 120, P1: 120})
    assert committed(a.store, P0) == 100
    assert a.owns.commit_owned({P0: 120, P1: 120}) == {P0: 120}


def test_after_an_expired_session_the_next_owner_is_not_disturbed(backend: Backend, a: Consumer, b: Consumer) -> None:
    a.claim(P0)
    losses: list[SessionState] = []
    a.store.listen(losses.append)
    backend.expire(a.store)
    assert b.claim(P0) == {P0: 100}
    b.owns.commit({P0: 130})
    with pytest.raises(OwnershipLost):
        a.owns.commit({P0: 120})
    for _ in range(losses.count(SessionState.LOST)):
        a.store.renew()
    # It forgot to forget; its node of the same path is somebody else's now.
    with pytest.raises(OwnershipLost, match="taken over"):
        a.owns.commit({P0: 140})
    a.owns.release([P0], {P0: 140})
    assert a.store.get(owner_path(GROUP, P0))[0] == b"b-0"
    assert committed(a.store, P0) == 130


def test_a_stale_owner_cannot_commit_even_when_it_saw_nothing(backend: Backend, a: Consumer) -> None:
    """Its owner node was replaced between its look and its commit: the version of the offset stops it."""
    a.claim(P0)
    offsets = OffsetRegistry(a.store, GROUP, first_offsets, log_starts)
    offsets.reread([P0])
    late = offsets.committing({P0: 500})
    a.owns.release([P0], {})
    other = Consumer(backend, "c")
    other.claim(P0)
    with pytest.raises(Exception, match="BadVersion"):
        a.store.multi(late)
    assert committed(a.store, P0) == 100


def lose_next_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the next multi, and fail as a connection does that ends before the answer."""
    multi = store.multi

    def done_but_unanswered(operations: Sequence[Operation]) -> list[Result]:
        monkeypatch.setattr(store, "multi", multi)
        multi(operations)
        raise NotConnected(message="the answer was lost")

    monkeypatch.setattr(store, "multi", done_but_unanswered)


def test_a_commit_whose_answer_is_lost_is_known_to_be_done(a: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    a.claim(P0)
    lose_next_answer(a.store, monkeypatch)
    assert a.owns.commit({P0: 120}) == {P0: 120}
    assert a.owns.commit({P0: 121}) == {P0: 121}
    assert committed(a.store, P0) == 121


def test_a_claim_whose_answer_is_lost_leaves_no_owner_behind(
    a: Consumer, b: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    a.claim(P1)
    lose_next_answer(a.store, monkeypatch)
    with pytest.raises(NotConnected):
        a.claim(P0)
    assert a.owns.streams() == {P1: "a-0"}
    a.owns.settle()
    b.claim(P0)
    with pytest.raises(OwnerConflict):
        b.claim(P1)


def test_nobody_claims_without_being_registered(a: Consumer) -> None:
    a.store.delete(id_path(GROUP, "a"))
    with pytest.raises(NoNode):
        a.claim(P0)
    assert a.store.exists(owner_path(GROUP, P0)) is None


def test_many_partitions_are_claimed_in_several_multis(a: Consumer) -> None:
    many = [TopicPartition("t", number) for number in range(1_200)]
    assert len(a.claim(*many)) == 1_200
    a.owns.commit(dict.fromkeys(many, 2000))
    a.owns.release(many, {})
    assert a.store.children("/consumers/g/owners/t") == []
    assert committed(a.store, many[-1]) == 2_000


def test_offsets_are_reset_only_without_consumers(a: Consumer) -> None:
    with pytest.raises(ConfigError, match="has consumers, a;"):
        reset_offsets(a.store, GROUP, {P0: 5})
    a.store.delete(id_path(GROUP, "a"))
    reset_offsets(a.store, GROUP, {P0: 5})
    a.register()
    assert a.claim(P0, P1) == {P0: 5, P1: 101}


def make_topic(store: Store, topic_id: UUID, partition_count: int = 2) -> None:
    """Create the topic "t" in place of the one that is there."""
    path = "/brokers/topics/t"
    if store.exists(path) is not None:
        store.delete(path)
    partitions = ",".join(f'"{number}":[1]' for number in range(partition_count))
    data = f'{{"partitions":{{{partitions}}},"topic_id":"{topic_id_text(topic_id)}","version":3}}'
    store.create(path, data.encode(), make_parents=True)


def test_a_group_begins_anew_in_a_topic_that_was_deleted_and_made_again(a: Consumer, b: Consumer) -> None:
    make_topic(a.store, FORMER, 3)
    a.claim(P0, P1, P2)
    a.owns.release([P0, P1, P2], {P0: 1_000, P1: 1_001, P2: 1_002})
    make_topic(a.store, PRESENT, 2)
    assert a.claim(P0) == {P0: LOG_START}
    # The other one finds the topic's id written down already, and must not take its offset for one of this topic.
    assert b.claim(P1) == {P1: LOG_START}
    assert b.store.children("/consumers/g/offsets/t") == ["0", "1"]
    b.owns.release([P1], {P1: 20})
    assert a.claim(P1) == {P1: 20}


def test_an_owner_of_a_former_topic_commits_nothing_and_lets_go(a: Consumer, b: Consumer) -> None:
    make_topic(a.store, FORMER)
    a.claim(P0, P1)
    make_topic(a.store, PRESENT)
    with pytest.raises(OwnershipLost, match="t-0: the topic was deleted"):
        a.owns.commit({P0: 1_000})
    assert a.owns.of_former_topics({"t": PRESENT}) == a.owns.of_former_topics({}) == {P0, P1}
    assert a.owns.of_former_topics({"t": FORMER}) == set()
    a.owns.release([P0], {P0: 1_000})
    assert b.claim(P0) == {P0: LOG_START}
    a.owns.release([P1], {P1: 1_000})
    assert b.claim(P1) == {P1: LOG_START}
    assert b.owns.of_former_topics({"t": PRESENT}) == set()


def test_a_commit_that_comes_after_a_topic_was_made_again_meets_a_version_that_is_gone(
    a: Consumer, b: Consumer
) -> None:
    """The topic is made again, and claimed, between the owner's look and its commit."""
    make_topic(a.store, FORMER)
    a.claim(P0, P1)
    offsets = OffsetRegistry(a.store, GROUP, first_offsets, log_starts)
    offsets.reread([P0])
    a.owns.release([P1], {})
    make_topic(a.store, PRESENT)
    b.claim(P1)
    for _ in range(2):
        with pytest.raises(Exception, match="BadVersion"):
            a.store.multi(offsets.committing({P0: 1_000}))
        offsets.reread([P0])
    assert committed(a.store, P0) == LOG_START


def test_offsets_of_an_earlier_release_count_for_the_topic_that_there_is(a: Consumer, b: Consumer) -> None:
    a.claim(P0, P1)
    a.owns.release([P0, P1], {P0: 150})
    assert a.store.get("/consumers/g/offsets/t")[0] == b""
    make_topic(a.store, PRESENT)
    assert a.claim(P0) == {P0: 150}
    assert a.store.get("/consumers/g/offsets/t")[0] == topic_id_text(PRESENT).encode()
    assert b.claim(P1) == {P1: 101}


def test_a_group_that_is_reset_goes_on_there_in_a_topic_made_again(a: Consumer) -> None:
    make_topic(a.store, FORMER)
    a.claim(P0, P1)
    a.owns.release([P0, P1], {P0: 1_000, P1: 1_001})
    make_topic(a.store, PRESENT)
    a.store.delete(id_path(GROUP, "a"))
    reset_offsets(a.store, GROUP, {P0: 5})
    a.register()
    assert a.claim(P0, P1) == {P0: 5, P1: 0}


def test_the_snapshot_has_who_reads_what(a: Consumer) -> None:
    topic = b'{"partitions":{"0":[1],"1":[1]},"topic_id":"vS7img6LTLWcAmLY8OZ6Uw","version":3}'
    for name in ("clicks", "clicks-old", "logins", "__consumer_offsets"):
        a.store.create(f"/brokers/topics/{name}", topic, make_parents=True)
    a.store.ensure("/brokers/ids")
    a.store.set(id_path(GROUP, "a"), encode_subscription(Subscription({"logins": 2, "gone": 1}), 0))
    a.store.create(
        id_path(GROUP, "w"), encode_subscription(Subscription({"clicks.*": 1}, "white_list"), 0), ephemeral=True
    )
    events: list[object] = []
    found = read_snapshot(a.store, GROUP, events.append)
    assert found.members == {"a": {"logins": 2}, "w": {"clicks": 1, "clicks-old": 1}}
    assert found.partitions == {"logins": (0, 1), "clicks": (0, 1), "clicks-old": (0, 1)}
    assert set(found.topic_ids) == {"logins", "clicks", "clicks-old"}
    assert {topic_id_text(one) for one in found.topic_ids.values()} == {"vS7img6LTLWcAmLY8OZ6Uw"}
    a.store.create("/brokers/topics/clicks-new", topic)
    a.store.delete(id_path(GROUP, "w"))
    assert len(events) == 2


def test_a_registration_has_kafkas_form() -> None:
    data = encode_subscription(Subscription({"t": 2}), 1_416_974_000_123)
    assert data == b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1416974000123"}'
    assert decode_subscription(data) == Subscription({"t": 2})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"subscription":[]}',
        b'{"subscription":{"t":"x"}}',
        b'{"subscription":{"t":1},"pattern":"black_list"}',
        b'{"subscription":{"(":1},"pattern":"white_list"}',
        b'{"subscription":{},"pattern":"white_list"}',
    ],
)
def test_a_registration_that_cannot_be_read_is_named(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="subscription in a consumer's node"):
        decode_subscription(data)
