"""The roles' templates as they render without Ansible, whose filters stand here as far as the templates use them."""

import json
from pathlib import Path

import jinja2

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"


def render(template: str, **variables: object) -> str:
    """Return the text of *template*, a path below `templates/`.

    Raises:
        jinja2.UndefinedError: The template reads a variable that is not given.
    """
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"to_json": json.dumps, "comment": lambda text: f"# {text}"}
    return environment.from_string((TEMPLATES / template).read_text()).render(variables)
