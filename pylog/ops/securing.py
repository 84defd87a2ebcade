"""By which stage the roles write the files of each datacenter: what the inventory says, or where a migration stands.

Pure: the variables of hosts, and what preflight read of them, come in.  Everything that a role has to know of a stage
goes out as plain values; `pylog.ops.migration` has the steps.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pylog.ops.certificates import SECURED, is_ensemble_encrypted
from pylog.ops.migration import (
    BROKER_FACETS,
    ENSEMBLE_FACETS,
    LAST,
    OPEN,
    STEPS,
    Need,
    Position,
    Process,
    Stage,
    Step,
    Turn,
    comment,
    cut_off,
    facets_in,
    fitting,
    next_turn,
    position,
    stage_at,
    steps_of,
)

TO_SECURED, TO_OPEN = "secured", "open"
WAYS = (TO_SECURED, TO_OPEN)
"""What `secure_to` may say."""

SECURED_LISTENER, ONLY_LISTENER = "secured", "client"
"""Where clients log in to a broker, which has a second port for that or has not."""

PROFILE = "profile"
_BROKER = "pylog-broker@"
_ZOOKEEPER = "pylog-zookeeper.service"
# Their programs connect to other datacenters too.
_REACHING = ("pylog_mirror", "pylog_audit", "pylog_probe", "pylog_console")

Variables = Mapping[str, Any]
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an operator asked `secure.yml` for.

    Attributes:
        to: `TO_SECURED` or `TO_OPEN`; empty in every other play.
        datacenter: of which one; empty where the inventory has a single one.
    """

    to: str = ""
    datacenter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one datacenter stands.

    Attributes:
        stage: by which roles write its files now.
        steps: that it goes through.
        position: how far it is; None where nothing runs.
        turn: what this run does; None but for the datacenter that `secure.yml` was asked for.
        faults: why nothing may happen now, as check, found, wanted and remedy.
        is_switched: whether its servers run open and shall be secured, or the other way, and no migration is under way.
        words: for people, where a migration is under way; else empty.
    """

    stage: Stage
    steps: tuple[Step, ...]
    position: Position | None = None
    turn: Turn | None = None
    faults: tuple[tuple[str, str, str, str], ...] = ()
    is_switched: bool = False
    words: str = ""


def place_of(variables: Variables) -> str:
    """Return the datacenter of a host."""
    return str(variables.get("pylog_datacenter", "all"))


def broker_text(stage: Mapping[str, Any]) -> str:
    """Return what a broker's file says of *stage* in its comment; empty where all of it is open."""
    return comment(stage, BROKER_FACETS, [asdict(Stage())])


def ensemble_text(stage: Mapping[str, Any]) -> str:
    """Return what a ZooKeeper server's file says of *stage* in its comment; empty at both ends."""
    return comment(stage, ENSEMBLE_FACETS, [asdict(Stage()), asdict(stage_at(STEPS, LAST))])


def whom_it_cuts_off(turn: Mapping[str, Any], readings: Mapping[str, Mapping[str, Any]], quiet_s: int) -> list[str]:
    """Return whom a turn would cut off, for people; empty where it may go on.

    Args:
        turn: as `turn_of` says it.
        readings: host -> what its brokers answered, as verb ``rights`` of `pylog.ops.host` reads it.
        quiet_s: how long nobody may have been seen; 0 asks for nothing.
    """
    needs = [Need(one) for one in turn["needs"]]
    found = []
    for host, reading in sorted(readings.items()):
        brokers = {
            f"broker {name} on {host}": answer
            for name, answer in reading["brokers"].items()
            if f"{_BROKER}{name} on {host}" not in turn["had"]
        }
        found += cut_off(needs, brokers, int(reading["now_ms"]), quiet_s)
    return found


