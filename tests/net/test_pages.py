"""Pages that follow from code are up to date, and every metric a broker shows is described."""

from local.docs.alerts import files
from local.docs.catalogue import catalogue
from local.docs.commands import command_pages
from local.docs.generate import PAGES, errors_page, metrics_page, settings_page
from pylog.testing import BrokerProcess

pytest_plugins = ["pylog.testing"]


def test_the_settings_page_is_up_to_date() -> None:
    assert (PAGES / "settings.md").read_text() == settings_page()


def test_every_metric_scraped_is_described_and_no_other(pylog_broker: BrokerProcess) -> None:
    status, text = pylog_broker.admin("GET", "/metrics")
    assert status == 200
    assert (PAGES / "metrics.md").read_text() == metrics_page(text)
    # Dashboards show each of them.
    assert {path: path.read_text() for path in files(catalogue(text))} == files(catalogue(text))


def test_the_errors_page_is_up_to_date() -> None:
    assert (PAGES / "errors.md").read_text() == errors_page()


def test_there_is_a_page_of_each_command_and_of_no_other() -> None:
    assert {path.name: path.read_text() for path in (PAGES / "cli").glob("*.md")} == command_pages()
