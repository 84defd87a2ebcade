"""What the program that runs on a host reads: from captured output, real files and a real unix socket."""

import ast
import hashlib
import http.server
import inspect
import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog.ops import host

SS = """\
LISTEN 0      128    0.0.0.0:22   0.0.0.0:* ino:264161 sk:100b cgroup:/system.slice/ssh.service <->
LISTEN 0      50     0.0.0.0:2181 0.0.0.0:* uid:4294967294 ino:444082 sk:11 cgroup:/system.slice/x.service <->
LISTEN 0      128       [::]:22      [::]:* ino:264172 sk:100c cgroup:/system.slice/ssh.service v6only:1 <->
"""


class Admin(socketserver.ThreadingUnixStreamServer):
    """A real HTTP server on a unix socket."""

    answers: dict[str, tuple[int, bytes]]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Admin)
        status, body = self.server.answers[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with Admin(str(tmp_path / "admin.sock"), Handler) as server:
        server.answers = {}
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_listeners_have_port_address_and_user() -> None:
    assert host.listeners(SS) == [
        {"port": 22, "address": "0.0.0.0", "user": "root"},
        {"port": 2181, "address": "0.0.0.0", "user": "4294967294"},
        {"port": 22, "address": "[::]", "user": "root"},
    ]


def test_a_python_that_preflight_refuses_can_still_be_read_for_its_row() -> None:
    text = Path(host.__file__).read_text()
    ast.parse(text, feature_version=(3, 8))  # Ansible itself refuses older ones
    # `X | None` and `dict[str, int]` are errors there where an annotation is evaluated.
    functions = [
        value for value in vars(host).values() if inspect.isfunction(value) and value.__module__ == host.__name__
    ]
    annotations = [one for function in functions for one in function.__annotations__.values()]
    assert annotations
    assert all(isinstance(one, str) for one in annotations)


def test_free_space_is_read_once_for_each_file_system_also_of_directories_that_are_not_there_yet(
    tmp_path: Path,
) -> None:
    missing = str(tmp_path / "zookeeper" / "data")
    found = host.free_bytes([missing, str(tmp_path), "/dev/shm", "/proc"])
    assert list(found) == [missing, "/dev/shm", "/proc"]
    assert found[missing] > 0
    assert found["/proc"] == 0


def test_a_file_that_changed_since_the_start_is_named(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("unit", "configuration", "gone")]
    for path in files:
        path.write_text("before")
    digest = hashlib.sha256(b"before").hexdigest()
    record = tmp_path / "started"
    record.write_text("".join(f"{digest}  {path}\n" for path in files))
    assert host.changed_since_start(str(record)) == []
    files[1].write_text("after")
    files[2].unlink()
    assert host.changed_since_start(str(record)) == [str(files[1]), str(files[2])]


def test_a_unit_is_settled_that_runs_starts_at_boot_and_is_known_as_its_file_is() -> None:
    def block(name: str, **changes: str) -> str:
        values = {"Id": name, "ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no", **changes}
        return "".join(f"{key}={value}\n" for key, value in values.items())

    shown = "\n".join([
        block("pylog-ship.service"), block("pylog-broker@1.service"), block("a", ActiveState="failed"),
        block("b", UnitFileState="disabled"), block("c", NeedDaemonReload="yes"),
    ])  # fmt: skip
    assert host.settled(shown) == ["pylog-ship.service", "pylog-broker@1.service"]
    assert host.settled("") == []
    assert (host.outdated(shown), host.outdated("")) == (["c"], [])
    assert [host.record_of(name) for name in host.settled(shown)] == [
        "/run/pylog-ship/started", "/run/pylog/broker-1.started"
    ]  # fmt: skip


def test_a_missing_record_counts_as_changed(tmp_path: Path) -> None:
    assert host.changed_since_start(str(tmp_path / "started")) == [str(tmp_path / "started")]


def test_the_admin_socket_is_asked(admin: Admin, tmp_path: Path) -> None:
    admin.answers["/ready"] = (503, b'{"ready": false, "reason": "not in sync"}')
    assert host.ask(str(tmp_path / "admin.sock"), "/ready") == {"ready": False, "reason": "not in sync"}


@pytest.mark.parametrize("body", [b"", b"<html>"])
def test_an_answer_that_is_no_json_is_no_answer(admin: Admin, tmp_path: Path, body: bytes) -> None:
    admin.answers["/ready"] = (200, body)
    assert host.ask(str(tmp_path / "admin.sock"), "/ready") is None


def test_a_missing_admin_socket_is_no_answer(tmp_path: Path) -> None:
    assert host.ask(str(tmp_path / "nobody.sock"), "/ready") is None


@pytest.mark.parametrize(
    ("ready", "is_well", "left"),
    [([False, True, True, True], True, 1), ([True, False, True, True, False], True, 1), ([False], False, 0)],
)
def test_waiting_wants_good_readings_in_a_row(ready: list[bool], is_well: bool, left: int) -> None:
    wait_s = 0 if len(ready) == 1 else 60
    asked = {"wait_s": wait_s, "interval_s": 0, "consecutive": 2}
    assert host.wait(lambda _: {"is_ready": ready.pop(0)}, asked)["is_well"] == is_well
    assert len(ready) == left


def test_waiting_ends_early_for_a_process_that_crashes_again_and_again() -> None:
    read = [{"is_ready": False, "is_hopeless": False}, {"is_ready": False, "is_hopeless": True}]
    assert not host.wait(lambda _: read.pop(0), {"wait_s": 3600, "interval_s": 0})["is_well"]
    assert read == []


@pytest.mark.parametrize(
    ("state", "is_hopeless"),
    [
        ("ActiveState=inactive\nJob=", True),
        ("ActiveState=failed\nJob=", True),
        ("ActiveState=inactive\nJob=117", False),
        ("ActiveState=activating\nJob=", False),
        ("", False),  # systemd does not answer
    ],
)
def test_a_broker_that_nothing_starts_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, state: str, is_hopeless: bool
) -> None:
    monkeypatch.setattr(host, "run", lambda *_: (0, state))
    found = host.brokers({"brokers": [7]})
    assert found["is_hopeless"] is is_hopeless
    assert ("nothing starts it" in found["reason"]) is is_hopeless


