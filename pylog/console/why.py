"""Why is a partition not in sync?  Sentences from facts, each with the command that shows more."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from pylog.client.admin.cluster import PartitionView
from pylog.client.admin.disks import ReplicaSize
from pylog.client.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts:
    """What is known about the brokers of one partition.

    Attributes:
        registered: brokers in the cluster's metadata.
        answering: brokers that answered a request themselves; None if that is not known.
        adding: brokers that a reassignment adds.
        replicas: what each broker said about its replica; a broker that has none says None, one that was not
            asked or did not answer is missing.
        min_isr: `min.insync.replicas` of the topic; None if that is not known.
    """

    registered: Set[int]
    answering: Set[int] | None
    adding: Set[int] = frozenset()
    replicas: Mapping[int, ReplicaSize | None] = field(default_factory=dict)
    min_isr: int | None = None


def explain(partition: PartitionView, facts: ReplicaFacts) -> Row:
    """Return the state of *partition* in words.

    Returns:
        state: offline, not_in_sync, or in_sync.
        sentence: what holds for the partition.
        effects: what producers and consumers notice.
        replicas: one row a replica: broker, role, state, size and lag where they are known, and a sentence.
    """
    rows = [_replica_row(broker, partition, facts) for broker in partition.replicas]
    if not partition.has_leader:
        state, sentence = "offline", _offline(partition, facts)
    elif partition.is_in_sync:
        state, sentence = "in_sync", _all_in_sync(len(partition.replicas))
    else:
        missing = [row for row in rows if row["role"] == "out of sync"]
        names = ", ".join(f"broker {row['broker']}" for row in missing)
        state = "not_in_sync"
        sentence = (
            f"{len(partition.isr)} of {_count(len(partition.replicas), 'replica')} are in sync; missing: {names}."
        )
    return {"state": state, "sentence": sentence, "effects": _effects(partition, facts.min_isr), "replicas": rows}


def _replica_row(broker: int, partition: PartitionView, facts: ReplicaFacts) -> Row:
    role = "leader" if broker == partition.leader else "in sync" if broker in partition.isr else "out of sync"
    size = facts.replicas.get(broker)
    is_added = broker in facts.adding
    sentence = _in_sync(broker, role) if role != "out of sync" else _missing(broker, facts, is_added=is_added)
    if role != "out of sync" and _is_away(broker, facts):
        sentence = f"{_away(broker, facts)} It is still counted as {role}."
    return {
        "broker": broker,
        "role": role,
        "size_bytes": size and size.size_bytes,
        "offset_lag": size and size.offset_lag,
        "sentence": sentence,
        "next": None if role != "out of sync" and not _is_away(broker, facts) else _next(broker, facts),
    }


def _all_in_sync(count: int) -> str:
    return "Its only replica is in sync." if count == 1 else f"All {count} replicas are in sync."


def _in_sync(broker: int, role: str) -> str:
    return f"Broker {broker} {'leads this partition' if role == 'leader' else 'has all acknowledged records'}."


def _missing(broker: int, facts: ReplicaFacts, *, is_added: bool) -> str:
    if _is_away(broker, facts):
        return _away(broker, facts)
    size = facts.replicas.get(broker)
    if broker not in facts.replicas:
        prefix = f"A reassignment adds broker {broker}. " if is_added else ""
        return f"{prefix}How far broker {broker} is behind is not known: it did not tell about its disk."
    if size is None:
        if is_added:
            return f"A reassignment adds broker {broker}. It has no copy yet."
        return (
            f"Broker {broker} answers, but has no copy of this partition: it is still loading its logs, "
            "or could not open this one."
        )
    behind = (
        f"It is {_count(size.offset_lag, 'offset')} behind what consumers see"
        if size.offset_lag
        else "It has everything that consumers see"
    )
    if is_added:
        return f"A reassignment adds broker {broker}. {behind}, and joins once it has caught up."
    return f"Broker {broker} answers. {behind}, and joins once its fetches reach the leader's end."


def _is_away(broker: int, facts: ReplicaFacts) -> bool:
    return broker not in facts.registered or (facts.answering is not None and broker not in facts.answering)


def _away(broker: int, facts: ReplicaFacts) -> str:
    if broker not in facts.registered:
        return (
            f"Broker {broker} is not registered in the cluster: its process does not run, or has lost its session "
            "with ZooKeeper."
        )
    return (
        f"Broker {broker} is registered, but does not answer: it hangs, or the network does not let requests through."
    )


def _next(broker: int, facts: ReplicaFacts) -> str:
    """Return the command to go on with."""
    if _is_away(broker, facts) or facts.replicas.get(broker) is None:
        return f"journalctl -u pylog-broker@{broker} -n 100"
    return (
        "pylog partition reassign --status"
        if broker in facts.adding
        else f"pylog cluster health --broker {broker} --wait 60"
    )


def _offline(partition: PartitionView, facts: ReplicaFacts) -> str:
    usable = [broker for broker in partition.replicas if not _is_away(broker, facts)]
    waited_for = [broker for broker in partition.isr if broker not in usable]
    if not usable:
        return f"No leader: none of its brokers ({_ids(partition.replicas)}) is available."
    if waited_for and not set(usable) & set(partition.isr):
        return (
            f"No leader: the replicas that were in sync last are on {_ids(waited_for)}, which is away. "
            f"Broker {_ids(usable)} is available, but may lack acknowledged records, so it does not lead."
        )
    return f"No leader, although broker {_ids(usable)} is available: the controller has not elected one yet."


def _effects(partition: PartitionView, min_isr: int | None) -> list[str]:
    if not partition.has_leader:
        return ["Producers cannot write to it, and consumers cannot read from it."]
    if min_isr is None:
        return []
    needed = min(min_isr, len(partition.replicas))
    if len(partition.isr) < needed:
        return [
            f"Producers with acks=all are refused (NOT_ENOUGH_REPLICAS): min.insync.replicas is {min_isr}, "
            f"in sync are {len(partition.isr)}. Consumers can read what is acknowledged."
        ]
    if len(partition.isr) == needed < len(partition.replicas):
        return [f"Producers with acks=all are refused as soon as one more replica falls out ({needed} are needed)."]
    return []


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _ids(brokers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, brokers))
