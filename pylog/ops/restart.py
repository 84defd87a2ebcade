"""Which instances restart, why, and in which order.

The decision compares what a process says it started with against what it should run; it remembers nothing, so a run
that died between writing a file and restarting loses no restart, and a second run restarts nothing.  Readings come from
`pylog.ops.host`, what is wanted from the roles.

    python -m pylog.ops.restart plan    {"readings", "desired", "datacenters"} on stdin: the steps and the blockers
    python -m pylog.ops.restart next    {"steps", "finished", "controllers"} on stdin: the step whose turn it is
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

DEFAULT_STEP_S = 20
"""What a restart is expected to take on a host that never noted one."""

MIN_FREE_PERCENT = 3
"""Free space below which nothing restarts: catching up writes."""


class Kind(StrEnum):
    """Why a process must not go on as it started."""

    RELEASE = "release"
    CONFIG = "config"
    UNIT = "unit"
    SECRET = "secret"
    FILE = "file"
    UNKNOWN = "unknown"
    STOPPED = "stopped"
    ASKED = "asked"


class Action(StrEnum):
    """What a step does: restart, or only the gates that an interrupted run left out."""

    RESTART = "restart"
    SETTLE = "settle"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason to restart: a word for programs, and found and wanted for people."""

    kind: Kind
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """What an instance should run.

    Attributes:
        files: path -> SHA-256 that its process should have started with; files beside these must be as installed.
        release: name of the release's directory; empty for what comes as a Debian package.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    release: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instance that a roll touches."""

    host: str
    datacenter: str
    id: int
    unit: str
    action: Action
    reasons: tuple[str, ...]
    kinds: tuple[Kind, ...]
    is_well: bool
    expected_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in the order they must happen, or the reasons why none may happen now.

    Invariant: whoever carries the plan out makes no restart while there is a blocker.
    """

    steps: tuple[Step, ...]
    blockers: tuple[str, ...]

    @property
    def expected_s(self) -> int:
        """Seconds that all steps are expected to take."""
        return sum(step.expected_s for step in self.steps)


def kind_of(path: str) -> Kind:
    """Return what a file that a process started with is to it."""
    endings = {
        "requirements.lock": Kind.RELEASE, ".yml": Kind.CONFIG, ".cfg": Kind.CONFIG, ".service": Kind.UNIT,
        ".secret": Kind.SECRET,
    }  # fmt: skip
    return next((kind for ending, kind in endings.items() if path.endswith(ending)), Kind.FILE)


def reasons_for(reading: Mapping[str, Any], desired: Desired) -> Iterator[Reason]:
    """Yield why this instance must restart to run what is *desired*; nothing if it need not."""
    if not reading["is_active"]:
        if was_left(reading):
            yield Reason(Kind.STOPPED, "an interrupted run stopped it and did not start it again")
        return
    started, current = reading.get("started_with", {}), reading.get("current", "")
    if desired.release and current != desired.release:
        yield Reason(Kind.RELEASE, f"release {current or 'unknown'}, wanted {desired.release}")
    for path, digest in desired.files.items():
        if kind_of(path) is Kind.RELEASE and current != desired.release:
            continue  # said above, with names
        if path in started and started[path] != digest:
            yield Reason(kind_of(path), f"{path} {started[path][:10]}, wanted {digest[:10]}")
    for path in reading["changed_files"]:
        if path not in started:
            yield Reason(Kind.UNKNOWN, f"{path} is missing: nobody knows what it started with")
        elif path not in desired.files:
            yield Reason(kind_of(path), f"{path} changed since the process started")
    status = reading.get("status") or {}
    if reading.get("asked_ms", 0) > status.get("started_ms", reading.get("asked_ms", 0)):
        yield Reason(Kind.ASKED, "an operator asked for a restart")


def is_recovering(reading: Mapping[str, Any]) -> bool:
    """Say whether a broker is reading its logs after a crash; a restart would make it begin again."""
    return (reading.get("status") or {}).get("state") == "recovering"


def was_left(reading: Mapping[str, Any]) -> bool:
    """Say whether a run ended within this instance's step."""
    return (reading.get("marker") or {}).get("state") == "restarting"


