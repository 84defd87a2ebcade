"""Pages that follow from code are up to date, and every metric a broker shows is described."""

import itertools
import json
import re

from local.docs.alerts import FILES
from local.docs.catalogue import EXPORTER, catalogue, labels_of
from local.docs.commands import command_pages
from local.docs.generate import PAGES, errors_page, metrics_page, settings_page, told_metrics
from pylog.cli.told_metrics import TOLD
from pylog.testing import BrokerProcess

pytest_plugins = ["pylog.testing"]


def test_the_settings_page_is_up_to_date() -> None:
    assert (PAGES / "settings.md").read_text() == settings_page()


def test_every_metric_scraped_is_described_and_no_other(pylog_broker: BrokerProcess) -> None:
    status, text = pylog_broker.admin("GET", "/metrics")
    assert status == 200
    assert (PAGES / "metrics.md").read_text() == metrics_page(text)
    assert TOLD.read_text() == told_metrics(text)
    for program, metrics in itertools.groupby(catalogue(text), key=lambda one: one.program):
        told = {one.name for one in metrics}
        if program == EXPORTER:  # the node exporter passes it on, beside what it says of each host itself
            assert told <= metrics_shown("hosts")
        else:
            assert metrics_shown(program) == told, f"dashboard of {program}"


def test_every_series_scraped_has_the_labels_of_the_page(pylog_broker: BrokerProcess) -> None:
    _, text = pylog_broker.admin("GET", "/metrics")
    series = re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?\{([^}]*)\} ", text, re.MULTILINE)
    assert len({name for name, _ in series}) >= 5
    for name, labels in series:
        assert set(re.findall(r'(\w+)="', labels)) - {"le"} == set(labels_of(name)), name


def metrics_shown(program: str) -> set[str]:
    """Return the metrics that the panels of a program's dashboard read; a histogram by its own name."""
    panels = json.loads((FILES / "dashboards" / f"pylog-{program}.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels), "two panels with one id"
    targets = [target["expr"] for panel in panels for target in panel["targets"]]
    return {name.removesuffix("_bucket") for expr in targets for name in re.findall(r"\w+(?=\{)", expr)}


def test_the_errors_page_is_up_to_date() -> None:
    assert (PAGES / "errors.md").read_text() == errors_page()


def test_an_error_of_the_protocol_is_found_by_the_name_that_clients_print() -> None:
    assert "| `PYLOG-1056` `KAFKA_STORAGE_ERROR` |" in (PAGES / "errors.md").read_text()
    assert "| `PYLOG-1999` `UNKNOWN_SERVER_ERROR` |" in (PAGES / "errors.md").read_text()


def test_there_is_a_page_of_each_command_and_of_no_other() -> None:
    assert {path.name: path.read_text() for path in (PAGES / "cli").glob("*.md")} == command_pages()
