"""Every way to end without success has a code, and every code its cause and remedy."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog.cli.app import run
from pylog.cli.failure import failure_of
from pylog.errors import ApiError, ErrorCode, PylogError
from pylog.faults import CATALOGUE, Exit, code_of

ROOT = Path(pylog.__file__).parent
CODE = re.compile(r"\[PYLOG-\d{4}\]")
# What ends a process.  `Exit` is invoke's in ops/, where the text itself holds the code.
ENDS = {"Exit", "SystemExit", "exit", "_exit"}


def errors_below(kind: type[PylogError]) -> Iterator[type[PylogError]]:
    for one in kind.__subclasses__():
        yield one
        yield from errors_below(one)


def test_every_error_of_ours_is_in_the_catalogue() -> None:
    for module in pkgutil.walk_packages(pylog.__path__, "pylog."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert {one.__name__ for one in errors_below(PylogError) if one.fault not in CATALOGUE} == set()


@pytest.mark.parametrize("code", ErrorCode)
def test_every_answer_of_a_broker_is_in_the_catalogue(code: ErrorCode) -> None:
    if code is ErrorCode.NONE:
        return
    number = 1999 if code is ErrorCode.UNKNOWN_SERVER_ERROR else 1000 + code
    assert code_of(ApiError(code)) == f"PYLOG-{number}"
    assert f"[PYLOG-{number}]" in str(failure_of(ApiError(code)))


@pytest.mark.parametrize("number", CATALOGUE)
def test_every_entry_says_cause_and_remedy(number: int) -> None:
    one = CATALOGUE[number]
    assert one.number == number
    assert one.cause.endswith(".")
    assert one.remedy.endswith((".", "`"))
    assert one.what[0].islower()
    assert not one.what.endswith(".")
    assert one.exit_code is not Exit.DONE


def test_numbers_keep_their_meaning() -> None:
    """Scripts compare codes: a number once published stays what it is."""
    kept = {
        1: "this is a bug in pylog",
        10: "the command line is wrong",
        100: "nobody answers",
        200: "the cluster is not as wanted",
        302: "the log is damaged",
    }
    assert {number: CATALOGUE[number].what for number in kept} == kept


def test_no_command_ends_past_the_catalogue() -> None:
    faults = []
    shared = failures_of(ast.parse((ROOT / "cli" / "failure.py").read_text()))
    for path in sorted((ROOT / "cli").glob("*.py")):
        tree = ast.parse(path.read_text())
        known = {"Failure", "failure_of", "ApiError", "Unreachable"} | failures_of(tree) | shared
        # A line of input that does not fit is a ValueError, which `pylog produce` turns into a failure.
        known |= {"ValueError"} if path.name == "input.py" else set()
        for node in ast.walk(tree):
            # Under cron a command may be silent: syslog has what went wrong, the catalogue the exit code.
            is_end = isinstance(node, ast.Call) and name_of(node.func) in ENDS
            if is_end and ".exit_code" not in ast.unparse(node):
                assert isinstance(node, ast.Call)
                faults.append(f"{path.name}:{node.lineno} ends by itself")
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                raised = name_of(node.exc.func)
                if raised not in known and ".exit_code" not in ast.unparse(node):
                    faults.append(f"{path.name}:{node.lineno} raises {raised}")
    assert faults == []


def test_no_program_beside_the_command_ends_without_a_code() -> None:
    faults = []
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        mains = [node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)]
        allowed = {id(node) for main in mains for node in ast.walk(main)}
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Call) or name_of(node.func) not in ENDS or id(node) in allowed:
                    continue
                if not re.search(r"code_of\(|\.(exit_)?code\b|sys\.exit\(run\(", ast.unparse(function)):
                    faults.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    assert faults == []


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        ([], 2),
        (["nope"], 2),
        (["topic"], 2),
        (["topic", "list", "--nope"], 2),
        (["consume"], 2),
        (["topic", "list", "--format", "xml"], 2),
        (["consume", "t", "-f", "%q"], 2),
        (["explain", "8888"], 2),
        (["topic", "list", "-b", "127.0.0.1:1", "--timeout", "0.2"], 3),
        (["config", "check", "/does/not/exist"], 1),
        (["log", "verify", "/does/not/exist"], 1),
        (["zk", "show", "--zookeeper", "127.0.0.1:1", "--timeout", "0.2"], 3),
        (["broker", "--config", "/does/not/exist"], 1),
        (["zk", "show", "brokers"], 2),
        (["log", "dump", "/etc/passwd"], 2),
    ],
)
def test_what_ends_badly_shows_its_code(
    arguments: list[str], exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == exit_code
    output = capsys.readouterr()
    assert output.out == ""
    [code] = CODE.findall(output.err)
    assert run(["explain", code.strip("[]")]) == Exit.DONE
    assert f"exit code  {exit_code}\n" in capsys.readouterr().out


def test_a_bug_is_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("pylog.cli.explain._fault", broken)
    assert run(["explain", "1"]) == Exit.FAILED
    told = capsys.readouterr().err
    assert "[PYLOG-0001]" in told
    assert "Traceback" not in told
    monkeypatch.setenv("PYLOG_DEBUG", "1")
    run(["explain", "1"])
    assert "Traceback" in capsys.readouterr().err


def failures_of(tree: ast.Module) -> set[str]:
    """Return the functions that make a failure."""
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.returns is not None and ast.unparse(node.returns) == "Failure"
    }


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
