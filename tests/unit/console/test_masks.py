"""Masks: what nobody sees, in every part of a record, and what a search cannot find out."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord
from pylog.console.app import Console
from pylog.console.config import ConsoleConfig
from pylog.console.masks import HIDDEN, Mask, hide_of
from pylog.console.records import PARSED_BYTES
from pylog.console.sources import ClusterSource
from pylog.errors import ConfigError
from tests.unit.console.test_app import (
    EVIL,
    LAGS,
    Brokers,
    Clock,
    Planted,
    PlantedCounts,
    PlantedPipeline,
    partition_address,
    records_address,
)


def record(value: bytes | None, key: bytes | None = None, *headers: tuple[str, bytes | None]) -> ConsumedRecord:
    return ConsumedRecord("orders", 0, 7, 1_000, key, value, list(headers))


def hidden(one: ConsumedRecord, *masks: Mask, deserialize: Any = None) -> ConsumedRecord:
    hide = hide_of(masks, "orders", deserialize)
    assert hide is not None
    return hide(one)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("card", {"card": "4111", "n": 1}, {"card": HIDDEN, "n": 1}),
        ("card", {"card": {"number": 4111}}, {"card": HIDDEN}),
        ("card.number", {"card": {"number": 4111, "kind": "x"}}, {"card": {"number": HIDDEN, "kind": "x"}}),
        (
            "cards.number",
            {"cards": [{"number": 1}, [{"number": 2}]]},
            {"cards": [{"number": HIDDEN}, [{"number": HIDDEN}]]},
        ),
        ("card", [{"card": 1}], [{"card": HIDDEN}]),
        ("card.number", {"card.number": 1}, {"card.number": HIDDEN}),
        ("a.b.c", {"a.b": {"c": 1}, "a": {"b.c": 2}}, {"a.b": {"c": HIDDEN}, "a": {"b.c": HIDDEN}}),
        ("card", {"other": {"card": 1}}, {"other": {"card": 1}}),
        ("card", [{"card": 1}, 4111, ["4111"], None], [{"card": HIDDEN}, HIDDEN, [HIDDEN], None]),
        ("card.number", {"card": '{"number": 4111}', "n": 1}, {"card": HIDDEN, "n": 1}),
        ("card.number", {"card": None}, {"card": None}),
    ],
)
def test_fields_are_hidden_wherever_the_path_leads(field: str, value: object, expected: object) -> None:
    found = hidden(record(json.dumps(value).encode()), Mask(topic="orders", field=field)).value
    assert json.loads(found or b"") == expected


@pytest.mark.parametrize(
    "value",
    [
        b"card=4111",
        b'{"card": 4111',
        b'{"x": ' + b"[" * 100_000,
        b"\xff4111",
        b"4111",
        b'"{\\"card\\": 4111}"',
        b"\x00\x00\x00\x00\x07 4111",
        b'{"card": "4111", "x": "' + b"x" * PARSED_BYTES + b'"}',
    ],
)
def test_what_cannot_be_parsed_is_hidden_whole(value: bytes) -> None:
    assert hidden(record(value), Mask(topic="orders", field="card")).value == HIDDEN.encode()


def test_the_last_of_two_fields_of_one_name_hides_nothing_behind_it() -> None:
    found = hidden(record(b'{"card": 4111, "card": 4222}'), Mask(topic="orders", field="card")).value
    assert found == b'{"card": "***"}'


def test_avro_is_decoded_before_it_is_hidden() -> None:
    avro = b"\x00\x00\x00\x00\x07abc"
    found = hidden(record(avro), Mask(topic="orders", field="card"), deserialize=lambda _: {"card": 4111, "n": 2})
    assert json.loads(found.value or b"") == {"card": HIDDEN, "n": 2}


def test_keys_and_headers_are_hidden_too() -> None:
    one = record(b"v", b"alice", ("token", b"secret"), ("kind", b"x"), ("token", None))
    found = hidden(one, Mask(topic="ord*", part="key"), Mask(topic="orders", part="header", field="token"))
    assert (found.key, found.value) == (b"***", b"v")
    assert found.headers == [("token", b"***"), ("kind", b"x"), ("token", None)]
    whole = hidden(one, Mask(topic="orders"), Mask(topic="orders", part="header"))
    assert (whole.value, [value for _, value in whole.headers]) == (b"***", [b"***", b"***", None])
    by_field = hidden(record(None, b'{"user": "alice", "n": 1}'), Mask(topic="orders", part="key", field="user"))
    assert (by_field.key, by_field.value) == (b'{"user": "***", "n": 1}', None)


def test_other_topics_are_not_touched() -> None:
    masks = [Mask(topic="orders"), Mask(topic="hr-*")]
    assert hide_of(masks, "orders2", None) is None
    assert hide_of(masks, "hr", None) is None
    assert hide_of(masks, "hr-2030", None) is not None


def test_a_part_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="part must be one of key, value, header, got body"):
        Mask(topic="orders", part="body")


@pytest.mark.parametrize("topic", ["*-pii", "a*b", "**", ""])
def test_a_topic_that_would_hide_nothing_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError, match="topic must be a name, or the beginning"):
        Mask(topic=topic)


def test_all_topics_can_be_masked() -> None:
    assert hide_of([Mask(topic="*")], "orders", None) is not None


class Held(Planted):
    """A topic of one record with a secret."""

    read = ClusterSource.read

    def _batches(self, topic: str, spans: object, left: Any) -> Iterator[Sequence[ConsumedRecord]]:
        yield [ConsumedRecord(EVIL, 0, 0, 1, b"k", b'{"card": "4111", "n": 1}', [("t", b"4111")])]
        left.ends.clear()


@pytest.mark.parametrize("is_masked", [True, False])
def test_no_page_shows_a_masked_field_and_no_search_confirms_it(is_masked: bool) -> None:
    topic = f"{EVIL[:5]}*"
    masks = (Mask(topic=topic, field="card"), Mask(topic=topic, part="header", field="t")) if is_masked else ()
    config = ConsoleConfig(cluster=Connection(bootstrap="127.0.0.1:1"), read_payloads=("*",), masks=masks)
    console = Console(config, LAGS, PlantedCounts(), None, Clock(), Held, Brokers(), PlantedPipeline())
    topic = partition_address().removesuffix("/0")
    with TestClient(console.app(), base_url="http://localhost") as client:
        for address in (records_address(), f"{topic}/tail", f"{topic}/search?q=card"):
            for prefix in ("", "/api"):
                answer = client.get(prefix + address)
                assert (answer.status_code, "4111" in answer.text) == (200, not is_masked), address
        for query, is_found in (("4111", not is_masked), ('"n": 1', True), ("k", True)):
            for address in (f"/api{topic}/search", f"/api{records_address()}"):
                found = client.get(address, params={"q": query}).json()["records"]
                assert bool(found) == is_found, (address, query)
