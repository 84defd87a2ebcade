"""What another registry has and this one lacks.  Decides; waits for nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pylog.registry.avro import Level
from pylog.registry.records import CLAIM, Claim, Key, Kind, Value, Version
from pylog.registry.state import Registry


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the other registry has.

    Attributes:
        versions: all, those that are softly deleted too.
        levels: what is set, by subject; None is for all.
        max_id: the highest id that it gave, as far as it tells.
    """

    versions: Sequence[Version]
    levels: Mapping[str | None, Level] = field(default_factory=dict)
    max_id: int = 0


class News(NamedTuple):
    """What to write, and which versions are left out because their ids stand for other schemas here."""

    writes: list[tuple[Key, Value]]
    conflicts: list[Version]


def news(registry: Registry, source: Snapshot) -> News:
    """Return what makes a registry like the one that it follows.

    Nothing is taken away: what the other deleted for good stays, since records here may still hold its id.
    """
    found = News([], [])
    held = {one.schema_id: one.schema for one in registry.everything(with_deleted=True)}
    max_id = max([source.max_id, *(one.schema_id for one in source.versions)], default=0)
    # References lead to what stands before: ids only grow.
    for one in sorted(source.versions, key=lambda one: (one.schema_id, one.subject, one.version)):
        here = registry.versions.get(one.subject, {}).get(one.version)
        if here == one:
            continue
        if held.setdefault(one.schema_id, one.schema) != one.schema or (here and here.schema_id != one.schema_id):
            found.conflicts.append(one)
        else:
            found.writes.append((Key(Kind.SCHEMA, one.subject, one.version), one))
    for subject, level in source.levels.items():
        if registry.own_level(subject) is not level:
            found.writes.append((Key(Kind.CONFIG, subject), str(level)))
    if max_id > max([registry.max_id, *(one.schema_id for _, one in found.writes if isinstance(one, Version))]):
        found.writes.append((CLAIM, Claim(max_id)))
    return found