def standings(
    hosts: Mapping[str, Variables],
    facts: Mapping[str, Facts | None],
    groups: Mapping[str, Iterable[str]],
    request: Request,
    *,
    away: Collection[str] = (),
    is_repair: bool = False,
) -> dict[str, Standing]:
    """Return datacenter -> where it stands; one without brokers and ZooKeeper servers is as the inventory says.

    Args:
        hosts: host -> its templated variables.
        facts: host -> what preflight read of it; None where it was not asked.
        groups: name -> hosts.
        request: of `secure.yml`.
        away: hosts that nobody could ask.
        is_repair: whether brokers that are stopped count, and nothing is refused.
    """
    servers = {name for group in ("pylog_zookeeper", "pylog_broker") for name in groups.get(group, ()) if name in hosts}
    places: dict[str, list[str]] = {}
    for name in sorted(servers):
        places.setdefault(place_of(hosts[name]), []).append(name)
    reaching = {name for group in _REACHING for name in groups.get(group, ())}
    ours = {name for group, members in groups.items() if group.startswith("pylog_") for name in members}
    steps = steps_of(has_open_ensemble=True)
    secured = {place_of(one) for name, one in hosts.items() if name in ours and one.get("pylog_security") == SECURED}
    found = {
        place: Standing(stage=stage_at(steps, len(steps) if place in secured else 0), steps=steps)
        for place in map(place_of, hosts.values())
    }
    for place, members in places.items():
        is_asked = bool(request.to) and request.datacenter in (("", place) if len(places) == 1 else (place,))
        own = Request(to=request.to) if is_asked else Request()
        own_hosts = {name: hosts[name] for name in members}
        own_facts = {name: facts.get(name) for name in members}
        stood = _standing(place, own_hosts, own_facts, own, away=away, is_repair=is_repair)
        if is_repair:
            words = "; ".join((*(fault[1] for fault in stood.faults), *filter(None, [stood.words])))
            found[place] = replace(stood, faults=(), words=words)
            continue
        more = _wrong_ports(own_hosts, own_facts, own)
        if any(facts.get(name) is not None and (name in reaching or place_of(hosts[name]) == place) for name in hosts):
            more += _unasked(place, own_hosts, own_facts, away)
        found[place] = replace(stood, faults=(*more, *stood.faults))
    is_under_way = any(one.words for one in found.values())
    # While one datacenter migrates, those that wait for their turn stay as they are.
    return {
        place: _with_patience(place, one) if one.is_switched and is_under_way and _is_open(one) else one
        for place, one in sorted(found.items())
    }


def _standing(
    place: str,
    hosts: Mapping[str, Variables],
    facts: Mapping[str, Facts | None],
    request: Request,
    *,
    away: Collection[str] = (),
    is_repair: bool = False,
) -> Standing:
    steps = steps_of(has_open_ensemble=not _has_encrypted_ensemble(hosts))
    wants_secured = any(one.get("pylog_security") == SECURED for one in hosts.values())
    end = len(steps) if wants_secured else 0
    at_end = Standing(stage=stage_at(steps, end), steps=steps)
    known = {name: one for name, one in facts.items() if one is not None}
    ran = processes(known, steps, with_stopped=is_repair)
    # What ZooKeeper servers have in a repair may be new.
    where = position([one for one in ran if not (is_repair and one.name.startswith("pylog-zookeeper"))], steps)
    if request.to:
        return _asked(place, hosts, facts, request, steps, where, away)
    if where is not None and not is_repair and (unproven := _stopped_between(known, steps)):
        return Standing(stage=at_end.stage, steps=steps, position=where, faults=(unproven,))
    if where is None or (not where.strange and not where.is_half and where.done <= end <= where.latest):
        return at_end
    if where.strange and (fault := _other_ensemble(hosts, facts)):
        return Standing(stage=at_end.stage, steps=steps, position=where, faults=(fault,))
    if where.strange and not any(one.get("stages", {}).keys() - {PROFILE} for one in facts.values() if one):
        return Standing(stage=at_end.stage, steps=steps, position=where, is_switched=True)
    if where.strange:
        return Standing(stage=at_end.stage, steps=steps, position=where, faults=(_strange(where),))
    way = TO_SECURED if wants_secured else TO_OPEN
    remedy = f"ansible-playbook playbooks/secure.yml -e secure_to={way}, until it says that nothing is left"
    words = f"{place} stands after step {where.done} of {len(steps)}{_name(steps, where.done)}"
    if where.is_half:
        step = steps[where.done]
        found = f"step {where.done + 1}, {step.name}, half done: {', '.join(where.behind)} did not have it"
        fault = ("security", found, "a whole step", f"{remedy}; the other way undoes it, at once")
        return Standing(stage=stage_at(steps, where.done), steps=steps, position=where, faults=(fault,), words=words)
    if not wants_secured and 0 < where.done < len(steps):
        fault = ("security", words, "open, as pylog_security says", f"set pylog_security: {SECURED}, then {remedy}")
        return Standing(stage=stage_at(steps, where.done), steps=steps, position=where, faults=(fault,), words=words)
    if not wants_secured or where.done == 0:
        return Standing(stage=at_end.stage, steps=steps, position=where, is_switched=True)
    if any(next_turn(where, steps, to_open=one == TO_OPEN, begun=_begun(facts, one)).is_repeated for one in WAYS):
        words += ", whose run did not come to its end"
    return Standing(stage=stage_at(steps, where.done), steps=steps, position=where, words=f"{words}; {remedy}")


