"""A stranger's first day: `inventories/small`, with the commands of the pages as they stand."""

import re
import uuid
from pathlib import Path

import pytest
import yaml

from tests.commands import Command, commands_of
from tests.rolls.cluster import ROOT
from tests.rolls.operator import INVENTORY, run

SMALL = "inventories/small"
HOSTS = [f"log{number}.example.internal" for number in (1, 2, 3)]


def shown(page: str) -> list[Command]:
    """Return the commands of a page that concern hosts, in their order."""
    names = ("ansible-playbook", "fab", "pylog")
    found = [command for command in commands_of(ROOT / page, ROOT) if command.words[0] in names]
    return [one for one in found if SMALL in one.words or any("example.internal" in word for word in one.words)]


def carry_out(command: Command) -> str:
    program, *words = (INVENTORY if word == SMALL else word for word in command.words)
    done = run(program, *words)
    assert done.returncode == 0, command
    return str(done.stdout)


@pytest.mark.parametrize("page", ["docs/install.md", "README.md"])
def test_every_command_for_hosts_runs_as_it_stands(page: str) -> None:
    commands = shown(page)
    verbs = [Path(one.words[-1]).stem for one in commands if one.words[0] == "ansible-playbook"]
    assert {"check_inventory", "preflight", "site"} <= {*verbs}
    assert "fab" in {one.words[0] for one in commands}
    for command in commands:
        said = carry_out(command)
        if command.words[-1].endswith("site.yml"):
            assert set(re.findall(r"changed=(\d+)", said)) == {"0"}, "the page says that a second one changes nothing"


def test_the_table_names_all_that_was_changed() -> None:
    """What differs from the repository's inventory is in the page's table, or belongs to the login of this machine."""
    page = (ROOT / "docs/install.md").read_text()
    ours = yaml.safe_load((Path(INVENTORY) / "group_vars/servers/ours.yml").read_text())
    of_this_place = {"ansible_ssh_private_key_file", "ansible_ssh_extra_args", "broker_ready_readings",
                     "broker_ready_interval_s"}  # fmt: skip
    assert {name for name in ours.keys() - of_this_place if f"`{name}`" not in page} == set()
    assert re.findall(r"vault_\w+", page).count("vault_sudo_password") >= 1


def test_the_tasks_of_the_day_work_for_a_user_with_sudo(tmp_path: Path) -> None:
    for words in (
        ("status",),
        ("logs", "--host", HOSTS[0], "--unit", "pylog-broker@1", "--lines", "5"),
        ("bundle", "--to", str(tmp_path / "bundle.tar.gz")),
    ):
        assert run("fab", *words, "--inventory", INVENTORY).returncode == 0
    assert run("fab", "drills").returncode == 0
    assert (tmp_path / "bundle.tar.gz").stat().st_mode & 0o777 == 0o600


def test_a_client_finds_its_records() -> None:
    topic, place = f"small-{uuid.uuid4().hex[:8]}", ("--bootstrap", f"{HOSTS[0]}:9092")
    assert run("pylog", "topic", "create", topic, "--partitions", "6", *place).returncode == 0
    assert run("pylog", "produce", topic, "-k", ":", *place, stdin="alice:/home\nbob:/jobs\n").returncode == 0
    done = run("pylog", "consume", topic, "--exit", "-f", "%s\n", *place)
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["/home", "/jobs"])


def test_plan_finds_nothing_to_change() -> None:
    assert run("python", "-m", "pylog.ops.plan", INVENTORY).returncode == 0
