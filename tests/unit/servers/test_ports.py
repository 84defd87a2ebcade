"""Ports of servers: never the same twice, whoever asks, and never one that is taken."""

import socket
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.servers import ports
from tests.servers.ports import FIRST, LAST, free_ports


def test_processes_side_by_side_get_different_ports(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3) as pool:
        found = [port for some in pool.map(free_ports, [5] * 12, [tmp_path / "counter"] * 12) for port in some]
    assert len(set(found)) == 60


def test_a_port_that_somebody_listens_on_is_passed_over(tmp_path: Path) -> None:
    [port] = free_ports(1)
    (tmp_path / "counter").write_text(str(port - 1))
    with socket.create_server(("127.0.0.1", port)):
        assert port not in free_ports(2, tmp_path / "counter")


@pytest.mark.parametrize("last", ["", "garbage", "70000", "-4", str(LAST)])
def test_after_the_last_port_and_after_nonsense_it_begins_anew(last: str, tmp_path: Path) -> None:
    (tmp_path / "counter").write_text(last)
    [port] = free_ports(1, tmp_path / "counter")
    assert FIRST <= port < FIRST + 1000


def test_with_none_free_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda port: False)
    with pytest.raises(AssertionError, match="1 ports wanted, 0 of"):
        free_ports(1, tmp_path / "counter")
