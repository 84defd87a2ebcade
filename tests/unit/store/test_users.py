"""Users written straight into a store."""

from pathlib import Path

import pytest

from pylog.cluster import znodes
from pylog.errors import ConfigError
from pylog.security.scram import ScramCredential, ScramMechanism
from pylog.store.base import Store
from pylog.store.embedded import EmbeddedStore
from pylog.store.tree import ClusterTree
from pylog.store.users import delete_user, set_password


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = EmbeddedStore.open(tmp_path)
    opened.connect()
    return opened


def test_a_user_has_credentials_of_both_mechanisms(store: Store) -> None:
    assert set_password(store, "alice", "secret")
    found = ClusterTree(store).scram_credentials()["alice"]
    for mechanism in ScramMechanism:
        assert ScramCredential.parse(mechanism, found[mechanism.sasl_name]).is_password("secret")


def test_the_same_password_again_writes_nothing_and_another_one_does(store: Store) -> None:
    set_password(store, "alice", "secret")
    _, before = store.get(znodes.user_path("alice"))
    assert not set_password(store, "alice", "secret")
    assert store.get(znodes.user_path("alice"))[1] == before
    assert set_password(store, "alice", "other")
    assert set_password(store, "alice", "other", iterations=8192)


def test_quotas_of_the_user_stay(store: Store) -> None:
    store.create(znodes.user_path("alice"), znodes.encode_configs({"producer_byte_rate": "7"}), make_parents=True)
    set_password(store, "alice", "secret")
    assert delete_user(store, "alice")
    assert not delete_user(store, "alice")
    assert znodes.decode_configs(store.get(znodes.user_path("alice"))[0]) == {"producer_byte_rate": "7"}
    assert ClusterTree(store).scram_credentials() == {}


def test_running_brokers_are_told_as_by_kafka_s_tools(store: Store) -> None:
    set_password(store, "a b*c", "secret")
    [notice] = store.children(znodes.CONFIG_CHANGES)
    assert notice == "config_change_0000000000"
    assert store.get(f"{znodes.CONFIG_CHANGES}/{notice}")[0] == b'{"version":2,"entity_path":"users/a%20b%2Ac"}'
    assert list(ClusterTree(store).scram_credentials()) == ["a b*c"]


@pytest.mark.parametrize("user", ["", "*", "ANONYMOUS", "ü", "a\nb", "u" * 257])
def test_a_name_that_cannot_log_in_is_refused(store: Store, user: str) -> None:
    with pytest.raises(ConfigError):
        set_password(store, user, "secret")


@pytest.mark.parametrize(("password", "iterations"), [("", 4096), ("p", 4095), ("p", 16385)])
def test_a_weak_credential_is_refused(store: Store, password: str, iterations: int) -> None:
    with pytest.raises(ConfigError):
        set_password(store, "alice", password, iterations=iterations)


def test_a_node_that_cannot_be_read_keeps_no_other_user_out(store: Store) -> None:
    set_password(store, "alice", "secret")
    store.create(znodes.user_path("broken"), b"noise")
    assert list(ClusterTree(store).scram_credentials()) == ["alice"]
