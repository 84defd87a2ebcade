"""How a message's fields are declared; `codec` turns a declaration into an encoder and a decoder.

A message is a slots dataclass whose annotations say what travels::

    @dataclass(slots=True, kw_only=True)
    class MetadataResponseBroker:
        node_id: Int32
        host: str
        port: Int32
        rack: Annotated[str | None, Versions(1)] = None     # from version 1 on; may be null

``str``, ``bytes``, ``bool``, ``float`` and ``UUID`` name their wire type, integers say their width, ``list[X]`` is an
array and another such dataclass a struct.  A field that some version lacks has a default, which decoding then leaves.
"""

from typing import Annotated, NamedTuple, TypeAlias
from uuid import UUID

LAST_VERSION = 32767
NO_TOPIC_ID = UUID(int=0)
"""What travels where a topic has no id, or none is known."""


class Width(NamedTuple):
    """The struct format character of a fixed-size number."""

    format: str


class Versions(NamedTuple):
    """In which versions a field travels, is nullable, and is tagged.

    ``null_from`` counts only where the annotation allows None.  A field with a ``tag`` travels in the tagged section.
    """

    first: int = 0
    last: int = LAST_VERSION
    null_from: int = 0
    tag: int | None = None


Int8: TypeAlias = Annotated[int, Width("b")]
Int16: TypeAlias = Annotated[int, Width("h")]
Int32: TypeAlias = Annotated[int, Width("i")]
Int64: TypeAlias = Annotated[int, Width("q")]
