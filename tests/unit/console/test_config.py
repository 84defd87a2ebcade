"""Where a console may listen, and who may read payloads."""

from pathlib import Path
from typing import Any

import pytest

from pylog.client.connection import Connection
from pylog.config import load_console_config
from pylog.console.config import ConsoleConfig
from pylog.console.masks import Mask
from pylog.errors import ConfigError

OPEN = Connection(bootstrap="h:9092")
SECURED = Connection(
    bootstrap="h:9092",
    properties={
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "console",
        "sasl.password": "x",
    },
)
FILES = {"certificate": Path("c.pem"), "key": Path("k.pem")}


@pytest.mark.parametrize(
    ("cluster", "values", "words"),
    [
        (OPEN, {"listen": ("0.0.0.0", 1)}, "without login everybody"),
        (OPEN, {"listen": ("192.0.2.1", 1)}, "without login everybody"),
        (OPEN, {"listen": ("::", 1)}, "without login everybody"),
        (OPEN, {"listen": ("console.example", 1), **FILES}, "without login everybody"),
        (SECURED, {"listen": ("0.0.0.0", 1), "has_login": True}, "unencrypted"),
        (OPEN, {"has_login": True}, "needs brokers with logins"),
        (SECURED, {"has_login": True, "certificate": Path("c")}, "one of them is missing"),
        (SECURED, {"has_login": True, "mechanism": "PLAIN"}, "login_mechanism"),
        (SECURED, {"has_login": True, "public_url": "javascript:alert(1)"}, "public_url: must be"),
        (SECURED, {"has_login": True, "public_url": "https://h/path"}, "public_url: must be"),
        (OPEN, {"public_url": "https://console.example"}, "public_url: without login everybody"),
        (SECURED, {"public_url": "https://console.example", "read_payloads": ("*",)}, "public_url: without login"),
        (SECURED, {"has_login": True, "public_url": "http://console.example"}, "public_url: passwords would pass"),
    ],
)
def test_what_would_not_be_safe_is_refused(cluster: Connection, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ConsoleConfig(cluster=cluster, **values)


@pytest.mark.parametrize(
    ("cluster", "values"),
    [
        (OPEN, {}),
        (OPEN, {"listen": ("::1", 1)}),
        (OPEN, {"listen": ("127.0.0.9", 1)}),
        (SECURED, {"has_login": True, "listen": ("0.0.0.0", 1), **FILES}),
        (SECURED, {"has_login": True, "public_url": "https://console.example"}),
    ],
)
def test_what_is_safe_is_taken(cluster: Connection, values: dict[str, Any]) -> None:
    ConsoleConfig(cluster=cluster, **values)


def test_browsers_come_by_the_names_that_the_file_gives() -> None:
    values: dict[str, Any] = {"has_login": True, "listen": ("0.0.0.0", 1), **FILES}
    found = ConsoleConfig(cluster=SECURED, names=("Log3.example.internal", "192.0.2.3"), **values)
    assert {"log3.example.internal", "192.0.2.3", "localhost"} <= found.hosts
    assert "log4.example.internal" not in found.hosts


def test_nobody_reads_payloads_unless_named() -> None:
    assert not ConsoleConfig(cluster=OPEN).may_read_payloads("")
    assert ConsoleConfig(cluster=OPEN, read_payloads=("*",)).may_read_payloads("")
    named = ConsoleConfig(cluster=SECURED, has_login=True, read_payloads=("alice",))
    assert named.may_read_payloads("alice")
    assert not named.may_read_payloads("Alice")
    assert not named.may_read_payloads("")


def test_a_file_says_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "console.yml"
    path.write_text(
        "version: 1\nbootstrap: h:9092\nlisten: 127.0.0.1:8086\nread_payloads: ['*']\nregistry: [http://r:8081]\n"
    )
    found = load_console_config(path)
    assert (found.listen, found.read_payloads, found.registries) == (("127.0.0.1", 8086), ("*",), ("http://r:8081",))
    assert not found.has_login


def test_a_file_names_what_nobody_sees(tmp_path: Path) -> None:
    path = tmp_path / "console.yml"
    path.write_text(
        "version: 1\nbootstrap: h:9092\nmasks:\n- {topic: orders, field: card.number}\n- {topic: 'hr-*', part: key}\n"
    )
    assert load_console_config(path).masks == (
        Mask(topic="orders", part="value", field="card.number"),
        Mask(topic="hr-*", part="key"),
    )
    for wrong, words in (
        ("{topic: a, part: body}", "part: must be one of key, value, header, got body"),
        ("{field: a}", "topic"),
        ("{topic: a, name: b}", "unknown key"),
        ("{topic: a, field: }", "field: wanted a text"),
    ):
        path.write_text(f"version: 1\nbootstrap: h:9092\nmasks: [{wrong}]\n")
        with pytest.raises(ConfigError, match=words):
            load_console_config(path)


def test_a_file_names_the_other_clusters_that_count(tmp_path: Path) -> None:
    path = tmp_path / "console.yml"
    path.write_text(
        "version: 1\nbootstrap: h:9092\naudit_window_ms: 5000\nledgers: [{bootstrap: 'b:9092', timeout_s: 3}]\n"
    )
    found = load_console_config(path)
    assert [(one.bootstrap, one.timeout_s) for one in found.ledgers] == [("b:9092", 3)]
    assert found.window_ms == 5_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ledgers: b:9092\n", "wanted a list of keys and values"),
        ("ledgers: [{bootstrap: b, boot: c}]\n", "unknown key"),
        ("listen: 0.0.0.0:80\n", "without login everybody"),
        ("login: basic\n", "must be none or scram"),
        ("loggin: scram\n", "unknown key"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "console.yml"
    path.write_text("version: 1\nbootstrap: h:9092\n" + text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_console_config(path)
    assert str(path) in str(caught.value)


def test_the_lake_is_named_by_an_absolute_path(tmp_path: Path) -> None:
    path = tmp_path / "console.yml"
    path.write_text("version: 1\nbootstrap: h:9092\nlake: /srv/lake\n")
    assert load_console_config(path).lake == Path("/srv/lake")
    path.write_text("version: 1\nbootstrap: h:9092\nlake: lake\n")
    with pytest.raises(ConfigError, match="lake: must be an absolute path, got lake"):
        load_console_config(path)
