"""What the records of `_schemas` add up to, and whose records count.  Decides; waits for nothing.

Only the primary writes, but an instance that was stopped in the middle of a write may finish it long after another
took over.  So a primary first *claims* the topic with a record of a higher epoch, and every record carries its
writer's epoch: from the claim on, all instances pass over what the earlier primary still writes, each in the same
place, because the log has one order.  ZooKeeper elects; the log decides.

A record that was passed over stands in the log all the same, and compaction would keep it in place of the one it
followed.  `Registry.repairs` says what to write again.
"""

from collections.abc import Iterator

from pylog.registry.avro import Level
from pylog.registry.faults import invalid_schema, no_schema, no_subject, no_version
from pylog.registry.records import AVRO, Claim, DeletedUpTo, Key, Kind, Mode, Schema, Stamp, Value, Version


class Registry:
    """All subjects, schemas, levels and modes.

    Attributes:
        max_id: the highest id that was ever given, deleted or not, accepted or not.
        epoch: of the last claim.
        writer: whose claim it is.
        versions: subject -> version -> what it is, softly deleted ones too.
        repairs: keys whose last record in the log was passed over; the primary writes them again and empties it.

    Invariant: `max_id` never falls, so no id is ever given twice.
    """

    def __init__(self, default_level: Level = Level.BACKWARD) -> None:
        self.max_id = 0
        self.epoch = 0
        self.writer = ""
        self.versions: dict[str, dict[int, Version]] = {}
        self.repairs: set[Key] = set()
        self._default_level = default_level
        self._levels: dict[str | None, Level] = {}
        self._modes: dict[str | None, Mode] = {}
        self._deleted_up_to: dict[str, int] = {}

    # --- what happened ------------------------------------------------------------------------------------------

    def apply(self, key: Key, value: Value, stamp: Stamp | None) -> bool:
        """Take the next record in; return whether it counts.

        Args:
            key: of the record.
            value: of the record.
            stamp: None for a record that another registry wrote, which counts.
        """
        self._note_id(value)
        if stamp is not None and not self._is_current(key, stamp):
            self.repairs.add(key)
            return False
        self.repairs.discard(key)
        match key.kind:
            case Kind.SCHEMA:
                self._set_version(key, value)
            case Kind.CONFIG:
                _put(self._levels, key.subject, Level(value) if isinstance(value, str) else None)
            case Kind.MODE:
                _put(self._modes, key.subject, Mode(value) if isinstance(value, str) else None)
            case Kind.DELETE_SUBJECT:
                self._delete_up_to(key, value)
            case Kind.NOOP:
                pass
        return True

    def note_id(self, schema_id: int) -> None:
        """Note the id of a record that cannot be read: it is not given again."""
        self.max_id = max(self.max_id, schema_id)

    def _note_id(self, value: Value) -> None:
        if isinstance(value, Version):
            self.max_id = max(self.max_id, value.schema_id)
        elif isinstance(value, Claim):
            self.max_id = max(self.max_id, value.max_id)

    def _is_current(self, key: Key, stamp: Stamp) -> bool:
        """Return whether the record is of the current primary; a higher epoch makes its writer that.

        A claim normally does, but compaction removes all claims but the last.
        """
        if stamp.epoch > self.epoch:
            self.epoch, self.writer = stamp.epoch, stamp.writer
        return (stamp.epoch, stamp.writer) == (self.epoch, self.writer)

    def _set_version(self, key: Key, value: Value) -> None:
        assert key.subject is not None, key
        versions = self.versions.setdefault(key.subject, {})
        if isinstance(value, Version):
            versions[key.version] = value
        else:
            versions.pop(key.version, None)
            if not versions:
                del self.versions[key.subject]
                self._deleted_up_to.pop(key.subject, None)

    def _delete_up_to(self, key: Key, value: Value) -> None:
        assert key.subject is not None, key
        if not isinstance(value, DeletedUpTo):
            self._deleted_up_to.pop(key.subject, None)
            return
        self._deleted_up_to[key.subject] = value.version
        versions = self.versions.get(key.subject, {})
        for number, found in versions.items():
            if number <= value.version:
                versions[number] = Version(found.subject, number, found.schema_id, found.schema, True)

    def current(self, key: Key) -> Value:
        """Return what the key's record should be; None where there should be none."""
        match key.kind:
            case Kind.SCHEMA:
                return self.versions.get(key.subject or "", {}).get(key.version)
            case Kind.CONFIG:
                return self._levels.get(key.subject)
            case Kind.MODE:
                return self._modes.get(key.subject)
            case Kind.DELETE_SUBJECT:
                version = self._deleted_up_to.get(key.subject or "")
                return None if version is None else DeletedUpTo(version)
            case Kind.NOOP:
                return Claim(self.max_id)

    # --- what there is ------------------------------------------------------------------------------------------

    def live(self, subject: str) -> list[Version]:
        """Return the versions of a subject that are not deleted, in order."""
        return [one for _, one in sorted(self.versions.get(subject, {}).items()) if not one.is_deleted]

    def subjects(self, *, with_deleted: bool = False) -> list[str]:
        """Return all subjects by name."""
        return sorted(name for name in self.versions if with_deleted or self.live(name))

    def subject(self, name: str, *, with_deleted: bool = False) -> list[Version]:
        """Return a subject's versions, at least one.

        Raises:
            RegistryError: 40401.
        """
        found = [one for _, one in sorted(self.versions.get(name, {}).items())] if with_deleted else self.live(name)
        if not found:
            raise no_subject(name)
        return found

    def version(self, subject: str, version: int | None, *, with_deleted: bool = False) -> Version:
        """Return one version; None is the latest.

        Raises:
            RegistryError: 40401, 40402.
        """
        found = self.subject(subject, with_deleted=with_deleted)
        if version is None:
            return found[-1]
        for one in found:
            if one.version == version:
                return one
        raise no_version(version)

    def by_id(self, schema_id: int) -> list[Version]:
        """Return all versions with this id, the deleted too; the first subject by name comes first.

        Raises:
            RegistryError: 40403.
        """
        found = [one for one in self._all() if one.schema_id == schema_id]
        if not found:
            raise no_schema(schema_id)
        return sorted(found, key=lambda one: (one.subject, one.version))

    def id_of(self, schema: Schema) -> int | None:
        """Return the id that stands for this schema under any subject."""
        return min((one.schema_id for one in self._all() if one.schema == schema), default=None)

    def referrers(self, subject: str, version: int) -> list[Version]:
        """Return the versions, deleted or not, that refer to this one."""
        return [
            one
            for one in self._all()
            if any((r.subject, r.version) == (subject, version) for r in one.schema.references)
        ]

    def dependencies(self, schema: Schema) -> list[str]:
        """Return the texts that *schema* takes names from, each after those that it needs itself.

        Raises:
            RegistryError: 42201, a reference leads nowhere.
        """
        texts: dict[str, None] = {}
        self._collect(schema, texts, ())
        return list(texts)

    def _collect(self, schema: Schema, texts: dict[str, None], path: tuple[tuple[str, int], ...]) -> None:
        for reference in schema.references:
            where = (reference.subject, reference.version)
            if where in path:
                raise invalid_schema(f"reference {reference.name!r} leads back to itself")
            found = self.versions.get(reference.subject, {}).get(reference.version)
            if reference.version == -1 and (live := self.live(reference.subject)):
                found = live[-1]
            if found is None:
                raise invalid_schema(
                    f"no schema for reference {reference.name!r}: subject {reference.subject!r} "
                    f"version {reference.version}"
                )
            if found.schema.kind != AVRO:
                raise invalid_schema(f"reference {reference.name!r} leads to a schema of type {found.schema.kind}")
            self._collect(found.schema, texts, (*path, where))
            texts[found.schema.text] = None

    def level(self, subject: str | None) -> Level:
        """Return the level that holds for a subject, or for all (None)."""
        return self._levels.get(subject) or self._levels.get(None) or self._default_level

    def own_level(self, subject: str | None) -> Level | None:
        """Return the level that was set for exactly this."""
        return self._levels.get(subject)

    def mode(self, subject: str | None) -> Mode:
        """Return the mode that holds for a subject, or for all (None)."""
        return self._modes.get(subject) or self._modes.get(None) or Mode.READWRITE

    def own_mode(self, subject: str | None) -> Mode | None:
        """Return the mode that was set for exactly this."""
        return self._modes.get(subject)

    def everything(self, *, with_deleted: bool) -> list[Version]:
        """Return all versions of all subjects, in order."""
        return [
            one
            for name in sorted(self.versions)
            for _, one in sorted(self.versions[name].items())
            if with_deleted or not one.is_deleted
        ]

    def _all(self) -> Iterator[Version]:
        for versions in self.versions.values():
            yield from versions.values()


def _put(
    table: dict[str | None, Level] | dict[str | None, Mode], subject: str | None, value: Level | Mode | None
) -> None:
    if value is None:
        table.pop(subject, None)
    else:
        table[subject] = value  # type: ignore[assignment]
