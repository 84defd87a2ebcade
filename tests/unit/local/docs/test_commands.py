"""The pages of the commands."""

import re

from local.docs.commands import command_pages
from pylog.cli import settings


def test_the_table_of_settings_has_every_key_of_the_file() -> None:
    table = command_pages()["README.md"].partition("| file | environment | flag | default |")[2]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(settings._WANTED)
