"""Every command on the pages is one that its program takes: verbs, options, values, playbooks, targets, modules."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from fabric.main import Fab
from invoke.collection import Collection
from invoke.exceptions import ParseError
from invoke.loader import FilesystemLoader
from invoke.parser import Parser

from pylog.cli.app import app
from tests.commands import Command, calls_of, commands_of

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/bench/*.md"), *ROOT.glob("docs/cli/*.md")]
)
BIN = Path(sys.executable).parent
COMMANDS = sorted({command for page in PAGES for command in commands_of(page, ROOT)})


def of(*programs: str) -> list[Command]:
    """Return the commands of *programs*, each once."""
    found = {(command.words, command.is_whole): command for command in COMMANDS if command.words[0] in programs}
    return list(found.values())


def name(command: Command) -> str:
    return f"{command.place} {' '.join(command.words[:4])}"


def finished(*words: str) -> None:
    path = f"{BIN}:{os.environ['PATH']}"
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PATH": path}, check=False
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def refusal(words: tuple[str, ...], is_whole: bool) -> str:
    """Return why `pylog` does not take *words*; empty if it does. Nothing is run but the parser."""
    command, context = typer.main.get_command(app), None
    rest = list(words)
    # A switch that ends a command by itself is known to every parser.
    if rest == ["--version"]:
        return ""
    while isinstance(command, click.Group):
        if rest in ([], ["--help"]):
            return "" if rest or not is_whole else "a command is missing"
        context = click.Context(command, parent=context)
        found = command.get_command(context, rest[0])
        if found is None:
            return f"there is no `pylog {' '.join(words[: len(words) - len(rest) + 1])}`"
        command, rest = found, rest[1:]
    if "--help" in rest:
        return ""
    try:
        command.make_context(command.name, list(rest), parent=context)
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError) as error:
        return str(error) if is_whole else ""
    except click.ClickException as error:
        is_cut = (
            not is_whole and rest and "requires an argument" in error.format_message() and rest[-1].startswith("--")
        )
        return "" if is_cut else error.format_message()
    return ""


@pytest.mark.parametrize("command", of("pylog"), ids=name)
def test_pylog_takes_the_command(command: Command) -> None:
    assert refusal(command.words[1:], command.is_whole) == ""


@cache
def fab_contexts() -> list[Any]:
    module, _ = FilesystemLoader(start=str(ROOT)).load("fabfile")
    return list(Collection.from_module(module).to_contexts())


def fab_refusal(words: tuple[str, ...], is_whole: bool = True) -> str:
    try:
        parser = Parser(contexts=fab_contexts(), initial=Fab().initial_context)
        parsed = parser.parse_argv(list(words))
    except ParseError as error:
        is_cut = "did not receive required" in str(error) or "needed value" in str(error)
        return "" if is_cut and not is_whole else str(error)
    if "-h" in words or "--list" in words:
        return ""
    return "" if len(parsed) > 1 or not words else "no task"


@pytest.mark.parametrize("command", of("fab"), ids=name)
def test_fab_takes_the_command(command: Command) -> None:
    assert fab_refusal(command.words[1:], command.is_whole) == ""


@pytest.mark.parametrize("command", of("make"), ids=name)
def test_make_has_the_target_and_knows_the_variables(command: Command) -> None:
    """`make -n` prints the recipes; none of them calls make again, so nothing runs."""
    finished("make", "-n", *command.words[1:])
    known = (ROOT / "Makefile").read_text() + "".join(path.read_text() for path in ROOT.glob("local/**/*.sh"))
    for variable, value in (word.split("=", 1) for word in command.words[1:] if "=" in word):
        assert re.search(rf"\b{variable}\b", known), f"nothing reads {variable}"
        places = {"BENCH": f"bench/*/{value}.py", "SCENARIO": f"molecule/{value}/molecule.yml"}
        assert variable not in places or any(ROOT.glob(places[variable])), f"there is no {places[variable]}"


def plays_of(commands: list[Command]) -> dict[str, tuple[list[str], list[str]]]:
    """Return inventory -> the playbooks that *commands* run with it, and all of their options."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for command in commands:
        option, inventory, playbook, *options = command.words[1:]
        assert (option, playbook[-4:]) == ("-i", ".yml"), f"{name(command)}: the inventory is first, then one playbook"
        playbooks, all_options = found.setdefault(inventory, ([], []))
        playbooks.append(playbook)
        all_options += options
    return found


