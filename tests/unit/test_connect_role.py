"""Role `connect`: what it writes, by Ansible's own templates, and what it makes of the inventory's connectors."""

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.connect_role import ROOT, rendered

SECRET = 'p"a\\ss=word: 0123'
CONNECTORS = [
    {
        "name": "out",
        "config": {"connector.class": "FileStreamSink", "topics": "orders", "file": "/x"},
        "state": "paused",
    }
]


def lines(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


@pytest.fixture(scope="module")
def open_host(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, object]]:
    files = {"/opt/pylog/connect/0123456789": "directory 0755 root root", "/opt/pylog/connect/aaaaaaaaaa": "directory"}
    return rendered(
        tmp_path_factory.mktemp("open"),
        {
            "connect_connectors": CONNECTORS,
            "connect_absent": ["old"],
            "connect_plugins": {"file": "requirements/connect/file.txt"},
            "connect_config": {"offset.flush.interval.ms": 5000},
            "__preflight_host": {"files": files, "users": {"pylog-connect": []}, "settled_units": []},
            "__connect_before": {
                "stdout": json.dumps(
                    {
                        "connectors": [
                            {"connector": "a", "state": "running"},
                            {"connector": "b", "state": "failed"},
                            {"connector": "c", "state": "unassigned"},
                        ]
                    }
                )
            },
        },
    )


@pytest.fixture(scope="module")
def secured_host(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, object]]:
    return rendered(
        tmp_path_factory.mktemp("secured"),
        {
            "pylog_security": "sasl_ssl",
            "users_passwords": {"pylog-connect": SECRET},
            "connect_secrets": {"database": SECRET},
            "__preflight_logins": ["live"],
            "__preflight_stages": {"live": {"programs": "secured"}},
        },
    )


def test_an_open_worker_listens_on_loopback_alone(open_host: tuple[dict[str, str], dict[str, object]]) -> None:
    found = lines(open_host[0]["worker.properties"])
    assert found["listeners"] == "http://127.0.0.1:8083"
    assert found["rest.advertised.host.name"] == "127.0.0.1"
    assert found["bootstrap.servers"] == "192.0.2.1:9092"
    assert found["plugin.path"] == "/opt/pylog/connect/0123456789/plugins"
    assert found["offset.flush.interval.ms"] == "5000"
    assert not [name for name in found if "ssl" in name or "sasl" in name]
    assert "login.properties" not in open_host[0]
    assert "keystores" not in open_host[0]["pylog-connect.service"]
    assert "--worker 127.0.0.1:8083 " in open_host[0]["pylog-connect-watch.service"]


def test_a_secured_worker_logs_in_and_asks_for_a_certificate(
    secured_host: tuple[dict[str, str], dict[str, object]],
) -> None:
    found = lines(secured_host[0]["worker.properties"])
    assert found["listeners"] == "https://0.0.0.0:8083"
    assert found["rest.advertised.host.name"] == "192.0.2.7"
    assert found["listeners.https.ssl.client.auth"] == "required"
    for who in ("", "producer.", "consumer.", "admin."):
        assert found[f"{who}security.protocol"] == "SASL_SSL"
        assert found[f"{who}sasl.jaas.config"] == "${file:/etc/pylog-connect/login.properties:jaas}"
    unit = secured_host[0]["pylog-connect.service"]
    assert "pylog.connect.keystores /etc/pylog-connect/tls.pem /etc/pylog-connect/ca.pem /run/pylog-connect\n" in unit
    assert "/etc/pylog-connect/tls.pem" in unit.split("sha256sum")[1].splitlines()[0], "a new certificate is a restart"
    watch = secured_host[0]["pylog-connect-watch.service"]
    assert "--worker 192.0.2.7:8083 " in watch
    assert "--url https://127.0.0.1:8083 --ca /etc/pylog/ca.pem --certificate /etc/pylog/connect.pem\n" in watch


def test_secrets_are_in_files_of_their_own_and_in_no_other(
    secured_host: tuple[dict[str, str], dict[str, object]],
) -> None:
    texts, facts = secured_host
    assert lines(texts["secrets.properties"]) == {"database": SECRET.replace("\\", "\\\\")}
    assert "ScramLoginModule" in texts["login.properties"]
    for name, text in texts.items():
        assert name in ("secrets.properties", "login.properties") or "0123\n" not in text.replace('0123"', "0123\n")
    assert "ss=word" not in str(facts)


def test_connectors_of_the_inventory_are_the_document_with_dead_letters(
    open_host: tuple[dict[str, str], dict[str, object]],
) -> None:
    document = open_host[1]["__connect_document"]
    assert isinstance(document, dict)
    assert document["absent"] == ["old"]
    [sink] = document["connectors"]
    assert sink["state"] == "paused"
    assert sink["config"]["errors.deadletterqueue.topic.name"] == "connect-dead-letters-out"


def test_a_restart_waits_for_what_ran_before_and_removes_the_plugins_of_before(
    open_host: tuple[dict[str, str], dict[str, object]],
) -> None:
    _, facts = open_host
    assert facts["__connect_differs"] is True
    assert facts["__connect_failed"] == ["b"]
    assert facts["__connect_former"] == ["/opt/pylog/connect/aaaaaaaaaa"]
    assert facts["__connect_locks"] == [
        "file=requirements/connect/file.txt", "worker=requirements/connect/worker.txt"
    ]  # fmt: skip
    assert all((ROOT / str(one).split("=")[1]).is_file() for one in facts["__connect_locks"])


def test_other_roles_find_workers_and_topics_in_ansibles_own_variables(
    open_host: tuple[dict[str, str], dict[str, object]],
) -> None:
    _, facts = open_host
    assert facts["workers"] == ["localhost"]
    assert [one["name"] for one in facts["topics"]] == [  # type: ignore[attr-defined]
        "connect-configs", "connect-offsets", "connect-status"
    ]  # fmt: skip


def test_worker_and_plugins_are_unpacked_apart(tmp_path: Path) -> None:
    archive, root = tmp_path / "a.tar", tmp_path / "connect"
    root.mkdir()
    (tmp_path / "x.jar").write_text("x")
    with tarfile.open(archive, "w") as tar:
        for name in ("file/worker", "mirror/x.jar", "worker/x.jar"):
            tar.add(tmp_path / "x.jar", arcname=name)
    script = (ROOT / "roles/connect/files/install.sh").read_text().replace("/opt/pylog/connect", str(root))
    command = ["sh", "-s", str(archive), str(root / "0123456789")]
    subprocess.run(command, input=script, text=True, check=True)
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    assert found == ["0123456789/plugins/file/worker", "0123456789/plugins/mirror/x.jar", "0123456789/worker/x.jar"]
    assert not archive.exists()
