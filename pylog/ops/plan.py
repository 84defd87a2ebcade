"""What a deployment would do, before it does it: `site` in check mode, read by a program.

    python -m pylog.ops.plan INVENTORY [--limit HOSTS] [--extra-vars JSON] [--json FILE] [--against FILE]

Changes nothing.  Prints the changes of each host, which instances would restart with the named reason and in which
order, and how long that should take; ``--json`` writes the same for programs::

    {"hosts": {name: [{"task", "subject", "added", "removed"}]}, "restarts": [step], "blockers": [...], "expected_s",
     "outages": [{"broker", "partition", "effect", "detail"}], "security": {datacenter: where its migration stands}}

Programs that have no gate restart where what they started with changes: that follows from the files that would change
and from what each running unit of the host recorded.  Outages are partitions that clients cannot use during a step.

``--against`` compares with a plan that somebody approved earlier.

Exit code 0: nothing would change; 2: something would; 3: nothing may happen now, the blockers say why; 4: the approved
plan is stale; 1: it failed.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pylog.ops.table import aligned

ROOT = Path(__file__).resolve().parents[2]
NOTHING, FAILED, CHANGES, BLOCKED, STALE = 0, 1, 2, 3, 4
# The task of the roles whose answer is the plan of restarts.
_DECISION = "Decide which"
_OUTAGES = "what each restart takes from clients"
# Ends the name of preflight's task, before which the report puts the role's.
_READING = "Read the host"
_MAX_SUBJECT = 60
_MAX_OUTAGES = 20
UNREACHABLE = 3
"""Exit code of `pylog` when no broker answers."""


class PlanError(Exception):
    """The check itself failed; the message says on which host and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that would be different on a host.

    Attributes:
        subject: the file, or what the task names.
        added: lines that would come; kept short, and none where they are secret.
        removed: lines that would go.
    """

    task: str
    subject: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def results_of(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a task's results on a host, one an item where it loops."""
    yield from result.get("results", [result])


