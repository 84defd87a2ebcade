"""Instances that take turns as primary, some of them late: whatever the order, ids stay what they were.

The log here is a list; an instance that was stopped in the middle of a write finishes it whenever it likes.
"""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.registry import changes
from pylog.registry.changes import Change, Wanted
from pylog.registry.faults import RegistryError
from pylog.registry.records import (
    CLAIM,
    Claim,
    Key,
    Kind,
    Stamp,
    Value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from pylog.registry.state import Registry

Record = tuple[bytes, bytes | None, Stamp | None]


def replay(log: list[Record]) -> Registry:
    registry = Registry()
    for key, value, stamp in log:
        decoded = decode_key(key)
        registry.apply(decoded, decode_value(decoded, value), stamp)
    return registry


def compacted(log: list[Record]) -> list[Record]:
    last = {key: place for place, (key, _, _) in enumerate(log)}
    return [record for place, record in enumerate(log) if last[record[0]] == place]


def facts(registry: Registry) -> object:
    return {
        name: {number: (one.schema_id, one.schema.text, one.is_deleted) for number, one in versions.items()}
        for name, versions in registry.versions.items()
    }


@dataclass
class Instance:
    name: str
    log: list[Record]
    registry: Registry = field(default_factory=Registry)
    position: int = 0
    number: int = 0
    epoch: int = 0
    late: list[tuple[list[Record], Change]] = field(default_factory=list)
    answered: dict[int, str] = field(default_factory=dict)

    def read(self) -> list[bool]:
        counts = []
        for key, value, stamp in self.log[self.position :]:
            decoded = decode_key(key)
            counted = self.registry.apply(decoded, decode_value(decoded, value), stamp)
            if stamp is not None and stamp.writer == self.name:
                counts.append(counted)
        self.position = len(self.log)
        return counts

    def stamped(self, writes: list[tuple[Key, Value]]) -> list[Record]:
        out: list[Record] = []
        for key, value in writes:
            self.number += 1
            out.append((encode_key(key), encode_value(key, value), Stamp(self.epoch, self.name, self.number)))
        return out

    def claim(self) -> None:
        self.epoch = self.registry.epoch + 1
        while True:
            before = self.registry.max_id
            self.log += self.stamped([(CLAIM, Claim(before))])
            if not all(self.read()):
                self.epoch = 0
                return
            if self.registry.max_id == before:
                break
        self.repair()

    def repair(self) -> None:
        self.log += self.stamped([(key, self.registry.current(key)) for key in sorted(self.registry.repairs, key=repr)])
        self.read()

    def write(self, text: str, subject: str, *, lands_late: bool, deletes: bool) -> None:
        """Decide now; append now or, as a process that is stopped would, later."""
        if not self.epoch or self.late:
            return
        self.repair()
        if self.registry.writer != self.name:
            self.epoch = 0
            return
        try:
            change = (
                changes.delete_subject(self.registry, subject, permanent=not self.registry.live(subject))
                if deletes
                else changes.register(self.registry, subject, Wanted(text))
            )
        except RegistryError:
            return
        records = self.stamped(list(change.writes))
        if lands_late:
            self.late.append((records, change))
        else:
            self.land(records, change, text)

    def land(self, records: list[Record], change: Change, text: str) -> None:
        self.log += records
        if not all(self.read()):
            self.epoch = 0
        elif isinstance(change.answer, dict):
            self.answered[change.answer["id"]] = text


def step(instance: Instance, chance: random.Random) -> None:
    text = f'"{chance.choice(["int", "long", "string", "bytes", "float", "double", "boolean"])}"'
    match chance.randrange(6):
        case 0:
            instance.read()
        case 1:
            if not instance.late:
                instance.read()
                instance.claim()
        case 2:
            for records, _ in instance.late:
                instance.log += records
            instance.late.clear()
            instance.read()
            instance.epoch = 0 if instance.registry.writer != instance.name else instance.epoch
        case _:
            instance.write(text, chance.choice("ab"), lands_late=chance.random() < 0.3, deletes=chance.random() < 0.3)


@given(seed=st.integers(0, 1 << 32))
def test_t37_an_id_stands_for_one_schema_however_many_primaries_write_at_once(seed: int) -> None:
    chance = random.Random(seed)
    log: list[Record] = []
    instances = [Instance(name, log) for name in ("x", "y", "z")]
    changes.set_level("none", None)
    log.append((encode_key(Key(Kind.CONFIG)), encode_value(Key(Kind.CONFIG), "NONE"), None))
    for _ in range(60):
        step(chance.choice(instances), chance)
    answered: dict[int, str] = {}
    for instance in instances:
        for schema_id, text in instance.answered.items():
            assert answered.setdefault(schema_id, text) == text
    for instance in instances:
        instance.read()
        assert facts(instance.registry) == facts(replay(log))
        assert instance.registry.max_id == replay(log).max_id >= max(answered, default=0)


@given(seed=st.integers(0, 1 << 32))
def test_t37_compaction_keeps_what_counts_and_the_highest_id(seed: int) -> None:
    chance = random.Random(seed)
    log: list[Record] = [(encode_key(Key(Kind.CONFIG)), encode_value(Key(Kind.CONFIG), "NONE"), None)]
    instances = [Instance(name, log) for name in ("x", "y")]
    for _ in range(60):
        step(chance.choice(instances), chance)
    # The lag of compaction leaves the primary time to write again what stands behind a record that does not count.
    last = Instance("last", log)
    last.read()
    last.claim()
    assert facts(replay(compacted(log))) == facts(replay(log))
    assert replay(compacted(log)).max_id == replay(log).max_id


def test_t37_the_highest_id_survives_its_schema_s_end_and_compaction() -> None:
    one = Instance("one", [])
    one.claim()
    for text in ('"int"', '"long"'):
        one.write(text, text.strip('"'), lands_late=False, deletes=False)
    for _ in range(2):
        one.write("", "long", lands_late=False, deletes=True)
    assert "long" not in one.registry.versions
    other = Instance("other", compacted(one.log))
    other.read()
    other.claim()
    other.write('"string"', "s", lands_late=False, deletes=False)
    assert other.answered == {3: '"string"'}


def test_records_of_a_deposed_primary_are_passed_over_and_repaired() -> None:
    log: list[Record] = []
    old, new = Instance("old", log), Instance("new", log)
    old.claim()
    old.write('"int"', "s", lands_late=True, deletes=False)
    new.read()
    new.claim()
    new.write('"long"', "s", lands_late=False, deletes=False)
    [(records, _)] = old.late
    log += records
    assert old.read() == [False]
    new.read()
    assert new.registry.repairs == {Key(Kind.SCHEMA, "s", 1)}
    new.repair()
    assert replay(compacted(log)).version("s", 1).schema.text == '"long"'


def test_two_claims_of_one_epoch_leave_the_first_in_office() -> None:
    log: list[Record] = []
    one, two = Instance("one", log), Instance("two", log)
    for instance in (one, two):
        instance.epoch = 1
        log += instance.stamped([(CLAIM, Claim(0))])
    assert one.read() == [True]
    assert two.read() == [False]


@pytest.mark.parametrize("stamp", [b"", b"1 w", b"x w 1", b"1 w x", None, b"\xff\xfe 1 2"])
def test_a_stamp_of_somebody_else_is_none(stamp: bytes | None) -> None:
    assert Stamp.decode(stamp) is None or Stamp.decode(stamp) == Stamp.decode(Stamp.decode(stamp).encode())  # type: ignore[union-attr]
