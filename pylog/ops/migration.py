"""From an open datacenter to a secured one and back, while clients go on: the steps, and where a datacenter stands.

A *stage* says of each thing that changes how it is; a *step* changes one of them, in one roll.  Roles render files by a
stage, so that what a datacenter has between two steps is as well defined as its ends.  Nothing is remembered on the
control machine: brokers and ZooKeeper servers have their part of the stage in a comment of their own file, as long as
it is neither open nor secured altogether, and `position` concludes from those where the datacenter stands.

Pure: what hosts say comes in, steps and refusals come out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

OPEN, BOTH, CALLS, TLS = "open", "both", "calls", "tls"
"""Of a port: plain connections alone; both kinds accepted, plain calls; both accepted, calls by TLS; TLS alone."""

ACL = "acl"
"""Of the store: connections by TLS, and each new node is closed to strangers."""

SECURED = "secured"
OFF, REPORT, ENFORCE = "off", "report", "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How a datacenter is secured; the default is an open one.

    Attributes:
        quorum: ports between ZooKeeper servers: OPEN, BOTH, CALLS or TLS.
        ensemble: the port of ZooKeeper's clients: OPEN, BOTH or TLS.
        store: how brokers, registry and probe connect to ZooKeeper: OPEN, TLS or ACL.
        peers: the ports between brokers: OPEN, BOTH, CALLS or TLS.
        secured: whether brokers have the listener with encryption and login.
        rights: OFF, REPORT or ENFORCE.
        programs: OPEN or SECURED: the listener that the bundle's own programs use, gates among them.
        pages: OPEN or SECURED: pages of metrics, and the registry.
        plain: whether brokers have the open listener.
    """

    quorum: str = OPEN
    ensemble: str = OPEN
    store: str = OPEN
    peers: str = OPEN
    secured: bool = False
    rights: str = OFF
    programs: str = OPEN
    pages: str = OPEN
    plain: bool = True


ENSEMBLE_FACETS = ("quorum", "ensemble")
BROKER_FACETS = ("store", "peers", "secured", "rights", "pages", "plain")
"""What the comment in a server's and in a broker's file says; `programs` is read from the profile for operators."""


class Kind(StrEnum):
    """What a step rolls."""

    ENSEMBLE = "ensemble"
    BROKERS = "brokers"
    PROGRAMS = "programs"


class Need(StrEnum):
    """What must be so before a step: it would cut off whoever is found."""

    PLAIN_IS_QUIET = "plain_is_quiet"
    SECURED_IS_QUIET = "secured_is_quiet"
    NO_DENIALS = "no_denials"


class Action(StrEnum):
    """What is done before a roll begins, or begins again; each can be repeated."""

    WRITE_USERS = "write_users"
    CLOSE_TREE = "close_tree"
    REMOVE_USERS = "remove_users"
    OPEN_TREE = "open_tree"


