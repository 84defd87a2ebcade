"""Who may do what with each node of the tree in ZooKeeper, decided by its path.

A right of ZooKeeper is about one node, never about those below it, and a node can be deleted by whoever has DELETE on
its parent.  So every node has rights of its own, containers and the root of the tree too:

| path                                | owners (brokers) | consumers (the paper's)      | everybody else |
|-------------------------------------|------------------|------------------------------|----------------|
| /brokers, /brokers/ids and below    | all              | read                         | nothing        |
| /brokers/topics and below           | all              | read                         | nothing        |
| /consumers                          | all              | read, create                 | nothing        |
| below /consumers                    | all              | read, write, create, delete  | nothing        |
| everything else, the root too       | all              | nothing                      | nothing        |

Schema registries read, write, create and delete /pylog_registry and below, and nothing else.

Source: ZooKeeper programmer's guide, "ZooKeeper access control using ACLs".
"""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from enum import IntFlag
from types import MappingProxyType
from typing import NamedTuple

from pylog.cluster import znodes
from pylog.errors import ConfigError
from pylog.security import acl_nodes
from pylog.store.base import parent_of

SCHEMES = ("digest", "x509", "sasl")
"""Schemes of identities that may be given rights; `world` and `ip` would give them to strangers."""


class Right(IntFlag):
    """Rights on one node, with ZooKeeper's numbers."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class Identity(NamedTuple):
    """Who is connected, as ZooKeeper knows it.

    Attributes:
        scheme: how ZooKeeper found out; one of `SCHEMES`.
        id: ``user:base64(SHA-1)`` for digest, a distinguished name for x509, a user for sasl.
    """

    scheme: str
    id: str

    def __str__(self) -> str:
        """Return what is shown: the hash of a password is left out."""
        return f"{self.scheme}:{self.id.partition(':')[0] if self.scheme == 'digest' else self.id}"


EVERYBODY = Identity("world", "anyone")

Rights = Mapping[Identity, Right]
"""What each identity may do with a node; who is not named may do nothing."""

OPEN: Rights = MappingProxyType({EVERYBODY: Right.ALL})

_READ_ROOTS = (znodes.BROKER_IDS, znodes.TOPICS)
_USE = Right.READ | Right.WRITE | Right.CREATE | Right.DELETE

OWN_ROOTS = frozenset(
    "/" + path.split("/")[1]
    for path in (
        *znodes.BASE_PATHS,
        *(znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, znodes.CLUSTER_ID, znodes.FORMAT_LEVEL),
        *(acl_nodes.LITERAL_ROOT, acl_nodes.PREFIXED_ROOT, acl_nodes.LITERAL_CHANGES, acl_nodes.EXTENDED_CHANGES),
    )
)
"""The nodes right below the root that belong to a cluster; others may share the root with it."""


class NodeRights:
    """The rights of every node of one cluster.

    Args:
        owners: identities with all rights: brokers, and programs that work like one.
        consumers: identities of the paper's API.
        registries: identities of schema registries, which elect their primary here.
    """

    __slots__ = (
        "_below_consumers",
        "_consumers_root",
        "_of_registries",
        "_owners_only",
        "_readable",
        "consumers",
        "owners",
        "registries",
    )

    def __init__(
        self,
        owners: frozenset[Identity],
        consumers: frozenset[Identity] = frozenset(),
        registries: frozenset[Identity] = frozenset(),
    ) -> None:
        self.owners = owners
        self.consumers = consumers - owners
        self.registries = registries - owners
        self._owners_only = self._with(frozenset(), Right(0))
        self._readable = self._with(self.consumers, Right.READ)
        self._consumers_root = self._with(self.consumers, Right.READ | Right.CREATE)
        self._below_consumers = self._with(self.consumers, _USE)
        self._of_registries = self._with(self.registries, _USE)

    def of(self, path: str) -> Rights:
        """Return the rights of the node at *path*, whether it is there or about to be made."""
        if path == znodes.CONSUMERS:
            return self._consumers_root
        if _is_below(path, znodes.CONSUMERS):
            return self._below_consumers
        if path == znodes.REGISTRY or _is_below(path, znodes.REGISTRY):
            return self._of_registries
        if path == parent_of(znodes.TOPICS) or any(path == root or _is_below(path, root) for root in _READ_ROOTS):
            return self._readable
        return self._owners_only

    def _with(self, others: frozenset[Identity], right: Right) -> Rights:
        return MappingProxyType(dict.fromkeys(others, right) | dict.fromkeys(self.owners, Right.ALL))


def _is_below(path: str, root: str) -> bool:
    return path.startswith(f"{root}/")


def digest_identity(user: str, password: str) -> Identity:
    """Return the identity that ZooKeeper gives to who shows this password."""
    digest = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return Identity("digest", f"{user}:{b64encode(digest).decode()}")


def parse_identities(text: str, name: str) -> frozenset[Identity]:
    """Return the identities of a list ``scheme:id;scheme:id``.

    Args:
        text: the list; `;` separates, since distinguished names have commas.
        name: of the setting, for the message of an error.

    Raises:
        ConfigError: an entry has another form, or a scheme that is not of `SCHEMES`.
    """
    found: set[Identity] = set()
    for entry in filter(None, map(str.strip, text.split(";"))):
        scheme, _, given = entry.partition(":")
        if scheme not in SCHEMES or not given:
            raise ConfigError(f"{name}: {entry!r} must be SCHEME:ID with a scheme of {', '.join(SCHEMES)}")
        if scheme == "digest" and not all(given.partition(":")):
            raise ConfigError(
                f"{name}: digest:{given.partition(':')[0]} must be digest:USER:HASH (see `pylog zk identity`)"
            )
        found.add(Identity(scheme, given))
    return frozenset(found)