def test_reading_the_log_after_a_crash_does_not_count_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock_s.append(clock_s.pop() + seconds))

    def read(_: object) -> dict[str, bool]:
        return {"is_ready": clock_s[0] >= 1000, "is_recovering": clock_s[0] < 999}

    assert host.wait(read, {"wait_s": 5, "interval_s": 1})["is_well"]
    assert clock_s[0] == 1000


def test_copying_partitions_does_not_count_as_waiting_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock_s.append(clock_s.pop() + seconds))

    def read(_: object) -> dict[str, Any]:
        # One more is in sync every four seconds, until the last three stand still.
        return {"is_ready": False, "lacking": max(3, 10 - int(clock_s[0]) // 4)}

    asked: dict[str, Any] = {"wait_s": 5, "interval_s": 1, "report_s": 10}
    told = []
    while not (answer := host.wait(read, asked))["is_over"]:
        told.append((clock_s[0], answer["lacking"]))
        asked["waited"] = answer["waited"]
    assert told == [(10, 8), (20, 5), (30, 3)]
    assert (answer["is_well"], clock_s[0]) == (False, 33), "it stood still from second 28 on"


def test_waiting_for_zookeeper_has_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock_s.append(clock_s.pop() + seconds))

    def read(back_s: int, well_s: int) -> Callable[[object], dict[str, Any]]:
        return lambda _: {"is_ready": clock_s[0] >= well_s, "is_without_session": clock_s[0] < back_s}

    asked: dict[str, Any] = {"wait_s": 30, "interval_s": 1}
    answer = host.wait(read(back_s=29, well_s=50), asked)
    assert (answer["is_well"], clock_s[0]) == (True, 50)
    clock_s[0] = 0
    answer = host.wait(read(back_s=29, well_s=90), asked)
    assert (answer["is_well"], clock_s[0]) == (False, 58), "its own time is over"
    clock_s[0] = 0
    answer = host.wait(read(back_s=90, well_s=90), asked)
    assert (answer["is_well"], clock_s[0], answer["waited"]["store_s"]) == (False, 30, 30), "ZooKeeper's time is over"


def test_only_the_wait_for_the_first_session_is_said_to_be_zookeepers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock_s.append(clock_s.pop() + seconds))

    def read(_: object) -> dict[str, Any]:
        has_session = clock_s[0] in (3, 29, 30)
        return {"is_ready": False, "is_without_session": not has_session, "has_session": has_session}

    answer = host.wait(read, {"wait_s": 25, "interval_s": 1})
    assert (answer["waited"]["late_s"], answer["waited"]["store_s"]) == (2, 25)


