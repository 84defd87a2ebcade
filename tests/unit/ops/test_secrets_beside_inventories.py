"""A directory of secrets beside an inventory's hosts, as the handbook has it, is no inventory."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_an_authority_in_the_inventory_directory_is_left_alone(tmp_path: Path) -> None:
    inventory = tmp_path / "mine"
    shutil.copytree(ROOT / "inventories" / "small", inventory)
    (inventory / "secrets").mkdir()
    (inventory / "secrets" / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    program = Path(sys.executable).with_name("ansible-inventory")
    command = [str(program), "-i", str(inventory), "--list", "--limit", "localhost,"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "secrets" not in done.stderr