def _asked(
    place: str,
    hosts: Mapping[str, Variables],
    facts: Mapping[str, Facts | None],
    request: Request,
    steps: tuple[Step, ...],
    where: Position | None,
    away: Collection[str],
) -> Standing:
    """Return what `secure.yml` does in the datacenter that it was asked for."""
    faults: list[tuple[str, str, str, str]] = []
    if request.to not in WAYS:
        faults.append(("secure_to", request.to, " or ".join(WAYS), "correct -e secure_to"))
    for name, one in hosts.items():
        if one.get("pylog_security") != SECURED:
            remedy = "set it before the first step; on the way back take it out after the last one"
            faults.append((f"pylog_security of {name}", str(one.get("pylog_security", "none")), SECURED, remedy))
        lacks = [str(instance.get("id")) for instance in _instances(one) if "secured_port" not in instance]
        if lacks:
            remedy = "set it: both listeners stand side by side while clients move"
            if any(((facts.get(name) or {}).get("logins", {})).values()):
                remedy = (
                    "stop the datacenter for it: docs/handbook.md, Certificates; its clients log in at their only port"
                )
            faults.append((f"secured_port of broker {', '.join(lacks)} on {name}", "none", "a port of its own", remedy))
    # A host that dies in a step must not keep the others half way; no further step goes without it.
    ends_half = where is not None and where.is_half
    silent = sorted(name for name, one in facts.items() if one is None and not (ends_half and name in away))
    if silent:
        remedy = "run it without --limit, with all hosts up; -e away is for ending or undoing a half-done step"
        faults.append(("security", f"{', '.join(silent)} not asked", "every host of the datacenter", remedy))
    if where is None:
        faults.append(("security", f"nothing of {place} runs", "a running cluster", "run site.yml"))
        return Standing(stage=Stage(), steps=steps, faults=tuple(faults))
    if where.strange:
        fault = _other_ensemble(hosts, facts) or _strange(where)
        return Standing(stage=Stage(), steps=steps, position=where, faults=(*faults, fault))
    if unproven := _stopped_between({name: one for name, one in facts.items() if one is not None}, steps):
        faults.append(unproven)
    begun = _begun(facts, request.to)
    turn = next_turn(where, steps, to_open=request.to == TO_OPEN, begun=begun)
    words = f"{place}: {turn.words}"
    return Standing(stage=turn.stage, steps=steps, position=where, turn=turn, faults=tuple(faults), words=words)