@dataclass(frozen=True, slots=True)
class Side:
    """What belongs to one direction of a step."""

    needs: tuple[Need, ...] = ()
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change, which one roll makes; the way back makes the same roll with the former value.

    Attributes:
        name: for operators and the report.
        facet: the attribute of a `Stage` that changes.
        before: its value before the step.
        after: its value after it.
        kind: what restarts.
        also: programs that change with it, after what restarts.
        does: what it does, for people; ``undoes`` is the way back.
    """

    name: str
    facet: str
    before: Any
    after: Any
    kind: Kind
    does: str
    undoes: str
    also: bool = False
    there: Side = Side()
    back: Side = Side()


STEPS: tuple[Step, ...] = (
    Step(
        name="quorum-accepts",
        facet="quorum",
        before=OPEN,
        after=BOTH,
        kind=Kind.ENSEMBLE,
        does="ZooKeeper servers accept each other by TLS too",
        undoes="ZooKeeper servers speak plainly with each other alone",
    ),
    Step(
        name="quorum-calls",
        facet="quorum",
        before=BOTH,
        after=CALLS,
        kind=Kind.ENSEMBLE,
        does="ZooKeeper servers call each other by TLS",
        undoes="ZooKeeper servers call each other plainly",
    ),
    Step(
        name="quorum-closed",
        facet="quorum",
        before=CALLS,
        after=TLS,
        kind=Kind.ENSEMBLE,
        does="ZooKeeper servers refuse plain calls of each other",
        undoes="ZooKeeper servers accept plain calls of each other",
    ),
    Step(
        name="ensemble-accepts",
        facet="ensemble",
        before=OPEN,
        after=BOTH,
        kind=Kind.ENSEMBLE,
        does="ZooKeeper servers take clients by TLS too, on the same port",
        undoes="ZooKeeper servers take clients plainly alone",
    ),
    Step(
        name="store-identity",
        facet="store",
        before=OPEN,
        after=TLS,
        kind=Kind.BROKERS,
        also=True,
        does="brokers, registries and probes connect to ZooKeeper by TLS, and show who they are",
        undoes="brokers, registries and probes connect to ZooKeeper plainly",
        # Users' keys are worth as much as passwords, and an open tree shows them to everybody.
        back=Side(actions=(Action.REMOVE_USERS, Action.OPEN_TREE)),
    ),
    Step(
        name="store-closed",
        facet="store",
        before=TLS,
        after=ACL,
        kind=Kind.BROKERS,
        also=True,
        does="brokers and registries make nodes in ZooKeeper that strangers cannot read",
        undoes="brokers and registries make nodes in ZooKeeper that everybody can read",
    ),
    Step(
        name="ensemble-closed",
        facet="ensemble",
        before=BOTH,
        after=TLS,
        kind=Kind.ENSEMBLE,
        does="the tree is closed, and ZooKeeper servers refuse clients without a certificate",
        undoes="ZooKeeper servers take plain clients too; the tree stays closed",
        there=Side(actions=(Action.CLOSE_TREE,)),
    ),
    Step(
        name="peers-accept",
        facet="peers",
        before=OPEN,
        after=BOTH,
        kind=Kind.BROKERS,
        does="brokers accept each other by TLS too, on the same port",
        undoes="brokers speak plainly with each other alone",
    ),
    Step(
        name="peers-call",
        facet="peers",
        before=BOTH,
        after=CALLS,
        kind=Kind.BROKERS,
        does="brokers call each other by TLS",
        undoes="brokers call each other plainly",
    ),
    Step(
        name="peers-closed",
        facet="peers",
        before=CALLS,
        after=TLS,
        kind=Kind.BROKERS,
        does="brokers refuse plain calls of each other",
        undoes="brokers accept plain calls of each other",
    ),
    Step(
        name="listener-secured",
        facet="secured",
        before=False,
        after=True,
        kind=Kind.BROKERS,
        does="brokers get the listener with encryption and login, beside the open one",
        undoes="brokers lose the listener with encryption and login",
        back=Side(needs=(Need.SECURED_IS_QUIET,)),
    ),
    Step(
        name="rights-reported",
        facet="rights",
        before=OFF,
        after=REPORT,
        kind=Kind.BROKERS,
        does="users and their rights are written, and brokers report what they would deny",
        undoes="brokers ask for no rights",
        there=Side(actions=(Action.WRITE_USERS,)),
    ),
    Step(
        name="programs-secured",
        facet="programs",
        before=OPEN,
        after=SECURED,
        kind=Kind.PROGRAMS,
        also=True,
        does="the bundle's own programs log in, at the secured listener",
        undoes="the bundle's own programs use the open listener",
    ),
    Step(
        name="pages-secured",
        facet="pages",
        before=OPEN,
        after=SECURED,
        kind=Kind.BROKERS,
        also=True,
        does="pages of metrics, and the registry, are encrypted",
        undoes="pages of metrics, and the registry, are open",
    ),
    Step(
        name="rights-enforced",
        facet="rights",
        before=REPORT,
        after=ENFORCE,
        kind=Kind.BROKERS,
        does="brokers refuse what no right allows, also at the open listener",
        undoes="brokers report what they would deny, and refuse nothing",
        there=Side(needs=(Need.PLAIN_IS_QUIET, Need.NO_DENIALS)),
    ),
    Step(
        name="listener-closed",
        facet="plain",
        before=True,
        after=False,
        kind=Kind.BROKERS,
        does="brokers lose the open listener",
        undoes="brokers get the open listener again, where rights still hold for everybody",
        there=Side(needs=(Need.PLAIN_IS_QUIET,)),
    ),
)
"""In the order of the way there; the way back takes them from the last to the first."""

_OF_THE_ENSEMBLE = frozenset({"quorum", "ensemble", "store"})
LAST = len(STEPS)


def steps_of(*, has_open_ensemble: bool) -> tuple[Step, ...]:
    """Return the steps of a datacenter, whose ZooKeeper may stay open (`zookeeper_encrypted: false`)."""
    return tuple(step for step in STEPS if not (has_open_ensemble and step.facet in _OF_THE_ENSEMBLE))


def stage_at(steps: Sequence[Step], done: int) -> Stage:
    """Return the stage after the first *done* steps."""
    stage = Stage()
    for step in steps[:done]:
        assert getattr(stage, step.facet) == step.before, f"{step.name} does not follow"
        stage = replace(stage, **{step.facet: step.after})
    return stage


def comment(stage: Mapping[str, Any], facets: Sequence[str], ends: Iterable[Mapping[str, Any]]) -> str:
    """Return what the file of a process says of its part of *stage*; empty where that is as at one of the *ends*."""
    part = {facet: stage[facet] for facet in facets}
    if any(part == {facet: end[facet] for facet in facets} for end in ends):
        return ""
    return " ".join(f"{facet}={_text(value)}" for facet, value in part.items())


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def facets_in(text: str) -> dict[str, str]:
    """Return facet -> value as a comment of `comment` has them; what cannot be read is left out."""
    return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What one process, or one host's profile for operators, says of the stage.

    Attributes:
        name: whose it is, as ``broker-1 on h1``.
        facets: what its file says; every other facet is nothing that it knows.
    """

    name: str
    facets: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a datacenter stands.

    Attributes:
        done: how many steps are done by all; of a half-done step those before it.
        latest: how many may be done, where too little runs to tell; else as ``done``.
        behind: processes that have not had the step that others had; empty where all agree.
        ahead: processes that had it.
        strange: what fits no step, for people; nothing may happen before that is mended.
    """

    done: int
    latest: int = 0
    behind: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()

    @property
    def is_half(self) -> bool:
        """Whether a step was begun and not ended."""
        return bool(self.behind and self.ahead)


def position(processes: Collection[Process], steps: Sequence[Step]) -> Position | None:
    """Return where the datacenter of *processes* stands; None without any.

    Each process fits some steps, since it knows a part of the stage alone. All fit one step, or all fit two that follow
    each other: then the second was begun and not ended.
    """
    if not processes:
        return None
    fitted = {process.name: fitting(process, steps) for process in processes}
    lost = tuple(
        f"{process.name} has {' '.join(f'{k}={v}' for k, v in sorted(process.facets.items()))}"
        for process in processes
        if not fitted[process.name]
    )
    if lost:
        return Position(done=0, strange=lost)
    if common := set.intersection(*fitted.values()):
        return Position(done=min(common), latest=max(common))
    for done in range(len(steps)):
        if all(fits & {done, done + 1} for fits in fitted.values()):
            behind = tuple(sorted(name for name, fits in fitted.items() if done + 1 not in fits))
            ahead = tuple(sorted(name for name, fits in fitted.items() if done not in fits))
            return Position(done=done, latest=done, behind=behind, ahead=ahead)
    ranges = {name: (min(fits), max(fits)) for name, fits in fitted.items()}
    found = tuple(
        f"{name} stands after step {low}" + (f" to {high}" if high != low else "")
        for name, (low, high) in sorted(ranges.items())
    )
    return Position(done=0, strange=found)


def fitting(process: Process, steps: Sequence[Step]) -> set[int]:
    """Return after how many steps a process may be what its file says."""
    stages = [asdict(stage_at(steps, done)) for done in range(len(steps) + 1)]
    return {
        done
        for done, stage in enumerate(stages)
        if all(facet in stage and _text(stage[facet]) == value for facet, value in process.facets.items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What `secure.yml` does in one run.

    Attributes:
        step: the step, or None where nothing is left to do.
        is_back: whether it is undone.
        stage: how the datacenter is after it.
        number: of the step, from 1.
        count: of all steps.
        is_repeated: whether all brokers and ZooKeeper servers had the step, and what comes after them may lack it.
    """

    step: Step | None
    is_back: bool
    stage: Stage
    number: int
    count: int
    is_repeated: bool = False

    @property
    def side(self) -> Side:
        """What belongs to this direction; a step that is repeated cuts nobody off any more."""
        if self.step is None:
            return Side()
        side = self.step.back if self.is_back else self.step.there
        return replace(side, needs=()) if self.is_repeated else side

    @property
    def words(self) -> str:
        """The turn for people."""
        if self.step is None:
            return "nothing is left to do"
        what = self.step.undoes if self.is_back else self.step.does
        way = (", back" if self.is_back else "") + (", again" if self.is_repeated else "")
        return f"step {self.number} of {self.count}{way}: {self.step.name}: {what}"