def test_a_broker_that_answers_and_is_not_registered_is_without_a_session() -> None:
    assert not host.is_without_session({"status": None}), "nothing is known of what does not answer"
    assert not host.is_without_session({"status": {"state": "running"}}), "a release that does not say so"
    assert not host.is_without_session({"status": {"is_registered": True}})
    assert host.is_without_session({"status": {"is_registered": False}})


def test_what_a_process_started_with_is_read_from_its_record(tmp_path: Path) -> None:
    record = tmp_path / "started"
    record.write_text("aa  /etc/pylog/broker-1.yml\nbb  /opt/pylog/current/requirements.lock\n")
    wanted = {"/etc/pylog/broker-1.yml": "aa", "/opt/pylog/current/requirements.lock": "bb"}
    assert host.started_with(str(record)) == wanted
    assert host.started_with(str(tmp_path / "none")) == {}


def test_free_space_of_a_directory_that_is_not_there_yet_is_all_of_it(tmp_path: Path) -> None:
    assert host.free_percent(str(tmp_path / "none")) == 100
    assert 0 <= host.free_percent(str(tmp_path)) <= 100


def test_os_release_is_read_with_and_without_quotes() -> None:
    assert host.os_release('ID=debian\nVERSION_ID="12"\n\n') == {"ID": "debian", "VERSION_ID": "12"}


def test_the_program_answers_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert host.main(["facts", json.dumps({"disks": ["/dev/null"], "names": ["localhost"]})]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["disks"] == {"/dev/null": {"exists": False}}
    assert all(facts["resolved"].values())
    assert facts["memory_bytes"] > 0
    assert set(facts["sysctls"]) == set(host.SYSCTLS)


def test_f13_any_kernel_setting_is_read_as_people_write_it() -> None:
    found = host.sysctls(["net.ipv4.ip_local_port_range", "no.such.setting"])
    assert re.fullmatch(r"\d+ \d+", found["net.ipv4.ip_local_port_range"])
    assert found["no.such.setting"] == ""


@pytest.mark.parametrize(
    ("noted", "now", "said"),
    [
        ("table a", (0, "table a"), "loaded"),
        ("table a", (0, "table b"), "changed"),
        (None, (0, "table a"), "changed"),
        ("table a", (1, ""), ""),
    ],
)
def test_f13_a_packet_filter_that_is_not_as_loaded_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: str | None, now: tuple[int, str], said: str
) -> None:
    if noted is not None:
        (tmp_path / "loaded").write_text(f"{hashlib.sha256(noted.encode()).hexdigest()}  -\n")
    monkeypatch.setattr(host, "FILTER_LOADED", tmp_path / "loaded")
    monkeypatch.setattr(host, "run", lambda *_: now)
    assert host.packet_filter() == said


def test_units_that_run_and_start_at_boot_are_told_from_those_that_a_timer_starts() -> None:
    shown = (
        "Id=pylog-ship.service\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=pylog-ingest.service\nActiveState=activating\nUnitFileState=disabled\n\n"
        "Id=pylog-audit.service\nActiveState=inactive\nUnitFileState=enabled\n"
    )
    assert host.enabled(shown) == ["pylog-ship.service"]


def test_a_server_that_starts_ends_or_failed_is_none_that_was_stopped() -> None:
    states = ("active", "activating", "deactivating", "failed", "inactive")
    shown = "\n\n".join(
        f"Id=pylog-broker@{number}.service\nActiveState={state}\nUnitFileState=enabled"
        for number, state in enumerate(states)
    )
    shown += "\n\nId=pylog-broker@9.service\nActiveState=failed\nUnitFileState=disabled\n"
    here, stopped = host.here_and_stopped(shown)
    assert here == [f"pylog-broker@{number}.service" for number in range(4)]
    assert stopped == ["pylog-broker@4.service"]