def _begun(facts: Mapping[str, Facts | None], to: str) -> set[str]:
    """Return the steps of one direction whose run did not come to its end, as `turn_of` has them marked on hosts."""
    marks = (one.get("securing", "").split() for one in facts.values() if one is not None)
    return {mark[0] for mark in marks if mark[1:] == [to]}


def _wrong_ports(
    hosts: Mapping[str, Variables], facts: Mapping[str, Facts | None], request: Request
) -> list[tuple[str, str, str, str]]:
    """Return listeners that clients log in to and that would go, and brokers without a listener of the others."""
    faults = []
    ports = {
        (name, str(instance.get("id"))): instance
        for name, one in hosts.items()
        if one.get("pylog_security") == SECURED
        for instance in _instances(one)
    }
    for (name, number), instance in ports.items():
        has_own = "secured_port" in instance
        ran = (facts.get(name) or {}).get("logins", {}).get(f"{_BROKER}{number}.service", {})
        for listener, port in ran.items():
            if listener == (SECURED_LISTENER if has_own else ONLY_LISTENER) and not (
                has_own and str(instance.get("port")) == str(port)
            ):
                continue
            found = f"{listener} at port {port} logs clients in, and would go"
            remedy = "put port and secured_port back as they were: both stay after a migration"
            if listener == ONLY_LISTENER:
                remedy = "take secured_port out: it is for a datacenter that is open, before its first step"
            faults.append((f"listener of broker {number} on {name}", found, "the one that clients use", remedy))
    lacks = {place for place, instance in ports.items() if "secured_port" not in instance}
    if not request.to and 0 < len(lacks) < len(ports):
        for name, number in sorted(lacks):
            wanted = "one for each broker of the datacenter, or for none"
            remedy = "set it as on the others: clients of one listener do not see brokers without it"
            faults.append((f"secured_port of broker {number} on {name}", "none", wanted, remedy))
    return faults


def _instances(variables: Variables) -> list[Mapping[str, Any]]:
    return [one for one in variables.get("pylog_broker_instances") or [] if isinstance(one, Mapping)]


def _other_ensemble(
    hosts: Mapping[str, Variables], facts: Mapping[str, Facts | None]
) -> tuple[str, str, str, str] | None:
    """Return why nothing goes on where `zookeeper_encrypted` was changed under servers that are not open; else None."""
    is_encrypted = _has_encrypted_ensemble(hosts)
    steps = steps_of(has_open_ensemble=is_encrypted)
    where = position(processes({name: one for name, one in facts.items() if one is not None}, steps), steps)
    if where is None or where.strange or not (where.done or where.is_half):
        return None
    found = f"{str(is_encrypted).lower()}, while brokers are secured and ZooKeeper runs otherwise"
    remedy = (
        f"put it back to {str(not is_encrypted).lower()}; to change it, stop brokers and ZooKeeper servers of the "
        f"datacenter{'' if is_encrypted else ', after pylog zk open'}, then run site"
    )
    return "variable zookeeper_encrypted", found, "as it runs", remedy


def _unasked(
    place: str, hosts: Mapping[str, Variables], facts: Mapping[str, Facts | None], away: Collection[str]
) -> list[tuple[str, str, str, str]]:
    """Return what is said where a --limit leaves out all brokers of a datacenter that may migrate."""
    brokers = [
        name
        for name, one in hosts.items()
        if one.get("pylog_security") == SECURED and any("secured_port" in instance for instance in _instances(one))
    ]
    is_known = any(unit.startswith(_BROKER) for one in facts.values() if one for unit in one.get("secured", {}))
    if is_known or all(facts[name] is not None or name in away for name in brokers):
        return []
    remedy = f"add one of {', '.join(brokers)} to --limit"
    return [("security", f"no broker of {place} asked", "one that says where it stands", remedy)]


