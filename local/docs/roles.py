"""The pages that follow from the roles' argument specs and defaults: roles/*/README.md and docs/variables.md."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = ROOT / "roles"

_HEAD = """\
# Variables

Every variable of the bundle, role by role. One without a default must be set in the inventory; "computed" stands for a
default that follows from others. `preflight` refuses an unknown name, a wrong type, and a number outside its range.

"""

_TABLE = """\
| variable | type | default | what it is | why this default |
|---|---|---|---|---|
"""


def names() -> list[str]:
    """Return the names of all roles."""
    return sorted(path.parent.parent.name for path in ROLES.glob("*/meta/argument_specs.yml"))


def spec(role: str) -> Mapping[str, Any]:
    """Return what a role says of itself."""
    text = (ROLES / role / "meta" / "argument_specs.yml").read_text()
    found: Mapping[str, Any] = yaml.safe_load(text)["argument_specs"]["main"]
    return found


def reasons(role: str) -> dict[str, str]:
    """Return variable -> the sentence above it in the role's defaults, where it says more than what it is."""
    path = ROLES / role / "defaults" / "main.yml"
    found: dict[str, str] = {}
    comment: list[str] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("# "):
            comment.append(line[2:])
        else:
            if (name := re.match(r"(\w+):", line)) and comment:
                found[name[1]] = " ".join(comment)
            comment = []
    return found


def text_of(value: object) -> str:
    """Return a default for a cell."""
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        return "computed"
    text = yaml.safe_dump(value, default_flow_style=True, width=1 << 20).strip().removesuffix("...").strip()
    return f"`{text}`"


def rows(role: str) -> Iterator[str]:
    """Yield a row for each variable of a role, and for each key of those that are lists of mappings."""
    path = ROLES / role / "defaults" / "main.yml"
    defaults = (yaml.safe_load(path.read_text()) if path.exists() else None) or {}
    why = reasons(role)
    for name, option in spec(role).get("options", {}).items():
        default = text_of(defaults[name]) if name in defaults else "**required**" if option.get("required") else ""
        yield _row(name, option, default, why.get(name, ""))
        for inner, inner_option in option.get("options", {}).items():
            yield _row(f"{name}[].{inner}", inner_option, "**required**" if inner_option.get("required") else "", "")


def _row(name: str, option: Mapping[str, Any], default: str, why: str) -> str:
    kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
    choices = f" One of {', '.join(map(str, option['choices']))}." if "choices" in option else ""
    # Ansible's markup for a name or value.
    what = re.sub(r"\bC\(([^)]*)\)", r"`\1`", option["description"]).replace("|", "\\|") + choices
    is_same = why.rstrip(".").lower() == option["description"].rstrip(".").lower()
    return f"| `{name}` | {kind} | {default} | {what} | {'' if is_same else why.replace('|', chr(92) + '|')} |\n"


def readme(role: str) -> str:
    """Return the README of a role."""
    found = spec(role)
    prose = "\n\n".join(_wrapped(paragraph) for paragraph in found["description"])
    table = "".join(rows(role))
    return f"# {role}\n\n{found['short_description']}\n\n{prose}\n\n## Variables\n\n" + (
        _TABLE + table if table else "None.\n"
    )


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(paragraph.strip(), 120, break_long_words=False, break_on_hyphens=False)


def variables_page() -> str:
    """Return the page of all variables."""
    parts = [f"## {role}\n\n{spec(role)['short_description']}\n\n{_TABLE}{''.join(rows(role))}" for role in names()]
    return _HEAD + "\n".join(parts)


def pages() -> dict[Path, str]:
    """Return every page of this module by its path."""
    found = {ROLES / role / "README.md": readme(role) for role in names()}
    return found | {ROOT / "docs" / "variables.md": variables_page()}
