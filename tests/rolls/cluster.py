"""A deployed cluster as these tests handle it: playbooks, releases, load, and what its brokers say."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.ops.inventory import Target, load
from pylog.ops.tasks import ask, connect

ROOT = Path(__file__).resolve().parents[2]
INVENTORY = str(ROOT / "inventories" / "local")
HOSTS_FILE = Path(os.environ.get("PYLOG_HOSTS_FILE", ROOT / ".local" / "hosts.json"))
LOCAL = ROOT / ".local"
AUTHORITY = LOCAL / "ca" / "ca.pem"
WHEELHOUSE = LOCAL / "wheelhouse"
PREVIOUS = ROOT / ".local" / "previous" / "source" / ".local" / "wheelhouse"
RESULTS = ROOT / ".local" / "results"
CLIENTS = ("librdkafka", "kafka-python")
PLAYBOOK_LIMIT_S = 1800
LOAD_END_S = 240


def targets() -> list[Target]:
    """Return the hosts that run a broker."""
    # Ansible takes seconds to read an inventory, and this is asked before every command on a host.
    return _targets(HOSTS_FILE.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _targets(changed_ns: int) -> list[Target]:
    found = [target for target in load(INVENTORY) if target.broker_ids]
    assert found, f"{INVENTORY} has no broker"
    return found


def readings() -> dict[str, dict[str, Any]]:
    """Return host -> what its broker says of itself."""

    def read(target: Target) -> dict[str, Any]:
        answers = ask(target)
        assert not isinstance(answers, str), f"{target.name}: {answers}"
        [reading] = answers["brokers"]["brokers"]
        return dict(reading)

    found = targets()
    with ThreadPoolExecutor(len(found)) as pool:
        return dict(zip([target.name for target in found], pool.map(read, found), strict=True))


def on(host: str, command: str) -> str:
    """Return what *command* prints on *host*."""
    [target] = [one for one in targets() if one.name == host]
    with connect(target) as connection:
        return str(connection.run(command, hide=True, in_stream=False).stdout).strip()


def releases() -> dict[str, str]:
    """Return host -> the release its broker started with."""
    return {host: reading["current"] for host, reading in readings().items()}


def starts() -> dict[str, int]:
    """Return host -> when its broker's process started, in ms; a restart shows as another time."""
    return {host: (reading["status"] or {}).get("started_ms", 0) for host, reading in readings().items()}


def bootstrap() -> str:
    """Return the addresses of all brokers as clients outside reach them."""
    return ",".join(
        f"{target.address}:{one['port']}" for target in targets() for one in target.variables["pylog_broker_instances"]
    )


def address_of(host: str) -> str:
    """Return the address of a host with a broker."""
    return next(target.address for target in targets() if target.name == host)


def password(user: str) -> str:
    """Return the password of a user of the local inventory."""
    return (LOCAL / "users" / f"{user}.password").read_text().strip()


def properties(user: str, secret: str | None = None) -> dict[str, str | int | float | bool]:
    """Return what librdkafka needs to log in to secured brokers, with *secret* instead of the user's password."""
    return {
        "bootstrap.servers": bootstrap(), "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user, "sasl.password": secret or password(user), "ssl.ca.location": str(AUTHORITY),
    }  # fmt: skip


def old_bootstrap(without: str) -> str:
    """Return the addresses of all brokers but those of the host *without*."""
    addresses = {target.address for target in targets() if target.name == without}
    return ",".join(one for one in bootstrap().split(",") if one.rsplit(":", 1)[0] not in addresses)


def hosts(*arguments: str, image: str = "") -> None:
    """Run `local.hosts` on the scenario's set of hosts; one that is made comes from *image*, or the scenario's."""
    command = [sys.executable, "-m", "local.hosts", "--set", os.environ.get("PYLOG_HOSTS_SET", "main"), *arguments]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | ({"HOST_IMAGE": image} if image else {}))


def add(name: str, image: str = "") -> None:
    """Bring up one more host."""
    hosts("up", name, image=image)


def lose(name: str) -> None:
    """Destroy a host with all that is on it, and put a bare one in its place."""
    state = json.loads(HOSTS_FILE.read_text())
    subprocess.run(["podman", "rm", "--force", "--time", "0", state["hosts"][name]["container"]], check=True)
    for disk in state["hosts"][name]["disks"]:
        subprocess.run(["wipefs", "--all", "--quiet", disk], check=True)
    hosts("up", name)


