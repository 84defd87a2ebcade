"""The console in a browser: read as a person reads it, by sight, by keyboard and by axe, also while things are away."""

import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import confluent_kafka
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from pylog.audit.counting import AUDIT_TOPIC
from pylog.audit.load import ensure_topic
from pylog.audit.render import moment
from pylog.audit.reports import Report
from pylog.client.admin.cluster import Admin
from pylog.client.admin.groups import GroupAdmin
from pylog.client.connection import Connection
from pylog.client.message import Message
from pylog.client.producer import Producer
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess
from tests.programs.browser import Screen, browser
from tests.programs.program import Program, json_server, wait_until
from tests.servers.ports import free_ports
from tests.unit.console.lakes import commit
from tests.unit.console.ledgers import WINDOW_MS, progress_of_the_mirror, reports

EVIL = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
T0 = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS - 10 * WINDOW_MS
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
LOST_WINDOW = moment(T0 + WINDOW_MS)
PAGES = (
    "/",
    "/completeness",
    "/completeness/clicks",
    f"/completeness/clicks/{LOST_WINDOW}",
    "/topics",
    "/topics/clicks",
    "/topics/clicks/search?q=n+277",
    "/topics/clicks/tail",
    "/topics/clicks/0",
    "/topics/clicks/0/records",
    "/topics/clicks/0/went",
    "/mirror",
    "/lake",
    "/groups",
    "/transactions",
    "/transactions/hanging",
    "/brokers",
    "/streams",
    "/rules",
    "/alerts",
    "/alerts/PylogBrokerDown",
    "/changes",
    "/codes",
    "/nowhere",
)


NEED_BROKERS = (
    "/",
    "/completeness",
    "/topics",
    "/topics/clicks",
    "/topics/clicks/tail",
    "/topics/clicks/0",
    "/topics/clicks/0/went",
    "/groups",
    "/group?id=readers",
    "/group/reset?id=readers",
    "/transactions",
    "/transactions/hanging",
    "/transaction?id=payments",
    "/brokers",
    "/rules",
    "/mirror",
    "/lake",
    "/changes",
)
"""What a broker that is away shows on."""

