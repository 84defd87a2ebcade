"""Fabric tasks: the day-2 verbs, over the inventories that deploy the hosts."""

import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

import fabric
import paramiko
from fabric import Connection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.watchers import Responder

from pylog import __version__, faults
from pylog.ops import bundle as bundles
from pylog.ops import masking
from pylog.ops import status as questions
from pylog.ops.drills import DRILLS, REASONS
from pylog.ops.inventory import PROMPT, InventoryError, Target, load
from pylog.ops.rehearsal import Cluster, DrillRefused, hosts_of, rehearse
from pylog.ops.table import aligned

DEFAULT_INVENTORY = "inventories/local"
MAX_CONNECTIONS = 16

_Task = TypeVar("_Task", bound=Callable[..., None])


def task(function: _Task) -> _Task:
    """Make *function* a task of Fabric, which has no types of its own."""
    return cast(_Task, fabric.task(function))


def connect(target: Target) -> Connection:
    """Return a connection to *target* that trusts only host keys known beforehand."""
    # Other parts of a login; paramiko's own limits, which stand first, are too short for a host that takes its time.
    limits = {"banner_timeout": max(15, target.timeout_s), "auth_timeout": max(30, target.timeout_s)}
    keys = {"key_filename": target.key_file} if target.key_file else {}
    if target.password is not None:
        keys["password"] = target.password
    connection = Connection(
        target.address, user=target.user, port=target.port, connect_timeout=target.timeout_s, gateway=target.proxy,
        connect_kwargs={**limits, **keys},
    )  # fmt: skip
    # Fabric itself would take any key at first sight.
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    if target.known_hosts:
        connection.client.load_host_keys(target.known_hosts)
    else:
        connection.client.load_system_host_keys()
    return connection


def watchers_of(target: Target) -> list[Responder]:
    """Return what answers the `sudo` of the host: its password, once it is asked for; a host may not ask."""
    if target.sudo_password is None:
        return []
    return [Responder(pattern=re.escape(PROMPT), response=f"{target.sudo_password}\n")]


def targets(inventory: str, host: str = "") -> list[Target]:
    """Return the hosts of *inventory*, or the one named *host*."""
    try:
        found = load(inventory)
    except InventoryError as error:
        raise Exit(f"error: {inventory} cannot be read [{faults.INVENTORY_WRONG.code}]\n{error}", code=2) from error
    chosen = [target for target in found if host in ("", target.name)]
    if not chosen:
        names = ", ".join(t.name for t in found)
        raise Exit(f"error: no host {host!r} in {inventory} [{faults.INVENTORY_WRONG.code}]; there are {names}", code=2)
    return chosen


def ask(target: Target) -> dict[str, Any] | str:
    """Return verb -> answer of *target*, or why it did not answer."""
    answers = {}
    try:
        with connect(target) as connection:
            for verb, command in questions.questions(target).items():
                done = connection.run(command, in_stream=False, watchers=watchers_of(target), hide=True, warn=True)
                if not done.stdout:
                    return done.stderr.strip().splitlines()[-1] if done.stderr else f"exit code {done.exited}"
                answers[verb] = json.loads(done.stdout)
    except (OSError, paramiko.SSHException) as error:
        return f"unreachable: {error}"
    return answers


def report(found: Sequence[tuple[Target, dict[str, Any] | str]]) -> tuple[list[str], bool]:
    """Return the lines of the status table, and whether all is well."""
    rows: list[tuple[str, str, str, str]] = []
    for target, answers in found:
        if isinstance(answers, str):
            rows.append((target.name, "-", "unknown", answers))
        else:
            rows += questions.rows(target.name, answers)
    all_well = all(not isinstance(answers, str) and questions.is_well(answers) for _, answers in found)
    return aligned(questions.HEADER, rows), all_well


@task
def status(context: Context, inventory: str = DEFAULT_INVENTORY) -> None:
    """Show what runs on every host of --inventory; exit 1 when something is not well."""
    hosts = targets(inventory)
    with ThreadPoolExecutor(MAX_CONNECTIONS) as pool:
        lines, all_well = report(list(zip(hosts, pool.map(ask, hosts), strict=True)))
    print("\n".join(lines))
    if not all_well:
        told = "see the states above, then: fab logs --host HOST --unit UNIT"
        raise Exit(f"not well [{faults.UNHEALTHY.code}]: {told}", code=1)


