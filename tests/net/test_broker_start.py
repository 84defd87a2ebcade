"""What a broker as a process says and does when it may not, or cannot yet, begin to serve."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from local.docs.blocks import blocks_of, matches
from pylog.faults import CERTIFICATE_EXPIRED, OPEN_ADDRESS, Exit
from pylog.testing import BrokerProcess
from tests.net.test_tutorial import run_blocks
from tests.programs.program import wait_until
from tests.servers.certificates import HOUR, Authority
from tests.servers.ports import free_ports

SECURITY_PAGE = Path(__file__).parents[2] / "docs/security.md"


def start(config: Path, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "pylog", "broker", f"--config={config}"], stdout=output, stderr=output
        )


def secured(home: Path, port: int, more: str) -> Path:
    """Return the file of a broker with a secured listener and a store of its own."""
    config = home / "broker.yml"
    (home / "data" / "store").mkdir(parents=True)
    config.write_text(
        f"version: 1\nbroker_id: 0\ndata_dir: {home}/data\nadmin_socket: {home}/data/admin.sock\n"
        f"listeners:\n  client:\n    host: 127.0.0.1\n    port: {port}\n    security.protocol: SSL\n{more}"
        "store:\n  kind: embedded\n"
    )
    return config


@pytest.mark.parametrize("what", ["revocation list", "certificate"])
def test_a_start_waits_for_a_valid_file_says_so_once_and_then_serves(tmp_path: Path, what: str) -> None:
    authority = Authority(tmp_path / "certificates")
    late_crl, late_server = (what == "revocation list"), (what == "certificate")
    crl = authority.revoke(valid_to=-HOUR if late_crl else HOUR)
    server = authority.issue("server.pem", valid_from=-3 * HOUR, valid_to=-HOUR if late_server else HOUR)
    [port] = free_ports(1)
    more = (
        f"    ssl.client.auth: required\n    ssl.keystore.location: {server}\n"
        f"    ssl.truststore.location: {authority.trusted}\n    ssl.crl.location: {crl}\n"
    )
    log = tmp_path / "broker.log"
    process = start(secured(tmp_path, port, more), log)
    try:
        wait_until(lambda: CERTIFICATE_EXPIRED.code in log.read_text(), lambda: log.read_text())
        assert "has expired" in log.read_text()
        assert process.poll() is None
        authority.revoke(valid_to=HOUR)
        authority.issue("server.pem")
        wait_until(lambda: "ready" in log.read_text(), lambda: log.read_text())
        assert log.read_text().count(CERTIFICATE_EXPIRED.code) == 1
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_start_that_waits_for_a_valid_file_can_be_stopped(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    server = authority.issue("server.pem", valid_from=-3 * HOUR, valid_to=-HOUR)
    [port] = free_ports(1)
    log = tmp_path / "broker.log"
    process = start(secured(tmp_path, port, f"    ssl.keystore.location: {server}\n"), log)
    wait_until(lambda: CERTIFICATE_EXPIRED.code in log.read_text(), lambda: log.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "log1.example.internal"])
def test_a_standalone_broker_listens_for_other_machines_only_if_told(tmp_path: Path, host: str) -> None:
    command = [sys.executable, "-m", "pylog", "broker", "--standalone", f"--data={tmp_path}/data", f"--host={host}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == Exit.USAGE
    assert OPEN_ADDRESS.code in ended.stderr
    assert not (tmp_path / "data").exists()


def test_a_standalone_broker_that_may_be_open_serves(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, host="0.0.0.0", is_open=True) as broker:
        assert not broker.has_ended


def test_the_single_secured_broker_of_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = blocks_of(SECURITY_PAGE.read_text())
    assert len(blocks) == 2
    for block, output in zip(blocks, run_blocks(blocks, tmp_path), strict=True):
        assert block.output is not None
        assert matches(block.output, output), f"{block.commands}\nwanted:\n{block.output}\nfound:\n{output}"
