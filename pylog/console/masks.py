"""Fields of records that nobody sees: hidden before records are searched and before they are shown.

    masks: [{topic: orders, field: card.number}, {topic: "hr-*", part: key}]

A search looks at what is left, so it cannot confirm a guess.  What cannot be parsed is hidden whole, and so is a number
or a text where a mask expects fields: it may hold what the mask means, as JSON in a string does.

No clock and no socket.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pylog.client.avro import FRAME_BYTES, MAGIC, SchemaError
from pylog.client.consumer import ConsumedRecord
from pylog.console.records import PARSED_BYTES, Deserialize, Hide
from pylog.errors import ConfigError

HIDDEN = "***"
"""Shown in place of what is masked, whatever its length."""

PARTS = ("key", "value", "header")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """What is hidden of the records of a topic.

    Attributes:
        topic: its name; with ``*`` at the end all topics whose names begin like that.
        part: one of `PARTS`.
        field: names of a field in JSON or Avro with dots between them, through lists too; of a header its name.  Empty
            for the whole part.
    """

    topic: str
    part: str = "value"
    field: str = ""

    def __post_init__(self) -> None:
        if not self.topic or "*" in self.topic[:-1]:
            raise ConfigError(f"masks: topic must be a name, or the beginning of names and then *, got {self.topic!r}")
        if self.part not in PARTS:
            raise ConfigError(f"masks: part must be one of {', '.join(PARTS)}, got {self.part}")

    def is_of(self, topic: str) -> bool:
        """Return whether it hides something of *topic*."""
        return topic.startswith(self.topic[:-1]) if self.topic.endswith("*") else topic == self.topic


def hide_of(masks: Sequence[Mask], topic: str, deserialize: Deserialize | None) -> Hide | None:
    """Return what hides the masked parts of the records of *topic*; None if nothing is masked there.

    Args:
        masks: all of them.
        topic: the topic.
        deserialize: for values in Avro; None without a registry.
    """
    found = [one for one in masks if one.is_of(topic)]
    if not found:
        return None
    keys, values, headers = ({one.field for one in found if one.part == part} for part in PARTS)

    def hide(record: ConsumedRecord) -> ConsumedRecord:
        shown = [
            (name, HIDDEN.encode() if value is not None and (name in headers or "" in headers) else value)
            for name, value in record.headers
        ]
        key, value = _hidden(record.key, keys, deserialize), _hidden(record.value, values, deserialize)
        return replace(record, key=key, value=value, headers=shown)

    return hide


def _hidden(payload: bytes | None, fields: set[str], deserialize: Deserialize | None) -> bytes | None:
    if payload is None or not fields:
        return payload
    if "" in fields or len(payload) > PARSED_BYTES:
        return HIDDEN.encode()
    try:
        if deserialize and len(payload) >= FRAME_BYTES and payload[0] == MAGIC:
            tree = deserialize(payload)
        else:
            tree = json.loads(payload)
        if not isinstance(tree, dict | list):
            return HIDDEN.encode()
        for field in fields:
            tree = _without(tree, field)
        return json.dumps(tree, ensure_ascii=False, default=str).encode(errors="replace")
    except (SchemaError, ValueError, RecursionError):
        return HIDDEN.encode()


def _without(tree: Any, field: str) -> Any:  # noqa: ANN401  # JSON
    if isinstance(tree, list | tuple):
        return [_without(one, field) for one in tree]
    if not isinstance(tree, dict):
        return None if tree is None else HIDDEN
    found = {}
    for name, value in tree.items():
        if name == field:
            found[name] = HIDDEN
        elif field.startswith(f"{name}."):
            found[name] = _without(value, field[len(name) + 1 :])
        else:
            found[name] = value
    return found
