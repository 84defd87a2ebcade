"""Sessions with both kinds of store, so that one suite holds them to one contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pylog.store.base import Store
from pylog.store.embedded import EmbeddedTree
from tests.servers.stores import Backend, Events, embedded_backend, zookeeper_backend
from tests.servers.zookeeper import ZooKeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(params=["embedded", "zookeeper"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "embedded":
        tree = EmbeddedTree(tmp_path)
        backend = embedded_backend(tree)
    else:
        backend = zookeeper_backend(request.getfixturevalue("zookeeper").hosts)
    yield backend
    backend.close()
    if request.param == "embedded":
        tree.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.connect()


@pytest.fixture
def events() -> Events:
    return Events()
