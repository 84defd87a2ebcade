"""Keys of tokens over HTTPS: whom they are taken from, and that a server that hangs holds up nobody for long."""

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pylog.broker.token_keys import REFRESH_S, RETRY_S, TokenKeys
from pylog.security.exchange import LoginFailed
from tests.servers.certificates import Authority
from tests.unit.security.test_oauthbearer import EC, NOW_S, RULES, Clock, document, token


class Provider(ThreadingHTTPServer):
    """Answers /keys, redirects /moved to it, and lets whoever asks for /keys wait while `is_hanging` is set."""

    daemon_threads = True

    def __init__(self, key_store: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(key_store)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self.server_address[1]}"
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.hangs = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,)).start()


class _Answer(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if not self.server.may_answer.is_set():
            self.server.hangs.set()
        self.server.may_answer.wait(30)
        body = json.dumps(document(EC)).encode()
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Location", "/keys")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def provider(authority: Authority) -> Iterator[Provider]:
    server = Provider(authority.server())
    try:
        yield server
    finally:
        server.may_answer.set()
        server.shutdown()
        server.server_close()


def test_keys_of_a_server_with_a_good_certificate_are_taken(authority: Authority, provider: Provider) -> None:
    keys = TokenKeys(f"{provider.url}/keys", authority.trusted)
    assert keys.check(token(), RULES, NOW_S)[0] == "alice"
    assert keys.check(token(), RULES, NOW_S)[0] == "alice"
    assert provider.asked == ["/keys"]


def test_no_redirect_is_followed(authority: Authority, provider: Provider) -> None:
    keys = TokenKeys(f"{provider.url}/moved", authority.trusted)
    with pytest.raises(LoginFailed, match="could not be read"):
        keys.check(token(), RULES, NOW_S)
    assert provider.asked == ["/moved"]


def test_a_server_of_another_authority_is_asked_nothing(provider: Provider, tmp_path: Path) -> None:
    keys = TokenKeys(f"{provider.url}/keys", Authority(tmp_path / "other", "others").trusted)
    with pytest.raises(LoginFailed, match="could not be read"):
        keys.check(token(), RULES, NOW_S)
    assert provider.asked == []


def test_a_server_that_hangs_holds_up_no_login_with_known_keys(authority: Authority, provider: Provider) -> None:
    clock = Clock()
    keys = TokenKeys(f"{provider.url}/keys", authority.trusted, now_s=clock)
    keys.check(token(), RULES, NOW_S)
    provider.may_answer.clear()
    clock.now_s = REFRESH_S
    first = threading.Thread(target=keys.check, args=(token(), RULES, NOW_S))
    first.start()
    assert provider.hangs.wait(20)
    clock.now_s += RETRY_S  # later than any login waits for a fetch that is under way
    for _ in range(100):
        assert keys.check(token(), RULES, NOW_S)[0] == "alice"
    assert not provider.may_answer.is_set()
    first.join(30)
    assert not first.is_alive(), "it went on with the keys from before"
    assert len(provider.asked) == 2, "one fetch at a time"
