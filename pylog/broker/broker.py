"""The broker: how its parts are wired, started and stopped."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pylog import __version__
from pylog.broker.admin import AdminServer
from pylog.broker.authorization import Authorization
from pylog.broker.clock import steady_ms, wall_ms
from pylog.broker.config import BrokerConfig
from pylog.broker.control.cluster import TopicPolicy
from pylog.broker.control.membership import Membership
from pylog.broker.data.partition_counts import PartitionCounts
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.path import DataPath
from pylog.broker.data.peers import PeerRequests
from pylog.broker.groups.coordinator import CoordinatorConfig, GroupCoordinator
from pylog.broker.lifecycle import BrokerState, Lifecycle
from pylog.broker.listeners import ListenerLimits, Listeners
from pylog.broker.maintenance import Maintenance, MaintenanceConfig
from pylog.broker.quotas import Quotas
from pylog.broker.reloads import Reloads
from pylog.broker.requests import Requests
from pylog.broker.security import credential_source, metrics_tls, open_door, peer_keys, peer_security
from pylog.broker.settings import Value, broker_setting, typed
from pylog.broker.status import Status
from pylog.broker.tasks import Tasks
from pylog.broker.transactions.coordinator import TransactionCoordinator, TransactionSettings
from pylog.broker.transactions.ends import TransactionEnds
from pylog.broker.transactions.markers import MarkerSender
from pylog.broker.transactions.peers import TransactionPeers
from pylog.broker.transactions.verifying import Verifier
from pylog.broker.watchdog import StartProgress, Watchdog, notify
from pylog.cluster.formats import features_of
from pylog.errors import PylogError
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics
from pylog.wire.api import Message
from pylog.wire.api.message import Request

_logger = logging.getLogger(__name__)

DEFAULT_HANG_LIMIT_S = 6.0
"""How long the loop may hang before the process ends itself, where no session time-out says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings that belong to no single part; see `pylog.broker.settings`."""

    controlled_shutdown_max_wait_ms: int


class Broker:
    """One broker, from its first file to its last.

    Also what handlers use of it; see `pylog.broker.apis.Cluster`.

    Attributes:
        exit_code: what the process ends with.
    """

    def __init__(self, config: BrokerConfig, directory: LogDirectory, stop: asyncio.Event) -> None:
        """Wire the parts; no log is opened yet.  *stop* is set when the broker cannot go on."""
        broker_id, settings = config.broker_id, config.settings
        self.config = config
        self.broker_id = broker_id
        self.settings: Mapping[str, Value] = settings
        self.topic_policy = typed(TopicPolicy, settings)
        self._settings = typed(BrokerSettings, settings)
        self.exit_code = 0
        self._stop = stop
        self.lifecycle = Lifecycle()
        self.metrics = metrics = Metrics()
        self._directory = directory

        self._reloads = Reloads()
        keys = peer_keys(config.cluster_secret, config, metrics, self._reloads)
        self._metrics_tls = metrics_tls(config, metrics, self._reloads)
        self._authorization = Authorization(settings, metrics, steady_ms)
        self.authorizer = self._authorization.authorizer
        self.partitions = partitions = Partitions(directory, broker_id, settings)
        self.membership = membership = Membership(
            config,
            directory,
            partitions,
            metrics,
            keys,
            on_image=self._image_applied,
            on_leadership_lost=self._leadership_changed,
            on_failure=self._failed,
            authorizer=self.authorizer,
        )
        partitions.registered_epoch = lambda: membership.broker_epoch
        partitions.has_session = lambda: membership.has_session

        self._data = data = DataPath(
            broker_id,
            keys,
            settings,
            partitions,
            metrics,
            broker_epoch=lambda: membership.broker_epoch,
            ask_isr=membership.alter_isr,
        )
        self.deletions = data.deletions
        PartitionCounts(partitions, metrics, lambda: membership.is_controller, wall_ms, steady_ms)
        self.groups = GroupCoordinator(
            partitions,
            typed(CoordinatorConfig, settings),
            metrics,
            now_ms=steady_ms,
            wall_ms=wall_ms,
            acknowledgements=data.acknowledgements,
            is_used_elsewhere=membership.has_consumers if config.store.kind == "zookeeper" else None,
        )

        self.transaction_ends = TransactionEnds(partitions, self.groups, data.acknowledgements, wall_ms)
        self._markers = MarkerSender(broker_id, keys, partitions, self.transaction_ends, metrics)
        self.transactions = TransactionCoordinator(
            partitions,
            typed(TransactionSettings, settings),
            metrics,
            wall_ms=wall_ms,
            steady_ms=steady_ms,
            acknowledgements=data.acknowledgements,
            fill_ids=membership.producer_ids.fill,
            new_producer_id=membership.producer_ids.draw,
            markers=self._markers,
        )
        self.verifier = Verifier(broker_id, keys, partitions, self.transactions)
        data.produce.verifier = self.verifier

        self._quotas = Quotas(metrics, steady_ms)
        self._requests = Requests(self, data.produce, data.fetch, self._quotas, metrics)
        self._peer_requests = PeerRequests(
            keys, data.fetch, membership.answer, TransactionPeers(self.transaction_ends, self.verifier).answer
        )
        membership.on_deposed = self._peer_requests.expire_connections
        limits = typed(ListenerLimits, settings)
        source = credential_source(lambda: partitions.image.scram_credentials, config.cluster_secret)
        self._doors = {
            name: open_door(
                name,
                listener,
                self._requests,
                source,
                metrics,
                reloads=self._reloads,
                features=lambda: features_of(partitions.image.level),
            )
            for name, listener in config.clients.items()
        }
        self._listeners = Listeners(
            config,
            limits,
            metrics,
            clients={name: (door.handler, door.security) for name, door in self._doors.items()},
            brokers=(self._peer_requests, peer_security(config, keys)),
            client_delay_ms=self._quotas.connection_delay_ms,
        )
        self._maintenance = Maintenance(
            directory,
            partitions,
            data.produce,
            typed(MaintenanceConfig, settings),
            metrics,
            compact_interval_s=self._compact_interval_s,
            now_ms=wall_ms,
            is_retention_ours=config.store.kind == "embedded",
        )
        status = Status(
            config, self.lifecycle, directory, partitions, membership, self._maintenance, metrics, rights=self._rights
        )
        self._admin = AdminServer(status.routes(), asyncio.get_running_loop())
        self._watchdog = Watchdog(_hang_limit_s(config), metrics)
        self._start_progress = Tasks()

    async def start(self) -> None:
        """Open the logs, listen, join the cluster; return once registered and under a first image.

        Raises:
            PylogError: the data, the configuration or the cluster says that this broker must not run.
            OSError: an address is taken.
        """
        self._admin.open_unix(self.config.admin_socket)
        if self.config.metrics_listen:
            self._admin.open_metrics(*self.config.metrics_listen, self._metrics_tls)
        # Bound before registering: the address that is told to the cluster must already be ours.
        clients, internal = self._listeners.open()
        client = clients[self.config.client_name]
        self._watchdog.start()
        self._start_progress.spawn(StartProgress(self._start_measure, self._is_waiting_for_store).run())
        await self.membership.join(clients, internal)
        self.lifecycle.become(BrokerState.RECOVERING)
        await self.membership.wait_accepted()
        self._authorization.start()
        self._maintenance.start()
        self._data.replication.start()
        self.groups.start()
        self.transactions.start()
        self._reloads.start()
        self._listeners.serve_clients()
        self.lifecycle.become(BrokerState.RUNNING)
        self._start_progress.cancel()
        notify("READY=1")
        took_ms = wall_ms() - self.lifecycle.started_ms
        _logger.info("ready port=%d broker=%d release=%s took_ms=%d", client.port, self.broker_id, __version__, took_ms)

    async def stop(self) -> None:
        """Let others take over, stop serving, leave the cluster, close the logs cleanly."""
        self._start_progress.cancel()
        notify("STOPPING=1")
        if self.lifecycle.is_running:
            await self.membership.hand_over(self._settings.controlled_shutdown_max_wait_ms / 1000)
        self.lifecycle.become(BrokerState.STOPPING)
        self._listeners.close_clients()
        await self.membership.leave()
        self._listeners.close_internal()
        await self._data.replication.stop()
        await self.groups.stop()
        await self.transactions.stop()
        await self._markers.stop()
        await self._data.produce.close()
        await self._data.fetch.close()
        self.verifier.close()
        await self._reloads.stop()
        for door in self._doors.values():
            await door.close()
        await self._requests.close()
        await self._peer_requests.close()
        await self._authorization.stop()
        await self.membership.stop()
        await self._maintenance.stop()
        await self._data.flusher.stop()
        await asyncio.to_thread(self._admin.close)
        await asyncio.to_thread(self._directory.close)
        self._watchdog.stop()
        _logger.info("stopped broker=%d exit=%d", self.broker_id, self.exit_code)

    def reload(self) -> None:
        """Read certificates, revocation lists and the cluster's secrets again, if they have changed."""
        self._reloads.trigger()

    # -- what handlers ask ---------------------------------------------------------------------------------------

    @property
    def controller_id(self) -> int:
        """See `pylog.broker.control.cluster.Cluster`."""
        return self.membership.controller_id

    async def ask_controller(self, request: Request) -> Message:
        """See `pylog.broker.control.cluster.Cluster`."""
        return await self.membership.ask(request)

    async def new_producer_id(self) -> int:
        """See `pylog.broker.control.cluster.Cluster`."""
        return await self.membership.new_producer_id()

    def _rights(self) -> Mapping[str, Any]:
        return {**self._authorization.report(), "last_requests": self._listeners.last_requests()}

    def _start_measure(self) -> tuple[BrokerState, int, int]:
        return self.lifecycle.state, self._directory.loaded_count, self._directory.checked_segment_count

    def _is_waiting_for_store(self) -> bool:
        return self.lifecycle.state is BrokerState.STARTING

    def _compact_interval_s(self) -> float:
        dynamic = self.partitions.image.broker_configs
        return int(broker_setting("log.cleaner.backoff.ms", self.settings, dynamic, self.broker_id)) / 1000

    # -- what the parts report ------------------------------------------------------------------------------------

    def _failed(self, error: PylogError) -> None:
        _logger.critical("cannot go on reason=%s", error)
        self.exit_code = 1
        self._stop.set()

    def _leadership_changed(self, changed: list[Partition]) -> None:
        self._data.image_applied()
        self.groups.image_applied(changed)
        self.transactions.image_applied(changed)

    def _image_applied(self, changed: list[Partition]) -> None:
        self._quotas.learn(self.partitions.image.client_quotas)
        self._leadership_changed(changed)


def _hang_limit_s(config: BrokerConfig) -> float:
    store = config.store
    return store.session_timeout_ms / 1000 if store.kind == "zookeeper" else DEFAULT_HANG_LIMIT_S
