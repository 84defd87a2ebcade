"""Who may do what with each node, by its path alone."""

import pytest

from pylog.cluster import znodes
from pylog.errors import ConfigError
from pylog.security import acl_nodes
from pylog.store.node_rights import (
    EVERYBODY,
    OWN_ROOTS,
    Identity,
    NodeRights,
    Right,
    digest_identity,
    parse_identities,
)

BROKER = digest_identity("pylog", "secret")
CONSUMER = Identity("x509", "CN=consumer,O=example")
REGISTRY = Identity("x509", "CN=pylog-registry")
RIGHTS = NodeRights(frozenset({BROKER}), frozenset({CONSUMER}), frozenset({REGISTRY}))
BELOW_CONSUMERS = Right.READ | Right.WRITE | Right.CREATE | Right.DELETE


@pytest.mark.parametrize(
    ("path", "of_consumer"),
    [
        ("/", None),
        ("/brokers", Right.READ),
        ("/brokers/ids", Right.READ),
        ("/brokers/ids/1", Right.READ),
        ("/brokers/topics", Right.READ),
        ("/brokers/topics/clicks/partitions/0/state", Right.READ),
        ("/brokers/seqid", None),
        ("/brokers/idsx", None),
        ("/consumers", Right.READ | Right.CREATE),
        ("/consumers/g", BELOW_CONSUMERS),
        ("/consumers/g/offsets/clicks/0", BELOW_CONSUMERS),
        ("/consumersx", None),
        ("/controller", None),
        ("/config", None),
        (f"{znodes.CONFIG_CHANGES}/config_change_", None),
        (f"{znodes.USER_CONFIGS}/alice", None),
        (f"{acl_nodes.LITERAL_ROOT}/Topic/clicks", None),
        ("/pylog/format_level", None),
    ],
)
def test_rights_follow_from_the_path(path: str, of_consumer: Right | None) -> None:
    rights = RIGHTS.of(path)
    assert rights[BROKER] == Right.ALL
    assert rights.get(CONSUMER) == of_consumer
    assert set(rights) <= {BROKER, CONSUMER}


@pytest.mark.parametrize("path", ["/pylog_registry", "/pylog_registry/primary"])
def test_registries_have_only_the_node_of_their_election(path: str) -> None:
    every = Right.READ | Right.WRITE | Right.CREATE | Right.DELETE
    assert RIGHTS.of(path) == {BROKER: Right.ALL, REGISTRY: every}
    assert EVERYBODY not in RIGHTS.of(path)
    assert REGISTRY not in RIGHTS.of("/pylog_registries")


def test_without_consumers_every_node_is_the_owners() -> None:
    rights = NodeRights(frozenset({BROKER}))
    assert dict(rights.of("/consumers/g")) == dict(rights.of("/brokers/ids")) == {BROKER: Right.ALL}


def test_an_owner_that_is_a_consumer_too_keeps_all_rights() -> None:
    rights = NodeRights(frozenset({BROKER}), frozenset({BROKER}))
    assert rights.of("/brokers/ids") == {BROKER: Right.ALL}


def test_every_node_of_a_cluster_is_below_a_root_of_its_own() -> None:
    assert {"/brokers", "/consumers", "/config", "/controller", "/kafka-acl", "/pylog"} <= OWN_ROOTS
    assert "/zookeeper" not in OWN_ROOTS
    assert all(root.count("/") == 1 for root in OWN_ROOTS)


def test_a_digest_is_as_zookeeper_computes_it() -> None:
    # From the guide to ZooKeeper's ACLs: DigestAuthenticationProvider super:admin.
    assert digest_identity("super", "admin") == Identity("digest", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")


def test_the_hash_of_a_password_is_not_shown() -> None:
    assert str(BROKER) == "digest:pylog"
    assert str(CONSUMER) == "x509:CN=consumer,O=example"


def test_identities_are_read_from_a_list() -> None:
    assert parse_identities(f"digest:{BROKER.id}; x509:CN=consumer,O=example", "owners") == {BROKER, CONSUMER}
    assert parse_identities("", "owners") == frozenset()


@pytest.mark.parametrize("text", ["world:anyone", "ip:127.0.0.1", "digest:pylog", "digest:pylog:", "x509:", "pylog"])
def test_an_identity_that_cannot_be_checked_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="owners: "):
        parse_identities(text, "owners")
