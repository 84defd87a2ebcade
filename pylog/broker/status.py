"""What the admin socket says of a broker, and what it does for its operator."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pylog import __version__
from pylog.broker.admin import Reply, Routes
from pylog.broker.config import BrokerConfig
from pylog.broker.control.membership import Membership
from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.lifecycle import BrokerState, Lifecycle
from pylog.broker.maintenance import Maintenance
from pylog.cluster.formats import NEWEST_LEVEL
from pylog.errors import ApiError, ErrorCode
from pylog.log.directory import LogDirectory
from pylog.metrics import Metrics, render
from pylog.model import NO_LEADER


class Status:
    """Answers the requests that come over the admin socket."""

    def __init__(
        self,
        config: BrokerConfig,
        lifecycle: Lifecycle,
        directory: LogDirectory,
        partitions: Partitions,
        membership: Membership,
        maintenance: Maintenance,
        metrics: Metrics,
        rights: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._config = config
        self._lifecycle = lifecycle
        self._directory = directory
        self._partitions = partitions
        self._membership = membership
        self._maintenance = maintenance
        self._metrics = metrics
        self._rights = rights

    def routes(self) -> Routes:
        """Return the routes of the admin socket."""
        return {
            ("GET", "/status"): self._answer_status,
            ("GET", "/ready"): self._answer_ready,
            ("GET", "/metrics"): self._answer_metrics,
            ("GET", "/rights"): self._answer_rights,
            ("POST", "/retention"): self._answer_retention,
            ("POST", "/finalize"): self._answer_finalize,
        }

    async def _answer_status(self, body: Mapping[str, Any]) -> Reply:
        directory, membership = self._directory, self._membership
        return Reply(
            200,
            {
                "broker_id": self._config.broker_id,
                "cluster_id": membership.cluster_id,
                "release": __version__,
                "config_hash": self._config.config_hash,
                "started_ms": self._lifecycle.started_ms,
                "state": self._lifecycle.state.value,
                "recovery": {"done": directory.loaded_count, "total": directory.total_count},
                "controller_id": membership.elected_id,
                "is_registered": membership.is_registered,
                "format_level": self._partitions.image.level,
                "newest_format_level": NEWEST_LEVEL,
                "partitions": [describe_partition(partition, self._config.broker_id) for partition in self._partitions],
            },
        )

    async def _answer_ready(self, body: Mapping[str, Any]) -> Reply:
        answer = readiness(
            self._partitions,
            self._config.broker_id,
            is_registered=self._membership.is_registered and self._lifecycle.is_running,
            has_image=self._partitions.image.version > 0,
        )
        return Reply(200 if answer["ready"] else 503, answer)

    async def _answer_metrics(self, body: Mapping[str, Any]) -> Reply:
        # The values are the loop's; the text of thousands of series is made beside it.
        return Reply(200, await asyncio.to_thread(render, await self._metrics.sample_in_steps()))

    async def _answer_rights(self, body: Mapping[str, Any]) -> Reply:
        return Reply(200, {"started_ms": self._lifecycle.started_ms, **self._rights()})

    async def _answer_retention(self, body: Mapping[str, Any]) -> Reply:
        if not self._lifecycle.is_running:
            return Reply(503, {"error": f"the broker is {self._lifecycle.state.value}"})
        return Reply(200, await self._maintenance.retain(dry_run=body.get("dry_run") is True))

    async def _answer_finalize(self, body: Mapping[str, Any]) -> Reply:
        state = self._lifecycle.state
        if state is BrokerState.STARTING:
            error = f"the broker is {state.value}"
            return Reply(503, {"error_code": ErrorCode.BROKER_NOT_AVAILABLE, "error": error})
        try:
            return Reply(200, {"level": await self._membership.finalize()})
        except ApiError as error:
            return Reply(409, {"error_code": error.code, "error": str(error)})


def describe_partition(partition: Partition, broker_id: int) -> dict[str, Any]:
    """Return one entry of /status: `in_sync` is what the newest image says of this replica, on broker *broker_id*."""
    log = partition.log
    is_offline = partition.is_offline
    row: dict[str, Any] = {
        "topic": partition.key.topic,
        "partition": partition.key.partition,
        "role": "offline" if is_offline else "leader" if partition.is_leader else "follower",
        "leader_epoch": partition.leader_epoch,
        "in_sync": not is_offline and partition.state is not None and broker_id in partition.state.isr,
    }
    if log is not None:
        row |= {
            "log_start_offset": log.log_start_offset,
            "high_watermark": log.high_watermark,
            "log_end_offset": log.log_end_offset,
            "size_bytes": log.size_bytes,
        }
    if is_offline:
        row["reason"] = partition.fault or str(log.offline if log else "")
    return row


def readiness(partitions: Partitions, broker_id: int, *, is_registered: bool, has_image: bool) -> Mapping[str, Any]:
    """Return what /ready answers: ready only with every hosted partition led, and in sync here.

    "lacking" counts those that are not in sync here: whoever waits sees by it whether it goes on.
    """
    image = partitions.image
    reason, lacking = "", []
    if not is_registered:
        reason = "not registered: no session with the cluster store"
    elif not has_image:
        reason = "no cluster image yet: the controller has not been reached"
    else:
        lacking = [
            f"{topic.name}-{number}"
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
            if broker_id in state.replicas
            and not _is_in_sync(partitions, broker_id, topic.name, number, state.isr)
            # What is only on its way here, others have; nobody waits for it.
            and not (number in topic.moves and broker_id in topic.moves[number].adding)
        ]
        leaderless = [
            f"{topic.name}-{number}"
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
            if state.leader == NO_LEADER and broker_id in state.replicas
        ]
        if lacking:
            reason = f"{len(lacking)} partitions not in sync, first {lacking[0]}"
        elif leaderless:
            reason = f"{len(leaderless)} partitions without leader, first {leaderless[0]}"
    return {"ready": not reason, "reason": reason, "lacking": len(lacking)}


def _is_in_sync(partitions: Partitions, broker_id: int, topic: str, number: int, isr: tuple[int, ...]) -> bool:
    hosted = partitions.get(topic, number)
    return broker_id in isr and hosted is not None and not hosted.is_offline
