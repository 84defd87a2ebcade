"""The inventory of the local hosts, as a program."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from local.hosts import hosts


@pytest.fixture
def inventory() -> ModuleType:
    spec = importlib.util.spec_from_file_location("inventory", hosts.ROOT / "inventories" / "local" / "hosts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_secret_is_made_once_whoever_asks_first(inventory: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "cluster.secret"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(inventory.make_secret, [path] * 8))
    made = path.read_text()
    assert len(made.strip()) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    inventory.make_secret(path)
    assert path.read_text() == made
    assert list(tmp_path.iterdir()) == [path]


def test_each_set_of_hosts_is_secured_as_it_was_told(
    inventory: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SECURITY", raising=False)
    monkeypatch.delenv("PYLOG_HOSTS_FILE", raising=False)
    monkeypatch.setattr(inventory, "SECURITY", tmp_path / "security")
    assert inventory.security() == "sasl_ssl"
    monkeypatch.setenv("PYLOG_HOSTS_FILE", str(tmp_path / "hosts.json"))
    assert inventory.security() == "none"
    (tmp_path / "security").write_text("sasl_ssl\n")
    assert inventory.security() == "sasl_ssl"
    monkeypatch.setenv("SECURITY", "none")
    assert inventory.security() == "none"
