"""The embedded store against ZooKeeper: the same requests, the same answers, the same tree."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylog.store.base import Check, Create, Delete, Operation, Result, Set, Stat, Store, StoreError
from pylog.store.embedded import EmbeddedStore
from pylog.store.zookeeper import ZooKeeperStore
from tests.servers.zookeeper import ZooKeeper

paths = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/z", "/b/x"])
versions = st.sampled_from([-1, 0, 1, 2])
data = st.binary(max_size=3)
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Check, paths, versions),
    st.builds(Create, paths, data, ephemeral=st.booleans()),
    st.builds(Set, paths, data, versions),
    st.builds(Delete, paths, versions),
)
multis = st.lists(st.lists(operations, min_size=1, max_size=4), max_size=12)


def outcome(store: Store, multi: Sequence[Operation]) -> object:
    def plain(result: Result) -> object:
        return ("version", result.version) if isinstance(result, Stat) else result

    try:
        return [plain(result) for result in store.multi(multi)]
    except StoreError as error:
        return type(error), error.operation_index


def dump(store: Store, path: str) -> dict[str, tuple[bytes, int, bool]]:
    found: dict[str, tuple[bytes, int, bool]] = {}
    for name in store.children(path):
        below = f"{path.rstrip('/')}/{name}"
        content, stat = store.get(below)
        found[below] = (content, stat.version, stat.ephemeral_owner == store.session_id)
        found |= dump(store, below)
    return found


@pytest.fixture(scope="module")
def reference(zookeeper: ZooKeeper) -> Iterator[ZooKeeperStore]:
    store = ZooKeeperStore(f"{zookeeper.hosts}/equality")
    store.connect()
    yield store
    store.close()


def clear(store: Store) -> None:
    nodes = sorted(dump(store, "/"), reverse=True)
    store.multi([Delete(path) for path in nodes])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(multis)
def test_any_requests_give_the_same_answers_and_the_same_tree(
    reference: ZooKeeperStore, requests: list[list[Operation]]
) -> None:
    clear(reference)
    with TemporaryDirectory() as directory:
        embedded = EmbeddedStore.open(Path(directory))
        embedded.connect()
        for multi in requests:
            assert outcome(embedded, multi) == outcome(reference, multi)
        assert dump(embedded, "/") == dump(reference, "/")
        embedded.close()