PICTURES = {
    "overview": "/",
    "completeness": "/completeness/clicks",
    "window": f"/completeness/clicks/{LOST_WINDOW}",
    "topic": "/topics/clicks",
    "records": "/topics/clicks/0/records?offset=0",
}
"""Pages whose pictures docs/tutorial.md shows, by the pictures' names."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    config["log.disk.alarm.percent"] = 100  # others fill the machine's disk meanwhile
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=config) as found:
        cluster = Connection(bootstrap=found.bootstrap, timeout_s=120)
        for topic, partitions in (("clicks", 2), ("orders", 2), ("bills", 1), ("views", 1)):
            Admin(cluster).create_topic(topic, partitions=partitions)
        ensure_topic(cluster, 1)
        GroupAdmin(cluster).commit("readers", {TopicPartition("clicks", 0): 0})
        payments = confluent_kafka.Producer({"bootstrap.servers": found.bootstrap, "transactional.id": "payments"})
        payments.init_transactions(60.0)
        del payments  # its connections would tell of a broker that a test stops
        with Producer(cluster) as producer:
            for number in range(300):
                stamp = f"p1 {number} {T0} web1".encode()
                body = json.dumps({"n": f"n {number}", "x": EVIL}).encode()
                producer.send("clicks", Message(body, headers=[("pylog.audit", stamp)], partition=number % 2))
            for report in reports("clicks", lost=(107, 108), t0=T0, until_ms=T0 + 24 * 3_600_000):
                value = report.encode() if isinstance(report, Report) else progress_of_the_mirror(report)
                producer.send(AUDIT_TOPIC, value, partition=0)
        yield found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("lake")
    commit(found, 100)
    commit(found, 150, dead=2)
    return found


@pytest.fixture(scope="module")
def url(broker: BrokerProcess, lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    [port, nobody] = free_ports(2)
    config = {
        "listen": f"127.0.0.1:{port}",
        "bootstrap": broker.bootstrap,
        "timeout_s": 5,
        "read_payloads": ["*"],
        "prometheus": f"http://127.0.0.1:{nobody}",
        "lake": str(lake),
    }
    with Program(tmp_path_factory.mktemp("console"), "console", config) as program:
        program.wait_log("event=ready")
        found = f"http://127.0.0.1:{port}"
        wait_until(lambda: api(found, "/completeness")["topics"], "the counts are read")
        yield found
        assert program.stop() == 0, program.log
        assert "Traceback" not in program.log, program.log


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def screen(driver: Chrome, url: str) -> Iterator[Screen]:
    found = Screen(driver, url)
    found.complaints()
    yield found
    found.emulate()
    # Of a page that is not there, or that nobody can answer, the browser says so too.
    assert [one for one in found.complaints() if not re.search(r"responded with a status of (404|503) ", one)] == []


def api(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}/api{path}", timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_wrong_in_light_and_dark(screen: Screen, path: str) -> None:
    screen.open(path)
    assert screen.heading
    assert screen.driver.title.endswith("· pylog")
    assert screen.violations() == []
    screen.emulate(prefers_color_scheme="dark")
    # All that another scheme changes are colours.
    assert screen.violations("color-contrast") == []


def test_pictures_of_the_tutorial_can_be_taken(screen: Screen, tmp_path: Path) -> None:
    # PYLOG_SCREENSHOTS=docs/images/console makes those in the repository anew.
    directory = Path(os.environ.get("PYLOG_SCREENSHOTS") or tmp_path)
    wait_until(lambda: "Not complete" in screen.open("/").text, "the overview knows the latest windows")
    for name, path in PICTURES.items():
        screen.open(path).photograph(directory / f"{name}.png")
        assert (directory / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"images/console/{name}.png" in TUTORIAL.read_text()
        assert (TUTORIAL.parent / "images" / "console" / f"{name}.png").is_file()


@pytest.mark.parametrize("path", ["/", "/completeness/clicks", "/topics/clicks/0/records"])
def test_a_printed_page_is_dark_text_on_white_without_what_one_clicks(screen: Screen, path: str) -> None:
    screen.open(path).emulate("print", prefers_color_scheme="dark")
    assert screen.violations("color-contrast") == []
    ground = screen.driver.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    assert ground == "rgba(255, 255, 255, 1)"
    # Buttons and fields of a form cannot be used on paper.
    shown = screen.driver.find_elements(By.CSS_SELECTOR, "nav, button, input, .skip")
    assert [one.tag_name for one in shown if one.is_displayed()] == []
    assert screen.heading


def test_axe_would_find_faults(screen: Screen) -> None:
    screen.open("/").driver.execute_script(
        "document.documentElement.lang = ''; document.querySelector('main').innerHTML += '<button></button>'"
    )
    assert sorted(one.partition(":")[0] for one in screen.violations()) == ["button-name", "html-has-lang"]


def test_the_overview_leads_to_the_first_missing_record(screen: Screen) -> None:
    wait_until(lambda: "Not complete" in screen.open("/").text, "the overview knows the latest windows")
    screen.follow("Completeness")
    assert screen.verdict.startswith("INCOMPLETE Not complete: 2 records are lost or altered. The first: topic clicks")
    assert "record 107 of producer p1 on web1, is not at mirror" in screen.verdict
    screen.follow("clicks")
    screen.driver.find_element(By.CSS_SELECTOR, "svg a rect.lost").click()
    assert screen.path == f"/completeness/clicks/{quote(LOST_WINDOW, safe='')}"
    [[*_, mirror]] = screen.rows("Records by producer")
    assert mirror == "98, 3 copies; lacks 2: 107–108"
    screen.follow("Search for the first missing record")
    [[partition, *_, value, _]] = screen.rows("Records that contain the text")
    assert (partition, '"n 107"' in value) == ("1", True)


def test_a_search_says_how_far_it_came(screen: Screen) -> None:
    screen.open("/topics/clicks").follow("Search in its records")
    screen.fill("Containing the text", "n 277").send("Containing the text")
    assert "Searched 300 of 300 offsets in 2 partitions: 1 record found. That is all of them." in screen.text
    screen.fill("Containing the text", "onerror").send("Containing the text")
    assert "100 records found. This page is full." in screen.text
    screen.follow("Go on with the search")
    assert "100 records found." in screen.text


def test_a_tail_shows_what_is_written_until_it_is_stopped(screen: Screen, broker: BrokerProcess) -> None:
    screen.open("/topics/clicks/tail").follow("Follow")
    assert "looks again every 3 seconds" in screen.text
    with Producer(Connection(bootstrap=broker.bootstrap)) as producer:
        producer.send("clicks", Message(b"only just written", partition=1))
    wait_until(lambda: "only just written" in screen.text, "the page looks again by itself")
    screen.follow("Stop")
    assert screen.path == "/topics/clicks/tail"
    assert "looks again" not in screen.text


def test_six_followed_tails_leave_the_seventh_tab_free(screen: Screen, broker: BrokerProcess) -> None:
    first = screen.driver.current_window_handle
    tabs = []
    try:
        for _ in range(6):
            screen.driver.switch_to.new_window("tab")
            tabs.append(screen.driver.current_window_handle)
            screen.open("/topics/clicks/tail").follow("Follow")
            assert "looks again every 3 seconds" in screen.text
        screen.driver.switch_to.window(first)
        assert screen.open("/topics").heading == "Topics"
        with Producer(Connection(bootstrap=broker.bootstrap)) as producer:
            producer.send("clicks", Message(b"seen in six tabs", partition=0))
        for tab in tabs:
            screen.driver.switch_to.window(tab)
            wait_until(lambda: "seen in six tabs" in screen.text, lambda: screen.text)
    finally:
        for tab in tabs:
            screen.driver.switch_to.window(tab)
            screen.driver.close()
        screen.driver.switch_to.window(first)


def test_a_topic_that_is_written_to_can_be_searched(url: str, broker: BrokerProcess) -> None:
    cluster = Connection(bootstrap=broker.bootstrap)
    with Producer(cluster) as producer:
        for number in range(8_000):
            producer.send("orders", Message(b"%d of these" % number, partition=number % 2))
    is_over = threading.Event()

    def write() -> None:
        with Producer(cluster) as producer:
            while not is_over.is_set():
                for number in range(200):
                    producer.send("orders", Message(b"later", partition=number % 2))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            found = api(url, "/topics/orders/search?q=7999+of")
            assert [(row["partition"], row["offset"]) for row in found["records"]] == [(1, 3_999)]
            assert "That is all of them." in found["sentence"]
    finally:
        is_over.set()
        writer.join()


def test_what_an_open_transaction_hides_is_said(url: str, broker: BrokerProcess) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "bills"})
    producer.init_transactions(60.0)
    # A transaction is its record and a marker.
    for offset in (0, 2):
        producer.begin_transaction()
        producer.produce("bills", b"a bill")
        producer.flush()
        said = f"Partition 0 cannot be read from offset {offset} on: an open transaction begins there."
        # Offsets that were asked for a moment ago still count.
        wait_until(lambda said=said: said in api(url, "/topics/bills/search?q=bill")["sentence"], "the search says so")
        assert said in api(url, "/topics/bills/0/records")["sentence"]
        producer.commit_transaction(60.0)
    del producer  # its connections would tell of a broker that a test stops
    wait_until(lambda: api(url, "/topics/bills/search?q=bill")["next"] is None, "the search ends")
    assert [row["offset"] for row in api(url, "/topics/bills/search?q=bill")["records"]] == [0, 2]


def test_markup_in_records_stays_text(screen: Screen) -> None:
    screen.open("/topics/clicks/0/records")
    assert "onerror=" in screen.text
    assert screen.driver.title != "taken"
    assert screen.driver.find_elements(By.CSS_SELECTOR, "main img, main script") == []


def test_each_dependency_that_is_away_from_the_start_is_said_where_it_is_needed(
    screen: Screen, broker: BrokerProcess, tmp_path: Path
) -> None:
    with Producer(Connection(bootstrap=broker.bootstrap)) as producer:
        producer.send("clicks", Message(bytes([0, 0, 0, 0, 7]) + b"Avro", partition=1))
    [port, nobody] = free_ports(2)
    config = {
        "listen": f"127.0.0.1:{port}",
        "bootstrap": broker.bootstrap,
        "timeout_s": 2,
        "read_payloads": ["*"],
        "prometheus": f"http://127.0.0.1:{nobody}",
        "registry": [f"http://127.0.0.1:{nobody}"],
        "ledgers": [{"bootstrap": f"127.0.0.1:{nobody}", "timeout_s": 2}],
        "lake": str(tmp_path / "nowhere"),
    }
    with Program(tmp_path, "console", config) as program:
        program.wait_log("event=ready")
        other = Screen(screen.driver, f"http://127.0.0.1:{port}")
        for path, what, reason in (
            ("/alerts", "alerts", "does not answer"),
            ("/lake", "lake", "is no lake"),
            ("/mirror", f"mirrors that write to 127.0.0.1:{nobody}", ""),
            ("/completeness", f"counts of 127.0.0.1:{nobody}", ""),
        ):
            wait_until(partial(_says, other, path, what, reason), f"{path} says that {what} is not known")
            assert other.violations() == []
        other.open("/topics/clicks/1/records")
        assert "not shown as Avro" in other.text
        assert other.open("/").verdict.startswith(("HEALTHY", "UNKNOWN"))
        assert program.stop() == 0, program.log
        assert "Traceback" not in program.log, program.log


def test_each_dependency_that_stops_under_an_open_page_is_said_there(
    screen: Screen, broker: BrokerProcess, tmp_path: Path
) -> None:
    fields = [{"name": "page", "type": "string"}]
    schema = {"schema": json.dumps({"type": "record", "name": "View", "fields": fields})}

    def view(schema_id: int, page: bytes) -> None:
        with Producer(Connection(bootstrap=broker.bootstrap)) as producer:
            producer.send("views", Message(bytes([0, 0, 0, 0, schema_id, 2 * len(page)]) + page, partition=0))

    view(7, b"home")
    [port] = free_ports(1)
    with BrokerProcess(tmp_path / "ledger", config={"log.disk.alarm.percent": 100}) as ledger, ExitStack() as others:
        ensure_topic(Connection(bootstrap=ledger.bootstrap), 1)
        measured: dict[str, object] = {
            "/api/v1/alerts": {"data": {"alerts": []}},
            "/api/v1/query": {"data": {"result": []}},
        }
        config = {
            "listen": f"127.0.0.1:{port}",
            "bootstrap": broker.bootstrap,
            "timeout_s": 2,
            "read_payloads": ["*"],
            "prometheus": others.enter_context(json_server(measured)),
            "registry": [others.enter_context(json_server({f"/schemas/ids/{one}": schema for one in (7, 8)}))],
            "ledgers": [{"bootstrap": ledger.bootstrap, "timeout_s": 2}],
        }
        with Program(tmp_path, "console", config) as program:
            program.wait_log("event=ready")
            other = Screen(screen.driver, f"http://127.0.0.1:{port}")
            wait_until(lambda: other.open("/alerts").verdict == "No alert fires.", lambda: other.text)
            wait_until(lambda: not other.open("/completeness").unknown, lambda: other.text)
            assert '"page": "home"' in other.open("/topics/views/0/records").text
            others.close()
            ledger.stop()
            view(8, b"basket")
            for path, what in (
                ("/alerts", "alerts"),
                ("/", "measurements"),
                ("/brokers", "latency"),
                ("/streams", "queries"),
                ("/mirror", f"mirrors that write to {ledger.bootstrap}"),
                ("/completeness", f"counts of {ledger.bootstrap}"),
            ):
                wait_until(partial(_says, other, path, what, ""), lambda path=path: f"{path}: {other.text}")
                assert other.violations() == []
            other.open("/topics/views/0/records")
            assert "not shown as Avro" in other.text
            assert '"page": "home"' in other.text, "schemas that are known need no registry"
            assert program.stop() == 0, program.log
            assert "Traceback" not in program.log, program.log


def _says(screen: Screen, path: str, what: str, reason: str) -> bool:
    """Whether a page says that *what* is not known, why, and since when."""
    said = [one for one in screen.open(path).unknown if one.startswith(f"{what}: ")]
    return any(reason in one and "(since 20" in one for one in said)


def test_a_lake_that_is_away_is_said_with_the_last_answer_and_the_time(screen: Screen, lake: Path) -> None:
    screen.open("/lake")
    assert [row[:2] for row in screen.rows("The newest commits")] == [["2", "load"], ["1", "load"]]
    assert "2 batches did not decode." in screen.verdict
    away = lake.with_name("lake-that-is-away")
    lake.rename(away)
    try:
        wait_until(lambda: any("cannot be read" in one for one in screen.reload().unknown), "the page notices")
        assert all("(since 20" in one for one in screen.unknown)
        assert len(screen.rows("The newest commits")) == 2
    finally:
        away.rename(lake)
    wait_until(lambda: not any("cannot be read" in one for one in screen.reload().unknown), "the lake is back")


# Every page has the same head; these begin with different forms.
@pytest.mark.parametrize("path", ["/", "/completeness", "/topics/clicks/search", "/topics/clicks/0/records"])
def test_each_page_can_be_left_by_keyboard(screen: Screen, path: str) -> None:
    screen.open(path)
    screen.press(Keys.TAB)
    assert screen.focused.text == "Skip to content"
    seen = set()
    for _ in range(14):
        screen.press(Keys.TAB)
        seen.add(screen.focused.text)
    assert {"Overview", "Completeness", "Topics", "Groups", "Brokers", "Alerts", "Codes"} <= seen
    screen.open(path).press(Keys.TAB, Keys.ENTER)
    assert screen.focused.get_attribute("id") == "main"


def test_a_prometheus_that_is_away_is_said(screen: Screen) -> None:
    screen.open("/alerts")
    assert screen.verdict.startswith("Unknown: Prometheus at http://127.0.0.1:")
    [said] = screen.unknown
    assert "does not answer: Connection refused (since 20" in said
    screen.follow("PylogBrokerDown")
    assert screen.heading == "Alert PylogBrokerDown"


def test_a_broker_that_is_away_is_said_on_every_page_with_the_time(screen: Screen, broker: BrokerProcess) -> None:
    for path in (*PAGES[:-1], *NEED_BROKERS):
        screen.open(path)
    screen.open("/")
    broker.stop()
    try:
        wait_until(lambda: "UNKNOWN" in screen.reload().verdict, "the overview notices")
        # Healthy, or that broker 0 does not answer, if it was asked while the brokers' own answer still counted.
        assert "The last complete answer was: " in screen.verdict
        for path in NEED_BROKERS:
            wait_until(lambda path=path: screen.open(path).unknown, f"{path} notices")
            assert all("(since 20" in one for one in screen.unknown), screen.unknown
            assert "Traceback" not in screen.text
            assert screen.violations() == []
        assert "clicks" in [row[0] for row in screen.open("/topics").rows("")]
    finally:
        broker.start()
    wait_until(lambda: screen.open("/").verdict.startswith("HEALTHY"), "the overview notices again")
