"""The command itself: its verbs, its help, its ways to end."""

import importlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from pylog import __version__, faults
from pylog.cli.app import VERBS, run
from pylog.cli.failure import Exit, Failure, failure_of
from pylog.errors import ApiError, ConfigError, ErrorCode, Unreachable
from pylog.runbooks import RUNBOOKS


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_answers_for_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == Exit.DONE
    assert f"Usage: pylog {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_each_command_shows_an_example(verb: str) -> None:
    command = typer.main.get_command(importlib.import_module(f"pylog.cli.{verb}").app)
    for leaf in getattr(command, "commands", {"": command}).values():
        assert "Example: " in (leaf.epilog or ""), f"{verb} {leaf.name}"
        assert f"pylog {verb}" in (leaf.epilog or "")


def test_help_lists_the_verbs_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == Exit.DONE
    output = capsys.readouterr().out
    assert all(f"  {verb} " in output for verb in VERBS)
    assert "0 done or healthy, 1 failed or unhealthy, 2 usage, 3" in output


def test_help_waits_for_no_heavy_import() -> None:
    heavy = "{'confluent_kafka', 'pydantic', 'yaml', 'rich', 'kafka', 'kazoo'}"
    code = f"import sys; from pylog.cli.app import run; run(['--help']); sys.exit(str({heavy} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == "set()"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == Exit.DONE
    assert capsys.readouterr().out == f"pylog {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["topic", "nope"],
        ["topic", "create"],
        ["topic", "list", "--nope"],
        ["consume"],
        ["topic", "list", "--format", "xml"],
        ["broker"],
        ["broker", "--standalone"],
        ["broker", "--config", "a", "--standalone"],
        ["produce", "t", "--acks", "2"],
        ["consume", "t", "-f", "%q"],
        ["consume", "t", "--from", "soon"],
        ["cluster", "health", "--elect"],
        ["cluster", "health", "--leading"],
        ["retention"],
        ["topic", "create", "t", "--config", "retention.ms"],
        ["topic", "list", "-X", "=1"],
        ["ship", "journal", "--state", "/does/not/exist/state"],
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == Exit.USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert "rror: " in output.err
    assert "Traceback" not in output.err


def test_a_property_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "-X", "no.such=1"]) == Exit.FAILED
    assert 'No such configuration property: "no.such"' in capsys.readouterr().err


def test_a_damaged_state_stops_the_shipper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state").write_text("?")
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        assert run(["ship", "journal", "--state", str(tmp_path / "state")]) == Exit.FAILED
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    assert f"next:   rm {tmp_path / 'state'}" in capsys.readouterr().err


def test_nobody_there_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "0.3"]) == Exit.UNREACHABLE
    output = capsys.readouterr()
    assert output.out == ""
    assert "error: nobody answers [PYLOG-0100]\n  where:  127.0.0.1:1\n" in output.err
    assert "  next:   " in output.err


def test_a_failure_names_all_it_knows_and_nothing_else() -> None:
    full = Failure(faults.LOG_DAMAGED, "it broke", where="here", found="1", wanted="2", next="pylog mend")
    assert str(full) == "error: it broke [PYLOG-0302]\n  where:  here\n  found:  1\n  wanted: 2\n  next:   pylog mend"
    bare = Failure(faults.GROUP_READ_NOTHING)
    assert str(bare) == "error: the group has read nothing [PYLOG-0203]\n  next:   Name topics: --topic TOPIC."


def test_each_kind_of_error_has_its_exit_code() -> None:
    assert failure_of(Unreachable("h:1: refused")).exit_code is Exit.UNREACHABLE
    refused = failure_of(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no t"), "h:1")
    assert refused.exit_code is Exit.FAILED
    assert "where:  h:1\n  found:  UNKNOWN_TOPIC_OR_PARTITION: no t\n  next:   pylog topic list" in str(refused)
    assert failure_of(ConfigError("a.yml:3: unknown key")).exit_code is Exit.FAILED


def test_an_error_of_the_protocol_is_explained_by_the_name_that_clients_and_metrics_print(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["explain", "kafka_storage_error"]) == 0
    assert capsys.readouterr().out.startswith("PYLOG-1056: ")


def test_a_metric_is_explained_by_its_name_or_that_of_a_series(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("pylog_request_seconds", "pylog_request_seconds_bucket"):
        assert run(["explain", name]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert out.startswith("pylog_request_seconds: a histogram of pylog broker")
        assert "other is all the rest" in out
        assert "PylogProduceSlow" in out
    assert run(["explain", "pylog_zookeper_up"]) == 2
    assert "pylog_zookeeper_up?" in capsys.readouterr().err


def test_a_way_through_an_alert_keeps_its_commands_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert RUNBOOKS
    for name, runbook in RUNBOOKS.items():
        assert run(["explain", name]) == 0
        words = " ".join(capsys.readouterr().out.split())
        for text in (runbook.look, runbook.decide, runbook.act, runbook.verify):
            assert " ".join(text.split()) in words, name


def test_an_alert_is_explained_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "pylogbrokerdown"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("PylogBrokerDown: broker BROKER on HOST does not answer\n")
    assert [line.split()[0] for line in said.splitlines() if re.match(r"  \w", line)] == [
        "look",
        "decide",
        "act",
        "verify",
    ]
    assert run(["explain", "PylogBrokrDown"]) == 2
    assert "PylogBrokerDown?" in capsys.readouterr().err