def leads(reading: Mapping[str, Any]) -> bool:
    """Say whether this is the controller or the ensemble's leader, which restarts last."""
    if reading.get("mode") == "leader":
        return True
    status = reading.get("status") or {}
    return bool(status) and status.get("controller_id") == reading["id"]


def expected_s(reading: Mapping[str, Any]) -> int:
    """Return how long this instance's restart took the last time, or what is usual."""
    return int((reading.get("marker") or {}).get("took_s") or DEFAULT_STEP_S)


def blockers_of(name: str, reading: Mapping[str, Any], *, is_due: bool) -> Iterator[str]:
    """Yield why nothing may restart as long as this instance is as it is."""
    if is_recovering(reading):
        yield f"{name} is recovering its log; run again when it is done"
    elif not is_due and not reading["is_ready"]:
        yield f"{name} is not well: {reading['reason']}"
    if (free := reading.get("free_percent", 100)) < MIN_FREE_PERCENT:
        yield f"{name} has {free} % of its disk free, wanted at least {MIN_FREE_PERCENT} %"


def plan(
    readings: Iterable[tuple[str, Mapping[str, Any]]], desired: Mapping[str, Desired],
    datacenters: Mapping[str, str] | None = None,
) -> Plan:  # fmt: skip
    """Return what the (host, reading) pairs call for.

    Instances that are not well restart first, since they serve nobody; then one datacenter after the other by host and
    id; controllers and leaders last.  An instance that is unwell and would not be restarted blocks everything: taking
    down another one beside it could take a partition offline.
    """
    due: list[tuple[tuple[bool, str, bool, str, int], Step]] = []
    blockers: list[str] = []
    for host, reading in readings:
        found = list(reasons_for(reading, desired.get(host, Desired())))
        blockers += blockers_of(f"{reading['unit']} on {host}", reading, is_due=bool(found))
        if not found and not was_left(reading):
            continue
        datacenter = (datacenters or {}).get(host, "")
        step = Step(
            host=host,
            datacenter=datacenter,
            id=reading["id"],
            unit=reading["unit"],
            action=Action.RESTART if found else Action.SETTLE,
            reasons=tuple(reason.detail for reason in found) or ("an interrupted run restarted it without its gate",),
            kinds=tuple(dict.fromkeys(reason.kind for reason in found)),
            is_well=bool(reading["is_ready"]),
            expected_s=expected_s(reading),
        )
        due.append(((reading["is_ready"], datacenter, leads(reading), host, reading["id"]), step))
    return Plan(steps=tuple(step for _, step in sorted(due, key=lambda pair: pair[0])), blockers=tuple(blockers))


def next_step(
    steps: Sequence[Mapping[str, Any]], finished: Sequence[Sequence[Any]], controllers: Mapping[str, int]
) -> Mapping[str, Any]:
    """Return the step whose turn it is: the first that is left, unless it is its datacenter's controller by now.

    Args:
        steps: those of a `Plan`, in order; unwell ones stay in front.
        finished: (host, id) of those that are done.
        controllers: datacenter -> id of its controller, read just now.
    """
    done = {(host, int(number)) for host, number in finished}
    left = [step for step in steps if (step["host"], step["id"]) not in done]
    assert left, f"all {len(steps)} steps are finished"
    group = (left[0]["is_well"], left[0]["datacenter"])
    here = [step for step in left if (step["is_well"], step["datacenter"]) == group]
    others = [step for step in here if step["id"] != controllers.get(step["datacenter"])]
    return (others or here)[0]


def answer_plan(question: Mapping[str, Any]) -> dict[str, Any]:
    """Answer `plan`: ``readings`` is host -> what `pylog.ops.host` printed."""
    pairs = [
        (host, reading)
        for host, printed in question["readings"].items()
        for reading in printed.get("brokers", [printed])
    ]
    desired = {host: Desired(**wanted) for host, wanted in question.get("desired", {}).items()}
    made = plan(pairs, desired, question.get("datacenters"))
    return asdict(made) | {"expected_s": made.expected_s}


def answer_next(question: Mapping[str, Any]) -> dict[str, Any]:
    """Answer `next`."""
    return dict(next_step(question["steps"], question["finished"], question["controllers"]))


VERBS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"plan": answer_plan, "next": answer_next}


def main(verb: str) -> int:
    """Answer one question from stdin as JSON."""
    print(json.dumps(VERBS[verb](json.load(sys.stdin))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
