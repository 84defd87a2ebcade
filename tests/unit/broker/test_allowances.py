"""Allowances of clients, with the time passed in."""

import dataclasses
from typing import cast

import pytest

from pylog.broker.apis import APIS
from pylog.broker.control.client_quotas import plan_change
from pylog.broker.quotas import MAX_CLIENTS, MAX_THROTTLE_MS, Quotas, throttle_ms
from pylog.cluster.quotas import DEFAULT, QuotaEntity
from pylog.errors import ApiError
from pylog.metrics import Metrics
from pylog.net.connection import Connection
from pylog.security.principal import Principal, Session
from pylog.token_bucket import TokenBucket
from pylog.wire.api.message import Message
from pylog.wire.api.quotas import QuotaChange, QuotaOperation
from pylog.wire.api.quotas import QuotaEntity as EntityName
from pylog.wire.api.table import ApiKey


class Peer:
    """What a meter knows of a connection."""

    def __init__(self, principal: str = "ANONYMOUS") -> None:
        self.session = Session(principal=Principal("User", principal), client_host="h", listener_name="client")
        self.muted_ms: list[int] = []

    def mute(self, duration_ms: int) -> None:
        self.muted_ms.append(duration_ms)


class Clock:
    """A time that stands until it is told to go on."""

    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def quotas_of(entity: QuotaEntity, **limits: float) -> tuple[Quotas, Clock]:
    clock = Clock()
    quotas = Quotas(Metrics(), clock)
    quotas.learn({entity: limits})
    return quotas, clock


def produced(quotas: Quotas, peer: Peer, client_id: str, size_bytes: int) -> int:
    meter = quotas.meter(cast("Connection", peer), client_id)
    assert meter is not None
    return meter.produced(size_bytes)


def test_no_request_is_throttled_for_longer_than_the_cap() -> None:
    assert throttle_ms(TokenBucket(1, now_ms=0), 1_000_000, now_ms=0) == MAX_THROTTLE_MS
    assert throttle_ms(TokenBucket(0, now_ms=0), 1, now_ms=0) == MAX_THROTTLE_MS


def test_client_ids_that_are_made_up_pay_no_debt() -> None:
    quotas, _ = quotas_of(QuotaEntity("bob", None), producer_byte_rate=10_000)
    peer = Peer("bob")
    assert produced(quotas, peer, "honest", 500_000) > 0
    for number in range(MAX_CLIENTS + 1):
        quotas.meter(cast("Connection", peer), f"id{number}")
    assert produced(quotas, peer, "honest", 0) > 0


