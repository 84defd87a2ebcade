"""Partition functions: which partition a message goes to when its sender names none.

partitioner => (key: bytes | None, partition_count: int) -> partition: int
"""

import random
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

Partitioner: TypeAlias = Callable[[bytes | None, int], int]
"""Takes the key and how many partitions the topic has; returns a number from 0 to that less one."""

_MASK = 0xFFFF_FFFF
_SEED = 0x9747_B28C
_MULTIPLIER = 0x5BD1_E995


def random_partition(_key: bytes | None, partition_count: int) -> int:
    """Choose by chance, whatever the key: the paper's default."""
    return random.randrange(partition_count)


def by_key(key: bytes | None, partition_count: int) -> int:
    """Choose by the key's hash as Apache Kafka's own clients do, by chance without a key.

    Source: DefaultPartitioner since Kafka 0.9: ``(murmur2(key) & 0x7fffffff) % partition_count``.
    """
    if key is None:
        return random.randrange(partition_count)
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


def by_java_hash(key: bytes | None, partition_count: int) -> int:
    """Choose as Kafka 0.8's ``ByteArrayPartitioner`` did, for topics that such a producer filled.

    Source: ``Utils.abs(Arrays.hashCode(key)) % partition_count``; that abs makes 0 of the smallest number.
    """
    if key is None:
        return random.randrange(partition_count)
    code = 1
    for byte in key:
        code = (31 * code + (byte - 256 if byte > 127 else byte)) & _MASK
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partition_count


class RoundRobin:
    """Choose one partition after the other, whatever the key; begins anywhere, lest producers march in step."""

    def __init__(self) -> None:
        self._turns = count(random.randrange(1 << 16))

    def __call__(self, _key: bytes | None, partition_count: int) -> int:
        """Return the next one's number."""
        return next(self._turns) % partition_count


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of *data*, unsigned.

    Source: Utils.murmur2 of Kafka's clients; MurmurHash2 by Austin Appleby with their seed.
    """
    value = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15
