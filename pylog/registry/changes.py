"""What a request that changes something leads to: records to write, and the answer.  Decides; waits for nothing.

Every function takes the state as it is when no other write is under way, and returns what to write.  The answer goes
out once all of it is in the log and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pylog.registry import avro, faults
from pylog.registry.avro import Level
from pylog.registry.records import (
    AVRO,
    CLAIM,
    MAX_ID,
    Claim,
    DeletedUpTo,
    Key,
    Kind,
    Mode,
    Reference,
    Schema,
    Value,
    Version,
)
from pylog.registry.state import Registry

MAX_SUBJECT_CHARS = 1024
MAX_VERSIONS = 1_000
"""Of one subject that are not deleted: a transitive level compares a new schema with each."""

MAX_ID_STEP = 1_000_000
"""How far above the highest id an imported one may be: `max_id` never falls, and each step takes ids from all subjects.
Registries elsewhere begin at 1 or at 100,000."""


@dataclass(frozen=True, slots=True)
class Change:
    """What to write, in order, and what to answer then."""

    answer: Any
    writes: Sequence[tuple[Key, Value]] = field(default=())


@dataclass(frozen=True, slots=True)
class Wanted:
    """A schema as a client sends it.

    Attributes:
        text: as it came.
        references: where the names come from that it does not define.
        is_normalised: whether its normal form is stored and compared.
        schema_id: given by the client, in mode IMPORT only; 0 otherwise.
        version: given by the client, in mode IMPORT only; 0 otherwise. At most `MAX_ID`.
    """

    text: str
    references: tuple[Reference, ...] = ()
    is_normalised: bool = False
    schema_id: int = 0
    version: int = 0

    def stored(self) -> Schema:
        """Return what would be stored for it, be it Avro or not.

        Raises:
            RegistryError: 42201, it is not JSON.
        """
        text = avro.normalised(self.text) if self.is_normalised else avro.canonical(self.text)
        return Schema(text, self.references)

    def schema(self, registry: Registry) -> Schema:
        """Return what is stored for it.

        Raises:
            RegistryError: 42201.
        """
        found = self.stored()
        avro.check_valid(found.text, tuple(registry.dependencies(found)))
        return found


@dataclass(frozen=True, slots=True)
class Comparisons:
    """What takes time in judging a schema, taken from the state: `run` needs the state no more.

    Attributes:
        new: the schema.
        old: the versions that it is compared with.
        level: the subject's.
    """

    new: avro.Source
    old: Sequence[avro.Source]
    level: Level

    def run(self) -> None:
        """Parse and compare; the answers are kept for whoever asks the same next, with the state locked.

        Raises:
            RegistryError: 42201, the schema is not Avro.
        """
        avro.check_valid(*self.new)
        for one in self.old:
            avro.misfits(self.new, one, self.level)


def comparisons(registry: Registry, subject: str, schema: Schema, earlier: Sequence[Version] | None) -> Comparisons:
    """Return what judging *schema* takes.

    Args:
        registry: as it is.
        subject: whose level counts.
        schema: as it would be stored.
        earlier: what it is compared with; None for what the subject's level says.

    Raises:
        RegistryError: 42201, a reference leads nowhere.
    """
    level = registry.level(subject)
    if earlier is None:
        live = registry.live(subject)
        earlier = live if level.is_transitive else live[-1:]
    if level is Level.NONE:
        earlier = ()
    old = [_source(registry, one.schema) for one in earlier if one.schema.kind == AVRO]
    return Comparisons(_source(registry, schema), old, level)


def _source(registry: Registry, schema: Schema) -> avro.Source:
    return schema.text, tuple(registry.dependencies(schema))


def register(registry: Registry, subject: str, wanted: Wanted) -> Change:
    """Give a schema an id and a version, unless it has them.

    Raises:
        RegistryError: 42201, 42205, 409.
    """
    if not 0 < len(subject) <= MAX_SUBJECT_CHARS:
        raise faults.invalid_request(f"a subject has 1 to {MAX_SUBJECT_CHARS} characters, {len(subject)} were given")
    schema = wanted.schema(registry)
    is_import = registry.mode(subject) is Mode.IMPORT
    if not is_import:
        for one in registry.live(subject):
            if one.schema == schema and wanted.schema_id in (0, one.schema_id):
                return Change({"id": one.schema_id})
    _check_writable(registry, subject)
    if (wanted.schema_id or wanted.version) and not is_import:
        raise faults.not_permitted(f"Subject {subject} is not in import mode")
    if is_import:
        return _import(registry, subject, schema, wanted)
    live = registry.live(subject)
    if len(live) >= MAX_VERSIONS:
        raise faults.not_permitted(f"Subject {subject} has {len(live)} versions; at most {MAX_VERSIONS} are kept")
    reasons = misfits(registry, subject, schema, live)
    if reasons:
        raise faults.incompatible(subject, reasons)
    schema_id = registry.id_of(schema) or _next_id(registry)
    number = _next_version(registry, subject)
    return _added(Version(subject, number, schema_id, schema))


def _import(registry: Registry, subject: str, schema: Schema, wanted: Wanted) -> Change:
    schema_id = wanted.schema_id or registry.id_of(schema) or _next_id(registry)
    highest = min(MAX_ID, registry.max_id + MAX_ID_STEP)
    if not 0 < schema_id <= highest:
        raise faults.invalid_request(
            f"id {schema_id} is outside 1 to {highest}: at most {MAX_ID_STEP} above the highest id so far, and at most "
            f"{MAX_ID}"
        )
    if wanted.version > MAX_ID:
        raise faults.invalid_request(f"version {wanted.version} is outside 1 to {MAX_ID}")
    holders = [one for one in registry.everything(with_deleted=True) if one.schema_id == schema_id]
    if holders and holders[0].schema != schema:
        raise faults.not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
    known = registry.versions.get(subject, {})
    number = wanted.version or _next_version(registry, subject)
    there = known.get(number)
    # Its id may be in records that are kept, and nothing else says what they hold.
    if there is not None and (there.schema_id, there.schema) != (schema_id, schema):
        raise faults.not_permitted(f"Overwrite version {number} of subject {subject} is not permitted.")
    return _added(Version(subject, number, schema_id, schema))


def _next_id(registry: Registry) -> int:
    if registry.max_id >= MAX_ID:
        raise faults.not_permitted(f"All ids are given: the highest is {MAX_ID}, and no id is given twice")
    return registry.max_id + 1


def _next_version(registry: Registry, subject: str) -> int:
    number = max(registry.versions.get(subject, ()), default=0) + 1
    if number > MAX_ID:
        raise faults.not_permitted(f"Subject {subject} has version {MAX_ID}, the highest; delete it for good to go on")
    return number


def _added(version: Version) -> Change:
    return Change({"id": version.schema_id}, [(Key(Kind.SCHEMA, version.subject, version.version), version)])


def misfits(
    registry: Registry, subject: str, schema: Schema, earlier: Sequence[Version], *, all_given: bool = False
) -> list[str]:
    """Return why *schema* does not fit the earlier versions under the subject's level.

    Args:
        registry: as it is.
        subject: whose level counts.
        schema: new.
        earlier: versions in order; a level that is not transitive takes the last only.
        all_given: whether each of *earlier* counts, whatever the level says.
    """
    level = registry.level(subject)
    if level is Level.NONE:
        return []
    compared = earlier if level.is_transitive or all_given else earlier[-1:]
    new = _source(registry, schema)
    found: list[str] = []
    for one in compared:
        if one.schema.kind != AVRO:
            found.append(f"{{version {one.version}: it is of type {one.schema.kind}; level {level}}}")
            continue
        old = _source(registry, one.schema)
        found += [f"{{version {one.version}: {reason}; level {level}}}" for reason in avro.misfits(new, old, level)]
    return found


def delete_subject(registry: Registry, subject: str, *, permanent: bool) -> Change:
    """Delete all versions: first softly, then for good.

    Raises:
        RegistryError: 40401, 40404, 40405, 42205, 42206.
    """
    _check_writable(registry, subject)
    known = registry.subject(subject, with_deleted=True)
    live = registry.live(subject)
    if permanent and live:
        raise faults.subject_not_deleted(subject)
    if not permanent and not live:
        raise faults.subject_deleted(subject)
    gone = known if permanent else live
    for one in gone:
        _check_unreferenced(registry, one, permanent=permanent)
    numbers = [one.version for one in gone]
    if not permanent:
        return Change(numbers, [(Key(Kind.DELETE_SUBJECT, subject), DeletedUpTo(numbers[-1]))])
    removed: list[tuple[Key, Value]] = [(Key(Kind.SCHEMA, subject, number), None) for number in numbers]
    about: list[tuple[Key, Value]] = [(Key(Kind.DELETE_SUBJECT, subject), None)]
    # Before the last record that holds an id goes, another must hold it, or it would be given again.
    return Change(numbers, [(CLAIM, Claim(registry.max_id)), *removed, *about])


def delete_version(registry: Registry, subject: str, version: int | None, *, permanent: bool) -> Change:
    """Delete one version: first softly, then for good; None is the latest.

    Raises:
        RegistryError: 40401, 40402, 40406, 40407, 42205, 42206.
    """
    _check_writable(registry, subject)
    found = registry.version(subject, version, with_deleted=True)
    if version is None and not permanent:
        found = registry.version(subject, None)
    if permanent and not found.is_deleted:
        raise faults.version_not_deleted(subject, found.version)
    if not permanent and found.is_deleted:
        raise faults.version_deleted(subject, found.version)
    _check_unreferenced(registry, found, permanent=permanent)
    key = Key(Kind.SCHEMA, subject, found.version)
    if permanent:
        return Change(found.version, [(CLAIM, Claim(registry.max_id)), (key, None)])
    return Change(found.version, [(key, Version(subject, found.version, found.schema_id, found.schema, True))])


def set_level(level: object, subject: str | None) -> Change:
    """Set the level of a subject, or of all (None).

    Raises:
        RegistryError: 42203.
    """
    try:
        found = Level(str(level).upper())
    except ValueError:
        raise faults.invalid_level(level) from None
    return Change({"compatibility": found}, [(Key(Kind.CONFIG, subject), str(found))])


def unset_level(registry: Registry, subject: str | None) -> Change:
    """Go back to the level of all, or to the configured one.

    Raises:
        RegistryError: 40408.
    """
    found = registry.own_level(subject)
    if found is None:
        if subject is not None:
            raise faults.no_subject_level(subject)
        return Change({"compatibilityLevel": registry.level(None)})
    return Change({"compatibilityLevel": found}, [(Key(Kind.CONFIG, subject), None)])


def set_mode(registry: Registry, mode: object, subject: str | None, *, force: bool) -> Change:
    """Set the mode of a subject, or of all (None).

    Raises:
        RegistryError: 42204; 42205, ids would be imported over those that are there.
    """
    try:
        found = Mode(str(mode).upper())
    except ValueError:
        raise faults.invalid_mode(mode) from None
    there = registry.live(subject) if subject is not None else registry.subjects()
    if found is Mode.IMPORT and there and not force and registry.mode(subject) is not Mode.IMPORT:
        raise faults.not_permitted("Cannot import since found existing subjects")
    return Change({"mode": found}, [(Key(Kind.MODE, subject), str(found))])


def unset_mode(registry: Registry, subject: str | None) -> Change:
    """Go back to the mode of all.

    Raises:
        RegistryError: 40409.
    """
    found = registry.own_mode(subject)
    if found is None:
        if subject is not None:
            raise faults.no_subject_mode(subject)
        return Change({"mode": Mode.READWRITE})
    return Change({"mode": found}, [(Key(Kind.MODE, subject), None)])


def _check_writable(registry: Registry, subject: str) -> None:
    if registry.mode(subject) is Mode.READONLY:
        raise faults.not_permitted(f"Subject {subject} is in read-only mode")


def _check_unreferenced(registry: Registry, version: Version, *, permanent: bool) -> None:
    holders = registry.referrers(version.subject, version.version)
    if any(permanent or not holder.is_deleted for holder in holders):
        raise faults.is_referenced(version.subject, version.version)
