"""An operator of hosts that a company handed over: programs of the checkout, with the inventory and its vault."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.rolls.cluster import HOSTS_FILE, ROOT

INVENTORY = os.environ.get("PYLOG_INVENTORY", "")
BIN = Path(sys.executable).parent


def run(program: str, *words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program as an operator does: Molecule's own settings of Ansible do not count. No secret may be shown."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_"))}
    own = {"ANSIBLE_VAULT_PASSWORD_FILE": os.environ["ANSIBLE_VAULT_PASSWORD_FILE"], "PYTHONDONTWRITEBYTECODE": "1"}
    began_s = time.monotonic()
    done = subprocess.run(
        [str(BIN / program), *words], cwd=ROOT, env=known | own | variables, capture_output=True, text=True,
        check=False, timeout=1200, input=stdin,
    )  # fmt: skip
    print(f"{program} {' '.join(words)}: exit code {done.returncode} after {time.monotonic() - began_s:.0f} s")
    print(done.stdout[-6000:], done.stderr[-2000:])
    secrets = {path.name: path.read_text().strip() for path in HOSTS_FILE.parent.glob("*.secret")}
    assert len(secrets) == 3
    assert [name for name, secret in secrets.items() if secret in done.stdout + done.stderr] == []
    return done


def playbook(name: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook over the inventory."""
    return run("ansible-playbook", "-i", INVENTORY, f"playbooks/{name}.yml", *words, **variables)