def _stopped_between(facts: Mapping[str, Facts], steps: tuple[Step, ...]) -> tuple[str, str, str, str] | None:
    """Return what is said of brokers that were stopped half way where no broker runs; else None."""
    if any(unit.startswith(_BROKER) for one in facts.values() for unit in one.get("secured", {})):
        return None
    names = [
        one.name
        for one in processes(facts, steps, with_stopped=True)
        if one.name.startswith(_BROKER) and not fitting(one, steps) & {0, len(steps)}
    ]
    if not names:
        return None
    found = f"{', '.join(names)}: stopped between two steps, while ZooKeeper runs"
    remedy = "start the brokers; or stop the ZooKeeper servers too, and begin anew by site.yml"
    return "security", found, "brokers that run", remedy


def processes(facts: Mapping[str, Facts], steps: tuple[Step, ...], *, with_stopped: bool = False) -> list[Process]:
    """Return what the servers that run, those that are stopped too if asked for, and profiles say of the stage."""
    ends = {is_secured: asdict(stage_at(steps, len(steps) if is_secured else 0)) for is_secured in (False, True)}
    found: list[Process] = []
    for host, one in sorted(facts.items()):
        texts, before = one.get("stages", {}), len(found)
        ends_of = {**one.get("secured", {}), **(one.get("stopped", {}) if with_stopped else {})}
        for unit, is_secured in sorted(ends_of.items()):
            facets = ENSEMBLE_FACETS if unit == _ZOOKEEPER else BROKER_FACETS
            end = ends[is_secured]
            if unit == _ZOOKEEPER and is_secured:
                end = end | {"quorum": "tls", "ensemble": "tls"}
            text = texts.get(unit) or comment(end, facets, ())
            found.append(Process(name=f"{unit.removesuffix('.service')} on {host}", facets=facets_in(text)))
        if any(_is_before_or_after_programs(own, steps) for own in found[before:]):
            text = texts.get(PROFILE, f"programs={OPEN}")
            found.append(Process(name=f"the profile for operators on {host}", facets=facets_in(text)))
    return found


def _is_before_or_after_programs(process: Process, steps: tuple[Step, ...]) -> bool:
    """Say whether *process* is a broker that the profile beside it tells more of: its own file knows no programs.

    A profile alone is what is left of brokers that were stopped or purged.
    """
    done = next(number for number, step in enumerate(steps) if step.facet == "programs")
    return "pages" in process.facets and {done, done + 1} <= fitting(process, steps)


def turn_of(turn: Turn, where: Position) -> dict[str, Any]:
    """Return what the plays know of a turn, which leads on from *where*."""
    return {
        "words": turn.words,
        "is_over": turn.step is None,
        "kind": str(turn.step.kind) if turn.step else "",
        "needs": [str(one) for one in turn.side.needs],
        "actions": [str(one) for one in turn.side.actions],
        "mark": f"{turn.step.name} {TO_OPEN if turn.is_back else TO_SECURED}" if turn.step else "",
        # They had the step already, and know of nothing before their restart.
        "had": list(where.behind if turn.is_back else where.ahead),
    }


def _has_encrypted_ensemble(hosts: Mapping[str, Variables]) -> bool:
    # Of an open datacenter too: it is about the steps that lie before it.
    return all(is_ensemble_encrypted({**one, "pylog_security": SECURED}) for one in hosts.values())


def _is_open(standing: Standing) -> bool:
    where = standing.position
    return where is not None and not where.strange and where.done == 0


def _with_patience(place: str, standing: Standing) -> Standing:
    words = f"{place} stands open; secure.yml -e secure_to={TO_SECURED} -e secure_datacenter={place} begins with it"
    return Standing(stage=Stage(), steps=standing.steps, position=standing.position, words=words)


def _strange(where: Position) -> tuple[str, str, str, str]:
    return "security", "; ".join(where.strange), "one stage, or two that follow each other", "see docs/security.md"


def _name(steps: tuple[Step, ...], done: int) -> str:
    return f" ({steps[done - 1].name})" if done else ""
