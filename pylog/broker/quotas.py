"""What clients may use of this broker, and for how long one that used more is not listened to.

A request is answered at once, with how long its client is throttled; meanwhile its connection is not read from (trap
5).  Followers and the brokers' own requests are not counted: they come in on another listener.

Source: Kafka documentation, "Quotas"; KIP-124, KIP-219, KIP-599, KIP-612.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from pylog.cluster.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
    connection_rate,
    governing,
)
from pylog.metrics import Counter, Metrics
from pylog.net.connection import Connection
from pylog.security.principal import normal_host
from pylog.token_bucket import TokenBucket

BURST_MS = 1_000
"""How much of its rate a client may use at once after it has been idle."""

MUTATION_BURST_MS = 11_000
"""The same for changes of topics, which come in bursts: Kafka's default of eleven windows of a second."""

MAX_THROTTLE_MS = 30_000
"""Longest throttling by one request, as long as Kafka's clients wait for an answer; a larger debt stays."""

MAX_CLIENTS = 10_000
"""Clients remembered at once; whoever makes names up must not make us keep them."""


def throttle_ms(bucket: TokenBucket, amount: float, now_ms: int) -> int:
    """Take *amount* from *bucket*; return for how many ms its user is throttled."""
    return math.ceil(min(bucket.take(amount, now_ms), MAX_THROTTLE_MS))


@dataclass(frozen=True, slots=True)
class _Limits:
    """The buckets of one client, shared with others as its quotas say; None where there is no quota."""

    produce: TokenBucket | None
    fetch: TokenBucket | None
    busy: TokenBucket | None
    mutations: TokenBucket | None


class Meter:
    """Counts what one request uses whose client has a quota; its work is counted from here to the first answer."""

    __slots__ = ("_begun_s", "_connection", "_limits", "_quotas", "_refused_ms")

    def __init__(self, quotas: "Quotas", limits: _Limits, connection: Connection) -> None:
        self._quotas = quotas
        self._limits = limits
        self._connection = connection
        self._begun_s: float | None = time.perf_counter()
        self._refused_ms = 0

    @property
    def fetch_max_bytes(self) -> float:
        """Most that one fetch reply should carry, so that its price is not many seconds of silence."""
        return math.inf if self._limits.fetch is None else self._limits.fetch.burst

    def produced(self, size_bytes: int) -> int:
        """Count bytes that came in; return for how many ms the client is throttled."""
        return max(self._charge(self._limits.produce, size_bytes, self._quotas.throttled_produce), self.worked())

    def fetched(self, size_bytes: int) -> int:
        """Count bytes that go out; return for how many ms the client is throttled."""
        return max(self._charge(self._limits.fetch, size_bytes, self._quotas.throttled_fetch), self.worked())

    @property
    def counts_mutations(self) -> bool:
        """Whether a quota governs how fast the client may change topics."""
        return self._limits.mutations is not None

    def mutated(self, partitions: int, *, is_strict: bool) -> bool:
        """Count partitions that are to be made or deleted; return whether they may.

        Args:
            partitions: how many.
            is_strict: refuse them while the client is in debt; an older client is made to wait afterwards instead,
                since it would take the refusal for its end.
        """
        bucket = self._limits.mutations
        if bucket is None:
            return True
        now_ms = self._quotas.now_ms()
        wait_ms = 0
        if is_strict:
            wait_ms = throttle_ms(bucket, 0, now_ms)
            if not wait_ms:
                bucket.take(partitions, now_ms)
        else:
            wait_ms = throttle_ms(bucket, partitions, now_ms)
        if wait_ms:
            self._quotas.throttled_mutations.value += 1
            self._connection.mute(wait_ms)
            self._refused_ms = max(self._refused_ms, wait_ms)
        return not (is_strict and wait_ms)

    def worked(self) -> int:
        """Count the time of the broker's loop that the request took; return for how many ms the client is throttled.

        A second call counts nothing more: what waits takes nobody's time.
        """
        begun_s, self._begun_s = self._begun_s, None
        seconds = 0 if begun_s is None else time.perf_counter() - begun_s
        return self.worked_on(seconds)

    def worked_on(self, seconds: float) -> int:
        """As `worked`, of time that the caller has measured: in steps, with the work of others between them."""
        return max(self._charge(self._limits.busy, seconds, self._quotas.throttled_requests), self._refused_ms)

    def _charge(self, bucket: TokenBucket | None, amount: float, throttled: Counter) -> int:
        if bucket is None:
            return 0
        wait_ms = throttle_ms(bucket, amount, self._quotas.now_ms())
        if wait_ms and amount:
            throttled.value += 1
            self._connection.mute(wait_ms)
        return wait_ms


