"""The lookup with which roles render a template to compare it with what a host has.

What it returns is `ansible.builtin.template`'s.  That one makes a deep copy of all variables of the host for each file:
with the facts of a host that is a quarter of what the workers of a `site` without changes do (F18).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.plugins.lookup.template import LookupModule as Template  # type: ignore[import-untyped]

DOCUMENTATION = """
    name: rendered
    short_description: render a template without copying all variables
    description: Returns what ansible.builtin.template does, and takes the same options.
    extends_documentation_fragment: []
    options:
      _terms: {description: files to render}
      convert_data: {type: bool, default: true, description: not used}
      variable_start_string: {default: '{{', type: str, description: what begins a print statement}
      variable_end_string: {default: '}}', type: str, description: what ends a print statement}
      jinja2_native: {type: bool, default: true, description: not used}
      template_vars: {type: dict, default: {}, description: more variables}
      comment_start_string: {type: str, default: '{#', description: what begins a comment}
      comment_end_string: {type: str, default: '#}', description: what ends a comment}
      trim_blocks: {type: bool, default: true, description: whether the newline after a block goes}
"""


class _ReadOnly(dict[str, Any]):
    """Variables that are copied by reference, whatever kind of copy somebody makes."""

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return dict(self)


class LookupModule(Template):  # type: ignore[misc]
    """Renders templates."""

    def run(self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **kwargs: object) -> list[Any]:
        """Return the text of each file in *terms*, rendered with *variables*."""
        rendered: list[Any] = super().run(terms, variables=_ReadOnly(variables or {}), **kwargs)
        return rendered
