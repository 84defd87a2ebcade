"""The plan that follows from what `site` in check mode reported."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pylog.ops.plan import differences, failures, lines, summary

PREFLIGHT = Path(__file__).resolve().parents[3] / "roles" / "preflight" / "tasks" / "main.yml"
[READ] = (task["name"] for task in yaml.safe_load(PREFLIGHT.read_text()) if "pylog_host" in task)
READING_TASK = f"preflight : {READ}"
"""As the report has it: the role's name, then the task's."""
GONE = "approved, and would not happen"
CONFIG = "/etc/pylog/broker-1.yml"
STEP = {"host": "h1", "unit": "pylog-broker@1.service", "action": "restart", "reasons": [f"{CONFIG} aa, wanted bb"]}


def run(**tasks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "plays": [{"tasks": [{"task": {"name": name.replace("_", " ")}, "hosts": at} for name, at in tasks.items()]}]
    }


def written(before: str, after: str, **more: Any) -> dict[str, Any]:
    diff = {"before": before, "after": after, "before_header": CONFIG, "after_header": f"{CONFIG} (content)"}
    return {"changed": True, "diff": [diff], **more}


def decided(*steps: dict[str, Any], blockers: tuple[str, ...] = ()) -> dict[str, Any]:
    answer = {"steps": steps, "blockers": blockers, "expected_s": 20 * len(steps)}
    return {"changed": bool(steps), "ansible_facts": {"roll_plan": answer}}


def test_nothing_changed_is_an_empty_plan() -> None:
    found = summary(run(Write={"h1": {"changed": False}}, Decide_which_brokers_restart={"h1": decided()}))
    assert found == {"hosts": {}, "restarts": [], "blockers": [], "expected_s": 0, "outages": [], "security": {}}
    assert list(lines(found)) == ["no file, package or unit would change", "", "nothing would restart"]


def test_a_changed_file_shows_old_and_new_lines() -> None:
    [change] = summary(run(Write={"h1": written("a: 1\nb: 1\n", "a: 2\nb: 1\n", dest=CONFIG)}))["hosts"]["h1"]
    assert (change["subject"], change["added"], change["removed"]) == (CONFIG, ("a: 2",), ("a: 1",))


def test_only_the_items_of_a_loop_that_change_are_listed() -> None:
    looped = {"changed": True, "results": [{"changed": False, "item": "x"}, {"changed": True, "item": "y"}]}
    assert [change["subject"] for change in summary(run(Loop={"h1": looped}))["hosts"]["h1"]] == ["y"]


def test_a_hidden_diff_stays_hidden() -> None:
    hidden = {"changed": True, "censored": "the output has been hidden", "dest": "/etc/pylog/cluster.secret"}
    [change] = summary(run(Secret={"h1": hidden}))["hosts"]["h1"]
    assert (change["added"], change["removed"]) == ((), ())


def test_restarts_come_from_the_roles_own_decision() -> None:
    found = summary(run(Decide_which_brokers_restart={"h1": decided(STEP)}, Decide_which_servers={"h1": decided(STEP)}))
    assert (len(found["restarts"]), found["expected_s"], found["hosts"]) == (2, 40, {})
    assert any("pylog-broker@1.service" in line and "wanted bb" in line for line in lines(found))


def test_blockers_are_part_of_the_plan() -> None:
    found = summary(run(Decide_which_brokers_restart={"h1": decided(blockers=("broker 2 is not well",))}))
    assert "blocked: broker 2 is not well" in list(lines(found))


def test_a_plan_that_still_holds_has_no_differences() -> None:
    found = summary(run(Write={"h1": written("a: 1\n", "a: 2\n", dest=CONFIG)}, Decide_which={"h1": decided(STEP)}))
    assert list(differences(json.loads(json.dumps(found)), found)) == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (run(Write={"h1": written("a: 1\n", "a: 3\n", dest=CONFIG)}), [GONE, "not approved"]),
        (run(Write={"h2": written("a: 1\n", "a: 2\n", dest=CONFIG)}), [GONE, "not approved"]),
        (run(Write={"h1": {"changed": False}}), [GONE]),
        (run(Write={"h1": written("a: 1\n", "a: 2\n", dest=CONFIG)}, Decide_which={"h1": decided(STEP)}),
         ["not approved"]),
    ],
)  # fmt: skip
def test_a_stale_plan_is_named_with_what_differs(now: dict[str, Any], said: list[str]) -> None:
    approved = summary(run(Write={"h1": written("a: 1\n", "a: 2\n", dest=CONFIG)}))
    found = list(differences(approved, summary(now)))
    assert [one.split(":")[0] for one in found] == said
    assert all("h1" in one or "h2" in one for one in found)


def test_a_host_that_could_not_be_read_is_left_to_the_table() -> None:
    table = {"failed": True, "msg": "host  check\nh1    login"}
    tasks = {READING_TASK: {"h1": {"unreachable": True, "msg": "no"}}, "preflight : Stop": {"h2": table}}
    assert list(failures(run(**tasks))) == [f"h2: preflight : Stop: {table['msg']}"]


@pytest.mark.parametrize("result", [{"failed": True, "msg": "no"}, {"unreachable": True, "msg": "no"}])
def test_a_failed_check_names_host_and_task(result: dict[str, Any]) -> None:
    assert list(failures(run(Write={"h1": result}))) == ["h1: Write: no"]


SHIP = "pylog-ship.service"
READING = {
    "files": {
        "/etc/systemd/system/pylog-ship.service": "a", "/etc/pylog/audit.yml": "b",
        "/opt/pylog/current": "link releases/c", "/etc/pylog": "directory 0755 root root",
    },
    "started_with": {
        SHIP: ["/etc/systemd/system/pylog-ship.service", "/opt/pylog/current/requirements.lock"],
        "pylog-audit.service": ["/etc/pylog/audit.yml", "/opt/pylog/current/requirements.lock"],
        "pylog-broker@1.service": [CONFIG, "/opt/pylog/current/requirements.lock"],
    },
}  # fmt: skip


def planned(*changes: str, step: dict[str, Any] | None = None) -> list[str]:
    """Return the programs that start, when these files change on a host."""
    tasks: dict[str, dict[str, Any]] = {READING_TASK: {"h1": {"answer": READING}}}
    tasks["Write"] = {"h1": {"changed": True, "results": [{"changed": True, "dest": one} for one in changes]}}
    tasks["Decide_which_brokers_restart"] = {"h1": decided(*([step] if step else []))}
    return [change["subject"] for change in summary(run(**tasks))["hosts"].get("h1", [])][len(changes) :]


def test_f13_a_program_whose_files_change_is_planned_to_start_again() -> None:
    assert planned("/etc/pylog/audit.yml") == ["pylog-audit.service"]
    assert planned("/etc/cron.d/pylog-retention") == []
    assert planned("/etc/pylog") == [], "the mode of a directory is no program's matter"
    assert planned("") == [], "a task that names no file"
    assert planned("/opt/pylog/current") == [SHIP, "pylog-audit.service", "pylog-broker@1.service"]
    assert planned("/etc/pylog/audit.yml", "pylog-audit.service") == [], "its own task says so already"


def test_f13_a_release_that_moves_in_a_brokers_step_restarts_the_programs_beside_it() -> None:
    assert planned(step=STEP | {"kinds": ["release"]}) == [SHIP, "pylog-audit.service"], "the broker has its turn"
    assert planned(step=STEP | {"kinds": ["config"]}) == []


def test_f13_services_of_a_clean_host_are_planned_to_start() -> None:
    units = [f"/etc/systemd/system/pylog-{name}" for name in ("registry.service", "ingest.service", "ingest.timer")]
    configurations = ["/etc/pylog/broker-7.yml", "/etc/pylog/stream-a-b.yml"]
    assert planned(*units, "/etc/systemd/system/pylog-broker@.service", *configurations) == [
        "pylog-broker@7.service", "pylog-stream@a-b.service", "pylog-ingest.timer", "pylog-registry.service",
    ]  # fmt: skip


def test_f13_partitions_that_a_step_makes_unavailable_are_part_of_the_plan() -> None:
    outage = {"broker": 1, "partition": "t-0", "effect": "offline", "detail": "in sync on 1 alone"}
    asked = {"rc": 0, "stdout": json.dumps({"outages": [outage]})}
    found = summary(run(Ask_what_each_restart_takes_from_clients={"h1": asked, "h2": {"skipped": True}}))
    assert (found["outages"], found["hosts"]) == ([outage], {})
    assert any("t-0" in line and "offline" in line for line in lines(found))


@pytest.mark.parametrize(("code", "said"), [(2, "the installed release cannot say"), (3, "no broker answered")])
def test_f13_nobody_who_could_say_what_a_step_takes_is_said_too(code: int, said: str) -> None:
    found = summary(run(Ask_what_each_restart_takes_from_clients={"h1": {"rc": code, "stdout": ""}}))
    assert [(one["effect"], one["detail"]) for one in found["outages"]] == [("unknown", f"h1: {said}")]


def test_a_plan_says_where_a_migration_stands() -> None:
    words = "live stands after step 9 of 16 (peers-call)"
    found = summary(run(Keep={"h1": {"ansible_facts": {"__preflight_standings": {"live": words}}}}))
    assert found["security"] == {"live": words}
    assert list(lines(found))[-1] == f"security: {words}"
