"""A cluster that the release before made, on its way to this release's formats (rule 15)."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pylog.client.admin.cluster import Admin
from pylog.cluster import znodes
from pylog.errors import ApiError, ErrorCode
from pylog.model import TopicPartition
from pylog.store.base import Delete, Store
from pylog.store.zookeeper import ZooKeeperStore
from tests.cluster.conftest import Brokers, bootstrap, create, leaders, running, wait_for
from tests.cluster.history import Load
from tests.servers.zookeeper import ZooKeeper


@pytest.fixture
def store(zookeeper: ZooKeeper) -> Iterator[Store]:
    with closing(ZooKeeperStore(zookeeper.hosts)) as session:
        session.connect()
        yield session


@pytest.fixture
def older(tmp_path: Path, zookeeper: ZooKeeper, store: Store) -> Iterator[Brokers]:
    """Brokers of this release in a cluster that knows no levels yet."""
    store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id("made-before"), make_parents=True)
    with running(tmp_path, zookeeper) as found:
        yield found


def finalize(brokers: Brokers, through: int) -> subprocess.CompletedProcess[str]:
    socket = brokers[through].data_dir / "admin.sock"
    command = [sys.executable, "-m", "pylog", "cluster", "finalize", "--socket", str(socket), "--format", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_rule_15_new_formats_are_written_only_once_an_operator_says_so(older: Brokers, store: Store) -> None:
    assert store.exists(znodes.FORMAT_LEVEL) is None
    create(older[1], "t", 1, 2)
    with Load(bootstrap(older), "t", 1) as load:
        wait_for(lambda: load.acknowledged > 100, "records under the first level's formats")
    admin, key = Admin(bootstrap(older)), TopicPartition("t", 0)
    target = [3, *(one for one in admin.topic("t").partitions[0].replicas if one != 3)][:2]
    with pytest.raises(ApiError, match="finalize") as refusal:
        admin.reassign_partitions({key: target})
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION

    behind = store.get("/brokers/ids/1")[0].replace(b'"pylog.formats"', b'"something.else"')
    store.create("/brokers/ids/9", behind, ephemeral=True)
    wait_for(lambda: any(one.node_id == 9 for one in admin.cluster().brokers), "a broker of the release before")
    refused = finalize(older, 2)
    assert refused.returncode == 1, refused
    assert "PYLOG-1096" in refused.stderr, refused.stderr
    store.multi([Delete("/brokers/ids/9")])
    wait_for(lambda: all(one.node_id != 9 for one in admin.cluster().brokers), "it is gone")

    done = finalize(older, 2)
    assert json.loads(done.stdout) == {"level": 2}, done
    assert znodes.decode_level(store.get(znodes.FORMAT_LEVEL)[0]) == 2
    assert admin.reassign_partitions({key: target}) == {key: None}
    wait_for(lambda: not admin.reassignments(), "the partition has moved")
    for broker in older.values():
        broker.stop()
        broker.start()
    wait_for(lambda: leaders(older, "t")[0] in target, "brokers start again in a finalized cluster")
    assert not load.read_back().lost()