@pytest.mark.parametrize("inventory", plays_of(of("ansible-playbook")))
def test_ansible_reads_the_playbooks(inventory: str) -> None:
    """Run one process for each inventory: it reads preflight, with which every playbook begins, once."""
    playbooks, options = plays_of(of("ansible-playbook"))[inventory]
    finished(str(BIN / "ansible-playbook"), "--syntax-check", "-i", inventory, *playbooks, *options)


@pytest.mark.parametrize("command", of("ansible", "ansible-inventory", "ansible-vault"), ids=name)
def test_ansible_takes_the_command(command: Command) -> None:
    program, *arguments = command.words
    if program == "ansible":
        finished(str(BIN / program), *arguments, "--list-hosts")
        return
    cli = {"ansible-vault": "VaultCLI", "ansible-inventory": "InventoryCLI"}[program]
    script = f"import sys; from ansible.cli.{program[8:]} import {cli} as C; c = C(sys.argv); c.init_parser()"
    finished(sys.executable, "-c", f"{script}; c.parser.parse_args(sys.argv[1:])", *arguments)


@pytest.mark.parametrize("command", of("pytest"), ids=name)
def test_pytest_finds_the_tests(command: Command) -> None:
    arguments = [word.replace("/srv/pylog/", "") for word in command.words[1:]]
    finished(sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize("command", of("python", "python3"), ids=name)
def test_the_module_is_there_and_has_the_options(command: Command) -> None:
    arguments = list(command.words[1:])
    if not arguments and not command.is_whole:
        return  # the program by its name
    assert arguments[:1] == ["-m"], command
    found = importlib.util.find_spec(arguments[1])
    assert found is not None, f"there is no module {arguments[1]}"
    if arguments[1] == "pip" or found.origin is None:
        return
    texts = {
        node.value for node in ast.walk(ast.parse(Path(found.origin).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }  # fmt: skip
    for option in arguments[2:]:
        if option.startswith("--"):
            assert option.partition("=")[0] in texts, f"{arguments[1]} has no option {option}"


_NAME = re.compile(r"`(pylog(?:\.\w+)+)`")
_WIRE_NAME = re.compile(r'"(pylog(?:\.\w+)+)\.?"')


def wire_names() -> set[str]:
    """Return the dotted names that the code writes to topics: record headers, and prefixes of topics."""
    return {name for path in (ROOT / "pylog").rglob("*.py") for name in _WIRE_NAME.findall(path.read_text())}


def test_what_pages_name_in_python_is_there() -> None:
    wrong: list[str] = []
    on_the_wire = wire_names()
    for page in PAGES:
        for dotted in sorted(set(_NAME.findall(page.read_text())) - on_the_wire):
            parts = dotted.split(".")
            value: object = import_module("pylog")
            for depth, part in enumerate(parts[1:], 2):
                if not hasattr(value, part) and importlib.util.find_spec(".".join(parts[:depth])):
                    import_module(".".join(parts[:depth]))
                value = getattr(value, part, None)
                if value is None:
                    wrong.append(f"{page.relative_to(ROOT)}: {dotted}")
                    break
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("make up  # all of it", [("make", "up")]),
        ("a=$(pylog top) && x | sudo pylog zk show /", [("pylog", "top"), ("pylog", "zk", "show", "/")]),
        ("while ! .venv/bin/pylog top 2> fab; do make down; done", [("pylog", "top"), ("make", "down")]),
        ("source <(pylog completion bash)", [("pylog", "completion", "bash")]),
        ("KEEP=1 make baremetal", [("make", "baremetal")]),
        ("fab logs \\\n    --host H", [("fab", "logs", "--host", "H")]),
        ("ansible-playbook -i inventories/NAME x.yml", [("ansible-playbook", "-i", "inventories/example", "x.yml")]),
        ("echo make up", []),
    ],
)  # fmt: skip
def test_calls_are_found(source: str, wanted: list[tuple[str, ...]]) -> None:
    assert calls_of(source) == wanted


def test_what_no_program_takes_is_refused() -> None:
    assert refusal(("topic", "list", "--no-such"), True) != ""
    assert refusal(("topic", "lists"), False) != ""
    assert refusal(("topic", "create"), True) != ""
    assert refusal(("topic", "create"), False) == ""
    assert refusal(("cluster", "finalize", "--broker", "x"), False) != ""
    # As the README once had it.
    assert fab_refusal(("--inventory", "inventories/mine", "status")) != ""
    assert fab_refusal(("status", "--inventory", "inventories/mine")) == ""


def test_every_kind_of_command_is_on_the_pages() -> None:
    assert {command.words[0] for command in COMMANDS} >= {
        "pylog",
        "fab",
        "make",
        "ansible-playbook",
        "python",
        "pytest",
    }