def next_turn(found: Position, steps: Sequence[Step], *, to_open: bool, begun: Collection[str] = ()) -> Turn:
    """Return what comes next on the way to an open or a secured datacenter; a half-done step is ended or undone first.

    So is one that all processes had and whose run did not come to its end.

    Args:
        found: where the datacenter stands.
        steps: that it goes through.
        to_open: whether to go back.
        begun: names of steps of this direction whose run did not come to its end.

    Raises:
        ValueError: processes fit no step; the message names them.
    """
    if found.strange:
        raise ValueError("; ".join(found.strange))
    count = len(steps)
    if not found.is_half:
        last = found.done if to_open else found.done - 1
        if 0 <= last < count and steps[last].name in begun:
            stage = stage_at(steps, found.done)
            return Turn(step=steps[last], is_back=to_open, stage=stage, number=last + 1, count=count, is_repeated=True)
    if to_open:
        index = found.done if found.is_half else found.done - 1
        if index < 0:
            return Turn(step=None, is_back=True, stage=Stage(), number=0, count=count)
        return Turn(step=steps[index], is_back=True, stage=stage_at(steps, index), number=index + 1, count=count)
    index = found.done
    if index >= count:
        return Turn(step=None, is_back=False, stage=stage_at(steps, count), number=count, count=count)
    return Turn(step=steps[index], is_back=False, stage=stage_at(steps, index + 1), number=index + 1, count=count)


