"""The lookup that renders templates for a comparison: the text of Ansible's own, without a copy of all variables."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader  # type: ignore[import-untyped]
from ansible.plugins.loader import init_plugin_loader, lookup_loader  # type: ignore[import-untyped]
from ansible.template import Templar, trust_as_template  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[3]
TEXT = """{{ ansible_managed | comment }}
{% for name in names %}
{{ name }} = {{ limits[name] }}
{% endfor %}
last: {{ more }}
"""


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    init_plugin_loader()
    lookup_loader.add_directory(str(ROOT / "plugins" / "lookup"))


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "limits.j2"
    path.write_text(TEXT)
    return path


def text(lookup: str, path: Path) -> Any:
    limits = {"a": 1, "b": trust_as_template("{{ 1 + 1 }}")}
    variables = {"names": ["a", "b"], "limits": limits, "ansible_search_path": ["/nowhere"]}
    asked = f"{{{{ lookup('{lookup}', '{path}', template_vars={{'more': 'of this'}}) }}}}"
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(asked))


def test_a_template_has_the_text_that_ansible_writes(template: Path) -> None:
    assert text("rendered", template) == text("ansible.builtin.template", template)
    assert "b = 2\nlast: of this" in text("rendered", template)


def test_f18_variables_are_not_copied(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[object] = []
    real = copy.deepcopy

    def noted(value: Any, memo: Any = None) -> Any:
        found = real(value, memo)
        if isinstance(value, dict) and "limits" in value:
            copied.append(found["limits"] is value["limits"])
        return found

    monkeypatch.setattr(sys.modules["ansible.plugins.lookup.template"], "deepcopy", noted)
    text("rendered", template)
    assert copied == [True], "the same object, not one like it"
