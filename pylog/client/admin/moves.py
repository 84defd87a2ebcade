"""Which replicas go where: plans that move as little as they may.  Pure; `pylog partition reassign` runs them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from pylog.model import TopicPartition

Placement = Mapping[TopicPartition, Sequence[int]]
"""Partition -> brokers that hold it, the preferred leader first."""

Places = Mapping[int, tuple[str, ...]]
"""Broker -> where it stands, what matters most first: rack, host.  A broker without a place stands alone."""


class PlanError(ValueError):
    """The partitions cannot be placed on these brokers."""


def plan_moves(
    current: Placement,
    brokers: Iterable[int],
    *,
    replication_factor: int | None = None,
    is_balanced: bool = True,
    places: Places | None = None,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the new replicas of every partition that changes.

    Replicas stay where they may. Missing ones go where the partition has least, rack before host, then to the broker
    that has fewest. Then, if *is_balanced*, replicas leave racks and hosts that they share where they need not; they
    move from fuller brokers to emptier ones until these differ by one at most, as far as that brings none together,
    followers before leaders; and partitions that hold both get another preferred leader until leaders are as even as
    that makes them.

    Args:
        current: what is to be placed; only this counts as load.
        brokers: that may hold it.
        replication_factor: replicas of each partition; None keeps the number each has.
        is_balanced: whether brokers that have too much give some away; else only what must move does.
        places: where brokers stand; None spreads over brokers alone.

    Raises:
        PlanError: there are fewer brokers than replicas.
    """
    draft = _Draft(current, sorted(set(brokers)), replication_factor, places or {})
    draft.fill()
    if is_balanced:
        # Each brings replicas apart or, where they are as far apart as before, brokers closer: there is an end.
        while draft.spread() or draft.balance():
            pass
        draft.balance_leaders()
    return {
        partition: tuple(replicas)
        for partition, replicas in draft.replicas.items()
        if tuple(replicas) != tuple(current[partition])
    }


class _Draft:
    """A placement in the making."""

    def __init__(self, current: Placement, brokers: list[int], replication_factor: int | None, places: Places) -> None:
        self.brokers = brokers
        self._places = places
        self._wanted = {one: replication_factor or len(replicas) for one, replicas in current.items()}
        most = max(self._wanted.values(), default=0)
        if most > len(brokers):
            raise PlanError(f"{most} replicas on {len(brokers)} brokers")
        allowed = set(brokers)
        self.replicas = {
            one: [broker for broker in current[one] if broker in allowed][: self._wanted[one]]
            for one in sorted(current)
        }
        self._held: dict[int, set[TopicPartition]] = {broker: set() for broker in brokers}
        for one, replicas in self.replicas.items():
            for broker in replicas:
                self._held[broker].add(one)

    def fill(self) -> None:
        """Give every partition as many replicas as it wants."""
        for one, replicas in self.replicas.items():
            while len(replicas) < self._wanted[one]:
                self._add(one, min(self._others(one), key=lambda b: (self._shared(one, b), len(self._held[b]), b)))

    def spread(self) -> bool:
        """Move replicas that share a rack or a host to where they share less; say whether any moved."""
        is_changed = False
        for one, replicas in self.replicas.items():
            for broker in replicas[::-1]:
                best = min(
                    self._others(one),
                    default=broker,
                    key=lambda b: (self._shared(one, b, broker), len(self._held[b]), b),
                )
                if self._shared(one, best, broker) < self._shared(one, broker):
                    self._move(one, broker, best)
                    is_changed = True
        return is_changed

    def balance(self) -> bool:
        """Move replicas until no broker has two more than another that could take one; say whether any moved."""
        is_changed = False
        while move := self._next_move():
            self._move(*move)
            is_changed = True
        return is_changed

    def _next_move(self) -> tuple[TopicPartition, int, int] | None:
        by_load = sorted(self.brokers, key=lambda b: (len(self._held[b]), b))
        for full, empty in product(reversed(by_load), by_load):
            if len(self._held[full]) - len(self._held[empty]) < 2:
                continue
            able = [
                one
                for one in self._held[full] - self._held[empty]
                if self._shared(one, empty, full) <= self._shared(one, full)
            ]
            if able:
                return min(able, key=lambda p: (self.replicas[p][0] == full, p)), full, empty
        return None

    def _others(self, one: TopicPartition) -> list[int]:
        return [broker for broker in self.brokers if broker not in self.replicas[one]]

    def _shared(self, one: TopicPartition, broker: int, instead_of: int | None = None) -> tuple[int, ...]:
        """Return with how many other replicas of *one* this broker shares its rack, and its host."""
        place = self._places.get(broker, ())
        others = [self._places.get(b, ()) for b in self.replicas[one] if b not in (broker, instead_of)]
        return tuple(sum(other[: level + 1] == place[: level + 1] for other in others) for level in range(len(place)))

    def _add(self, one: TopicPartition, broker: int) -> None:
        self.replicas[one].append(broker)
        self._held[broker].add(one)

    def _move(self, one: TopicPartition, broker: int, other: int) -> None:
        replicas = self.replicas[one]
        replicas[replicas.index(broker)] = other
        self._held[broker].remove(one)
        self._held[other].add(one)

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