class TestMeter:
    def test_the_throttled_connection_is_muted_as_long_as_it_is_told(self) -> None:
        quotas, _ = quotas_of(QuotaEntity(None, "a"), producer_byte_rate=1000.0)
        peer = Peer()
        assert produced(quotas, peer, "a", 3000) == 2000
        assert peer.muted_ms == [2000]

    def test_connections_of_one_client_share_its_allowance(self) -> None:
        quotas, _ = quotas_of(QuotaEntity(None, "a"), producer_byte_rate=1000.0)
        assert produced(quotas, Peer(), "a", 1000) == 0
        assert produced(quotas, Peer("other user"), "a", 1000) == 1000

    def test_under_a_default_every_client_has_its_own_allowance(self) -> None:
        quotas, _ = quotas_of(QuotaEntity(None, DEFAULT), producer_byte_rate=1000.0)
        assert produced(quotas, Peer(), "a", 2000) == 1000
        assert produced(quotas, Peer(), "b", 1000) == 0

    def test_a_client_without_quota_is_not_measured(self) -> None:
        quotas, _ = quotas_of(QuotaEntity(None, "a"), producer_byte_rate=1000.0)
        assert quotas.meter(cast("Connection", Peer()), "b") is None

    def test_each_kind_of_use_has_its_own_allowance(self) -> None:
        quotas, _ = quotas_of(QuotaEntity(None, "a"), producer_byte_rate=1000.0, consumer_byte_rate=500.0)
        meter = quotas.meter(cast("Connection", Peer()), "a")
        assert meter is not None
        assert (meter.produced(1000), meter.fetched(1000), meter.fetch_max_bytes) == (0, 1000, 500.0)

    def test_work_is_counted_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seconds = iter([0.0, 0.5])
        monkeypatch.setattr("pylog.broker.quotas.time.perf_counter", lambda: next(seconds))
        quotas, clock = quotas_of(QuotaEntity(None, "a"), request_percentage=25.0)
        meter = quotas.meter(cast("Connection", Peer()), "a")
        assert meter is not None
        assert meter.worked() == 1000  # half a second; a quarter of one was free, the rest takes a second at 25 %
        clock.now_ms += 400
        assert meter.worked() == 600

    def test_a_changed_quota_holds_at_once_and_an_equal_one_forgives_nothing(self) -> None:
        entity = QuotaEntity(None, "a")
        quotas, _ = quotas_of(entity, producer_byte_rate=1000.0)
        assert produced(quotas, Peer(), "a", 2000) == 1000
        quotas.learn({entity: {"producer_byte_rate": 1000.0}, QuotaEntity("u", None): {"producer_byte_rate": 1.0}})
        assert produced(quotas, Peer(), "a", 1000) == 2000
        quotas.learn({entity: {"producer_byte_rate": 5000.0}})
        assert produced(quotas, Peer(), "a", 5000) == 0
        quotas.learn({})
        assert not quotas.is_any

    def test_made_up_names_are_not_all_remembered(self) -> None:
        quotas, _ = quotas_of(QuotaEntity(None, DEFAULT), producer_byte_rate=1000.0)
        for number in range(MAX_CLIENTS + 10):
            produced(quotas, Peer(), f"client {number}", 1)
        assert len(quotas._limits) <= MAX_CLIENTS
        assert len(quotas._buckets) <= MAX_CLIENTS


def change(*ops: QuotaOperation, **names: str | None) -> QuotaChange:
    entity = [
        EntityName(entity_type=entity_type.replace("_", "-"), entity_name=name) for entity_type, name in names.items()
    ]
    return QuotaChange(entity=entity, ops=list(ops))


def operation(key: str, value: float, *, remove: bool = False) -> QuotaOperation:
    return QuotaOperation(key=key, value=value, remove=remove)


class TestMutations:
    def changed(self, quotas: Quotas, partitions: int, *, is_strict: bool, peer: Peer) -> tuple[bool, int]:
        meter = quotas.meter(cast("Connection", peer), "a")
        assert meter is not None
        return meter.mutated(partitions, is_strict=is_strict), meter.worked()

    def test_a_client_that_knows_the_refusal_is_refused_while_in_debt(self) -> None:
        quotas, clock = quotas_of(QuotaEntity(None, "a"), controller_mutation_rate=1.0)
        peer = Peer()
        assert self.changed(quotas, 15, is_strict=True, peer=peer) == (True, 0)  # eleven are saved up
        assert self.changed(quotas, 1, is_strict=True, peer=peer) == (False, 4000)
        clock.now_ms += 4000
        assert self.changed(quotas, 1, is_strict=True, peer=peer) == (True, 0)
        assert peer.muted_ms == [4000]

    def test_an_older_one_is_served_and_made_to_wait(self) -> None:
        quotas, _ = quotas_of(QuotaEntity(None, "a"), controller_mutation_rate=1.0)
        peer = Peer()
        assert self.changed(quotas, 15, is_strict=False, peer=peer) == (True, 4000)
        assert peer.muted_ms == [4000]


