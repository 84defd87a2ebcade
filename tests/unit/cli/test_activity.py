"""The generated events."""

import copy
import json

from hypothesis import given
from hypothesis import strategies as st

from pylog.cli.activity import TOPICS, Activity
from pylog.cli.demo import _blocks


def test_the_same_seed_and_run_give_the_same_bytes() -> None:
    assert Activity("r", 7).take(500) == Activity("r", 7).take(500)
    assert Activity("r", 8).take(500) != Activity("r", 7).take(500)


def test_keys_are_unique_and_stand_in_the_value() -> None:
    events = Activity("r", 1).take(5000)
    keys = [key for pairs in events.values() for key, _ in pairs]
    assert len(set(keys)) == len(keys) == 5000
    for topic, pairs in events.items():
        for key, value in pairs:
            assert key is not None
            assert value is not None
            assert key.startswith(f"r-{topic}-".encode())
            assert json.loads(value)["id"] == key.decode()


def test_values_are_about_200_bytes() -> None:
    sizes = [len(value or b"") for pairs in Activity("r", 1).take(10_000).values() for _, value in pairs]
    assert 180 < sum(sizes) / len(sizes) < 220
    assert max(sizes) < 300


def test_shares_are_as_told() -> None:
    assert {t: len(pairs) for t, pairs in Activity("r", 1).take(1000).items()} == {
        "pageviews": 700,
        "searches": 120,
        "logins": 60,
        "host.metrics": 120,
    }


# Copied for each example: making one encodes 8,192 events.
FRESH = Activity("r", 1)


@given(st.lists(st.integers(0, 700), max_size=12))
def test_any_cut_into_blocks_gives_the_same_events(sizes: list[int]) -> None:
    pieces, whole = copy.deepcopy(FRESH), copy.deepcopy(FRESH).take(sum(sizes))
    taken: dict[str, list[tuple[bytes | None, bytes | None]]] = {topic: [] for topic in TOPICS}
    for size in sizes:
        block = pieces.take(size)
        assert sum(map(len, block.values())) == size
        for topic, events in block.items():
            taken[topic] += events
    assert taken == whole


@given(st.integers(1, 100_000))
def test_blocks_add_up(records: int) -> None:
    assert sum(_blocks(records, rate=0)) == records
