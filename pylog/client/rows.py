"""What an admin client saw, as plain data: the JSON of `pylog`'s commands and of the console's pages.

One shape for both, so that a script can move from the one to the other.  No clock and no socket.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pylog.client.admin.acls import written
from pylog.client.admin.cluster import ClusterView, ConfigValue, OffsetRange, TopicView
from pylog.client.admin.groups import GroupView, Progress
from pylog.client.admin.health import Problem
from pylog.client.admin.lag import worst
from pylog.model import NodeAddress, TopicPartition

if TYPE_CHECKING:
    from pylog.client.admin.transactions import OpenTransaction, TransactionView

    # At run time it brings the consumer, which most commands do without.
    from pylog.client.commits import Verdict
    from pylog.security.acl import Binding

Row: TypeAlias = dict[str, Any]
"""Names and plain values: lists, dictionaries, texts, numbers."""


def health_data(view: ClusterView, problems: Sequence[Problem]) -> Row:
    """Return what ``pylog cluster health`` says: ``healthy`` without *problems*."""
    return {
        "healthy": not problems,
        "cluster_id": view.cluster_id,
        "controller_id": view.controller_id,
        "brokers": [b.node_id for b in view.brokers],
        "topic_count": len(view.topics),
        "partition_count": sum(len(topic.partitions) for topic in view.topics.values()),
        "problems": [{"kind": p.kind, "subject": p.subject, "detail": p.detail} for p in problems],
    }


def broker_row(broker: NodeAddress, view: ClusterView) -> Row:
    """Return one broker of ``pylog cluster info``."""
    partitions = [p for topic in view.topics.values() for p in topic.partitions]
    return {
        "id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "controller": broker.node_id == view.controller_id,
        "leads": sum(p.leader == broker.node_id for p in partitions),
        "replicas": sum(broker.node_id in p.replicas for p in partitions),
    }


def topic_row(topic: TopicView) -> Row:
    """Return one topic of ``pylog topic list``."""
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "without_leader": sum(not p.has_leader for p in topic.partitions),
        "not_in_sync": sum(not p.is_in_sync for p in topic.partitions),
    }


def topic_data(
    topic: TopicView, offsets: Mapping[TopicPartition, OffsetRange], config: Mapping[str, ConfigValue]
) -> Row:
    """Return what ``pylog topic describe`` says; *offsets* lacks partitions without a leader."""
    return {
        "name": topic.name,
        "partitions": [_partition_row(topic, index, offsets) for index in range(len(topic.partitions))],
        "config": {n: v.value for n, v in sorted(config.items())},
        "own_config": sorted(n for n, v in config.items() if v.is_own),
    }


def group_data(
    view: GroupView,
    progress: Mapping[TopicPartition, Progress],
    verdicts: Mapping[TopicPartition, "Verdict"],
    now_ms: int,
) -> Row:
    """Return what ``pylog group describe`` says."""
    lags = [one.lag for one in progress.values() if one.lag is not None]
    at, status = view.coordinator, worst(one.status for one in verdicts.values())
    return {
        "group": view.group_id,
        "state": view.state,
        "assignor": view.assignor or None,
        "coordinator": at and at.node_id,
        "lag": sum(lags) if lags else None,
        "status": status and status.value,
        "members": _member_rows(view),
        "partitions": _progress_rows(view, progress, verdicts, now_ms),
    }


def transaction_row(view: "TransactionView", now_ms: int) -> Row:
    """Return one row of ``pylog txn list``."""
    return {
        "transactional_id": view.transactional_id,
        "coordinator": view.coordinator,
        "producer_id": view.producer_id,
        "producer_epoch": view.producer_epoch,
        "state": view.state,
        "open_s": None if view.start_ms is None else max(0, now_ms - view.start_ms) // 1000,
        "partition_count": len(view.partitions),
        "timeout_ms": view.timeout_ms,
    }


def open_transaction_row(one: "OpenTransaction", now_ms: int) -> Row:
    """Return one row of ``pylog txn hanging``."""
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "start_offset": one.start,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "silent_s": max(0, now_ms - one.last_ms) // 1000,
        "transactional_id": one.transactional_id,
    }


def binding_row(one: "Binding") -> Row:
    """Return one row of ``pylog acl list``."""
    return {
        "resource": written(one.pattern.resource_type),
        "name": one.pattern.name,
        "pattern": written(one.pattern.pattern_type),
        "principal": one.entry.principal,
        "host": one.entry.host,
        "operation": written(one.entry.operation),
        "permission": written(one.entry.permission),
    }


def _partition_row(topic: TopicView, index: int, offsets: Mapping[TopicPartition, OffsetRange]) -> Row:
    partition = topic.partitions[index]
    held = offsets.get(TopicPartition(topic.name, partition.partition))
    return {
        "partition": partition.partition,
        "leader": partition.leader if partition.has_leader else None,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "start_offset": held and held.start,
        "end_offset": held and held.end,
        "count": held and held.count,
    }


def _progress_rows(
    view: GroupView,
    progress: Mapping[TopicPartition, Progress],
    verdicts: Mapping[TopicPartition, "Verdict"],
    now_ms: int,
) -> list[Row]:
    owners = {partition: member for member in view.members for partition in member.partitions}
    rows = []
    for one, found in progress.items():
        owner, verdict = owners.get(one), verdicts.get(one)
        at_ms = verdict.committed_at_ms if verdict else None
        rows.append(
            {
                "topic": one.topic,
                "partition": one.partition,
                "committed_offset": found.committed,
                "end_offset": found.held and found.held.end,
                "lag": found.lag,
                "status": verdict.status.value if verdict else None,
                "silent_s": at_ms and max(0, now_ms - at_ms) // 1000,
                "client": owner and owner.client_id,
                "host": owner and owner.host,
                "member": owner and owner.member_id,
            }
        )
    return rows


def _member_rows(view: GroupView) -> list[Row]:
    return [
        {
            "member": one.member_id,
            "instance": one.instance_id,
            "client": one.client_id,
            "host": one.host,
            "partition_count": len(one.partitions),
        }
        for one in view.members
    ]
