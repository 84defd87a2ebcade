"""The guard against a green Molecule run that tested nothing."""

import re
from pathlib import Path

import pytest

from local.test import molecule_log


def play(changed: int, *hosts: str) -> str:
    return "\n".join(f"{host:<26} : ok=9    changed={changed}    unreachable=0    failed=0" for host in hosts)


def log(**steps: str) -> str:
    """A log as Molecule prints it; a step set to None is left out."""
    texts = {
        "syntax": "",
        "create": play(1, "localhost"),
        "prepare": play(0, "live1", "live2"),
        "check": play(3, "live1", "live2"),
        "converge": play(3, "live1", "live2"),
        "idempotence": play(0, "live1", "live2"),
        "verify": "",
        **steps,
    }
    ran = {step: text for step, text in texts.items() if text is not None}
    return "\n".join(f"INFO     [cluster > {step}] Executing\n{text}\n" for step, text in ran.items())


def test_a_run_that_tested_has_no_problem() -> None:
    assert molecule_log.problems(log(), tests=5, min_tests=5) == []


def test_an_empty_inventory_is_right_before_create_only() -> None:
    words = "[WARNING]: provided hosts list is empty, only localhost is available."
    assert molecule_log.problems(log(syntax=words), 5, 5) == []
    assert molecule_log.problems(log(converge=words + "\n" + play(3, "live1", "live2")), 5, 5) == [
        "converge says 'provided hosts list is empty': a play did nothing"
    ]


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ({"idempotence": None}, "the step idempotence did not run"),
        ({"idempotence": "TASK [x]\nok: [live1]"}, "idempotence printed no recap"),
        ({"idempotence": play(2, "live1", "live2")}, "the second run changed {'live1': 2, 'live2': 2}"),
        ({"idempotence": play(0, "live1")}, "idempotence ran on ['live1'], converge on ['live1', 'live2']"),
        ({"converge": play(0, "live1", "live2")}, "converge changed nothing"),
        ({"converge": play(3, "live1", "live2") + "\nskipping: no hosts matched"}, "converge says 'no hosts matched'"),
        ({"verify": "WARNING  Skipping, no tests found."}, "the log says 'Skipping, no tests found'"),
        ({"create": "WARNING  Skipping, instances already created."}, "the log says 'Skipping, instances already'"),
        ({"verify": "Missing playbook"}, "the log says 'Missing playbook'"),
    ],
)
def test_a_run_that_did_nothing_is_found(steps: dict[str, str], problem: str) -> None:
    assert any(problem in found for found in molecule_log.problems(log(**steps), tests=5, min_tests=5))


def test_a_play_may_be_empty_on_purpose_and_no_other() -> None:
    empty = "\n".join(f"PLAY [{name}] *****\nskipping: no hosts matched\n" for name in ("Mirror", "Ship"))
    ran = log(converge=play(3, "live1", "live2") + "\n" + empty)
    assert molecule_log.problems(ran, 5, 5, ["Mirror", "Ship"]) == []
    assert molecule_log.problems(ran, 5, 5, ["Mirror"]) == ["converge says 'no hosts matched': a play did nothing"]


def test_the_conclusion_says_how_long_both_runs_took() -> None:
    def timed(total: str) -> str:
        line = f"Saturday 21 November 2026  17:00:35 +0000 (0:00:00.592)       {total} *****"
        return f"TASKS RECAP ****\n{line}\n====="

    ran = log(
        converge=timed("0:00:01.000") + "\n" + play(3, "live1") + "\n" + timed("0:02:12.374"),
        idempotence=play(0, "live1") + "\n" + timed("0:00:21.203"),
    )
    assert molecule_log.conclusion(ran, 7) == (
        "tested: 7 tests on 1 host, the second run changed nothing, in 21 s after 132 s"
    )


def test_colours_do_not_hide_a_change() -> None:
    coloured = (
        "\x1b[0;33mlive1\x1b[0m                      : \x1b[0;32mok=9   \x1b[0m "
        "\x1b[0;33mchanged=2   \x1b[0m unreachable=0    failed=0"
    )
    found = molecule_log.problems(log(idempotence=coloured + "\n" + play(0, "live2")), 5, 5)
    assert found == ["the second run changed {'live1': 2}"]


def test_skipped_tests_do_not_count_as_run(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite tests="7" skipped="3" failures="0"/></testsuites>')
    assert molecule_log.count_tests(report) == 4
    assert molecule_log.count_tests(tmp_path / "absent.xml") == 0
    assert molecule_log.problems(log(), tests=4, min_tests=5) == ["verify ran 4 tests, the scenario wants at least 5"]


def test_plays_that_may_be_empty_are_plays_of_the_playbooks() -> None:
    root = Path(__file__).parents[4]
    scripts = sorted((root / "molecule").glob("*/scenario.sh"))
    lists = [found for path in scripts for found in re.findall(r"empty_plays\+?=\(([^)]*)\)", path.read_text())]
    named = {double or single for text in lists for double, single in re.findall(r"\"(.*?)\"|'(.*?)'", text)}
    playbooks = [*(root / "playbooks").glob("*.yml"), *(root / "molecule" / "shared").glob("*.yml")]
    plays = {name for path in playbooks for name in re.findall(r"(?m)^- name: (.*)$", path.read_text())}
    assert len(named) > 4
    assert named <= plays
