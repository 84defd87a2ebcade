"""`fab` logs in as the inventory says: through a proxy, with a password for sudo, to a host whose key is known."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import paramiko
import pytest
from testinfra.host import Host as HostUnderTest

from pylog.ops.inventory import target
from pylog.ops.tasks import ask, run_script
from tests.infra.conftest import Login as SuitesLogin

USER = "deploy"
RELAY = """
import os, socket, sys, threading
to = socket.create_connection((sys.argv[1], int(sys.argv[2])))
open(sys.argv[3], "a").write("used")
def there():
    while data := os.read(0, 65536):
        to.sendall(data)
threading.Thread(target=there, daemon=True).start()
while data := to.recv(65536):
    os.write(1, data)
"""


class Login(paramiko.ServerInterface):
    """Lets one user in with one key, and runs commands with a `sudo` that wants a password."""

    def __init__(self, key: paramiko.PKey, path: str) -> None:
        self.key = key
        self.path = path

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        is_known = username == USER and key == self.key
        return int(paramiko.AUTH_SUCCESSFUL if is_known else paramiko.AUTH_FAILED)

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return int(paramiko.OPEN_SUCCEEDED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self.run, args=(channel, command.decode()), daemon=True).start()
        return True

    def run(self, channel: paramiko.Channel, command: str) -> None:
        pipe = subprocess.PIPE
        process = subprocess.Popen(["sh", "-c", command], stdin=pipe, stdout=pipe, stderr=pipe, env={"PATH": self.path})
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None

        def answer(stdin: IO[bytes]) -> None:
            while data := channel.recv(4096):
                stdin.write(data)
                stdin.flush()

        def show(output: IO[bytes], send: Callable[[bytes], None]) -> None:
            while data := os.read(output.fileno(), 4096):
                send(data)

        threading.Thread(target=answer, args=(process.stdin,), daemon=True).start()
        said = threading.Thread(target=show, args=(process.stderr, channel.sendall_stderr), daemon=True)
        said.start()
        show(process.stdout, channel.sendall)
        said.join()
        channel.send_exit_status(process.wait())
        channel.close()


class Host:
    """An SSH server on a port of this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = paramiko.ECDSAKey.generate()
        self.host_key = paramiko.ECDSAKey.generate()
        self.key.write_private_key_file(str(directory / "key"))
        sudo = directory / "bin" / "sudo"
        sudo.parent.mkdir()
        sudo.write_text(
            '#!/bin/sh\nif [ "$1" = -n ]; then echo "sudo: a password is required" >&2; exit 1; fi\n'
            'printf %s "$3" >&2; read -r given; shift 3\n'
            '[ "$given" = "right" ] || { echo "sudo: wrong" >&2; exit 1; }; exec "$@"\n'
        )
        sudo.chmod(0o755)
        (directory / "relay.py").write_text(RELAY)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        (directory / "known_hosts").write_text(
            f"[127.0.0.1]:{self.port} {self.host_key.get_name()} {self.host_key.get_base64()}\n"
        )
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.host_key)
            transport.start_server(server=Login(self.key, f"{self.directory}/bin:/usr/bin:/bin"))

    def variables(self, **more: object) -> dict[str, object]:
        options = f"-o UserKnownHostsFile={self.directory}/known_hosts -p {self.port} -l {USER}"
        return {
            "ansible_host": "127.0.0.1",
            "ansible_ssh_private_key_file": str(self.directory / "key"),
            "ansible_ssh_common_args": options,
            **more,
        }

    @property
    def proxy(self) -> str:
        return f"-o 'ProxyCommand={sys.executable} {self.directory}/relay.py %h %p {self.directory}/used'"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.listener.close()


RUN_SCRIPT = """
import json, sys
from testinfra.host import Host as HostUnderTest

from pylog.ops.inventory import target
from pylog.ops.tasks import run_script
print(json.dumps(run_script(target("h1", json.loads(sys.argv[1]), set()), sys.argv[2])))
"""


def test_a_script_runs_as_root_through_the_proxy_with_the_password_of_sudo(host: Host) -> None:
    given = host.variables(ansible_ssh_extra_args=host.proxy, ansible_become_password="right")
    # In a process of its own, as `fab` is one: paramiko waits for a proxy by select(), which fails for descriptors from
    # 1,024 on, and the process of these tests may have as many open.
    command = [sys.executable, "-c", RUN_SCRIPT, json.dumps(given), "echo done; exit 3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1:] == ['[3, "done"]'], done.stdout + done.stderr
    assert (host.directory / "used").read_text() == "used"


def test_without_the_password_sudo_says_so(host: Host) -> None:
    assert run_script(target("h1", host.variables(), set()), "true") == (1, "sudo: a password is required")
    code, said = run_script(target("h1", host.variables(ansible_become_password="x"), set()), "true")
    assert (code, said) == (1, "sudo: wrong")


def test_logs_shows_a_journal_without_the_question_of_sudo(host: Host) -> None:
    journalctl = host.directory / "bin" / "journalctl"
    journalctl.write_text('#!/bin/sh\necho "a line of $3"; echo "no such unit" >&2; exit "$5"\n')
    journalctl.chmod(0o755)
    given = host.variables(ansible_become=True, ansible_become_password="right")
    inventory = host.directory / "hosts.json"
    inventory.write_text(json.dumps({"pylog_broker": {"hosts": {"h1": given}}}))
    fab = [str(Path(sys.executable).with_name("fab")), "logs", "--host=h1", "--unit=u", f"--inventory={inventory}"]
    for code, told in ((0, ""), (5, "error: journalctl on h1 ended with exit code 5\n")):
        done = subprocess.run([*fab, f"--lines={code}"], capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (min(code, 1), "a line of u\n"), done.stderr
        assert done.stderr == f"no such unit\n{told}"


def test_the_suite_runs_its_commands_as_root_over_the_same_login(host: Host) -> None:
    login = SuitesLogin(target("h1", host.variables(ansible_become_password="right"), set()))
    found = HostUnderTest(login)
    assert found.check_output("printf %s", "a 'b' ü") == "a 'b' ü"
    assert found.run("cat; exit 3").rc == 3, "there is nothing to read"
    said = found.run("echo aside >&2")
    assert (said.stdout, said.stderr) == ("", "aside\n"), "without the question of sudo"
    login.connection.close()


def test_the_suite_tries_a_host_that_lets_nobody_in_only_once(host: Host) -> None:
    (host.directory / "known_hosts").write_text("")
    login = SuitesLogin(target("h1", host.variables(ansible_become_password="right"), set()))
    with pytest.raises(paramiko.SSHException) as first:
        login.run("true")
    host.listener.close()
    with pytest.raises(paramiko.SSHException) as second:
        login.run("true")
    assert first.value is second.value


def test_a_host_with_another_key_than_the_known_one_is_unreachable(host: Host) -> None:
    (host.directory / "known_hosts").write_text("")
    answer = ask(target("h1", host.variables(ansible_become_password="right"), set()))
    assert isinstance(answer, str)
    assert "unreachable" in answer
