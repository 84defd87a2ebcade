"""An operator without root on the control machine: inventories and vaults as Ansible itself reads them."""

import getpass
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
SECRETS = {"vault_cluster_secret": "s" * 32, "vault_sudo_password": "not shown"}


class Operator:
    """Somebody who is not root and for whom sudo has no answer, with an inventory in a directory of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        program = home / "bin" / "sudo"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho used >> {home}/sudo-was-used\nexit 1\n")
        program.chmod(0o755)
        self.give(home)

    def give(self, path: Path) -> None:
        if os.getuid() == 0:
            user = pwd.getpwnam("nobody")
            for one in [path, *path.rglob("*")]:
                os.chown(one, user.pw_uid, user.pw_gid)

    def inventory(self, name: str) -> Path:
        copy = self.home / name
        shutil.copytree(ROOT / "inventories" / name, copy)
        self.give(copy)
        return copy

    def __call__(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        environment |= {"HOME": str(self.home), "PATH": f"{self.home}/bin:{BIN}:{os.environ['PATH']}"}
        environment |= {"ANSIBLE_REMOTE_TMP": f"{self.home}/tmp", "ANSIBLE_LOCAL_TEMP": f"{self.home}/tmp"}
        environment |= {"ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        return subprocess.run(
            [str(BIN / program), *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            user="nobody" if os.getuid() == 0 else getpass.getuser(),
        )

    @property
    def used_sudo(self) -> bool:
        return (self.home / "sudo-was-used").exists()


@pytest.fixture
def operator() -> Iterator[Operator]:
    if os.getuid() == 0:
        reads = subprocess.run(["test", "-r", str(ROOT / "ansible.cfg")], user="nobody", check=False)
        if reads.returncode != 0:
            pytest.skip("the user nobody cannot read this checkout")
    # Not below pytest's own directory, which it closes to others again and again.
    with tempfile.TemporaryDirectory() as home:
        yield Operator(Path(home))


def vault(operator: Operator, inventory: Path, group: str, password: str = "right") -> Path:
    """Write the vault that the comments of *inventory* ask for; return the file with its password."""
    secret = operator.home / "password"
    secret.write_text(f"{password}\n")
    path = inventory / "group_vars" / group / "vault.yml"
    path.write_text(yaml.safe_dump(SECRETS))
    operator.give(operator.home)
    done = operator("ansible-vault", "encrypt", "--vault-password-file", str(secret), str(path))
    assert done.returncode == 0, done.stderr
    return secret


def judge(operator: Operator, inventory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return operator("ansible-playbook", "-i", str(inventory), "playbooks/check_inventory.yml", *arguments)


@pytest.mark.parametrize(("name", "group"), [("small", "servers"), ("example", "all")])
def test_an_inventory_is_judged_without_hosts_by_somebody_who_is_not_root(
    operator: Operator, name: str, group: str
) -> None:
    inventory = operator.inventory(name)
    secret = vault(operator, inventory, group)
    done = judge(operator, inventory, "--vault-password-file", str(secret))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert not operator.used_sudo
    opened = ("--vault-password-file", str(secret))
    shown = operator("ansible", "-i", str(inventory), *opened, "localhost", "-m", "debug", "-a", "var=ansible_become")
    assert "'ansible_become' is undefined" in shown.stdout


def test_become_for_all_is_named_and_never_used_on_this_machine(operator: Operator) -> None:
    inventory = operator.inventory("small")
    secret = vault(operator, inventory, "servers")
    everybody = inventory / "group_vars" / "all.yml"
    everybody.write_text("ansible_become: true\n")
    operator.give(inventory)
    done = judge(operator, inventory, "--vault-password-file", str(secret))
    assert done.returncode != 0
    assert "localhost" in done.stdout
    assert "variable ansible_become" in done.stdout
    assert "set it for the groups of hosts, not for all" in done.stdout
    assert not operator.used_sudo


def test_a_missing_vault_is_named_by_host_and_variable(operator: Operator) -> None:
    done = judge(operator, operator.inventory("small"))
    assert done.returncode != 0
    for host in ("log1", "log2", "log3"):
        assert f"{host}.example.internal" in done.stdout
    assert "variable pylog_cluster_secret" in done.stdout
    assert "vault_cluster_secret" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("wrong",)], ids=["no password", "wrong password"])
def test_a_vault_that_stays_shut_is_named(operator: Operator, arguments: tuple[str, ...]) -> None:
    inventory = operator.inventory("small")
    secret = vault(operator, inventory, "servers")
    if arguments:
        secret.write_text("wrong\n")
    done = judge(operator, inventory, *(("--vault-password-file", str(secret)) if arguments else ()))
    assert done.returncode != 0
    assert "no_log" not in done.stdout + done.stderr
    assert "variables" in done.stdout
    assert "log2.example.internal" in done.stdout
    assert "give the right vault password" in done.stdout


def test_one_secret_that_was_encrypted_with_another_password_is_named(operator: Operator) -> None:
    inventory = operator.inventory("small")
    secret = vault(operator, inventory, "servers")
    other = operator.home / "other"
    other.write_text("other\n")
    operator.give(operator.home)
    made = operator(
        "ansible-vault",
        "encrypt_string",
        "--vault-password-file",
        str(other),
        "x" * 32,
        "--name",
        "pylog_cluster_secret",
    )
    assert made.returncode == 0, made.stderr
    main = inventory / "group_vars" / "servers" / "main.yml"
    lines = [line for line in main.read_text().splitlines() if not line.startswith("pylog_cluster_secret")]
    main.write_text("\n".join([*lines, made.stdout]))
    done = judge(operator, inventory, "--vault-password-file", str(secret))
    assert done.returncode != 0
    assert "variable pylog_cluster_secret" in done.stdout
    assert "log2.example.internal" in done.stdout
    assert "give the right vault password" in done.stdout
