"""The commands of a page: its ``sh`` blocks, and the ``text`` block after each with what it prints."""

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """Commands, and what they print to stdout: ``…`` stands for anything; None if the page does not say."""

    commands: str
    output: str | None


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page in order."""
    found: list[Block] = []
    for kind, text in _BLOCK.findall(page):
        if kind == "sh":
            found.append(Block(text, None))
        else:
            assert found, "an output without commands"
            assert found[-1].output is None, f"two outputs of {found[-1].commands!r}"
            found[-1] = Block(found[-1].commands, text)
    return found


def matches(wanted: str, found: str) -> bool:
    """Whether *found* is what a page says."""
    return re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), found, re.DOTALL) is not None
