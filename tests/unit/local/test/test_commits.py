"""The form of commits, as text and in real repositories, shallow ones among them."""

import subprocess
from pathlib import Path

import pytest

from local.test import commits
from local.test.commits import MAX_SUBJECT, Commit, commits_since, faults, first_sha, main, parse


def commit(subject: str, body: str = "", code_lines: int = 1) -> Commit:
    return Commit("abc1234", subject, body, code_lines)


@pytest.mark.parametrize(
    "subject",
    [
        "log: cut at the first batch that is not whole",
        "roles, playbooks: restart one broker at a time",
        'Revert "log: cut at the first batch that is not whole"',
        f"log: {'x' * (MAX_SUBJECT - len('log: '))}",
        "docs: answer why there is no cache: the page cache",
    ],
)
def test_a_subject_with_an_area_and_a_deed_is_taken(subject: str) -> None:
    assert list(faults(commit(subject))) == []


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("cut at the first batch that is not whole", "form 'area: what to do'"),
        ("log:cut", "form 'area: what to do'"),
        ("log: ", "form 'area: what to do'"),
        ("log: cut at the first batch.", "period"),
        ("docs: a whole run of make baremetal", "begins with 'a'"),
        ("docs: The rows of the result", "begins with 'the'"),
        ("docs: where a page has its text from", "begins with 'where'"),
        (f"log: {'x' * MAX_SUBJECT}", "at most 72"),
    ],
)
def test_another_subject_is_refused_with_its_reason(subject: str, reason: str) -> None:
    [fault] = faults(commit(subject))
    assert reason in fault


def test_more_than_a_hundred_lines_of_code_want_a_body() -> None:
    assert list(faults(commit("log: cut", code_lines=100))) == []
    [fault] = faults(commit("log: cut", body=" \n", code_lines=101))
    assert "101 lines of code" in fault
    assert list(faults(commit("log: cut", body="Because.", code_lines=101))) == []


def test_pages_results_and_binary_files_are_no_code() -> None:
    log = (
        "\x1eabc1234\x1flog: cut\x1fWhy.\n\x1f\n\n"
        "10\t3\tpylog/log/log.py\n900\t0\tdocs/results/paper.md\n-\t-\tdocs/plot.png\n2\t1\tlocal/{a.sh => b/a.sh}\n"
        "1\t0\tMakefile\n4\t4\tlocal/{hosts => run}/hosts.py\n1\t1\tpylog/{a.py => b.py}\n"
        "\x1edef5678\x1flog: sync\x1f\x1f\n"
    )
    assert parse(log) == [
        Commit("abc1234", "log: cut", "Why.\n", 10 + 3 + 2 + 1 + 1 + 4 + 4 + 1 + 1),
        Commit("def5678", "log: sync", "", 0),
    ]


def test_the_first_commit_named_is_where_the_check_begins() -> None:
    assert first_sha(f"# {'c' * 40}\n{'a' * 40}\n{'b' * 40}\n") == "a" * 40
    assert first_sha("# none\n") is None


class Repository:
    """A git repository with a committer of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *who, *arguments], cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, subject: str, lines: int = 0) -> str:
        """Commit what is there, and a program of so many lines."""
        if lines:
            (self.path / "program.py").write_text("".join(f"print({n})\n" for n in range(lines)))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Three commits, the second of which is where the check begins."""
    made = Repository(tmp_path / "repository")
    made.commit("whatever was once.")
    layout = made.commit("format: let the formatter decide", lines=300)
    (made.path / ".git-blame-ignore-revs").write_text(f"# Only layout\n{layout}\n")
    made.commit("format: name the layout commit")
    return made


def test_commits_before_the_layout_and_merges_are_left_alone(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "side", "HEAD~1")
    repository.git("commit", "--quiet", "--allow-empty", "--message", "log: cut")
    repository.git("merge", "--quiet", "--message", "what was apart.", "main")
    assert main(repository.path) == 0


def test_a_wrong_commit_is_named_with_its_reason(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    sha = repository.commit("log: the cut", lines=100)
    assert main(repository.path) == 1
    said = capsys.readouterr().out
    assert f"{sha[:10]} log: the cut" in said
    assert "begins with 'the'" in said
    assert "200 lines of code" in said


def test_a_clone_without_the_history_is_not_judged(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit("the wrong one.", lines=200)
    shallow = tmp_path / "shallow"
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.path}", str(shallow))
    assert main(shallow) == 0
    assert "no commit checked" in capsys.readouterr().out


def test_a_source_archive_is_not_judged(repository: Repository, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / ".git-blame-ignore-revs").write_text((repository.path / ".git-blame-ignore-revs").read_text())
    assert commits_since("a" * 40, archive) is None
    assert main(archive) == 0


def test_a_commit_that_others_built_on_is_left_alone(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    sha = repository.commit("log: the cut")
    assert main(repository.path) == 1
    monkeypatch.setattr(commits, "LEFT_ALONE", frozenset({sha}))
    assert main(repository.path) == 0
