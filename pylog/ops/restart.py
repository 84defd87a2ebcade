"""Which instances restart, why, and in which order.

The decision compares what a process says it started with against what it should run; it remembers nothing, so a run
that died between writing a file and restarting loses no restart, and a second run restarts nothing.  Readings come from
`pylog.ops.host`, what is wanted from the roles.

The plays ask through the filters of `plugins/filter/rolls.py`::

    plan      {"readings", "desired", "datacenters"}   the steps and the blockers
    next      {"steps", "finished", "controllers"}     the step whose turn it is
    verdict   {"id", "brokers", "evidence"}            whether a step passed, goes back, or holds
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

DEFAULT_STEP_S = 20
"""What a restart is expected to take on a host that never noted one."""

STORE_WAIT_S = 10
"""Seconds without a session with ZooKeeper that no start takes while ZooKeeper is well."""

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


class Outcome(StrEnum):
    """How a step ends.

    `HOLD` is for a broker that is not to blame, or about which nothing is known: it stays as it is, the roll stops, and
    a later run gates it.  Going back would stop it, which others may not survive just then.
    """

    PASSED = "passed"
    BACK = "back"
    HOLD = "hold"


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


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a step ends, and why, for people."""

    outcome: Outcome
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was seen at the end of a step's waiting.

    Attributes:
        is_reached: whether every task of the step reached the host.
        refused: why the restart was refused before anything was touched; empty if it was not.
        is_passed: whether the gate was passed.
        reading: what `pylog.ops.host` read of the broker at the end; None where it could not be read.
        view: what ``pylog cluster health`` said, asked from another broker's host; empty where nobody said anything.
        others: what `pylog.ops.host` read of the brokers of another host; empty where nobody read any.
        store_wait_s: how many seconds the broker ran before it first had a session with ZooKeeper.
    """

    is_reached: bool
    refused: str = ""
    is_passed: bool = False
    reading: Mapping[str, Any] | None = None
    view: Mapping[str, Any] = field(default_factory=dict)
    others: Sequence[Mapping[str, Any]] = ()
    store_wait_s: float = 0


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


CRASHES = 3
"""Starts by systemd after which a broker that is not ready counts as one that cannot run."""


def serves_nothing(reading: Mapping[str, Any]) -> str:
    """Return why a broker cannot serve anybody; empty if it runs and answers."""
    if not reading["is_active"] or reading.get("is_off"):
        return f"its process does not run: {reading['reason']}"
    if reading.get("restarts", 0) >= CRASHES and not reading["is_ready"]:
        return f"systemd has started it again {reading['restarts']} times: {reading['reason']}"
    if not reading.get("status"):
        return f"its process does not answer: {reading['reason']}"
    return ""


def faults_of_others(broker_id: int, brokers: Iterable[int], view: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the cluster that restarting *broker_id* could not mend.

    Args:
        broker_id: the broker whose step it is.
        brokers: ids of all brokers that should be there.
        view: a report of ``pylog cluster health``.
    """
    others = {*brokers} - {broker_id}
    if missing := sorted(others - {*view.get("brokers", ())}):
        yield f"not registered: broker {', '.join(map(str, missing))}"
    for problem in view.get("problems", ()):
        said = f"{problem['subject']}: {problem['detail']}"
        match problem["kind"]:
            case "broker_silent" if problem["subject"] != f"broker {broker_id}":
                yield said
            case "no_controller" | "unreachable" | "refused":
                yield said
            case "no_leader" if numbers_after("replicas", problem["detail"]) - {broker_id}:
                yield said
            case "not_in_sync":
                replicas, in_sync = (numbers_after(word, problem["detail"]) for word in ("replicas", "in sync"))
                # Where it is in sync and others are not, it may be the only one that has what they lack.
                if replicas - in_sync - {broker_id}:
                    yield said


def fault_of_the_store(evidence: Evidence) -> str:
    """Return why ZooKeeper, and not the broker, is to blame for a step that was not passed; empty if it is not.

    Clients are not told of it: brokers without a session answer them from the last image that they had, in which this
    broker alone lacks.  A broker that never gets a session while others have theirs may have a wrong setting.
    """
    others = [reading for reading in evidence.others if reading.get("status")]
    if others and not any(has_session(reading) for reading in others):
        return "other brokers have no session with ZooKeeper"
    if evidence.store_wait_s >= STORE_WAIT_S and evidence.reading is not None and has_session(evidence.reading):
        return f"it waited {evidence.store_wait_s:.0f} s for its session with ZooKeeper"
    return ""


def has_session(reading: Mapping[str, Any]) -> bool:
    """Say whether a broker that answers has its session with ZooKeeper, and is registered there."""
    return bool((reading.get("status") or {}).get("is_registered", True))


def numbers_after(word: str, detail: str) -> set[int]:
    """Return the broker ids that a problem's detail lists after *word*."""
    found = re.search(rf"\b{word} ([\d,]+)", detail)
    return {int(number) for number in found[1].split(",") if number} if found else set()


def verdict(broker_id: int, brokers: Sequence[int], evidence: Evidence) -> Verdict:
    """Decide how the step of *broker_id* ends.

    A broker that serves nothing goes back whatever is wrong with others: nobody loses anything by it, and what ran
    before may serve.  One that runs goes back only when nothing else is wrong.
    """
    if not evidence.is_reached:
        return Verdict(Outcome.HOLD, "its host could not be reached any more")
    if evidence.refused:
        return Verdict(Outcome.BACK, evidence.refused)
    if evidence.is_passed:
        return Verdict(Outcome.PASSED, "")
    if evidence.reading is None:
        return Verdict(Outcome.HOLD, "it could not be read any more")
    if dead := serves_nothing(evidence.reading):
        return Verdict(Outcome.BACK, dead)
    if lost := fault_of_the_store(evidence):
        return Verdict(Outcome.HOLD, f"it runs, and {lost}")
    if len(brokers) > 1:
        if not evidence.view:
            return Verdict(Outcome.HOLD, "it runs, and no other broker could be asked what is wrong")
        if found := list(faults_of_others(broker_id, brokers, evidence.view)):
            return Verdict(Outcome.HOLD, f"it runs, and others are not well: {'; '.join(found[:3])}")
    problems = evidence.view.get("problems", [])
    reason = evidence.reading["reason"] or next((f"{one['subject']}: {one['detail']}" for one in problems), "")
    return Verdict(Outcome.BACK, reason or "the gate was not passed in time")


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


def answer_verdict(question: Mapping[str, Any]) -> dict[str, Any]:
    """Answer `verdict`."""
    return asdict(verdict(question["id"], question["brokers"], Evidence(**question["evidence"])))


VERBS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "plan": answer_plan,
    "next": answer_next,
    "verdict": answer_verdict,
}
