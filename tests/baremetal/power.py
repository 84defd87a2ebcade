"""A load over a power cut, and what may be said of it afterwards."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pylog.ops.load import History, Load
from tests.rolls import cluster

PARTITIONS = 3
UNFLUSHED = "unflushed"
# An emulated machine beside others may get a twentieth of a processor; a wait that ends when its thing is there costs
# nothing.
START_LIMIT_S = 3600
END_LIMIT_S = 1200
MESSAGE_LIMIT_MS = 7_200_000


@contextmanager
def loaded(
    bootstrap: str, replicas: Sequence[int], topics: Mapping[str, Mapping[str, str]], *, per_s: int, before: int
) -> Iterator[dict[str, Load]]:
    """Produce during the block to a new topic for each of *topics*, which have the settings that stand beside them.

    Args:
        bootstrap: addresses of all brokers.
        replicas: brokers of every partition. The first should be the one that something happens to: it leads them
            all when it goes, and can be made to show what it has afterwards.
        topics: what is said of each topic in reports -> its settings.
        per_s: records for each topic.
        before: how many are acknowledged before the block begins.

    The producer of a topic named UNFLUSHED is not idempotent: a loss would end its sequence.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = {what: f"power-{time.time_ns()}-{number}" for number, what in enumerate(topics)}
    wanted = [
        NewTopic(names[what], PARTITIONS, replica_assignment=[list(replicas)] * PARTITIONS, config=dict(config))
        for what, config in topics.items()
    ]
    for future in admin.create_topics(wanted, operation_timeout=120, request_timeout=180).values():
        future.result(240)
    properties = {
        "acks": "all", "message.timeout.ms": MESSAGE_LIMIT_MS, "linger.ms": 50,
        "max.in.flight.requests.per.connection": 1,
    }  # fmt: skip
    with ExitStack() as stack:
        loads = {
            what: stack.enter_context(Load(
                bootstrap, name, PARTITIONS, {**properties, "enable.idempotence": what != UNFLUSHED},
                records_per_s=per_s, end_limit_s=END_LIMIT_S,
            ))
            for what, name in names.items()
        }  # fmt: skip
        wait_for(lambda: all(load.acknowledged >= before for load in loads.values()))
        yield loads


def kept(what: str, began_s: float, loads: Mapping[str, Load]) -> list[History]:
    """Read back what *loads* sent, keep the numbers, and return the histories."""
    histories = {name: load.read_back() for name, load in loads.items()}
    reports = {name: history.report() for name, history in histories.items()}
    seconds = round(time.monotonic() - began_s)
    print(what, seconds, json.dumps(reports))
    cluster.keep_more("baremetal", "runs", {"what": what, "seconds": seconds, **reports})
    return list(histories.values())


def note(**facts: str) -> None:
    """Add *facts* to this run's numbers."""
    path = cluster.RESULTS / "baremetal.json"
    cluster.keep_result("baremetal", {**(json.loads(path.read_text()) if path.exists() else {}), **facts})


def nothing_went_wrong(history: History) -> bool:
    """Say whether all that an idempotent producer heard to be there is: once, and in order."""
    report = history.report()
    return bool(report["acknowledged"]) and not any(report[name] for name in ("failed", "lost", "doubled", "reordered"))


def gaps(history: History) -> list[int]:
    """Return how many stretches of what was acknowledged are missing, for each partition."""
    missing = [
        [value not in there for value in rows]
        for rows, there in ((rows, set(history.read.get(number, ()))) for number, rows in history.acknowledged.items())
    ]
    return [sum(after and not before for before, after in pairwise([False, *flags])) for flags in missing]


def let_lead(bootstrap: str, broker_id: int) -> None:
    """Make a broker lead what prefers it, so that its own copies are read."""
    command = [sys.executable, "-m", "pylog", "cluster", "health", "--bootstrap", bootstrap, "--broker", str(broker_id)]
    subprocess.run([*command, "--elect", "--wait", str(START_LIMIT_S)], check=True)


def wait_for(condition: Callable[[], object]) -> None:
    cluster.wait_for(condition, START_LIMIT_S)


def well(bootstrap: str, brokers: int) -> None:
    """Wait until so many brokers are there, and every partition is led and in sync."""
    command = [sys.executable, "-m", "pylog", "cluster", "health", "--bootstrap", bootstrap, "--brokers", str(brokers)]
    subprocess.run([*command, "--consecutive", "3", "--wait", str(START_LIMIT_S)], check=True)
