"""Which fault happens when, decided by one seed: the same seed, length and cluster give the same schedule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import NamedTuple

WARM_UP_S = 6.0
"""Before the first fault, so that every topic has records."""

QUIET_S = 12.0
"""After the last fault has ended, so that a session that ends then is seen by the clients."""


class Kind(StrEnum):
    """Every fault, and every operation on topics."""

    SWAP = "swap of release"
    KILL = "kill -9"
    STOP = "SIGSTOP"
    CUT = "one-way cut"
    CLOG = "clogged link"
    DISK = "full disk"
    ZOOKEEPER = "ZooKeeper server"
    CLOCK = "clock step"
    RECREATE = "re-creation"
    TRIM = "trim"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault or operation.

    Attributes:
        at_s: seconds after the start at which it begins.
        lasts_s: seconds until it is taken away; 0 where nothing has to be.
        target: number of the broker, the ZooKeeper server or the partition that it hits.
        value: what else the kind needs: the other end of a cut (0: everybody), bits a second of a clogged link, seconds
            of a clock step, 1 where a ZooKeeper server is killed rather than stopped, 1 where a broker gets this
            release rather than the one before it, thousandths of a log to trim.
    """

    at_s: float
    kind: Kind
    target: int
    lasts_s: float = 0.0
    value: int = 0

    @property
    def ends_s(self) -> float:
        """Seconds after the start at which it is taken away."""
        return self.at_s + self.lasts_s


@dataclass(frozen=True, slots=True)
class World:
    """What there is to break.

    Attributes:
        has_swaps: whether the brokers begin with the release before this one.
    """

    brokers: int = 4
    servers: int = 3
    partitions: int = 6
    has_swaps: bool = True


_BROKER_FAULTS = (Kind.KILL, Kind.STOP, Kind.CUT, Kind.CLOG, Kind.DISK)
_CLOCK_STEPS_S = (-43_200, -3_600, -90, 90, 3_600, 43_200)
_CLOGS_BITS_S = (64_000, 256_000, 1_000_000)


_ROLLED_BACK = 2
"""So many brokers go back to the previous release after all have this one, and get it once more."""

_LONGEST_MIX_S = 480.0
"""The releases are mixed for a third of a run, but no longer: what only this release promises needs time as well."""


class Track(NamedTuple):
    """Kinds that take turns, one in each slot.

    Attributes:
        pace_s: length of a slot.
        least: so many slots has a short run, if each of them is 10 s at least.
    """

    kinds: Sequence[Kind]
    pace_s: float
    least: int


_TRACKS = (
    Track(_BROKER_FAULTS, 18.0, 6),
    Track((Kind.ZOOKEEPER,), 45.0, 3),
    Track((Kind.CLOCK,), 60.0, 3),
    Track((Kind.RECREATE,), 60.0, 2),
    Track((Kind.TRIM,), 45.0, 3),
    Track((Kind.MOVE,), 45.0, 3),
)

_WITH_ONE_RELEASE = (Kind.RECREATE, Kind.TRIM, Kind.MOVE, Kind.CLOCK)
"""Release 0.1.0 does not keep what is promised of the first three, so they wait until no broker runs it.  Clocks too:
until the formats are finalized, the time of a commit tells for which topic it was."""


def plan(seed: int, duration_s: float, world: World) -> list[Fault]:
    """Return the schedule, in the order of time.

    All brokers begin with the previous release.  Within the first third of the run each gets this one, some go back,
    and get it again.

    Raises:
        ValueError: the run is too short for a schedule.
    """
    if duration_s < 60:
        raise ValueError(f"a run must last at least 60 s, got {duration_s:.0f}")
    faults = list(_swaps(Random(f"{seed} swaps"), duration_s, world)) if world.has_swaps else []
    mixed_until_s = faults[-1].ends_s if faults else WARM_UP_S
    for track in _TRACKS:
        # Each track has a generator of its own: a new kind changes no other track.
        lot = Random(f"{seed} {track.kinds[0]}")
        begin_s = mixed_until_s if track.kinds[0] in _WITH_ONE_RELEASE else WARM_UP_S
        faults += _track(lot, track, begin_s, duration_s, world)
    return sorted(faults, key=lambda fault: (fault.at_s, fault.kind))


def _swaps(lot: Random, duration_s: float, world: World) -> Iterator[Fault]:
    order = list(range(1, world.brokers + 1))
    lot.shuffle(order)
    back = order[:_ROLLED_BACK]
    swaps = [*((broker, 1) for broker in order), *((broker, 0) for broker in back), *((broker, 1) for broker in back)]
    slot_s = (min(duration_s / 3, _LONGEST_MIX_S) - WARM_UP_S) / len(swaps)
    for place, (broker, is_upgrade) in enumerate(swaps):
        at_s = WARM_UP_S + place * slot_s + lot.uniform(0, slot_s / 4)
        yield Fault(round(at_s, 1), Kind.SWAP, broker, lasts_s=1.0, value=is_upgrade)


def _track(lot: Random, track: Track, begin_s: float, duration_s: float, world: World) -> Iterator[Fault]:
    span_s = duration_s - QUIET_S - begin_s
    slots = max(int(span_s / track.pace_s), min(track.least, int(span_s / 10)))
    slot_s = span_s / slots
    bag: list[Kind] = []
    for slot in range(slots):
        if not bag:
            bag = list(track.kinds)
            lot.shuffle(bag)
        kind = bag.pop()
        # A quarter lasts into the next slot, so that faults of different brokers overlap.
        longest_s = slot_s * (1.5 if lot.random() < 0.25 else 0.7)
        at_s = begin_s + slot * slot_s + lot.uniform(0, slot_s / 4)
        lasts_s = min(lot.uniform(2.0, max(longest_s, 3.0)), duration_s - QUIET_S - at_s)
        yield _fault(lot, kind, round(at_s, 1), round(max(lasts_s, 0.5), 1), slot, world)


def _fault(lot: Random, kind: Kind, at_s: float, lasts_s: float, slot: int, world: World) -> Fault:
    broker = lot.randint(1, world.brokers)
    if kind is Kind.CUT:
        # 0 is everybody; servers of ZooKeeper count on behind the brokers.
        others = [0, *(one for one in range(1, world.brokers + world.servers + 1) if one != broker)]
        return Fault(at_s, kind, broker, lasts_s, lot.choice(others))
    if kind is Kind.CLOG:
        return Fault(at_s, kind, broker, lasts_s, lot.choice(_CLOGS_BITS_S))
    if kind is Kind.CLOCK:
        return Fault(at_s, kind, broker, lasts_s, lot.choice(_CLOCK_STEPS_S))
    if kind is Kind.ZOOKEEPER:
        return Fault(at_s, kind, slot % world.servers + 1, min(lasts_s, 20.0), lot.randint(0, 1))
    if kind is Kind.RECREATE:
        return Fault(at_s, kind, 0)
    if kind is Kind.TRIM:
        return Fault(at_s, kind, 0, value=lot.randint(300, 1000))
    if kind is Kind.MOVE:
        return Fault(at_s, kind, lot.randrange(world.partitions), value=lot.randint(1, world.brokers))
    return Fault(at_s, kind, broker, min(lasts_s, 15.0))
