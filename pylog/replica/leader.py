"""What the leader of a partition knows of its followers, and what follows from it.

The high watermark is the first offset that some replica of the maximal ISR still lacks: everything below survives as
long as one of them is left.  The maximal ISR is the committed one and whoever is about to join it: between asking the
controller and its answer nobody can say which of the two holds, so both must (rule 4).

Source: KIP-101, KIP-497; Kafka's Partition.maybeIncrementLeaderHW, isFollowerInSync, isFollowerOutOfSync.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from pylog.model import Offset

UNKNOWN: Offset = -1
"""Log end of a follower that has not fetched in this leader epoch; it holds the high watermark where it is."""

TOUCH_MS = 2_000
"""A follower fetches every half second, so one that is silent for so long has another leader, or is in trouble."""

NEVER_MS = -(2**62)
"""Time of what has not happened."""


@dataclass(slots=True)
class Alive:
    """What a follower's requests on one connection say of all the partitions that it has named there.

    Attributes:
        fetched_ms: when the last one came.
        answered_ms: when we answered last.
        touched_ms: at that time or later the follower asked us.  A request may lie in the socket while this process is
            stopped; that it was sent after our previous answer is certain.
    """

    fetched_ms: int = 0
    answered_ms: int = NEVER_MS
    touched_ms: int = NEVER_MS

    def heard(self, now_ms: int) -> None:
        """Take note of a request."""
        self.fetched_ms, self.touched_ms = now_ms, self.answered_ms


@dataclass(slots=True)
class FollowerState:
    """One follower, as its fetches show it.

    Attributes:
        alive: that of the connection on which it asks for this partition.  Asking for what it asked for before, it
            does not name the partition again.
        log_end_offset: it has everything below; known only from a fetch in this leader epoch.
        broker_epoch: of the process that fetched; an ISR change names it, so that a bounced one is refused.
        caught_up_ms: when it last had everything that the leader had.
        touched_ms: at that time or later it fetched, if it names no connection; see `Alive`.
        high_watermark_told: as our last answer to it said; kept only where consumers read from followers.
        log_start_offset: its log begins there, also after a power cut; known only from a fetch in this leader epoch.
        takes_every_start: it lets its log begin wherever we say; release 0.1.0 refuses what lies above the high
            watermark that it knows.
    """

    caught_up_ms: int
    log_end_offset: Offset = UNKNOWN
    broker_epoch: int = -1
    fetched_ms: int = 0
    touched_ms: int = NEVER_MS
    end_offset_at_fetch: Offset = 0
    high_watermark_told: Offset = UNKNOWN
    log_start_offset: Offset = UNKNOWN
    takes_every_start: bool = True
    alive: Alive | None = None

    @property
    def last_fetch_ms(self) -> int:
        """When it asked for this partition last, by name or not."""
        return self.fetched_ms if self.alive is None else max(self.fetched_ms, self.alive.fetched_ms)

    @property
    def last_touch_ms(self) -> int:
        """At that time or later it asked for this partition, by name or not."""
        return self.touched_ms if self.alive is None else self.alive.touched_ms


@dataclass(frozen=True, slots=True)
class IsrChange:
    """What the controller is asked for: the new ISR, each member with the epoch of its process."""

    isr: tuple[tuple[int, int], ...]
    partition_epoch: int


class Leader:
    """One leader epoch of one partition.

    Attributes:
        isr: as committed by the controller.
        min_isr: how many replicas must be in sync for acks=all.
        partition_epoch: version of the state that `isr` stands in.
        leader_epoch: ours.
        pending: a change that was sent and not answered; one at a time.
        cannot_write: the disk refused an append, so that another should lead, if there is one (rule 7).
        has_followers: whether anybody else holds the partition, or may be in sync.

    Invariant: the high watermark never moves back, and never past what a member of `isr` or of `pending` has.
    """

    __slots__ = (
        "_broker_id", "_epoch_start", "_followers", "_lag_ms", "_replicas", "_wanted_min_isr",
        "cannot_write", "factor", "has_followers", "isr", "leader_epoch", "min_isr", "partition_epoch", "pending",
    )  # fmt: skip

    def __init__(
        self,
        broker_id: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        *,
        factor: int | None = None,
        leader_epoch: int,
        partition_epoch: int,
        epoch_start: Offset,
        lag_ms: int,
        min_isr: int,
        now_ms: int,
    ) -> None:
        """Begin to lead.

        Args:
            broker_id: ours.
            replicas: all of them, this broker included.
            isr: as the controller committed it.
            factor: how many replicas there shall be, all of them if None; those of a move that has not ended count
                once.
            leader_epoch: under which this broker leads.
            partition_epoch: version of the state.
            epoch_start: log end when this epoch began; who lacks that cannot be in sync.
            lag_ms: how long a member may lag, `replica.lag.time.max.ms`.
            min_isr: `min.insync.replicas`.
            now_ms: the time; members get a whole lag from here, since they could not fetch before.
        """
        self._broker_id = broker_id
        self._epoch_start = epoch_start
        self._lag_ms = lag_ms
        self._replicas: frozenset[int] = frozenset(replicas)
        self.isr = frozenset(isr)
        # An assignment that somebody edited in the store may lack a member; it goes from the ISR like one that is late.
        known = self._replicas | self.isr
        self._followers = {one: FollowerState(now_ms) for one in known if one != broker_id}
        self.has_followers = bool(self._followers)
        self.factor = len(self._replicas) if factor is None else factor
        self.want_isr(min_isr)
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.pending: IsrChange | None = None
        self.cannot_write = False

    def want_isr(self, min_isr: int) -> None:
        """Take a new `min.insync.replicas`."""
        self._wanted_min_isr = min_isr
        # A topic with fewer replicas than the broker's default asks for would never show a record else.
        self.min_isr = min(min_isr, self.factor)

    def follow(self, replicas: Iterable[int], factor: int, now_ms: int) -> None:
        """Take other replicas, since the partition is being moved; see `__init__` for the arguments.

        Who is no replica any more is forgotten as soon as it is in no ISR that may hold.  Who comes begins anew: it
        may have been one before, and has deleted its data since.
        """
        before, self._replicas = self._replicas, frozenset(replicas)
        known = {one: found for one, found in self._followers.items() if one in before or one not in self._replicas}
        self._followers = {
            one: known.get(one) or FollowerState(now_ms)
            for one in self._replicas | self._maximal_isr()
            if one != self._broker_id
        }
        self.has_followers = bool(self._followers)
        self.factor = factor
        self.want_isr(self._wanted_min_isr)

    @property
    def is_alone(self) -> bool:
        """Whether there are no followers at all."""
        return not self.has_followers

    @property
    def epoch_start(self) -> Offset:
        """Log end when this epoch began: below it, what consumers were shown before may still lie."""
        return self._epoch_start

    def is_replica(self, broker_id: int) -> bool:
        """Whether *broker_id* follows here."""
        return broker_id in self._followers and broker_id in self._replicas

    def progress(self, broker_id: int) -> FollowerState:
        """Return what is known of a follower."""
        return self._followers[broker_id]

    def is_proven(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this very process has fetched in this leader epoch, and its log is a copy of ours since then."""
        follower = self._followers[broker_id]
        return follower.log_end_offset != UNKNOWN and follower.broker_epoch == broker_epoch

    def fetched(
        self,
        broker_id: int,
        broker_epoch: int,
        fetch_offset: Offset,
        log_end_offset: Offset,
        now_ms: int,
        alive: Alive | None = None,
        *,
        log_start_offset: Offset = 0,
        takes_every_start: bool = True,
    ) -> None:
        """Take note of a follower's fetch: it has everything from *log_start_offset* to *fetch_offset*.

        With *alive* it goes on asking, as that says, without naming this partition, until it has `left`.
        """
        follower = self._followers[broker_id]
        if broker_epoch < follower.broker_epoch:
            return  # an earlier process of that broker, still on its way here
        if fetch_offset >= log_end_offset:
            follower.caught_up_ms = now_ms
        elif fetch_offset >= follower.end_offset_at_fetch:
            # It has now what was there at its previous fetch, so it had caught up then.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        # This fetch was sent after our answer to the one before, and so after that one had come.
        follower.touched_ms = NEVER_MS if follower.log_end_offset == UNKNOWN else follower.fetched_ms
        follower.broker_epoch = broker_epoch
        follower.log_end_offset = fetch_offset
        follower.end_offset_at_fetch = log_end_offset
        follower.fetched_ms = now_ms
        follower.alive = alive
        follower.log_start_offset = log_start_offset
        follower.takes_every_start = takes_every_start

    def low_watermark(self, log_start_offset: Offset, live: Container[int]) -> Offset:
        """Return the first offset that some replica may still show after a change of leader; UNKNOWN at first.

        Args:
            log_start_offset: ours, as it is on disk.
            live: registered brokers, as our image has them.  A replica on another one deletes what is due before it
                joins the ISR.  A member counts in any case: it may lead next, though our image is from before it came
                back.

        Source: Kafka's Partition.lowWatermarkIfLeader.
        """
        members = self._maximal_isr()
        starts = (known.log_start_offset for one, known in self._followers.items() if one in live or one in members)
        return min((log_start_offset, *starts))

    def copied_offset(self, now_ms: int) -> Offset | None:
        """Return up to where all followers have this log that fetch from it now; None without one.

        A follower that fetches no more, and lacks a tombstone when it comes back, begins anew; one that is copying
        would begin again and again if tombstones were removed before it came to them.
        """
        ends = (
            known.log_end_offset
            for known in self._followers.values()
            if known.log_end_offset != UNKNOWN and now_ms - known.last_fetch_ms <= self._lag_ms
        )
        return min(ends, default=None)

    def lags_ms(self, log_end_offset: Offset, now_ms: int) -> Iterator[tuple[int, int]]:
        """Yield each follower with how long ago it last had everything, 0 if it has everything now."""
        for broker_id, follower in self._followers.items():
            if broker_id in self._replicas:
                lacks_records = follower.log_end_offset < log_end_offset
                yield broker_id, max(now_ms - follower.caught_up_ms, 0) if lacks_records else 0

    def fell_behind(self, broker_id: int) -> None:
        """Count a follower as having had everything when it asked last: something has come since that it lacks."""
        follower = self._followers.get(broker_id)
        if follower is not None:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.last_fetch_ms)

    def left(self, broker_id: int, alive: Alive, *, had_everything: bool) -> None:
        """Take note that what a follower asks for on a connection does not mean this partition any more."""
        follower = self._followers.get(broker_id)
        if follower is not None and follower.alive is alive:
            if had_everything:
                self.fell_behind(broker_id)
            follower.fetched_ms = follower.last_fetch_ms
            follower.touched_ms = NEVER_MS  # it may follow somebody else by now
            follower.alive = None

    def high_watermark(self, current: Offset, log_end_offset: Offset) -> Offset:
        """Return the first offset some in-sync replica may still lack; it never moves back."""
        if len(self.isr) < self.min_isr:
            return current
        return max(current, self.common_end_offset(log_end_offset))

    def common_end_offset(self, log_end_offset: Offset) -> Offset:
        """Return the first offset some in-sync replica may still lack, however few they are; UNKNOWN at first."""
        lowest = log_end_offset
        for member in self._maximal_isr():
            if member != self._broker_id:
                lowest = min(lowest, self._followers[member].log_end_offset)
        return lowest

    def waits_for(self, member: int) -> bool:
        """Whether what it lacks is not acknowledged: it is in sync, or was asked to be and nobody has answered yet."""
        return member in self.isr or (self.pending is not None and member in self._maximal_isr())

    def is_settled(self, log_end_offset: Offset) -> bool:
        """Whether no other ISR can be wanted before something happens: all replicas are in sync and have everything."""
        if self.pending is not None or len(self.isr) != len(self._replicas) or self.isr != self._replicas:
            return False
        return all(one.log_end_offset >= log_end_offset for one in self._followers.values())

    def is_under_min_isr(self) -> bool:
        """Whether acks=all must be refused."""
        return len(self.isr) < self.min_isr

    def is_in_touch(self, now_ms: int, *, has_session: bool) -> bool:
        """Whether nobody else can have been made leader before the last `TOUCH_MS`.

        A successor comes from the ISR, and follows us no more: so every other member has to have fetched lately.  An
        only member has no successor but by an unclean election, which comes after the end of its session.

        Args:
            now_ms: the time.
            has_session: our session with the store has not ended.
        """
        others = self._maximal_isr() - {self._broker_id}
        if not others:
            return has_session
        return all(now_ms - self._followers[member].last_touch_ms <= TOUCH_MS for member in others)

    @property
    def is_only_member(self) -> bool:
        """Whether nobody else is in sync, or may be."""
        return self._maximal_isr() <= {self._broker_id}

    def wanted_change(
        self, high_watermark: Offset, log_end_offset: Offset, now_ms: int, *, log_start_offset: Offset = 0
    ) -> IsrChange | None:
        """Return the change to ask for, or None; the caller sends it after `sent`."""
        if self.pending is not None:
            return None
        isr = {self._broker_id}
        for broker_id, follower in self._followers.items():
            # A late follower neither stays nor joins.  Below the minimum the high watermark stands still: a follower
            # that has no more than that would join and leave as fast as the controller answers.
            if not self._is_late(follower, log_end_offset, now_ms) and (
                broker_id in self.isr or self._may_join(broker_id, log_start_offset, high_watermark, now_ms)
            ):
                isr.add(broker_id)
        if isr == self.isr:
            return None
        return IsrChange(tuple((member, self._epoch_of(member)) for member in sorted(isr)), self.partition_epoch)

    def _is_late(self, follower: FollowerState, log_end_offset: Offset, now_ms: int) -> bool:
        return now_ms - follower.caught_up_ms > self._lag_ms and follower.log_end_offset < log_end_offset

    def _may_join(self, broker_id: int, log_start_offset: Offset, high_watermark: Offset, now_ms: int) -> bool:
        follower = self._followers[broker_id]
        # It may lead next, and would show what DeleteRecords was answered for while it was away.  Where retention moved
        # our start it is told and follows as well, so that this keeps nobody out for longer than a fetch.
        if follower.log_start_offset < log_start_offset and follower.takes_every_start:
            return False
        # One that fetches no more must not be named: its process may be gone, and with it the whole change is refused.
        is_fetching = broker_id in self._replicas and now_ms - follower.last_fetch_ms <= self._lag_ms
        return is_fetching and follower.log_end_offset >= max(high_watermark, self._epoch_start)

    def resignation(self) -> IsrChange | None:
        """Return the change that leaves us out, because our log cannot be used; None while nobody else is in sync."""
        others = self.isr - {self._broker_id}
        if not others:
            return None
        return IsrChange(tuple((member, self._epoch_of(member)) for member in sorted(others)), self.partition_epoch)

    def sent(self, change: IsrChange) -> None:
        """Count the joining replicas from now on, whatever becomes of *change*."""
        assert self.pending is None, "one change at a time"
        self.pending = change

    def answered(self, isr: Iterable[int], partition_epoch: int) -> None:
        """Take in the state that the controller says holds, whether it took our change or not.

        An answer from before what is known is dropped.
        """
        if partition_epoch >= self.partition_epoch:
            self._take(isr, partition_epoch)
        self.pending = None

    def learned(self, isr: Iterable[int], partition_epoch: int) -> None:
        """Take in the state of a cluster image, which may be older or newer than what is known.

        A newer one also decides a pending change: it is that change, or one after which ours will be refused.
        """
        if partition_epoch > self.partition_epoch:
            self._take(isr, partition_epoch)
            self.pending = None

    def _take(self, isr: Iterable[int], partition_epoch: int) -> None:
        """Let a state hold; who is not in sync any more shows by its next fetch what it has.

        Whoever left by itself, since its disk takes nothing, would be let in again at once for what it had before.
        """
        members = frozenset(isr)
        for one in self._maximal_isr() - members - {self._broker_id}:
            self._followers[one].log_end_offset = UNKNOWN
        for one in members - self._followers.keys() - {self._broker_id}:
            # A deposed leader is told the state of its successor, in which replicas may be in sync that it never heard
            # of. It knows nothing of them, so its high watermark stands still.
            self._followers[one] = FollowerState(0)
        # Who is no replica any more stayed only for the ISR that might still have held.
        self._followers = {
            one: known for one, known in self._followers.items() if one in self._replicas or one in members
        }
        self.has_followers = bool(self._followers)
        self.isr, self.partition_epoch = members, partition_epoch

    def refused(self) -> None:
        """Forget the change: a definite answer says that it was not and will not be made."""
        self.pending = None

    def _maximal_isr(self) -> frozenset[int]:
        return self.isr if self.pending is None else self.isr.union(member for member, _ in self.pending.isr)

    def _epoch_of(self, member: int) -> int:
        # Ours is filled in by who sends: it is that of the session, which this class knows nothing of.
        return -1 if member == self._broker_id else self._followers[member].broker_epoch
