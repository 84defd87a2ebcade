"""The registration of a broker: its node in the store, which every other broker sees."""

import logging
import time
import uuid
from dataclasses import replace

from pylog.broker.clock import wall_ms
from pylog.cluster.formats import check_level
from pylog.cluster.image import BrokerInfo, topic_id_text
from pylog.cluster.znodes import BrokerRegistration
from pylog.errors import ConfigError
from pylog.store.base import Store, Watch
from pylog.store.tree import ClusterTree

_logger = logging.getLogger(__name__)

STALE_NODE_TIMEOUTS = 3
"""Session time-outs after which a registration of ours that stays is another process: servers expire in ticks."""


class Registration:
    """Keeps this broker registered; only the agent's thread changes it.

    Attributes:
        broker: what the cluster is told of this broker.
        cluster_id: of the cluster this broker joined, "" before.
        broker_epoch: czxid of the registration that stands, -1 while there is none.
    """

    def __init__(self, store: Store, tree: ClusterTree, broker: BrokerRegistration, watch: Watch) -> None:
        """Register nothing yet; *watch* is called when the registration that stands is lost."""
        self.broker = broker
        self.cluster_id = ""
        self.broker_epoch = -1
        self._store = store
        self._tree = tree
        self._watch = watch
        self._stale_until_s = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether a node of an earlier session still stands."""
        return self._stale_until_s > 0

    def register(self) -> bool:
        """Make sure that this broker's node stands and is of this session; return False while an older one stands.

        Raises:
            ConfigError: the broker id is taken, the data belongs to another cluster, or that has formats of another
                release.
            NodeExists: another session has registered this moment; look again.
        """
        self._tree.prepare()
        self._join_cluster()
        broker_id = self.broker.broker_id
        node = self._tree.registered(broker_id)
        if node is None:
            self.broker_epoch = self._tree.register(self.broker, wall_ms())
            # Whoever raises the level looks at who is registered, and we looked at the level before we were.
            check_level(self._tree.level())
        elif node[1].ephemeral_owner == self._store.session_id:
            self.broker_epoch = node[1].czxid
        else:
            self._check_stale(node[0])
            self._tree.registered(broker_id, self._watch)
            return False
        # Armed only now: it is to tell of losing the node, not of making it.
        self._tree.registered(broker_id, self._watch)
        self._stale_until_s = 0.0
        _logger.info("registered broker=%d epoch=%d cluster=%s", broker_id, self.broker_epoch, self.cluster_id)
        return True

    def lose(self) -> None:
        """Take note that the session ended, and the node with it."""
        self.broker_epoch = -1

    def mark_clean(self) -> None:
        """Register as clean from now on: a controller has settled the unclean stop of this broker."""
        self.broker = replace(self.broker, is_clean=True)

    def _join_cluster(self) -> None:
        own, found = self.broker.cluster_id, self._tree.cluster_id()
        if own is not None and own != found:
            state = "names no cluster" if found is None else f"is of cluster {found}"
            raise ConfigError(
                f"the data of broker {self.broker.broker_id} is of cluster {own}, but the store {state}; "
                "correct `store`; if the store of a standalone broker is lost: pylog cluster adopt --data DIR"
            )
        self.cluster_id = found or self._tree.give_cluster_id(topic_id_text(uuid.uuid4()))
        # From now on it is ours: a store that is wiped under a running broker must not look like a first start.
        self.broker = replace(self.broker, cluster_id=self.cluster_id)
        check_level(self._tree.level())

    def _check_stale(self, node: BrokerInfo) -> None:
        """Wait for the end of a node that an earlier session left; it is never deleted, it may still be alive."""
        broker_id, own, host = self.broker.broker_id, self.broker.client.host, node.client.host
        # Any address in common will do: the listeners may have changed since.
        if not self.broker.hosts & {host, node.internal.host, *(one.host for one in node.listeners.values())}:
            raise ConfigError(f"broker id {broker_id} is registered by host {host}; this is {own}")
        now_s = time.monotonic()
        if not self._stale_until_s:
            self._stale_until_s = now_s + STALE_NODE_TIMEOUTS * self._store.session_timeout_ms / 1000
        left_s = self._stale_until_s - now_s
        if left_s <= 0:
            raise ConfigError(f"broker id {broker_id} is registered by another process on this host, {host}")
        _logger.info("waiting_for_own_stale_registration broker=%d left_s=%.0f", broker_id, left_s)