def cut_off(needs: Collection[Need], brokers: Mapping[str, Mapping[str, Any]], now_ms: int, quiet_s: int) -> list[str]:
    """Return whom a step would cut off, for people; empty where it may go on.

    Args:
        needs: of the step.
        brokers: name of a broker -> what it answered to ``GET /rights``; empty where it did not.
        now_ms: the time.
        quiet_s: how long nobody may have been seen; 0 asks for nothing.
    """
    if not needs or quiet_s <= 0:
        return []
    since_ms = now_ms - quiet_s * 1000
    found = []
    for name, answer in sorted(brokers.items()):
        if not answer:
            found.append(f"{name} did not say who uses it")
            continue
        if answer["started_ms"] > since_ms:
            known_s = max(now_ms - answer["started_ms"], 0) // 1000
            found.append(f"{name} knows of the last {known_s} s alone, since it started then; wanted {quiet_s} s")
        for row in answer["last_requests"]:
            is_plain = row["protocol"] == "PLAINTEXT"
            needed = Need.PLAIN_IS_QUIET if is_plain else Need.SECURED_IS_QUIET
            if needed in needs and row["last_ms"] > since_ms:
                ago_s = max(now_ms - row["last_ms"], 0) // 1000
                found.append(f"{name}: {row['principal']} used listener {row['listener']} {ago_s} s ago")
        if Need.NO_DENIALS in needs:
            # A broker that enforces has had the step: a roll that was interrupted goes on.
            if answer["mode"] == OFF:
                found.append(f"{name} asks for no rights yet, so nobody knows whom it would deny")
            found += [
                f"{name}: {row['principal']} from {row['host']} lacks {row['operation']} on {row['resource']} "
                f"{row['name']}"
                for row in answer["denials"]
                if row["last_ms"] > since_ms
            ]
            if answer["dropped"] and answer["dropped_ms"] > since_ms:
                found.append(f"{name}: {answer['dropped']} more kinds of denials had no room; its log has them")
    return found
