"""Writes the pages that follow from code.

docs/settings.md, docs/metrics.md, docs/errors.md, docs/alerts.md, docs/cli/, docs/variables.md, the README of each
role, and what `pylog explain` says of metrics.

python -m local.docs.generate [--check]        (--check writes nothing and exits 1 when a page is out of date)
"""

import argparse
import itertools
import json
import re
import sys
import tempfile
from pathlib import Path

from local.docs import alerts, roles
from local.docs.catalogue import BROKER, EXPORTER, catalogue, labels_of
from local.docs.commands import command_pages
from pylog.broker.listener_settings import INTERNAL_SETTINGS, LISTENER_SETTINGS
from pylog.broker.settings import SETTINGS, Kind
from pylog.cli.told_metrics import TOLD
from pylog.errors import ErrorCode, fault_number
from pylog.faults import CATALOGUE
from pylog.store.zookeeper_security import ZOOKEEPER_SETTINGS
from pylog.testing import BrokerProcess

PAGES = Path(__file__).resolve().parents[2] / "docs"

_SETTINGS_HEAD = """\
# Settings

Names are Apache Kafka's. A broker takes them under `config:` in its file, or as `--set name=value` with
`pylog broker --standalone`; a topic takes those with a topic name, when it is created and later. An unknown name is
an error.
`log.retention.hours`, `log.retention.minutes` and `log.roll.hours` are understood too; milliseconds win over them.

| broker | topic | type | default | what it does |
|---|---|---|---|---|
"""

_LISTENER_HEAD = """
## Settings of a listener

These stand in the section of each listener for clients in the broker's file (`listeners:`, such as `client:`). They are
read at the start; files of certificates are read again when they change.

| setting | type | default | what it does |
|---|---|---|---|
"""

_INTERNAL_HEAD = """
## Settings of the brokers' own listener

These stand in the section `internal:` of the broker's file.

| setting | type | default | what it does |
|---|---|---|---|
"""

_ZOOKEEPER_HEAD = """
## Settings for ZooKeeper

These stand in the section `store:` of the broker's file, beside `hosts`, and in a block `zookeeper_security:` of the
registry's file and of `ConsumerConnector`. They are read at the start. See [security](security.md#zookeeper).

| setting | default | what it does |
|---|---|---|
"""

_METRICS_HEAD = """\
# Metrics

Every broker answers `GET /metrics` in Prometheus's text format on its admin socket (`curl --unix-socket
/run/pylog/broker-1.sock http://localhost/metrics`), and on TCP where `metrics_listen` is set. Where the bundle puts
them: brokers on `metrics_port` of their instance (9400 and on), the mirror on 9181, the audit on 9182, the load
balancer on 9183, the probe on 9184, the registry on 8081; retention, backup, shipper and load job leave files, which
the node exporter shows on 9100. What a scrape costs a broker is [measured](bench/scrape.md); in Prometheus it is
`scrape_duration_seconds{job="pylog-broker"}`.

`pylog_client_connections` has the labels `software` and `version`, as clients name themselves; those that name
nothing are not in it. It does not say whose they are; `pylog_principal_requests_total` counts by user. Since when a
group is behind: `time() - pylog_group_lag_seconds` is the time of the oldest record that it has not read. The canary
is well while `time() - pylog_canary_last_success_timestamp_seconds` stays below some seconds for every broker. Its
topic takes writes with one replica in sync, so it tells whether a broker serves, and `PylogWritesRefused` whether
acks=all is refused.

What the node exporter shows of a host's certificates is written by `playbooks/site.yml`, which puts them there: one
that is replaced by hand shows after the next run.

Labels are those that the program gives; Prometheus adds `host`, `datacenter`, `job` and `instance`, and `broker` to a
broker's own.

| metric | type | labels | what it says |
|---|---|---|---|
"""


_ERRORS_HEAD = """\
# Errors

Every command that ends with another exit code than 0 says one of these codes on stderr, and so do the broker's last log
line, the ingestion job and the day-2 tasks. `pylog explain CODE` says the same on a terminal. A code keeps its meaning
for ever. Those from 1000 on are what a broker answered: 1000 and the protocol's own number. Beside them stand the names
that clients and metrics show, which `pylog explain` takes too.

| code | what | exit | cause | remedy |
|---|---|--:|---|---|
"""


