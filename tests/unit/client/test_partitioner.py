"""Partition functions (F7, F8, F9)."""

from collections import Counter

import pytest

from pylog.client.partitioner import Partitioner, RoundRobin, by_java_hash, by_key, murmur2, random_partition

# Of Apache Kafka's own UtilsTest.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "wanted"), MURMUR2.items())
def test_the_hash_is_kafkas(key: bytes, wanted: int) -> None:
    assert murmur2(key) == wanted & 0xFFFF_FFFF
    assert by_key(key, 7) == (wanted & 0x7FFF_FFFF) % 7


def test_the_old_hash_is_that_of_javas_arrays() -> None:
    # Arrays.hashCode of {} is 1, of {1} 32, of {-1} 30; Utils.abs keeps the rest positive.
    assert [by_java_hash(key, 1000) for key in (b"", b"\x01", b"\xff")] == [1, 32, 30]
    assert all(0 <= by_java_hash(bytes([one, two, 7]) * 5, 12) < 12 for one in range(256) for two in (0, 127, 128))


@pytest.mark.parametrize("partitioner", [by_key, by_java_hash, random_partition, RoundRobin()])
def test_without_a_key_all_partitions_are_used(partitioner: Partitioner) -> None:
    assert {partitioner(None, 4) for _ in range(500)} == {0, 1, 2, 3}


def test_round_robin_goes_in_turn() -> None:
    turns = RoundRobin()
    first = turns(b"any", 5)
    assert [turns(b"any", 5) for _ in range(9)] == [(first + step) % 5 for step in range(1, 10)]


def test_random_ignores_the_key() -> None:
    assert len(Counter(random_partition(b"same", 3) for _ in range(300))) == 3
