"""Which failures of tests with servers are tried once more."""

from pathlib import Path

import pytest

from local.test import second_try


def written(path: Path, *failures: tuple[str, str]) -> Path:
    cases = "".join(
        f'<testcase classname="{file}" name="t"><failure message="{why}"/></testcase>' for file, why in failures
    )
    path.write_text(f'<testsuites><testsuite><testcase classname="z" name="ok"/>{cases}</testsuite></testsuites>')
    return path


def test_a_few_failures_are_worth_it(tmp_path: Path) -> None:
    few = [("a", "not within 40 s"), ("a", "no answer"), ("b", "no answer"), ("c", "no answer")]
    assert second_try.is_worth_it(written(tmp_path / "net.xml", *few))


def test_many_files_are_no_accident(tmp_path: Path) -> None:
    assert not second_try.is_worth_it(written(tmp_path / "net.xml", *((file, "no answer") for file in "abcd")))


@pytest.mark.parametrize(
    "why",
    [
        "assert not {0: [17]}&#10; +  where {0: [17]} = lost()",
        "assert not {0: [17]}&#10; +  where {0: [17]} = doubled()",
        "CorruptRecords: crc of the batch at offset 3",
    ],
)
def test_what_became_of_records_stands(tmp_path: Path, why: str) -> None:
    assert not second_try.is_worth_it(written(tmp_path / "net.xml", ("a", "no answer"), ("b", why)))


def test_where_nothing_failed_there_is_nothing_to_try(tmp_path: Path) -> None:
    assert not second_try.is_worth_it(written(tmp_path / "net.xml"))
