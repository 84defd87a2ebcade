"""How connectors are, which failed tasks are due for a restart, and both as metrics.

Pure: statuses come in as the workers tell them, time comes in as now_ms.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pylog.connect.document import Wanted
from pylog.metrics import MAX_LABEL_CHARS, OTHER, Metrics

FIRST_DELAY_MS = 10_000
"""From the first look at a failure to the first restart."""
MAX_DELAY_MS = 600_000
"""Longest wait between two restarts of one connector."""
CALM_MS = 600_000
"""After so long without a failure the next one counts as the first."""
MAX_LABELS = 1_000
"""Connectors that metrics name; the others are counted together under the label `OTHER`."""

_REASON = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task; `state` in lower case, `reason` the first line of its trace."""

    number: int
    state: str
    worker: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One connector with its tasks; `state` in lower case, `kind` is source or sink."""

    name: str
    state: str
    worker: str
    kind: str = ""
    reason: str = ""
    tasks: tuple[Task, ...] = ()

    @property
    def failed(self) -> list[int]:
        """The numbers of failed tasks."""
        return [task.number for task in self.tasks if task.state == "failed"]


def read_statuses(answer: Mapping[str, Mapping[str, object]]) -> dict[str, Status]:
    """Return the statuses in an answer to ``GET /connectors?expand=status``."""
    return {name: _read_status(name, row["status"]) for name, row in answer.items()}


def unwell(wanted: Sequence[Wanted], statuses: Mapping[str, Status]) -> list[str]:
    """Return what is not as wanted, a line each: a connector or a task, its state, the worker, and why."""
    found = []
    for one in wanted:
        status = statuses.get(one.name)
        if status is None:
            found.append(f"{one.name}: not there")
            continue
        if status.state != one.state:
            found.append(f"{one.name}: {status.state} on {status.worker or 'no worker'}{_why(status.reason)}")
        found += [
            f"{one.name} task {task.number}: {task.state} on {task.worker or 'no worker'}{_why(task.reason)}"
            for task in status.tasks
            if task.state != one.state
        ]
    return found


@dataclass(slots=True)
class _History:
    attempts: int = 0
    due_ms: int = 0
    calm_since_ms: int | None = None


@dataclass(slots=True)
class Restarts:
    """When failed connectors are restarted: at first soon, then after waits that double.

    Attributes:
        counts: restarts by connector, for metrics.
    """

    counts: Counter[str] = field(default_factory=Counter)
    _histories: dict[str, _History] = field(default_factory=dict)

    def due(self, statuses: Mapping[str, Status], now_ms: int, workers: Collection[str] | None = None) -> list[str]:
        """Return the connectors to restart now, and count them as restarted.

        Args:
            statuses: of all connectors.
            now_ms: a clock that does not go back.
            workers: whose failures count, as ``host:port``; None for those of all workers.
        """
        for name in self._histories.keys() - statuses.keys():
            del self._histories[name]
        found = []
        for name, status in statuses.items():
            if not _has_failed(status, workers):
                self._calm(name, now_ms)
                continue
            history = self._histories.get(name)
            if history is None:
                history = self._histories[name] = _History(due_ms=now_ms + FIRST_DELAY_MS)
            history.calm_since_ms = None
            if now_ms >= history.due_ms:
                history.attempts += 1
                history.due_ms = now_ms + min(FIRST_DELAY_MS << min(history.attempts, 10), MAX_DELAY_MS)
                self.counts[name] += 1
                found.append(name)
        return found

    def _calm(self, name: str, now_ms: int) -> None:
        history = self._histories.get(name)
        if history is None:
            return
        if history.calm_since_ms is None:
            history.calm_since_ms = now_ms
        elif now_ms - history.calm_since_ms >= CALM_MS:
            del self._histories[name]


def metrics_text(statuses: Mapping[str, Status] | None, restarts: Mapping[str, int], now_s: float) -> str:
    """Return how connectors are in Prometheus's text format.

    Args:
        statuses: None while the worker does not answer.
        restarts: by connector.
        now_s: Unix time of the look.
    """
    metrics = Metrics()
    metrics.gauge("pylog_connect_up", "1 while the worker of this host answers.").value = int(statuses is not None)
    metrics.gauge(
        "pylog_connect_looked_timestamp_seconds", "When the worker was asked last, since the Unix epoch."
    ).value = now_s
    labels = _labels(statuses or {})
    connectors: Counter[tuple[str, str]] = Counter()
    tasks: Counter[tuple[str, str]] = Counter()
    for name, status in (statuses or {}).items():
        connectors[labels[name], status.state] += 1
        tasks.update((labels[name], task.state) for task in status.tasks)
    for (label, state), count in sorted(connectors.items()):
        metrics.gauge(
            "pylog_connect_connectors", "Connectors by name and state.", connector=label, state=state
        ).value = count
    for (label, state), count in sorted(tasks.items()):
        metrics.gauge(
            "pylog_connect_tasks", "Tasks by connector and state.", connector=label, state=state
        ).value = count
    for name, count in sorted(restarts.items()):
        metrics.counter(
            "pylog_connect_restarts_total",
            "How often `pylog connect watch` restarted what had failed of a connector.",
            connector=labels.get(name, OTHER),
        ).add(count)
    return metrics.render()


def _labels(statuses: Mapping[str, Status]) -> dict[str, str]:
    """Return the label of each connector; names are chosen by whoever may make connectors, so they are bounded."""
    return {
        name: name[:MAX_LABEL_CHARS] if number < MAX_LABELS else OTHER for number, name in enumerate(sorted(statuses))
    }


def _has_failed(status: Status, workers: Collection[str] | None) -> bool:
    failed = [task.worker for task in status.tasks if task.state == "failed"]
    if status.state == "failed":
        failed.append(status.worker)
    return any(workers is None or worker in workers for worker in failed)


def _read_status(name: str, row: object) -> Status:
    assert isinstance(row, Mapping), row
    connector = row["connector"]
    return Status(
        name=name,
        state=str(connector["state"]).lower(),
        worker=str(connector.get("worker_id") or ""),
        kind=str(row.get("type") or ""),
        reason=_first_line(connector.get("trace")),
        tasks=tuple(
            Task(
                number=int(task["id"]),
                state=str(task["state"]).lower(),
                worker=str(task.get("worker_id") or ""),
                reason=_first_line(task.get("trace")),
            )
            for task in row.get("tasks") or ()
        ),
    )


def _first_line(trace: object) -> str:
    """Return the cause at the bottom of a Java trace where it names one, else its first line."""
    lines = str(trace or "").splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes[-1] if causes else lines[0] if lines else "")[:_REASON]


def _why(reason: str) -> str:
    return f": {reason}" if reason else ""