def test_addresses_are_those_of_every_link() -> None:
    text = '[{"addr_info": [{"local": "10.0.0.2"}, {"local": "fd00::2"}]}, {"addr_info": [{}]}, {}]'
    assert host.addresses(text) == ["10.0.0.2", "fd00::2"]
    assert host.addresses("") == []


def test_ports_of_ssh_are_what_sshd_says_or_its_default() -> None:
    assert host.ssh_ports("usepam yes\nport 2222\nport 22\n") == [22, 2222]
    assert host.ssh_ports("") == [22]


def server(mode: str, synced: int = 0) -> dict[str, str]:
    return {"zk_server_state": mode} | ({"zk_synced_followers": str(synced)} if mode == "leader" else {})


THREE = {"zk1": server("follower"), "zk2": server("leader", 2), "zk3": server("follower")}


@pytest.mark.parametrize(
    ("found", "size", "reason"),
    [
        (THREE, 3, ""),
        (THREE | {"zk3": {}}, 3, "zk3 does not serve"),
        (THREE | {"zk2": server("leader", 1)}, 3, "1 synced followers, wanted 2"),
        (THREE | {"zk1": server("standalone")}, 3, "zk1 is standalone"),
        (THREE | {"zk1": server("leader", 1)}, 3, "2 leaders, wanted 1"),
        ({"zk1": server("follower"), "zk2": server("leader", 1)}, 3, ""),
        ({"zk2": server("leader", 0)}, 3, "1 of 3 servers are there, which is no majority"),
        ({"zk1": server("standalone")}, 1, ""),
        ({"zk1": {}}, 1, "zk1 does not serve"),
    ],
)
def test_an_ensemble_is_well_when_every_server_that_is_not_away_follows_one_leader(
    found: dict[str, dict[str, str]], size: int, reason: str
) -> None:
    judged = host.judge_ensemble(found, size)
    assert judged["is_ready"] == (not reason)
    assert reason in judged["reason"]


def test_a_server_outside_of_the_limit_is_asked_over_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(word: str, port: int, name: str = "localhost") -> str:
        asked.append((word, name, port))
        return "zk_server_state\tleader\nzk_synced_followers\t1\n" if name == "a" else "zk_server_state\tfollower\n"

    monkeypatch.setattr(host, "four_letters", answer)
    servers = {"zk1": "a:2181", "zk2": "[fd00::2]:2181", "zk3": "c:2181"}
    assert host.ensemble({"servers": servers, "away": ["zk3"]})["is_ready"]
    assert asked == [("mntr", "a", 2181), ("mntr", "fd00::2", 2181)]


def test_f6_a_server_without_a_leader_is_told_from_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"a": "This ZooKeeper instance is not currently serving requests\n", "b": ""}
    monkeypatch.setattr(host, "four_letters", lambda word, port, name="localhost": answers[name])
    found = host.ensemble({"servers": {"zk1": "a:2181", "zk2": "b:2181"}})
    assert (found["is_ready"], found["modes"], found["silent"]) == (False, {"zk1": "", "zk2": ""}, ["zk2"])


@pytest.mark.parametrize(("restarts", "is_crashing"), [(2, False), (3, True)])
def test_f6_a_server_that_systemd_starts_again_and_again_is_crashing(
    monkeypatch: pytest.MonkeyPatch, restarts: int, is_crashing: bool
) -> None:
    monkeypatch.setattr(host, "run", lambda *_: (0, f"ActiveState=active\nNRestarts={restarts}\n"))
    monkeypatch.setattr(host, "four_letters", lambda *_: "")
    found = host.zookeeper({"id": 1, "port": 2181, "members": 3, "started_file": "/nonexistent"})
    assert (found["is_active"], found["is_crashing"]) == (True, is_crashing)


