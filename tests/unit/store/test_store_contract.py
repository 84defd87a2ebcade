"""What both stores promise; every test runs on the embedded one and on a real ZooKeeper."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from pylog.cluster import znodes
from pylog.cluster.controller import MAX_ARRIVALS, Rewrite, StateChange
from pylog.cluster.image import PartitionImage, TopicImage
from pylog.errors import ApiError
from pylog.store.base import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionLost,
    SessionState,
    Set,
    Store,
    StoreError,
    WatchEvent,
)
from pylog.store.tree import MAX_NODE_BYTES, ClusterTree, Fence
from tests.servers.stores import Backend, Events


def test_a_node_is_made_read_changed_and_removed(store: Store) -> None:
    assert store.create("/a", b"one") == "/a"
    data, stat = store.get("/a")
    assert (data, stat.version, stat.ephemeral_owner) == (b"one", 0, 0)
    assert stat.czxid == stat.mzxid
    changed = store.set("/a", b"two")
    assert changed.version == 1
    assert changed.czxid == stat.czxid
    assert changed.mzxid > stat.mzxid
    assert store.get("/a") == (b"two", changed)
    assert store.exists("/a") == changed
    store.delete("/a")
    assert store.exists("/a") is None


def test_bytes_come_back_as_they_were(store: Store) -> None:
    data = bytes(range(256)) * 100
    store.create("/a", data)
    assert store.get("/a")[0] == data


def test_names_that_are_long_together_are_read_in_parts(store: Store) -> None:
    paths = [f"/{'x' * 30_000}{number}" for number in range(100)]
    store.create(paths[-1], b"there")
    answers = store.get_many(paths)
    assert [None if one is None else one[0] for one in answers] == [None] * 99 + [b"there"]


def test_the_largest_node_that_a_controller_writes_is_taken(store: Store) -> None:
    tree = ClusterTree(store)
    tree.prepare()
    fence = Fence(1, store.get(znodes.CONTROLLER_EPOCH)[1].version)
    data = bytes(MAX_NODE_BYTES - len("/large"))
    for operation in (Create("/large", data), Set("/large", data)):
        tree.write(fence, [operation])
    with pytest.raises(ApiError, match="in the cluster's store"):
        tree.write(fence, [Set("/large", data + b"x")])
    assert store.get("/large")[0] == data


def test_the_end_of_a_move_is_written_with_its_states_or_not_at_all(store: Store) -> None:
    """Whoever finds states of replicas that are all new, and the move still under way, waits for those of before."""
    tree = ClusterTree(store)
    tree.prepare()
    fence = Fence(1, store.get(znodes.CONTROLLER_EPOCH)[1].version)
    states = {number: PartitionImage(2, 5, (2,), (2,), 0) for number in range(MAX_ARRIVALS)}
    names = [f"t{number}" for number in range(3)]
    topics = [TopicImage(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), states) for name in names]
    assert all(tree.create_topics(fence, topics).values())
    changes = [StateChange(name, number, after) for name in names for number, after in states.items()]
    store.set(znodes.state_path("t1", 7), b"other")  # so that its version is another one
    with pytest.raises(BadVersion):
        tree.write_rewrite(fence, Rewrite(topics, changes))
    for name, versions in (("t0", {1}), ("t1", {0}), ("t2", {0})):
        paths = [znodes.topic_path(name), *(znodes.state_path(name, number) for number in states if number != 7)]
        assert {node[1].version for node in store.get_many(paths) if node is not None} == versions, name


def test_a_node_without_data_is_empty(store: Store) -> None:
    store.create("/a")
    assert store.get("/a")[0] == b""


def test_a_node_made_anew_begins_anew(store: Store) -> None:
    store.create("/a")
    store.set("/a", b"x")
    before = store.exists("/a")
    store.delete("/a")
    store.create("/a")
    after = store.exists("/a")
    assert before is not None
    assert after is not None
    assert after.version == 0
    assert after.czxid > before.czxid


def test_children_are_sorted_names(store: Store) -> None:
    for name in ("b", "c", "a"):
        store.create(f"/p/{name}", make_parents=True)
    store.create("/p/a/deep")
    assert store.children("/p") == ["a", "b", "c"]
    assert store.children("/p/b") == []


def test_a_missing_node_is_told(store: Store) -> None:
    for verb in (store.get, store.children, store.delete):
        with pytest.raises(NoNode):
            verb("/none")
    with pytest.raises(NoNode):
        store.set("/none", b"")
    assert store.exists("/none") is None


def test_parents_are_made_only_on_request(store: Store) -> None:
    with pytest.raises(NoNode):
        store.create("/x/y/z")
    store.create("/x/y/z", make_parents=True)
    store.create("/x/y/other", make_parents=True)
    assert store.children("/x/y") == ["other", "z"]


def test_a_node_is_made_once(store: Store) -> None:
    store.create("/a", b"first")
    with pytest.raises(NodeExists):
        store.create("/a", b"second")
    assert store.get("/a")[0] == b"first"


def test_a_wrong_version_changes_nothing(store: Store) -> None:
    store.create("/a", b"x")
    with pytest.raises(BadVersion):
        store.set("/a", b"y", version=1)
    with pytest.raises(BadVersion):
        store.delete("/a", version=1)
    assert store.set("/a", b"y", version=0).version == 1
    store.delete("/a", version=1)


def test_a_node_with_children_stays(store: Store) -> None:
    store.create("/a/b", make_parents=True)
    with pytest.raises(NotEmpty):
        store.delete("/a")
    store.delete("/a/b")
    store.delete("/a")


def test_an_ephemeral_node_has_no_children(store: Store) -> None:
    store.create("/e", ephemeral=True)
    with pytest.raises(NoChildrenForEphemerals):
        store.create("/e/child")


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a/../b", "/a\0b"])
def test_a_path_in_no_normal_form_is_refused(store: Store, path: str) -> None:
    with pytest.raises(ValueError, match="not absolute and normal"):
        store.exists(path)
    with pytest.raises(ValueError, match="not absolute and normal"):
        store.create(path)


def test_many_reads_answer_in_order(store: Store) -> None:
    store.create("/a", b"1")
    store.create("/b/c", b"2", make_parents=True)
    answers = store.get_many(["/b/c", "/none", "/a"])
    assert [None if answer is None else answer[0] for answer in answers] == [b"2", None, b"1"]
    assert store.children_many(["/b", "/none", "/a"]) == [["c"], [], []]
    assert store.get_many([]) == []


def test_many_reads_go_beyond_one_batch(store: Store) -> None:
    store.create("/a", b"x")
    answers = store.get_many(["/a", "/none"] * 600)
    assert [answer is None for answer in answers] == [False, True] * 600


def test_sequence_numbers_grow_and_have_ten_digits(store: Store) -> None:
    store.create("/q")
    first = store.create("/q/n_", sequence=True)
    store.delete(first)
    second = store.create("/q/n_", sequence=True)
    third = store.create("/q/n_", sequence=True, ephemeral=True)
    numbers = [path.removeprefix("/q/n_") for path in (first, second, third)]
    assert all(len(number) == 10 and number.isdigit() for number in numbers)
    assert numbers == sorted(set(numbers))


def test_a_multi_does_all_in_order(store: Store) -> None:
    store.create("/a", b"x")
    results = store.multi(
        [
            Check("/a", 0),
            Set("/a", b"y", 0),
            Check("/a", 1),
            Create("/p"),
            Create("/p/q", b"z"),
            Delete("/a", 1),
        ]
    )
    assert results[0] is None
    assert results[3:] == ["/p", "/p/q", None]
    assert store.exists("/a") is None
    stats = [store.exists(path) for path in ("/p", "/p/q")]
    assert stats[0] is not None
    assert stats[1] is not None
    assert stats[0].czxid == stats[1].czxid, "one multi is one transaction"


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Check("/a", 7), BadVersion),
        (Check("/none", 0), NoNode),
        (Create("/a"), NodeExists),
        (Create("/none/x"), NoNode),
        (Set("/a", b"", 7), BadVersion),
        (Delete("/p"), NotEmpty),
        (Delete("/none"), NoNode),
    ],
)
def test_a_multi_does_nothing_if_one_part_is_refused(
    store: Store, bad: Check | Create | Set | Delete, error: type[StoreError]
) -> None:
    store.create("/a", b"x")
    store.create("/p/q", make_parents=True)
    with pytest.raises(error) as refused:
        store.multi([Set("/a", b"y"), Create("/new"), bad, Create("/newer")])
    assert refused.value.operation_index == 2
    assert refused.value.path == bad.path
    assert store.get("/a")[0] == b"x"
    assert store.children("/") == [name for name in store.children("/") if not name.startswith("new")]


def test_an_empty_multi_is_nothing(store: Store) -> None:
    assert store.multi([]) == []


def test_an_ephemeral_node_goes_with_its_session(backend: Backend, store: Store) -> None:
    other = backend.connect()
    other.create("/e", b"x", ephemeral=True)
    stat = store.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == other.session_id != store.session_id
    other.close()
    assert store.exists("/e") is None
    assert other.session_id == 0


def test_verbs_after_the_end_are_refused(backend: Backend) -> None:
    store = backend.connect()
    store.close()
    store.close()
    for verb in (store.exists, store.get, store.create, store.delete):
        with pytest.raises(SessionLost):
            verb("/a")


def test_a_data_watch_fires_once(store: Store, events: Events) -> None:
    store.create("/a")
    store.get("/a", events.watch)
    store.set("/a", b"1")
    assert events.next() == WatchEvent(EventKind.CHANGED, "/a")
    store.set("/a", b"2")
    store.exists("/a")
    assert events.none_came()


def test_a_data_watch_sees_the_end(backend: Backend, store: Store, events: Events) -> None:
    store.create("/a")
    store.get("/a", events.watch)
    backend.connect().delete("/a")
    assert events.next() == WatchEvent(EventKind.DELETED, "/a")


def test_an_exists_watch_sees_a_node_come(backend: Backend, store: Store, events: Events) -> None:
    assert store.exists("/a", events.watch) is None
    backend.connect().create("/a")
    assert events.next() == WatchEvent(EventKind.CREATED, "/a")


def test_a_get_of_nothing_leaves_no_watch(store: Store, events: Events) -> None:
    with pytest.raises(NoNode):
        store.get("/a", events.watch)
    store.create("/a")
    store.set("/a", b"x")
    # An answer that came after the writes' own is the proof that no event was on its way.
    store.exists("/a")
    assert events.none_came()


def test_a_child_watch_sees_children_come_and_go(backend: Backend, store: Store, events: Events) -> None:
    other = backend.connect()
    store.create("/p")
    store.children("/p", events.watch)
    other.create("/p/a")
    assert events.next() == WatchEvent(EventKind.CHILDREN, "/p")
    store.children("/p", events.watch)
    other.set("/p/a", b"data of a child is not the parent's affair")
    other.delete("/p/a")
    assert events.next() == WatchEvent(EventKind.CHILDREN, "/p")
    store.children("/p", events.watch)
    other.delete("/p")
    assert events.next() == WatchEvent(EventKind.DELETED, "/p")


def test_a_child_watch_sees_an_ephemeral_node_go(backend: Backend, store: Store, events: Events) -> None:
    other = backend.connect()
    store.create("/p")
    other.create("/p/e", ephemeral=True)
    store.children("/p", events.watch)
    other.close()
    assert events.next() == WatchEvent(EventKind.CHILDREN, "/p")


def test_a_watch_armed_twice_fires_once(store: Store, events: Events) -> None:
    store.create("/a")
    store.get("/a", events.watch)
    store.exists("/a", events.watch)
    store.set("/a", b"1")
    assert events.next() == WatchEvent(EventKind.CHANGED, "/a")
    store.exists("/a")
    assert events.none_came()


def test_a_refused_multi_sets_off_no_watch(store: Store, events: Events) -> None:
    store.create("/a")
    store.get("/a", events.watch)
    with pytest.raises(NoNode):
        store.multi([Set("/a", b"x"), Delete("/none")])
    store.exists("/a")
    assert events.none_came()
    store.set("/a", b"x")
    assert events.next() == WatchEvent(EventKind.CHANGED, "/a")


def test_an_expired_session_is_lost_and_a_new_one_begins(backend: Backend, events: Events) -> None:
    store = backend.connect()
    witness = backend.connect()
    store.create("/e", ephemeral=True)
    store.create("/p")
    before = store.session_id
    store.listen(events.listen)
    backend.expire(store)
    while events.next_state() is not SessionState.LOST:
        pass
    assert events.next_state() is SessionState.CONNECTED
    assert store.session_id not in {0, before}
    assert witness.exists("/e") is None
    for verb in (store.exists, store.get, store.create, store.delete, store.children):
        with pytest.raises(SessionLost):
            verb("/p")
    store.renew()
    assert store.children("/") == ["p"]


def test_a_watch_of_an_expired_session_says_so(backend: Backend, events: Events) -> None:
    store = backend.connect()
    store.create("/a")
    store.get("/a", events.watch)
    backend.expire(store)
    assert events.next() == WatchEvent(EventKind.DISCONNECTED, "/a")


def test_ensure_makes_what_is_missing_once(store: Store) -> None:
    store.create("/a", b"kept")
    store.ensure("/a/b/c", "/d")
    store.ensure("/a/b/c", "/d")
    assert store.get("/a")[0] == b"kept"
    assert store.children("/a/b") == ["c"]
    assert store.exists("/d") is not None


def test_ensure_by_many_at_once_succeeds_for_all(backend: Backend) -> None:
    stores = [backend.connect() for _ in range(3)]
    paths = [f"/base/{number}/x" for number in range(20)]
    with ThreadPoolExecutor(len(stores)) as threads:
        for done in [threads.submit(store.ensure, *paths) for store in stores]:
            done.result()
    assert None not in stores[0].get_many(paths)
