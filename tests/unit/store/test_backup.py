"""A backup of the store, and a store that holds it again; with both kinds of store."""

import json

import pytest

from pylog.cluster import znodes
from pylog.errors import PylogError
from pylog.store.backup import BackupError, decode_backup, encode_backup, read_nodes, replace_nodes
from pylog.store.base import Create, Operation, Result, Store
from pylog.store.tree import ClusterTree
from tests.servers.stores import Backend

OFFSET = "/consumers/g/offsets/t/0"


def fill(store: Store) -> dict[str, bytes]:
    """Make a small cluster and return its backup."""
    tree = ClusterTree(store)
    tree.prepare()
    tree.give_cluster_id("c-1")
    store.create("/brokers/topics/t/partitions/0/state", b"{}", make_parents=True)
    store.create(OFFSET, b"7", make_parents=True)
    store.create("/config/users/u", b"\xff\x00no text", make_parents=True)
    return read_nodes(store)


def test_registrations_and_notices_are_no_part_of_it(store: Store) -> None:
    fill(store)
    store.create("/brokers/ids/1", b"{}", ephemeral=True)
    store.create("/consumers/g/ids/one", b"", ephemeral=True, make_parents=True)
    store.create("/config/changes/config_change_", b"{}", sequence=True)
    nodes = read_nodes(store)
    assert nodes[OFFSET] == b"7"
    assert not [path for path in nodes if path.startswith(("/brokers/ids", "/config/changes", "/consumers/g/ids/"))]


def test_a_file_holds_every_byte(store: Store) -> None:
    nodes = fill(store)
    text = encode_backup(nodes, 1_000, "0.1")
    assert decode_backup(text, "f") == nodes
    assert {key: json.loads(text)[key] for key in ("version", "cluster_id", "made_ms", "release")} == {
        "version": 1, "cluster_id": "c-1", "made_ms": 1_000, "release": "0.1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-20], "JSONDecodeError"),
        (lambda text: text.replace('"7"', '"8"'), "SHA-256"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "version 2, wanted 1"),
        (lambda text: "[]", "wanted what `pylog cluster backup` writes"),
    ],
)
def test_a_damaged_file_is_refused(store: Store, change: object, message: str) -> None:
    text = encode_backup(fill(store), 1_000, "0.1")
    assert callable(change)
    with pytest.raises(BackupError, match=message):
        decode_backup(change(text), "f")


def test_a_store_without_cluster_is_not_backed_up(store: Store) -> None:
    ClusterTree(store).prepare()
    with pytest.raises(BackupError, match="names no cluster"):
        encode_backup(read_nodes(store), 1_000, "0.1")


class Busy:
    """A store in which somebody writes between any two readings."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get_many(self, paths: list[str]) -> object:
        self._store.set(OFFSET, b"8")
        return self._store.get_many(paths)

    def children_many(self, paths: list[str]) -> object:
        return self._store.children_many(paths)


def test_a_store_that_never_rests_is_not_backed_up(store: Store) -> None:
    fill(store)
    with pytest.raises(BackupError, match="changed between each two"):
        read_nodes(Busy(store))  # type: ignore[arg-type]


def test_an_empty_store_holds_it_all_again(store: Store, backend: Backend) -> None:
    nodes = fill(store)
    for path in [znodes.CONFIG_CHANGES, *sorted(nodes, key=len, reverse=True)]:
        store.delete(path)
    told: list[tuple[int, int]] = []
    replace_nodes(store, nodes, lambda *found: told.append(found))
    assert told
    assert told[-1][0] == told[-1][1]
    assert read_nodes(backend.connect(), lambda *found: told.append(found)) == nodes
    assert told[-1] == (2 * len(nodes), 2 * len(nodes)), "it was read twice"
    assert store.exists(znodes.CONFIG_CHANGES) is not None


def test_what_the_backup_does_not_have_goes_and_later_commits_stay(store: Store) -> None:
    nodes = fill(store)
    store.create("/brokers/topics/later/partitions/0/state", b"{}", make_parents=True)
    store.set("/config/users/u", b"other")
    store.set(OFFSET, b"9")
    replace_nodes(store, nodes)
    assert read_nodes(store) == nodes | {OFFSET: b"9"}


def test_another_clusters_store_is_not_touched(store: Store) -> None:
    nodes = fill(store)
    with pytest.raises(BackupError, match=r"store is of cluster c-1, the backup of cluster c-2"):
        replace_nodes(store, nodes | {znodes.CLUSTER_ID: znodes.encode_cluster_id("c-2")})
    assert read_nodes(store) == nodes


def test_no_broker_may_be_registered(store: Store) -> None:
    nodes = fill(store)
    store.create("/brokers/ids/2", b"{}", ephemeral=True)
    with pytest.raises(BackupError, match="broker 2 is registered"):
        replace_nodes(store, nodes)
    assert read_nodes(store) == nodes


class Torn:
    """A store whose connection ends before the cluster's id is written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def multi(self, operations: list[Operation]) -> list[Result]:
        if isinstance(operations[0], Create) and operations[0].path == znodes.CLUSTER_ID:
            raise PylogError("the line went dead")
        return self._store.multi(operations)


def test_half_a_restoration_names_no_cluster_and_a_rerun_completes_it(store: Store) -> None:
    nodes = fill(store)
    with pytest.raises(PylogError, match="went dead"):
        replace_nodes(Torn(store), nodes)  # type: ignore[arg-type]
    assert ClusterTree(store).cluster_id() is None
    replace_nodes(store, nodes)
    assert read_nodes(store) == nodes


def test_a_broker_that_made_its_own_cluster_meanwhile_is_told(store: Store) -> None:
    nodes = fill(store)
    store.delete(znodes.CLUSTER_ID)

    class Raced(Torn):
        def multi(self, operations: list[Operation]) -> list[Result]:
            if isinstance(operations[0], Create) and operations[0].path == znodes.CLUSTER_ID:
                self._store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id("c-9"))
            return self._store.multi(operations)

    with pytest.raises(BackupError, match="a broker started meanwhile"):
        replace_nodes(Raced(store), nodes)  # type: ignore[arg-type]