def command(name: str, extra: Mapping[str, Any] | None = None, limit: str = "") -> list[str]:
    """Return how an operator runs the playbook *name*."""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    limits = [f"--limit={limit}"] if limit else []
    return [program, "-i", INVENTORY, f"playbooks/{name}.yml", *(["-e", json.dumps(extra)] if extra else []), *limits]


def environment() -> dict[str, str]:
    """Return an operator's environment: Molecule leaves its own ansible.cfg in ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_"))}


def kill_tree(run: subprocess.Popen[Any]) -> None:
    """Kill a process and all that it started; Ansible's workers have sessions of their own, a group has them not."""
    doomed: list[int] = []
    while (found := _tree(run.pid)) != doomed:
        doomed = found
        _signal(doomed, signal.SIGSTOP)  # so that nothing is started while the rest is found
    _signal(doomed, signal.SIGKILL)
    run.wait()


def _tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    listed = subprocess.run(["ps", "-eo", "ppid=,pid="], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        parent, child = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def interrupt(name: str, extra: Mapping[str, Any], at: str, limit: str = "", more: Sequence[str] = ()) -> None:
    """Run a playbook, with *more* options, and kill it with all its children once its words match *at*."""
    run = subprocess.Popen(
        [*command(name, extra, limit), *more], cwd=ROOT, env=environment(), start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    said = []
    try:
        for line in run.stdout:
            said.append(line)
            if re.search(at, line):
                return
    finally:
        kill_tree(run)
        run.stdout.close()
        print(f"{name}: killed after {said[-1]!r}" if said else f"{name}: said nothing")
    raise AssertionError(f"{name} ended without saying {at!r}:\n{''.join(said[-60:])}")


def during(
    name: str, extra: Mapping[str, Any], at: str, act: Callable[[str], None], limit: str = ""
) -> tuple[int, str]:
    """Run a playbook to its end, call *act* once with the first line that matches *at*; return exit code and output."""
    run = subprocess.Popen(
        command(name, extra, limit), cwd=ROOT, env=environment(), start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    said, has_acted = [], False
    try:
        for line in run.stdout:
            said.append(line)
            if not has_acted and re.search(at, line):
                has_acted = True
                act(line)
        code = run.wait()
    finally:
        kill_tree(run)
        run.stdout.close()
        print(f"{name}:\n{''.join(said[-80:])}")
    assert has_acted, f"{name} ended with {code} without saying {at!r}"
    assert leaked("".join(said)) == []
    return code, "".join(said)


def inside(host: str, script: str, standard_input: str = "") -> str:
    """Run *script* on a host without SSH, which it may cut or bring back."""
    container = json.loads(HOSTS_FILE.read_text())["hosts"][host]["container"]
    done = subprocess.run(
        ["podman", "exec", "--interactive", container, "sh", "-c", script], input=standard_input, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return done.stdout


def put(host: str, path: str, text: str) -> None:
    """Replace a file on a host at once; it keeps its owner and mode, and a new one is root's."""
    part = f"{path}.part"
    inside(host, f"set -e; if [ -e {path} ]; then cp -p {path} {part}; fi; cat > {part}; mv {part} {path}", text)


def fill(topic: str, mib: int) -> None:
    """Unless it is there, make a topic of 12 partitions with the usual replicas, and put so much into it."""
    if topic in {row["name"] for row in said("topic", "list")}:
        return
    failed: list[str] = []

    def note(error: object, _: object) -> None:
        if error:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap(), "acks": "all", "linger.ms": 50})
    admin = AdminClient({"bootstrap.servers": bootstrap()})
    admin.create_topics([NewTopic(topic, 12)], operation_timeout=30)[topic].result(60)
    for number in range(mib * 64):
        producer.produce(topic, os.urandom(8192).hex().encode(), partition=number % 12, on_delivery=note)
        while len(producer) > 1000:
            producer.poll(0.05)
    while (left := len(producer)) and producer.flush(60) < left:
        pass
    assert len(producer) == 0, "nothing came in for a minute"
    assert not failed, failed[:3]


def said(*words: str) -> Any:
    """Return what `pylog` says as JSON."""
    program = [sys.executable, "-m", "pylog", *words, "--bootstrap", bootstrap(), "--format", "json"]
    return json.loads(subprocess.run(program, capture_output=True, text=True, check=True, timeout=120).stdout)


def playbook(name: str, extra: Mapping[str, Any] | None = None, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook to its end, with *more* options, and keep what it said."""
    began_s = time.monotonic()
    done = subprocess.run(
        [*command(name, extra), *more], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
        timeout=PLAYBOOK_LIMIT_S,
    )  # fmt: skip
    print(f"{name}: exit code {done.returncode} after {time.monotonic() - began_s:.0f} s")
    print(done.stdout[-6000:], done.stderr[-2000:])
    assert leaked(done.stdout + done.stderr) == []
    return done


def leaked(text: str) -> list[str]:
    """Return the files whose secret stands in *text*."""
    secrets = {path.name: path.read_text().split()[0] for path in (ROOT / ".local").glob("*.secret")}
    assert secrets, "the inventory makes its secrets here"
    return [name for name, secret in secrets.items() if secret in text]


def health(wait_s: int = 300) -> dict[str, Any]:
    """Return what `pylog cluster health` says, waiting for it to be well."""
    program = [sys.executable, "-m", "pylog", "cluster", "health", "--bootstrap", bootstrap(), "--format", "json"]
    wanted = ["--brokers", str(len(targets())), "--wait", str(wait_s), "--consecutive", "3"]
    done = subprocess.run([*program, *wanted], capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def wait_for(condition: Callable[[], object], seconds: int = 180) -> None:
    """Wait until *condition* holds."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(1)


class Load:
    """Two clients that produce while something happens; `reports` has what each found once they have ended."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def check(self) -> None:
        """Fail unless every send was acknowledged and every acknowledged record is there."""
        assert len(self.reports) == len(CLIENTS)
        for report in self.reports:
            print(json.dumps(report))
            assert (report["failed"], report["lost"]) == (0, 0), report
            assert report["acked"] == report["sent"] > 0, report


@contextmanager
def loaded(name: str, addresses: str = "") -> Iterator[Load]:
    """Keep both clients producing during the block; they know *addresses*, or all brokers."""
    found = Load()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        known = addresses or bootstrap()
        runs = [stack.enter_context(_client(client, name, known, directory)) for client in CLIENTS]
        time.sleep(3)  # both have found their leaders and send
        yield found
        for run in runs:
            run.send_signal(signal.SIGTERM)
        for run in runs:
            run.wait(LOAD_END_S)
        found.reports = [json.loads((directory / f"{client}.json").read_text()) for client in CLIENTS]


@contextmanager
def _client(client: str, name: str, known: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    topic, result = f"roll-{name}-{client}-{time.time_ns()}", directory / f"{client}.json"
    arguments = [sys.executable, "-m", "tests.infra.load", client, known, topic, str(result)]
    run = subprocess.Popen(arguments, cwd=ROOT)
    try:
        yield run
    finally:
        run.kill()
        run.wait()


def altered(directory: Path, file: str, text: str) -> Path:
    """Return a wheelhouse like today's, but with *text* at the end of pylog's *file*."""
    return _altered(directory, {file: text})


def corrupt(directory: Path) -> Path:
    """Return a wheelhouse whose pylog wheel does not have the hash that its lock names."""
    found = _altered(directory, {"pylog/__main__.py": "# a release that no host has\n"})
    [wheel] = found.glob("pylog_cluster-*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("pylog/extra.py", "# came in on the way\n")
    return found


def _altered(directory: Path, additions: Mapping[str, str]) -> Path:
    target = directory / "wheelhouse"
    shutil.copytree(WHEELHOUSE, target, copy_function=os.link)
    [wheel] = target.glob("pylog_cluster-*.whl")
    before = hashlib.sha256(wheel.read_bytes()).hexdigest()
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as new:
        assert additions.keys() <= set(old.namelist())
        for entry in old.infolist():
            new.writestr(entry, old.read(entry) + additions.get(entry.filename, "").encode())
    # A link to the real one: it must go before the other takes its name.
    wheel.unlink()
    part.rename(wheel)
    after = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert after != before, "it would be the release that runs"
    for lock in target.glob("*.txt"):
        text = lock.read_text().replace(before, after)
        lock.unlink()
        lock.write_text(text)
    return target


def keep_more(name: str, key: str, result: Mapping[str, Any]) -> None:
    """Add to a list among a scenario's numbers."""
    keep_result(name, {key: [*kept(name).get(key, []), result]})


def keep_result(name: str, result: Mapping[str, Any]) -> None:
    """Write some of a scenario's numbers, beside those that are there, to where `make molecule` collects them."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({**kept(name), **result}, indent=2) + "\n")


def kept(name: str) -> dict[str, Any]:
    """Return the numbers that a scenario has kept so far."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