@task
def logs(
    context: Context,
    host: str,
    unit: str = "pylog-*",
    lines: int = 100,
    follow: bool = False,
    inventory: str = DEFAULT_INVENTORY,
) -> None:
    """Show the last --lines of --unit's journal on --host, and go on with --follow."""
    [target] = targets(inventory, host)
    command = ["journalctl", "--no-pager", "--unit", unit, "--lines", str(lines), *(["--follow"] if follow else [])]
    try:
        with connect(target) as connection:
            # Not this program's own input: where that is at its end, as below cron, sudo would not get its password.
            whole = target.sudo + shlex.join(command)
            # Its errors come at the end, without the prompt that sudo writes among them.
            watchers = watchers_of(target)
            done = connection.run(
                whole, watchers=watchers, in_stream=False, out_stream=sys.stdout, hide="stderr", warn=True
            )
    except (OSError, paramiko.SSHException) as error:
        raise Exit(f"error: {host} is unreachable [{faults.HOST_UNREACHABLE.code}]: {error}", code=1) from error
    if said := done.stderr.replace(PROMPT, "").strip():
        print(said, file=sys.stderr)
    if done.failed:
        raise Exit(f"error: journalctl on {host} ended with exit code {done.exited}", code=1)


def collect(target: Target) -> dict[str, str]:
    """Return name -> what *target* answered, for a support bundle; a host that cannot be reached says so in it."""
    found: dict[str, str] = {}
    try:
        with connect(target) as connection:
            for name, command in bundles.questions(target).items():
                done = connection.run(command, in_stream=False, watchers=watchers_of(target), hide=True, warn=True)
                found[name] = done.stdout + (f"\n[exit code {done.exited}]\n{done.stderr}" if done.failed else "")
    except (OSError, paramiko.SSHException) as error:
        found["unreachable"] = str(error)
    return found


@task
def bundle(context: Context, inventory: str = DEFAULT_INVENTORY, host: str = "", to: str = "") -> None:
    """Pack configurations, journals and reports of all hosts (or --host) into one archive without secrets."""
    hosts = targets(inventory, host)
    now_s = int(time.time())
    path = Path(to or time.strftime("pylog-bundle-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime(now_s)))
    with ThreadPoolExecutor(MAX_CONNECTIONS) as pool:
        found = dict(zip([target.name for target in hosts], pool.map(collect, hosts), strict=True))
    # Of all hosts, also those left out: one host's journal may name what is another's.
    secrets = masking.secrets_of(target.variables for target in targets(inventory))
    secrets |= masking.values(answers.pop("secrets", "") for answers in found.values())
    members = {
        "about.json": json.dumps({"version": 1, "made_s": now_s, "release": __version__, "hosts": sorted(found)}),
        "inventory.json": bundles.inventory_of(hosts),
    }
    for name, answers in found.items():
        members |= bundles.members(name, answers)
    try:
        bundles.write(path, bundles.archive(members, secrets, now_s))
    except OSError as error:
        raise Exit(f"error: {path}: {error.strerror} [{faults.FILE_UNREADABLE.code}]", code=1) from error
    silent = [name for name, answers in found.items() if "unreachable" in answers]
    print(f"{path}: {len(members)} files of {len(hosts)} hosts")
    if silent:
        raise Exit(f"unreachable, so not in it: {', '.join(silent)} [{faults.HOST_UNREACHABLE.code}]", code=1)


@task
def drills(context: Context) -> None:
    """List the faults that can be rehearsed, and why the other rows T1 to T38 cannot."""
    rows = [(one.code, one.name, one.expected) for one in DRILLS.values()]
    rows += [(code, "-", f"no drill: {reason}") for code, reason in REASONS.items()]
    print("\n".join(aligned(("drill", "name", "expected"), sorted(rows, key=lambda row: int(row[0][1:])))))


@task
def drill(context: Context, name: str, inventory: str = DEFAULT_INVENTORY, datacenter: str = "") -> None:
    """Break something as row --name (T1, kill9_leader_acks_all, ...) says, heal it, and see what came of it."""
    found = next((one for one in DRILLS.values() if name.lower() in (one.code.lower(), one.name)), None)
    if found is None:
        reason = REASONS.get(name.upper(), "there is no such drill")
        raise Exit(f"error: {name}: {reason} [{faults.DRILL_REFUSED.code}]; see: fab drills", code=2)
    try:
        outcome = rehearse(Cluster(hosts_of(targets(inventory), datacenter), run_script), found, print)
    except DrillRefused as error:
        raise Exit(f"error: {error} [{faults.DRILL_REFUSED.code}]", code=1) from error
    print(f"expected: {found.expected}")
    print(json.dumps({"drill": found.code, "well_after_s": outcome.well_after_s, **outcome.numbers}))
    if outcome.faults:
        raise Exit("\n".join([f"not as expected [{faults.DRILL_FAILED.code}]", *outcome.faults]), code=1)
    print("passed")


def run_script(target: Target, script: str) -> tuple[int, str]:
    """Run a shell script as root on *target*; return its exit code and what it said."""
    words = f"{target.sudo}sh -c {shlex.quote(script)}"
    try:
        with connect(target) as connection:
            done = connection.run(words, in_stream=False, watchers=watchers_of(target), hide=True, warn=True)
    except (OSError, paramiko.SSHException) as error:
        return 255, f"{target.name} is unreachable: {error}"
    return done.exited, (done.stdout + done.stderr).replace(PROMPT, "").strip()