class TestConnections:
    def test_no_more_come_from_an_address_than_its_rate(self) -> None:
        quotas, clock = quotas_of(QuotaEntity(None, None, "10.0.0.1"), connection_creation_rate=2.0)
        assert not quotas.is_any, "requests need no look at it"
        assert [quotas.connection_delay_ms("10.0.0.1") for _ in range(4)] == [0, 0, 500, 500]
        assert quotas.connection_delay_ms("10.0.0.2") == 0
        clock.now_ms += 500
        assert [quotas.connection_delay_ms(host) for host in ("10.0.0.1", "::ffff:10.0.0.1")] == [0, 500]

    def test_each_address_has_its_own_under_a_default_and_a_name_wins(self) -> None:
        quotas, _ = quotas_of(QuotaEntity(None, None, DEFAULT), connection_creation_rate=1.0)
        assert [quotas.connection_delay_ms(host) for host in ("::1", "::1", "10.0.0.2")] == [0, 1000, 0]
        named = {QuotaEntity(None, None, "%3A%3A1"): {"connection_creation_rate": 0.0}}
        quotas.learn(named)
        assert quotas.connection_delay_ms("::1") == MAX_THROTTLE_MS


class TestPlannedChange:
    def test_an_address_is_written_as_listeners_see_it(self) -> None:
        asked = change(operation("connection_creation_rate", 0.0), ip="0:0:0:0:0:0:0:1")
        assert plan_change(asked) == (QuotaEntity(None, None, "%3A%3A1"), {"connection_creation_rate": "0"})

    def test_whole_rates_and_shares_are_written_as_kafka_writes_them(self) -> None:
        asked = change(
            operation("producer_byte_rate", 1024.0),
            operation("request_percentage", 12.5),
            operation("consumer_byte_rate", 0.0, remove=True),
            client_id=None,
            user="a/b",
        )
        entity, planned = plan_change(asked)
        assert entity == QuotaEntity("a%2Fb", DEFAULT)
        assert planned == {"producer_byte_rate": "1024", "request_percentage": "12.5", "consumer_byte_rate": None}

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            (change(operation("producer_byte_rate", 1.0)), "a quota is for"),
            (change(operation("producer_byte_rate", 1.0), user=""), "empty name"),
            (change(operation("producer_byte_rate", 1.0), user="."), "cannot be stored"),
            (change(operation("producer_byte_rate", 1.0), client_id=".."), "cannot be stored"),
            (change(operation("producer_byte_rate", 1.0), user="u", client_id="x" * 40_000), "cannot be stored"),
            (change(operation("producer_byte_rate", 1.0), zone="a"), "entity type 'zone'"),
            (change(operation("producer_byte_rate", 1.0), ip="127.0.0.1"), "no quota of a ip"),
            (change(operation("connection_creation_rate", 1.0), user="u"), "no quota of a user"),
            (change(operation("connection_creation_rate", 1.0), ip="127.0.0.1", user="u"), "or for an ip"),
            (change(operation("connection_creation_rate", 1.0), ip="example.org"), "not an IP address"),
            (change(operation("connection_creation_rate", -1.0), ip=None), "more than 0"),
            (change(operation("no_such", 1.0), user="u"), "no quota of a user"),
            (change(operation("producer_byte_rate", 0.0), user="u"), "more than 0"),
            (change(operation("producer_byte_rate", float("nan")), user="u"), "more than 0"),
            (change(operation("request_percentage", float("inf")), user="u"), "more than 0"),
            (change(operation("producer_byte_rate", 1.5), user="u"), "whole number"),
            (change(*[operation("producer_byte_rate", 1.0)] * 2, user="u"), "duplicate"),
        ],
    )
    def test_an_impossible_change_is_refused(self, asked: QuotaChange, said: str) -> None:
        with pytest.raises(ApiError, match=said):
            plan_change(asked)


def test_every_answer_can_say_how_long_its_client_is_throttled() -> None:
    served = {request.api_key for request, _ in APIS.values()}
    answers = {one for one in Message.__subclasses__() if one.__name__.endswith("Response") and one.api_key in served}
    assert {one.api_key for one in answers} == served
    fields = {one: {field.name for field in dataclasses.fields(one)} for one in answers}  # type: ignore[arg-type]
    silent = {one.api_key for one in answers if "throttle_time_ms" not in fields[one]}
    without = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS}
    assert silent == without, "in Kafka, too, these answers have no such field"
