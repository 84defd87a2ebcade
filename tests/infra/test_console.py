"""The console as a browser meets it on its host: what the cluster is like, and nothing for whoever has no login."""

import json
import time
from typing import Any

import pytest
from testinfra.host import Host

from tests.infra.conftest import read_json, setting, want_group

pytestmark = pytest.mark.readonly

DEADLINE_S = 60.0
_FETCH = """
import json, ssl, sys, urllib.error, urllib.request
context = ssl._create_unverified_context()
try:
    with urllib.request.urlopen(sys.argv[1], timeout=20, context=context) as answer:
        print(json.dumps({"status": answer.status, "text": answer.read().decode()}))
except urllib.error.HTTPError as error:
    print(json.dumps({"status": error.code, "text": ""}))
"""


def test_the_console_says_how_the_cluster_is_or_asks_for_a_login(host: Host, mine: dict[str, Any]) -> None:
    want_group(mine, "pylog_console")
    service = host.service("pylog-console")
    assert (service.is_running, service.is_enabled) == (True, True)
    listen = str(setting(mine, "console", "console_listen")).replace(
        "0.0.0.0", mine.get("pylog_address", mine["inventory_hostname"])
    )
    scheme = "http" if listen.startswith("127.") else "https"

    def fetch(path: str) -> dict[str, Any]:
        answer: dict[str, Any] = read_json(host, "python3 -c %s %s", _FETCH, f"{scheme}://{listen}{path}")
        return answer

    if mine.get("console_login", "scram" if mine.get("pylog_security", "none") != "none" else "none") == "scram":
        assert fetch("/api/")["status"] == 401
        return
    deadline_s = time.monotonic() + DEADLINE_S
    while (overview := json.loads(fetch("/api/")["text"])).get("verdict", "unknown") == "unknown":
        assert time.monotonic() < deadline_s, overview
        time.sleep(1)
    assert "<h1" in fetch("/")["text"]
    topics = json.loads(fetch("/api/topics")["text"])["topics"]
    assert "host.journal" in {row["name"] for row in topics}
    while json.loads(fetch("/api/alerts")["text"])["verdict"] == "unknown":
        assert time.monotonic() < deadline_s, "the Prometheus of the inventory does not answer"
        time.sleep(1)