def settings_page() -> str:
    """Return the page of all settings."""
    rows = [
        f"| `{one.name}` | {f'`{one.topic}`' if one.topic else ''} | {Kind(one.kind).name.lower()} "
        f"| `{str(one.default).lower() if isinstance(one.default, bool) else one.default}` | {one.doc} |"
        for one in sorted(SETTINGS.values(), key=lambda one: one.name)
    ]
    text = _SETTINGS_HEAD + "\n".join(rows) + "\n"
    for head, settings in ((_LISTENER_HEAD, LISTENER_SETTINGS), (_INTERNAL_HEAD, INTERNAL_SETTINGS)):
        text += head + "".join(
            f"| `{one.name}` | {Kind(one.kind).name.lower()} | `{one.default}` | {one.doc} |\n"
            for one in sorted(settings.values(), key=lambda one: one.name)
        )
    return (
        text
        + _ZOOKEEPER_HEAD
        + "".join(
            f"| `{name}` | `{default}` | {doc} |\n" for name, (default, doc) in sorted(ZOOKEEPER_SETTINGS.items())
        )
    )


_COMMANDS = {"backup": "cluster backup", "ship": "ship journal", "connect": "connect watch"}
"""Program -> its command, where that has another name."""


def _name(program: str) -> str:
    """Return what shows the metrics of *program*."""
    return "node exporter" if program == EXPORTER else f"pylog {_COMMANDS.get(program, program)}"


def metrics_page(scraped: str) -> str:
    """Return the page of all metrics: a broker's as it shows them in *scraped*, and the other programs'."""
    text = _METRICS_HEAD
    for program, metrics in itertools.groupby(catalogue(scraped), key=lambda one: one.program):
        if program != BROKER:
            text += f"\n## `{_name(program)}`\n\n| name | kind | labels | what it counts |\n|---|---|---|---|\n"
        for one in metrics:
            labels = ", ".join(f"`{label}`" for label in labels_of(one.name))
            text += f"| `{one.name}` | {one.kind} | {labels} | {one.help} |\n"
    return text


def told_metrics(scraped: str) -> str:
    """Return what `pylog explain` says of each metric: who shows it, its kind, what it says, which alerts read it."""
    told: dict[str, dict[str, object]] = {}
    for one in catalogue(scraped):
        row = told.setdefault(one.name, {"programs": [], "kind": one.kind, "says": one.help, "alerts": []})
        row["programs"] = [*row["programs"], _name(one.program)]  # type: ignore[misc]
    for name, row in told.items():
        reads = re.compile(rf"\b{name}(_bucket|_count|_sum)?\b")
        row["alerts"] = [rule["alert"] for rule in alerts.rules() if reads.search(rule["expr"])]
    return json.dumps(told, indent=1, sort_keys=True) + "\n"


def errors_page() -> str:
    """Return the page of everything that ends a command without success."""
    names = {fault_number(code): f" `{code.name}`" for code in ErrorCode}
    rows = [
        f"| `{one.code}`{names.get(one.number, '')} | {one.what} | {int(one.exit_code)} | {one.cause} | {one.remedy} |"
        for one in sorted(CATALOGUE.values(), key=lambda one: one.number)
    ]
    return _ERRORS_HEAD + "\n".join(rows) + "\n"


def scrape() -> str:
    """Return what a fresh broker's /metrics says."""
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        return str(broker.admin("GET", "/metrics")[1])


def main() -> int:
    """Write the pages, or compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    stale = []
    scraped = scrape()
    pages = {"settings.md": settings_page(), "metrics.md": metrics_page(scraped), "errors.md": errors_page()}
    pages |= {f"cli/{name}": text for name, text in command_pages().items()}
    (PAGES / "cli").mkdir(exist_ok=True)
    for path in (PAGES / "cli").glob("*.md"):
        if f"cli/{path.name}" not in pages:
            stale.append(f"cli/{path.name}, of no command")
            if not is_check:
                path.unlink()
    for name, text in pages.items():
        path = PAGES / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not is_check:
            path.write_text(text)
    for path, text in (roles.pages() | alerts.pages()).items():
        if not path.exists() or path.read_text() != text:
            stale.append(str(path))
            if not is_check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    if not TOLD.exists() or TOLD.read_text() != told_metrics(scraped):
        stale.append(str(TOLD))
        if not is_check:
            TOLD.write_text(told_metrics(scraped))
    for name in stale:
        sys.stderr.write(
            f"docs/{name}: {'out of date; run python -m local.docs.generate' if is_check else 'written'}\n"
        )
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
