"""The recorded session is a run of the tutorial as it stands."""

import json
from pathlib import Path

from local.docs.blocks import blocks_of
from local.docs.record import Recording

DOCS = Path(__file__).parents[2] / "docs"


def test_the_recording_shows_every_command_of_the_tutorial() -> None:
    text = (DOCS / "session.txt").read_text()
    commands = [line for block in blocks_of((DOCS / "tutorial.md").read_text()) for line in block.commands.splitlines()]
    shown = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    assert shown == commands


def test_the_text_is_what_the_recording_shows() -> None:
    head, *events = map(json.loads, (DOCS / "session.cast").read_text().splitlines())
    assert head["version"] == 2
    assert [at_s for at_s, _, _ in events] == sorted(at_s for at_s, _, _ in events)
    recording = Recording([(at_s, text) for at_s, _, text in events])
    assert recording.text() == (DOCS / "session.txt").read_text()
