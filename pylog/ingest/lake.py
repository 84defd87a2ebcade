"""The lake on disk: Parquet files that appear whole, once each, and a log of commits that says which ones count.

lake       => _lake.json                                                   {"kind": "pylog lake", "version", "id"}
              topic=<name>/date=<yyyy-mm-dd>/hour=<hh>/<unique>.parquet    what readers read
              _dead_letters/topic=<name>/<unique>.parquet                  batches that do not decode, with the reason
              _staging/<plan>-<kind>-<random>/<unique>.parquet             what one attempt is writing
              _commits/<number>.json                                       1, 2, 3, ...; created, never changed
              _snapshots/<number>.json                                     all commits up to there, added up
commit     => {"version", "number", "kind": "load" | "compaction" | "retry", "attempt": directory in _staging,
               "files": [{"path", "rows", "size_bytes"}], "dead_letters": [the same],
               "replaces": [path], and what the kind adds, "position" for a load}

An attempt writes below ``_staging`` under names nobody else uses, then creates the next commit; the file system lets
one attempt win each number.  After that the files move out, each by one rename, done by whoever comes first: the driver
that won, or after its death the next one.  An attempt that was planned as commit 7 may become any later number as long
as no commit of its own kind came between, so loads and compactions do not disturb each other; otherwise what it was to
do is done, and it stops.  Nobody needs a lock or a clock for that, so a driver may be paused at any point for any time.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

from pylog.errors import PylogError, StorageError
from pylog.ingest.plan import Position

KIND = "pylog lake"
VERSION = 2

HOUR_S = 3600
DEAD_LETTERS = "_dead_letters"
SNAPSHOT_EVERY = 100
"""Commits between two snapshots: most files that are read to know the lake's state."""

COMMITS_KEPT_S = 86_400.0
"""How long a commit stays after a snapshot holds it, and at least; a grace time must not be longer."""

_MAX_TRIES = 1000
# Other drivers' commits that one commit may meet before it gives up; each took its writer far longer than ours takes.

_DIGITS = 10
_SNAPSHOTS_KEPT = 3  # a reader that has just chosen the newest must still find it
_EPOCH = date(1970, 1, 1).toordinal()
_NO_HOUR = "__HIVE_DEFAULT_PARTITION__"
# Hive's name for null, which Spark, DuckDB and pyarrow read as such.


@contextmanager
def as_owner(root: Path) -> Iterator[None]:
    """Write what is written meanwhile as the lake's owner where root runs this.

    The jobs do not run as root: they could not delete root's files, nor write into its directories.

    Raises:
        StorageError: there is no such directory.
    """
    if os.geteuid() != 0:
        yield
        return
    with _storage(root):
        owner = root.stat()
    group = os.getegid()
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


class LakeError(PylogError):
    """The directory is no lake of this kind, or contradicts itself; the message says how to go on."""

    fault = 308


class Lost(LakeError):
    """Another driver committed what this one was about to: nothing is lost, and this driver must stop."""


class Kind(StrEnum):
    """What a commit did."""

    LOAD = "load"
    COMPACTION = "compaction"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class File:
    """One Parquet file; *path* is relative to the lake."""

    path: str
    rows: int
    size_bytes: int

    @property
    def group(self) -> str:
        """The directory of its topic and hour."""
        return self.path.rpartition("/")[0]

    @property
    def topic(self) -> str:
        """Its topic."""
        return next(part for part in self.path.split("/") if part.startswith("topic=")).removeprefix("topic=")

    @property
    def hour_ended_s(self) -> float:
        """When its hour ended, in seconds since 1970; 0 for records without a usable time."""
        parts = dict(part.partition("=")[::2] for part in self.group.split("/"))
        try:
            start = datetime.strptime(f"{parts['date']} {parts['hour']}", "%Y-%m-%d %H").replace(tzinfo=UTC)
        except ValueError:
            return 0.0
        return start.timestamp() + HOUR_S


def path_of(topic: str, hour: int | None, name: str) -> str:
    """Return where a file of *topic* lies.

    Args:
        topic: its name.
        hour: hours since 1970, UTC; None for records without a usable timestamp.
        name: of the file.
    """
    if hour is None:
        return f"topic={topic}/date={_NO_HOUR}/hour={_NO_HOUR}/{name}"
    days, hour_of_day = divmod(hour, 24)
    return f"topic={topic}/date={date.fromordinal(_EPOCH + days).isoformat()}/hour={hour_of_day:02}/{name}"


