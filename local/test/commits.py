"""Check the form of commits: a subject that says what changes, and a body where a reader needs the reason.

    python -m local.test.commits

A subject is `area: what to do`, at most 72 characters, without a period, and imperative. A commit that changes more
than 100 lines of code has a body. The check begins after the commit that `.git-blame-ignore-revs` names first, and
skips merges. A clone without that commit (a shallow one, or a source archive) has nothing to check. Exit code 1 when a
commit is wrong; each is named with its reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
MAX_SUBJECT = 72
MAX_LINES_WITHOUT_BODY = 100
CODE = frozenset({".py", ".sh", ".c", ".yml", ".j2", ".toml", ".cfg"})
"""Endings of files whose lines count; pages and recorded results explain themselves."""

NOT_IMPERATIVE = frozenset({"a", "an", "the", "what", "where"})
"""First words that begin a description instead of an instruction."""

LEFT_ALONE = frozenset(
    {
        "6b059bb22a4a708971470193d3a9be85b0f72511",  # its subject begins with "a"
        "247a8df224628f0ead457ca8955861404ccaa369",  # 113 lines without a body
    }
)
"""Commits that others had built on before anybody ran this check over them; history is not rewritten for them."""

# A record begins with a byte that no message holds; the numbers of lines follow the message.
_FORMAT = "%x1e%H%x1f%s%x1f%b%x1f"
_SUBJECT = re.compile(r"(?P<area>[^\s:][^:]*): (?P<deed>\S.*)")
_SHA = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as `git log` tells it; `code_lines` is the number of lines of code added and removed."""

    sha: str
    subject: str
    body: str
    code_lines: int


def faults(commit: Commit) -> Iterator[str]:
    """Yield each reason why a commit has not the form that CONTRIBUTING asks for."""
    if len(commit.subject) > MAX_SUBJECT:
        yield f"the subject has {len(commit.subject)} characters, at most {MAX_SUBJECT} are allowed"
    if commit.subject.endswith("."):
        yield "the subject ends with a period"
    if commit.subject.startswith('Revert "'):
        return  # git's own words; the reverted subject had its form
    form = _SUBJECT.fullmatch(commit.subject)
    if form is None:
        yield "the subject is not of the form 'area: what to do'"
    elif (word := form["deed"].split()[0].lower()) in NOT_IMPERATIVE:
        yield f"the subject must say what to do after the area, and begins with {word!r}"
    if commit.code_lines > MAX_LINES_WITHOUT_BODY and not commit.body.strip():
        yield f"it changes {commit.code_lines} lines of code; above {MAX_LINES_WITHOUT_BODY} the body must say why"


def parse(log: str) -> list[Commit]:
    """Read the output of `git log --numstat` in this module's format."""
    commits = []
    for record in log.split("\x1e")[1:]:
        sha, subject, body, numbers = record.split("\x1f")
        commits.append(Commit(sha, subject, body, sum(map(_code_lines, numbers.splitlines()))))
    return commits


def _code_lines(line: str) -> int:
    """Return the lines of code that a line of --numstat counts: ADDED, REMOVED and a path, with tabs between them."""
    added, _, rest = line.partition("\t")
    removed, _, path = rest.partition("\t")
    # A rename within a folder is written {old => new}; a binary file has - for numbers.
    is_code = PurePosixPath(path.rstrip("}")).suffix in CODE or path.endswith("Makefile")
    return int(added) + int(removed) if is_code and added.isdecimal() else 0


def first_sha(revisions: str) -> str | None:
    """Return the first commit that the text of a `.git-blame-ignore-revs` names."""
    return next((line.strip() for line in revisions.splitlines() if _SHA.fullmatch(line.strip())), None)


def commits_since(sha: str, root: Path) -> list[Commit] | None:
    """Return the commits of the checkout *root* after *sha*, newest first; None if *sha* is not in its history."""
    if _git(root, "merge-base", "--is-ancestor", sha, "HEAD") is None:
        return None
    log = _git(root, "log", "--no-merges", "-M", "--numstat", f"--format={_FORMAT}", f"{sha}..HEAD")
    return None if log is None else parse(log)


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, None if it cannot say."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def main(root: Path = ROOT) -> int:
    """Print every fault; return the exit code."""
    revisions = root / ".git-blame-ignore-revs"
    sha = first_sha(revisions.read_text()) if revisions.exists() else None
    commits = commits_since(sha, root) if sha else None
    if commits is None:
        print(f"no commit checked: {sha or 'the first commit to check'} is not in the history of this clone")
        return 0
    judged = [commit for commit in commits if commit.sha not in LEFT_ALONE]
    found = [f"{commit.sha[:10]} {commit.subject}\n    {fault}" for commit in judged for fault in faults(commit)]
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