def diffs_of(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what `--diff` brought."""
    found = result.get("diff") or []
    yield from [found] if isinstance(found, Mapping) else found


def changed_lines(before: str, after: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines that *after* has and *before* has not, and the other way round."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    return tuple(x[2:] for x in lines if x.startswith("+ ")), tuple(x[2:] for x in lines if x.startswith("- "))


def changes_of(task: str, result: Mapping[str, Any]) -> Iterator[Change]:
    """Yield what one task would change on one host."""
    for one in results_of(result):
        if not one.get("changed"):
            continue
        item = one.get("item", one.get("instance", ""))
        texts = [diff for diff in diffs_of(one) if isinstance(diff.get("before"), str)]
        # What stands after it is where the text came from, which may be another temporary file each time.
        header = next((str(diff["before_header"]) for diff in texts if diff.get("before_header")), "")
        named = (one.get(key) for key in ("dest", "path", "name", "msg"))
        subject = next(filter(None, (header, *named)), item)
        pairs = [changed_lines(diff["before"], str(diff.get("after", ""))) for diff in texts]
        yield Change(
            task=task,
            subject=str(subject)[:_MAX_SUBJECT],
            added=tuple(line for added, _ in pairs for line in added),
            removed=tuple(line for _, removed in pairs for line in removed),
        )


def summary(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan that follows from what a run in check mode reported as JSON."""
    hosts: dict[str, list[dict[str, Any]]] = {}
    found: dict[str, Any] = {"hosts": hosts, "restarts": [], "blockers": [], "expected_s": 0, "outages": []}
    found["security"] = {}
    readings: dict[str, Mapping[str, Any]] = {}
    for play in run["plays"]:
        for task in play["tasks"]:
            name = task["task"]["name"]
            for host, result in task["hosts"].items():
                if _DECISION in name:
                    decided = result.get("ansible_facts", {}).get("roll_plan", {})
                    found["restarts"] += decided.get("steps", [])
                    found["blockers"] += decided.get("blockers", [])
                    found["expected_s"] += decided.get("expected_s", 0)
                elif _OUTAGES in name:
                    found["outages"] += outages_of(result, host)
                elif standings := result.get("ansible_facts", {}).get("__preflight_standings"):
                    found["security"] = standings
                elif name.endswith(_READING):
                    readings[host] = result.get("answer", {})
                elif changes := [asdict(change) for change in changes_of(name, result)]:
                    hosts.setdefault(host, []).extend(changes)
    for host, reading in readings.items():
        if programs := [asdict(change) for change in programs_of(host, reading, found)]:
            hosts.setdefault(host, []).extend(programs)
    return found


def programs_of(host: str, reading: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the programs that would start, or start again, because of what else changes on *host*.

    A unit's own task cannot say so in check mode, where the file that it reads was not written.

    Args:
        host: name.
        reading: what preflight read of it.
        found: the plan so far.
    """
    changed = {change["subject"] for change in found["hosts"].get(host, [])}
    mine = [step for step in found["restarts"] if step["host"] == host]
    if any("release" in step.get("kinds", ()) for step in mine):
        changed.add("/opt/pylog/current")  # moves in the step
    files = reading.get("files", {})
    # What lies below a link changes with it, and below a directory nothing does.
    links = tuple(f"{one}/" for one in changed if one and not files.get(one, "").startswith("directory"))
    gated = {step["unit"] for step in mine}
    for unit, paths in reading.get("started_with", {}).items():
        causes = [path for path in paths if path in changed or path.startswith(links)]
        if causes and unit not in gated | changed:
            yield Change(task=f"Start again: {', '.join(causes)}", subject=unit)
    for path in sorted(changed - files.keys()):
        if unit := unit_started_by(path, changed):
            yield Change(task="Start", subject=unit)


def unit_started_by(path: str, changed: Collection[str]) -> str:
    """Return the unit that starts once the new file at *path* is there; empty where none does.

    Args:
        path: of a file that does not exist yet.
        changed: all files that would be written; a service beside its timer is started by that.
    """
    if found := re.fullmatch(r"/etc/pylog/broker-(\d+)\.yml", path):
        return f"pylog-broker@{found[1]}.service"
    if found := re.fullmatch(r"/etc/pylog/stream-([a-z][a-z0-9-]*)\.yml", path):
        return f"pylog-stream@{found[1]}.service"
    unit = path.removeprefix("/etc/systemd/system/")
    is_unit = unit != path and unit.endswith((".service", ".timer")) and "@" not in unit
    return unit if is_unit and path.replace(".service", ".timer") not in {*changed} - {path} else ""


def outages_of(result: Mapping[str, Any], host: str) -> Iterator[dict[str, Any]]:
    """Yield what ``pylog cluster impact`` said on a host, which may be of a release that does not know it."""
    if result.get("skipped"):
        return
    try:
        answer = json.loads(result.get("stdout") or "")
    except ValueError:
        reason = "no broker answered" if result.get("rc") == UNREACHABLE else "the installed release cannot say"
        yield {"broker": None, "partition": "", "effect": "unknown", "detail": f"{host}: {reason}"}
        return
    yield from answer["outages"]


def differences(approved: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield what would happen now and was not approved, and what was approved and would not happen."""
    pairs = [
        (words, _said(plan)) for words, plan in (("approved, and would not happen", approved), ("not approved", now))
    ]
    for index, (words, said) in enumerate(pairs):
        yield from (f"{words}: {one}" for one in sorted(said - pairs[1 - index][1]))


def _said(plan: Mapping[str, Any]) -> set[str]:
    changes = {
        f"{host}: {change['subject'] or change['task']}: +{list(change['added'])} -{list(change['removed'])}"
        for host, changes in plan["hosts"].items()
        for change in changes
    }
    return changes | {
        f"{step['host']}: restart of {step['unit']}: {list(step['reasons'])}" for step in plan["restarts"]
    }


def failures(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield what failed in a run, with the host."""
    for play in run["plays"]:
        for task in play["tasks"]:
            # Hosts that could not be read are in preflight's table, which follows.
            for host, result in task["hosts"].items() if not task["task"]["name"].endswith(_READING) else ():
                if result.get("failed") or result.get("unreachable"):
                    yield f"{host}: {task['task']['name']}: {result.get('msg') or result.get('stderr', '')}"


def lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the plan for people."""
    rows = [
        (host, change["subject"] or change["task"], f"+{len(change['added'])} -{len(change['removed'])}")
        for host, changes in sorted(plan["hosts"].items())
        for change in changes
    ]
    yield from aligned(("host", "would change", "lines"), rows) if rows else ["no file, package or unit would change"]
    yield ""
    steps = [
        (str(number), step["host"], step["unit"], step["action"], "; ".join(step["reasons"]))
        for number, step in enumerate(plan["restarts"], start=1)
    ]
    yield from aligned(("turn", "host", "unit", "action", "reason"), steps) if steps else ["nothing would restart"]
    if steps:
        yield f"the restarts should take {plan['expected_s']} s; the controller, read anew before each turn, goes last"
    if plan["outages"]:
        outages = [
            (str(one["broker"] or ""), one["partition"], one["effect"], one["detail"])
            for one in plan["outages"][:_MAX_OUTAGES]
        ]
        yield from ["", *aligned(("step of", "partition", "meanwhile", "reason"), outages)]
        if (more := len(plan["outages"]) - len(outages)) > 0:
            yield f"and {more} more"
    yield from (f"security: {words}" for words in plan["security"].values())
    for blocker in plan["blockers"]:
        yield f"blocked: {blocker}"


def check(inventory: Sequence[str], limit: str, extra_vars: str) -> dict[str, Any]:
    """Run `site` in check mode and return what it reported.

    Raises:
        PlanError: it could not be run, or failed on a host.
    """
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    command = [program, *(f"--inventory={one}" for one in inventory), "playbooks/site.yml", "--check", "--diff"]
    command += [f"--limit={limit}"] if limit else []
    command += [f"--extra-vars={extra_vars}"] if extra_vars else []
    # Whoever called may have set another form of output, which could not be read here.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_STDOUT")}
    environment["ANSIBLE_STDOUT_CALLBACK"] = "ansible.posix.json"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    try:
        run: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError as error:
        raise PlanError(done.stderr.strip() or done.stdout.strip()) from error
    if done.returncode:
        raise PlanError("\n".join(failures(run)) or done.stderr.strip())
    return run


def main(arguments: Sequence[str]) -> int:
    """Print the plan; the exit code says whether there is anything to do."""
    parser = argparse.ArgumentParser(prog="plan", description="What a deployment would do.")
    parser.add_argument("inventory", nargs="+")
    parser.add_argument("--limit", default="")
    parser.add_argument("--extra-vars", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args(arguments)
    try:
        approved = json.loads(options.against.read_text()) if options.against else None
        plan = summary(check(options.inventory, options.limit, options.extra_vars))
    except (PlanError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return FAILED
    print("\n".join(lines(plan)))
    if options.json:
        options.json.write_text(json.dumps(plan, indent=2, sort_keys=True) + "\n")
    if approved is not None and (found := list(differences(approved, plan))):
        print("\n".join(["", f"{options.against} is stale:", *found, "make and approve a new plan"]))
        return STALE
    if plan["blockers"]:
        return BLOCKED
    return CHANGES if plan["hosts"] or plan["restarts"] else NOTHING


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