def dead_letter_path_of(topic: str, name: str) -> str:
    """Return where undecodable batches of *topic* lie; plain readers of the lake pass over it."""
    return f"{DEAD_LETTERS}/topic={topic}/{name}"


@dataclass(frozen=True, slots=True)
class State:
    """What the commits up to one number add up to.

    Attributes:
        number: of the last commit; 0 for none.
        last: number of the last commit of each kind; 0 for none.
        position: next offset to load of every partition.
        files: by path, those that count.
        dead_letters: by path.
        replaced: by compaction's number, the paths it replaced; they are deleted after a grace time.
    """

    number: int = 0
    last: Mapping[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    position: Position = field(default_factory=Position)
    files: Mapping[str, File] = field(default_factory=dict)
    dead_letters: Mapping[str, File] = field(default_factory=dict)
    replaced: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def after(self, commits: Iterable[Mapping[str, Any]]) -> "State":
        """Return the state with more commits; what it holds is copied once, however many they are."""
        commits = list(commits)
        if not commits:
            return self
        number, last, position = self.number, dict(self.last), self.position
        files, dead_letters, replaced = dict(self.files), dict(self.dead_letters), dict(self.replaced)
        for commit in commits:
            assert commit["number"] == number + 1, f"commit {commit['number']} follows {number}"
            number = commit["number"]
            last[Kind(commit["kind"])] = number
            if "position" in commit:
                position = Position.from_json(commit["position"])
            for path in commit["replaces"]:
                files.pop(path, None)
                dead_letters.pop(path, None)
            if commit["replaces"]:
                replaced[number] = tuple(commit["replaces"])
            files.update(_files(commit["files"]))
            dead_letters.update(_files(commit["dead_letters"]))
        return State(number, last, position, files, dead_letters, replaced)

    def to_json(self) -> dict[str, Any]:
        """Return the state as a snapshot keeps it."""
        return {
            "version": VERSION,
            "number": self.number,
            "last": dict(self.last),
            "position": self.position.to_json(),
            "files": [asdict(file) for file in self.files.values()],
            "dead_letters": [asdict(file) for file in self.dead_letters.values()],
            "replaced": {str(number): list(paths) for number, paths in self.replaced.items()},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "State":
        """Read what `to_json` wrote."""
        return cls(
            body["number"],
            {**dict.fromkeys(Kind, 0), **{Kind(kind): number for kind, number in body["last"].items()}},
            Position.from_json(body["position"]),
            _files(body["files"]),
            _files(body["dead_letters"]),
            {int(number): tuple(paths) for number, paths in body["replaced"].items()},
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One driver's try at a commit.

    Attributes:
        plan: the number its commit would have had when it was planned.
        kind: of the commit.
        directory: where its files are written, flat; nobody makes it again once it is gone.
    """

    plan: int
    kind: Kind
    directory: Path

    def is_pointless(self, state: State) -> bool:
        """Return whether what it was to do has been done by another; that never changes back."""
        return state.last[self.kind] >= self.plan


class Lake:
    """One lake; any number of drivers may write it, and each commit is made by one of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._staging = root / "_staging"
        self._commits = root / "_commits"
        self._snapshots = root / "_snapshots"
        self._known: tuple[State, tuple[int, int]] | None = None
        # Compactions whose replaced files are gone: they stand in the state until the next snapshot.
        self._purged: set[int] = set()

    @classmethod
    def create(cls, root: Path, before: "Lake | None" = None) -> "Lake":
        """Return the lake at *root*, made there if need be.

        Args:
            root: its directory.
            before: the same lake as this driver had it in its last load: what it knows need not be read again.

        Raises:
            StorageError: it cannot be written.
            LakeError: something else is there.
        """
        lake = cls(root)
        with _storage(root):
            if not (root / "_lake.json").exists():
                lake._refuse_others()
            for directory in (lake._staging, lake._commits, lake._snapshots):
                directory.mkdir(parents=True, exist_ok=True)
            body = {"kind": KIND, "version": VERSION, "id": uuid4().hex}
            temporary = lake._staging / f".{uuid4().hex}"
            try:
                _create(root / "_lake.json", body, temporary)
            except FileExistsError:
                temporary.unlink(missing_ok=True)
                # So that a lake on a disk that has turned read-only is refused here and not by every task.
                temporary.touch()
                temporary.unlink()
        lake.id()
        if before is not None and before.root == root:
            # `state` believes it only while the lake still holds the very commit that it ended with.
            lake._known, lake._purged = before._known, before._purged
        return lake

    @classmethod
    def open(cls, root: Path) -> "Lake":
        """Return the lake at *root*, to be read.

        Raises:
            LakeError: there is none.
        """
        if not cls.is_at(root):
            raise LakeError(f"{root} is no lake: it has no _lake.json; name the directory the ingestion loads into")
        lake = cls(root)
        lake.id()
        return lake

    @classmethod
    def is_at(cls, root: Path) -> bool:
        """Return whether there is a lake at *root*."""
        return (root / "_lake.json").is_file()

    def id(self) -> str:
        """Return what tells this lake from every other, for ever."""
        body = _read(self.root / "_lake.json")
        if body.get("kind") != KIND:
            raise LakeError(f"{self.root}/_lake.json is of kind {body.get('kind')!r}; {KIND!r} is wanted")
        return str(body["id"])

    def state(self) -> State:
        """Return what all commits add up to; the last one's files may still be on their way out of staging."""
        known = self._remembered()
        if known is None:
            self._purged = set()  # the lake may have been set back, to before they were deleted
        state = known or self._snapshot()
        while True:
            state = state.after(self._commits_after(state.number))
            # Commits that a snapshot holds may be deleted: a reader that was paused would take the gap for the end.
            if self._newest_snapshot() <= state.number:
                break
            state = self._snapshot()
        self._remember(state)
        return state

    def visible(self) -> State:
        """Return what all commits add up to whose files are where they belong: what readers may rely on."""
        state = self.state()
        # Whoever makes a commit has seen to the one before, so only the last can be under way.
        if not state.number or not self._path(state.number).exists():
            return state
        commit = _read(self._path(state.number))
        if not (self._staging / commit["attempt"]).exists() or all(
            (self.root / path).exists() for path in _new_paths(commit)
        ):
            return state
        return self._up_to(state.number - 1)

    def commit_of(self, number: int) -> dict[str, Any]:
        """Return one commit as it is on disk.

        Raises:
            LakeError: there is none of that number.
        """
        path = self._path(number)
        if not path.exists():
            raise LakeError(f"lake {self.root} has no commit {number}")
        return _read(path)

    def recent(self, count: int) -> list[tuple[dict[str, Any], int]]:
        """Return the newest commits that are still on disk, the newest first, each with the ms since 1970 of its file.

        Args:
            count: at most so many.
        """
        found: list[tuple[dict[str, Any], int]] = []
        number = self.state().number
        while len(found) < count and number > 0:
            path = self._path(number)
            try:
                at_ms = path.stat().st_mtime_ns // 1_000_000
            except FileNotFoundError:
                break  # pruned, as are all before it
            found.append((_read(path), at_ms))
            number -= 1
        return found

    def finish(self) -> State:
        """Put out the files of the last commit if its driver died before it had; return the state."""
        state = self.state()
        if state.number and self._path(state.number).exists():
            with _storage(self.root):
                self._publish(_read(self._path(state.number)))
        return state

    def begin(self, kind: Kind, state: State) -> Attempt:
        """Return a new attempt that builds on *state*."""
        plan = state.number + 1
        attempt = Attempt(plan, kind, self._staging / f"{plan:0{_DIGITS}}-{kind}-{uuid4().hex[:12]}")
        with _storage(self.root):
            attempt.directory.mkdir()
        return attempt

    def commit(
        self,
        attempt: Attempt,
        files: Iterable[File],
        *,
        dead_letters: Iterable[File] = (),
        replaces: Iterable[str] = (),
        more: Mapping[str, Any],
    ) -> State:
        """Make what *attempt* wrote part of the lake, or find that another driver was faster.

        Args:
            attempt: from `begin`; its directory holds every new file under the last part of its path.
            files: new Parquet files.
            dead_letters: new files of batches that do not decode.
            replaces: paths that no longer count.
            more: what the kind adds to the commit.

        Raises:
            Lost: another driver did the same; this one's files are gone, and it must stop.
            StorageError: the disk refused; what was committed is finished by the next driver.
        """
        body = {
            "version": VERSION, "kind": attempt.kind, "attempt": attempt.directory.name,
            "files": [asdict(file) for file in files], "dead_letters": [asdict(file) for file in dead_letters],
            "replaces": sorted(replaces), **more,
        }  # fmt: skip
        for _ in range(_MAX_TRIES):
            state = self.finish()
            if attempt.is_pointless(state):
                self.clean(state)
                raise Lost(
                    f"another driver made commit {state.last[attempt.kind]} of lake {self.root}, a {attempt.kind}, "
                    "while this one worked: nothing is lost, and this one stops; run one driver a lake"
                )
            number = state.number + 1
            if not self._is_created(number, {"number": number, **body}, attempt):
                continue
            state = self.finish()
            if number % SNAPSHOT_EVERY == 0:
                self._write_snapshot(number)
            return state
        raise LakeError(f"lake {self.root}: {_MAX_TRIES} other commits came between; run fewer drivers")

    def abandon(self, attempt: Attempt) -> None:
        """Delete what *attempt* wrote; it makes no commit."""
        shutil.rmtree(attempt.directory, ignore_errors=True)

    def clean(self, state: State) -> None:
        """Delete what attempts left in staging that can no longer become a commit."""
        with _storage(self.root):
            for directory in self._staging.iterdir():
                plan, _, kind = directory.name.rpartition("-")[0].partition("-")
                if (
                    plan.isdecimal()
                    and kind in tuple(Kind)
                    and Attempt(int(plan), Kind(kind), directory).is_pointless(state)
                    and not self._is_under_way(state.number, directory.name)
                ):
                    shutil.rmtree(directory, ignore_errors=True)

    def purge(self, state: State, grace_s: float, now_s: Callable[[], float] = time.time) -> int:
        """Delete files that compactions replaced more than *grace_s* ago; return how many.

        Args:
            state: the lake's.
            grace_s: how long a reader may take from listing the files to opening the last of them.
            now_s: seconds since 1970.
        """
        purged = 0
        with _storage(self.root):
            for number, paths in state.replaced.items():
                if number in self._purged:
                    continue
                try:
                    if now_s() - self._path(number).stat().st_mtime < grace_s:
                        continue
                except FileNotFoundError:
                    pass  # pruned, so it is older than any grace time
                for path in paths:
                    try:
                        (self.root / path).unlink()
                        purged += 1
                    except FileNotFoundError:
                        pass
                self._purged.add(number)
            self._purged &= state.replaced.keys()
        return purged

    def prune(self, keep_s: float = COMMITS_KEPT_S, now_s: Callable[[], float] = time.time) -> int:
        """Delete commits that snapshots hold; return how many.

        A driver may have been paused for any time between choosing its commit's number and creating it, and must find
        that number taken.  It never chooses one below its plan, and its directory says its plan as long as it can
        still commit: so nothing from the lowest plan in staging on is deleted.

        Args:
            keep_s: commits younger than this stay, for people and for files that wait for their grace time.
            now_s: seconds since 1970.
        """
        pruned = 0
        with _storage(self.root):
            plans = [int(plan) for name in self.staged() if (plan := name.partition("-")[0]).isdecimal()]
            snapshots = sorted(int(path.stem) for path in self._snapshots.glob("[0-9]*.json"))
            if not snapshots or (self.root / "_iceberg").exists():
                return 0  # Iceberg's tables may still have to catch up with any of them
            end = min([snapshots[0], *plans])
            # Names alone: a day of commits as paths would cost each load more than all else that it does here.
            names = os.listdir(self._commits)  # noqa: PTH208
            for name in sorted(name for name in names if name[:1].isdecimal()):
                path = self._commits / name
                if int(path.stem) >= end or now_s() - path.stat().st_mtime < keep_s:
                    break
                path.unlink(missing_ok=True)
                pruned += 1
        return pruned

    def staged(self) -> list[str]:
        """Return the attempts that have something in staging: running ones, and what dead ones left."""
        return sorted(path.name for path in self._staging.iterdir() if not path.name.startswith("."))

    def _is_created(self, number: int, body: Mapping[str, Any], attempt: Attempt) -> bool:
        """Create one commit; False when the number is taken, or even our directory was cleaned away."""
        path = self._path(number)
        with _storage(self.root):
            try:
                _create(path, body, attempt.directory / ".commit")
            except FileNotFoundError:
                return False
            except FileExistsError:
                # A network file system may repeat a link whose answer was lost, and then refuse its own.
                return bool(_read(path)["attempt"] == attempt.directory.name)
        return True

    def _refuse_others(self) -> None:
        strange = next(
            (name for name in ("_lock", "_spark_metadata", "_delta_log") if (self.root / name).exists()), None
        ) or next((path.name for path in self.root.glob("topic=*")), None)
        if strange is None and any(self.root.glob("_commits/*")):
            strange = "_commits"
        if strange is not None:
            raise LakeError(
                f"{self.root} holds {strange} and no _lake.json: it was written by something else, or by an earlier "
                "kind of job; load into an empty directory"
            )

    def _path(self, number: int) -> Path:
        return self._commits / f"{number:0{_DIGITS}}.json"

    def _commits_after(self, number: int) -> Iterator[dict[str, Any]]:
        while (path := self._path(number := number + 1)).exists():
            yield _read(path)

    def _remembered(self) -> State | None:
        """Return the state that was read last, if the lake still holds the commit it ended with."""
        if self._known is None:
            return None
        state, mark = self._known
        return state if self._mark(state.number) == mark else None

    def _remember(self, state: State) -> None:
        mark = self._mark(state.number)
        self._known = None if mark is None else (state, mark)

    def _mark(self, number: int) -> tuple[int, int] | None:
        """Return what tells a commit's file from another of its name: a lake may be set back under a running driver."""
        try:
            found = self._path(number).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _newest_snapshot(self) -> int:
        return max((int(path.stem) for path in self._snapshots.glob("[0-9]*.json")), default=0)

    def _snapshot(self, below: int | None = None) -> State:
        """Return the newest snapshot, or the newest of those *below* a commit's number."""
        found = [p for p in self._snapshots.glob("[0-9]*.json") if below is None or int(p.stem) < below]
        return State.from_json(_read(max(found))) if found else State()

    def _up_to(self, number: int) -> State:
        """Return what the commits up to *number* add up to, of which a snapshot or the commits are still there."""
        before = self._snapshot(below=number)
        return before.after(one for one in self._commits_after(before.number) if one["number"] <= number)

    def _write_snapshot(self, number: int) -> None:
        state = self.state()
        if state.number != number:
            state = self._up_to(number)
        still = {n: tuple(p for p in paths if (self.root / p).exists()) for n, paths in state.replaced.items()}
        state = State(
            state.number, state.last, state.position, state.files, state.dead_letters,
            {n: paths for n, paths in still.items() if paths},
        )  # fmt: skip
        temporary = self._snapshots / f".{uuid4().hex}"
        with _storage(self.root):
            try:
                _create(self._snapshots / f"{number:0{_DIGITS}}.json", state.to_json(), temporary)
            except FileExistsError:
                temporary.unlink(missing_ok=True)
            for old in sorted(self._snapshots.glob("[0-9]*.json"))[:-_SNAPSHOTS_KEPT]:
                old.unlink(missing_ok=True)

    def _is_under_way(self, number: int, attempt: str) -> bool:
        """Return whether the last commit's files may still lie in *attempt*'s directory."""
        path = self._path(number)
        return path.exists() and _read(path)["attempt"] == attempt

    def _publish(self, commit: Mapping[str, Any]) -> None:
        staging = self._staging / commit["attempt"]
        if not staging.exists():
            return  # the directory goes last
        directories = {""}
        for path in _new_paths(commit):
            final = self.root / path
            directory = path.rpartition("/")[0]
            if directory not in directories:
                final.parent.mkdir(parents=True, exist_ok=True)
            while directory:
                directories.add(directory)
                directory = directory.rpartition("/")[0]
            try:
                (staging / final.name).replace(final)
            except FileNotFoundError:
                # Moved by another driver or before a crash; since then it may have been replaced and deleted, too.
                if not final.exists() and not self._path(commit["number"] + 1).exists():
                    raise StorageError(
                        f"{final} was written and is gone, and so is its copy in {staging}: restore one of them"
                    ) from None
        for directory in sorted(directories):
            sync(self.root / directory)
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _storage(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"lake {root} cannot be written: {error}") from error


def _new_paths(commit: Mapping[str, Any]) -> Iterator[str]:
    return (file["path"] for name in ("files", "dead_letters") for file in commit[name])


def _files(entries: Iterable[Mapping[str, Any]]) -> dict[str, File]:
    return {entry["path"]: File(entry["path"], entry["rows"], entry["size_bytes"]) for entry in entries}


def _read(path: Path) -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    if body.get("version") != VERSION:
        raise LakeError(f"{path} has version {body.get('version')!r}; this release knows {VERSION}")
    return body


def _create(path: Path, body: Mapping[str, Any], temporary: Path) -> None:
    """Create *path* whole or not at all, on disk when this returns; fails if it exists."""
    temporary.unlink(missing_ok=True)  # it may be a second name of another commit: never written through
    with temporary.open("x") as file:
        file.write(json.dumps(body, separators=(",", ":")))  # json.dump does not use the encoder written in C
        file.flush()
        os.fsync(file.fileno())
    os.link(temporary, path)  # unlike a rename, a link never replaces what another writer put there
    temporary.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until the disk has a file or directory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