def test_a_unit_that_crashes_as_it_starts_is_not_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {
        "pylog-mirror.service": {"ActiveState": "activating", "SubState": "auto-restart", "NRestarts": "3"},
        "pylog-ship.service": {"ActiveState": "active", "SubState": "running", "NRestarts": "0"},
    }
    monkeypatch.setattr(host, "unit_state", states.__getitem__)
    assert host.steady({"units": ["pylog-ship.service"]}) == {"is_ready": True, "is_hopeless": False, "reason": ""}
    found = host.steady({"units": list(states)})
    assert (found["is_ready"], found["is_hopeless"]) == (False, False), "what it needs may come yet"
    assert found["reason"] == (
        "pylog-mirror.service is activating/auto-restart, and systemd has started it again 3 times"
    )


@pytest.mark.parametrize(("runs_s", "reason"), [(5, "a is active/running for 5 s, wanted 6"), (7, "")])
def test_f7_a_unit_that_ends_five_seconds_after_each_start_is_not_steady(
    monkeypatch: pytest.MonkeyPatch, runs_s: int, reason: str
) -> None:
    state = {"ActiveState": "active", "SubState": "running", "NRestarts": "9"}
    monkeypatch.setattr(host, "unit_state", lambda _: state | {"ActiveEnterTimestampMonotonic": "100000000"})
    monkeypatch.setattr(time, "monotonic", lambda: 100.0 + runs_s)
    found = host.steady({"units": ["a"]})
    assert found["is_ready"] == (not reason)
    assert found["reason"] == (f"{reason}, and systemd has started it again 9 times" if reason else "")


def test_a_unit_is_steady_only_when_its_port_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "unit_state", lambda _: {"ActiveState": "active", "SubState": "running"})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"0.0.0.0:{listener.getsockname()[1]}"
        assert host.steady({"units": ["a"], "answering": [address]})["is_ready"]
    assert host.steady({"units": ["a"], "answering": [address]})["reason"] == f"nothing answers at {address}"


def test_the_kernel_says_what_is_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = tmp_path / "kernel" / "mm" / "transparent_hugepage"
    disk = tmp_path / "devices" / "vdb"
    for directory in (pages, disk / "queue", disk / "vdb1", tmp_path / "class" / "block"):
        directory.mkdir(parents=True)
    (pages / "enabled").write_text("always [madvise] never\n")
    (disk / "queue" / "read_ahead_kb").write_text("128\n")
    (disk / "queue" / "scheduler").write_text("none [mq-deadline]\n")
    for name, target in (("vdb", disk), ("vdb1", disk / "vdb1")):
        (tmp_path / "class" / "block" / name).symlink_to(target)
    monkeypatch.setattr(host, "SYS", tmp_path)
    queue = {"read_ahead_kib": "128", "io_scheduler": "mq-deadline"}
    found = host.kernel(["/dev/vdb", "/dev/vdb1", "/dev/nothing"])
    assert found == {"hugepages": "madvise", "queues": {"/dev/vdb": queue, "/dev/vdb1": queue}}


@pytest.mark.parametrize(
    ("modes", "reason"),
    [
        (["follower", "leader"], ""),
        (["follower", "follower"], ""),
        (["follower", ""], "zk2 does not serve"),
        (["follower"], "1 of 3 servers are there, which is no majority"),
    ],
)
def test_f6_a_server_may_leave_when_all_others_serve_whoever_leads(modes: list[str], reason: str) -> None:
    found = {f"zk{number}": server(mode, 1) if mode else {} for number, mode in enumerate(modes, start=1)}
    answer = host.judge_ensemble(found, 2, leaving=1)
    assert (answer["is_ready"], answer["reason"]) == (not reason, reason)


def test_a_host_says_which_of_its_servers_are_secured(tmp_path: Path) -> None:
    config = tmp_path / "zoo.cfg"
    config.write_text("tickTime=2000\nclientPort=2181\n")
    units = ["pylog-zookeeper.service", "pylog-ship.service"]
    assert host.secured(host.server_configs(units, str(config))) == {"pylog-zookeeper.service": False}
    config.write_text("tickTime=2000\nsecureClientPort=2181\n")
    assert host.secured(host.server_configs(units, str(config))) == {"pylog-zookeeper.service": True}


def test_a_disk_carries_what_is_mounted_of_its_partitions() -> None:
    assert host.carried("\n/boot/efi\n\n/\n[SWAP]\n/\n") == ["/", "/boot/efi", "[SWAP]"]
    assert host.carried("\n\n") == []
