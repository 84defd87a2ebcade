"""The package cache of the local hosts."""

import http.server
import socket

import pytest

from local.hosts.apt_cache import Server


def test_it_listens_without_a_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(name: str = "") -> str:
        raise AssertionError(f"the name of {name} was asked for, which takes seconds where nobody answers")

    monkeypatch.setattr(socket, "getfqdn", ask)
    with Server(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        assert server.server_address[1] > 0