class Quotas:
    """Every client's allowance on this broker.

    Attributes:
        is_any: whether any client has a quota; nothing is looked up or measured otherwise.
    """

    def __init__(self, metrics: Metrics, now_ms: Callable[[], int]) -> None:
        """Make it, with no quotas."""
        self.is_any = False
        self.now_ms = now_ms
        self._quotas: ClientQuotas = {}
        self._limits: dict[tuple[str, str], _Limits] = {}
        self._buckets: dict[tuple[str, QuotaEntity], TokenBucket] = {}
        self._has_ips = False
        self._arrivals: dict[str, TokenBucket] = {}
        name, doc = "pylog_quota_throttled_total", "Requests whose client was throttled, by what it used too much of."
        self.throttled_produce = metrics.counter(name, doc, quota=PRODUCER_BYTE_RATE)
        self.throttled_fetch = metrics.counter(name, doc, quota=CONSUMER_BYTE_RATE)
        self.throttled_requests = metrics.counter(name, doc, quota=REQUEST_PERCENTAGE)
        self.throttled_mutations = metrics.counter(name, doc, quota=CONTROLLER_MUTATION_RATE)
        self._refused_connections = metrics.counter(name, doc, quota=CONNECTION_CREATION_RATE)

    def learn(self, quotas: ClientQuotas) -> None:
        """Go by these quotas from now on; allowances that did not change go on as they are."""
        if quotas != self._quotas:
            self._quotas = quotas
            self._limits.clear()
            self._has_ips = any(entity.ip is not None for entity in quotas)
            self.is_any = any(entity.ip is None for entity in quotas)

    def meter(self, connection: Connection, client_id: str) -> Meter | None:
        """Return what counts the use of *connection*, or None if no quota governs it."""
        who = connection.session.principal.name, client_id
        limits = self._limits.get(who)
        if limits is None:
            if len(self._limits) >= MAX_CLIENTS:
                self._limits.clear()
                self._forget_idle()
            limits = self._limits[who] = _Limits(
                self._bucket(who, PRODUCER_BYTE_RATE, 1),
                self._bucket(who, CONSUMER_BYTE_RATE, 1),
                self._bucket(who, REQUEST_PERCENTAGE, 100),
                self._bucket(who, CONTROLLER_MUTATION_RATE, 1, MUTATION_BURST_MS),
            )
        if limits.produce is limits.fetch is limits.busy is limits.mutations is None:
            return None
        return Meter(self, limits, connection)

    def _forget_idle(self) -> None:
        """Forget allowances, but not those in debt: a client could pay by calling itself ever other names."""
        now_ms = self.now_ms()
        kept = {key: bucket for key, bucket in self._buckets.items() if bucket.left(now_ms) < 0}
        self._buckets = kept if len(kept) < MAX_CLIENTS else {}

    def connection_delay_ms(self, host: str) -> int:
        """Count a connection from *host*; return 0 to serve it, or for how many ms to let it wait for its end."""
        if not self._has_ips:
            return 0
        host = normal_host(host)
        rate = connection_rate(self._quotas, host)
        if rate is None:
            return 0
        now_ms = self.now_ms()
        bucket = self._arrivals.get(host)
        if bucket is None or bucket.rate != rate:
            if len(self._arrivals) >= MAX_CLIENTS:
                self._arrivals.clear()
            bucket = self._arrivals[host] = TokenBucket(rate, now_ms)
        wait_ms = throttle_ms(bucket, 1, now_ms)
        if wait_ms:
            bucket.take(-1, now_ms)  # it is not served, so it has used nothing
            self._refused_connections.value += 1
        return wait_ms

    def _bucket(self, who: tuple[str, str], key: str, divisor: int, burst_ms: int = BURST_MS) -> TokenBucket | None:
        found = governing(self._quotas, *who, key)
        if found is None:
            return None
        sharing, limit = found
        bucket = self._buckets.get((key, sharing))
        if bucket is None or bucket.rate != limit / divisor:
            bucket = self._buckets[key, sharing] = TokenBucket(limit / divisor, self.now_ms(), burst_ms)
        return bucket
