"""Which replicas go where: plans that move as little as they may.  Pure; `pylog partition reassign` runs them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pylog.model import TopicPartition

Placement = Mapping[TopicPartition, Sequence[int]]
"""Partition -> brokers that hold it, the preferred leader first."""


class PlanError(ValueError):
    """The partitions cannot be placed on these brokers."""


def plan_moves(
    current: Placement, brokers: Iterable[int], *, replication_factor: int | None = None, is_balanced: bool = True
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the new replicas of every partition that changes.

    Replicas stay where they may. Missing ones go to the broker that has fewest; then, if *is_balanced*, replicas move
    from the fullest broker to the emptiest until they differ by one at most, followers before leaders, and partitions
    that hold both get another preferred leader until leaders are as even as that makes them.

    Args:
        current: what is to be placed; only this counts as load.
        brokers: that may hold it.
        replication_factor: replicas of each partition; None keeps the number each has.
        is_balanced: whether brokers that have too much give some away; else only what must move does.

    Raises:
        PlanError: there are fewer brokers than replicas.
    """
    draft = _Draft(current, sorted(set(brokers)), replication_factor)
    draft.fill()
    if is_balanced:
        draft.balance()
        draft.balance_leaders()
    return {partition: tuple(replicas) for partition, replicas in draft.replicas.items()
            if tuple(replicas) != tuple(current[partition])}


class _Draft:
    """A placement in the making."""

    def __init__(self, current: Placement, brokers: list[int], replication_factor: int | None) -> None:
        self.brokers = brokers
        self._wanted = {one: replication_factor or len(replicas) for one, replicas in current.items()}
        most = max(self._wanted.values(), default=0)
        if most > len(brokers):
            raise PlanError(f"{most} replicas on {len(brokers)} brokers")
        allowed = set(brokers)
        self.replicas = {one: [broker for broker in current[one] if broker in allowed][: self._wanted[one]]
                         for one in sorted(current)}
        self._held: dict[int, set[TopicPartition]] = {broker: set() for broker in brokers}
        for one, replicas in self.replicas.items():
            for broker in replicas:
                self._held[broker].add(one)

    def fill(self) -> None:
        """Give every partition as many replicas as it wants."""
        for one, replicas in self.replicas.items():
            while len(replicas) < self._wanted[one]:
                broker = min((b for b in self.brokers if b not in replicas), key=lambda b: (len(self._held[b]), b))
                replicas.append(broker)
                self._held[broker].add(one)

    def balance(self) -> None:
        """Move replicas until no broker has two more than another."""
        while self.brokers:
            full = max(self.brokers, key=lambda b: (len(self._held[b]), b))
            empty = min(self.brokers, key=lambda b: (len(self._held[b]), b))
            if len(self._held[full]) - len(self._held[empty]) < 2:
                return
            # There is one: the fuller broker has more partitions than the two can share.
            one = min(self._held[full] - self._held[empty], key=lambda p: (self.replicas[p][0] == full, p))
            replicas = self.replicas[one]
            replicas[replicas.index(full)] = empty
            self._held[full].remove(one)
            self._held[empty].add(one)

    def balance_leaders(self) -> None:
        """Change the order of replicas, which moves no data, while that makes leaders more even."""
        leads = Counter(dict.fromkeys(self.brokers, 0))
        leads.update(replicas[0] for replicas in self.replicas.values() if replicas)
        is_changed = True
        while is_changed:
            is_changed = False
            for replicas in self.replicas.values():
                if not replicas:
                    continue
                other = min(replicas, key=lambda b: (leads[b], b))
                if leads[replicas[0]] - leads[other] >= 2:
                    leads[replicas[0]] -= 1
                    leads[other] += 1
                    replicas.remove(other)
                    replicas.insert(0, other)
                    is_changed = True
