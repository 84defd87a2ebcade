"""The page of a scenario's last full run: tables of what was done, with a line for each client."""

import xml.etree.ElementTree as ET

from local.test import molecule_page

FACTS = ("abc", "2026-11-22", "300", "2 cores, load average 7", "7 tests on 3 hosts")
LOAD = [
    {
        "client": name,
        "sent": 5,
        "acked": 5,
        "failed": 0,
        "lost": 0,
        "duplicates": 0,
        "longest_pause_ms": 12,
        "p99_ms": 7,
    }
    for name in ("librdkafka", "kafka-python")
]


def test_each_deed_has_its_clients_below_it() -> None:
    numbers = {"rolls": [{"roll": "up", "seconds": 90, "clients": LOAD}, {"roll": "back", "hosts": {"live1": 1}}]}
    assert molecule_page.page("rolling_upgrade", FACTS, numbers).splitlines()[2:] == [
        "| commit | date | seconds | machine | tested |",
        "|---|---|---|---|---|",
        "| abc | 2026-11-22 | 300 | 2 cores, load average 7 | 7 tests on 3 hosts |",
        "",
        "## Rolls",
        "",
        "| roll | seconds | client | sent | acked | failed | lost | duplicates | longest_pause_ms | p99_ms |",
        "|---|---|---|---|---|---|---|---|---|---|",
        "| up | 90 | librdkafka | 5 | 5 | 0 | 0 | 0 | 12 | 7 |",
        "|  |  | kafka-python | 5 | 5 | 0 | 0 | 0 | 12 | 7 |",
        "| back |  |  |  |  |  |  |  |  |  |",
    ]


def test_a_scenario_that_did_one_thing_has_one_table() -> None:
    said = molecule_page.page("grow_from_one", FACTS, {"seconds": 144, "clients": LOAD})
    assert said.splitlines()[6:9] == [
        "| seconds | client | sent | acked | failed | lost | duplicates | longest_pause_ms | p99_ms |",
        "|---|---|---|---|---|---|---|---|---|",
        "| 144 | librdkafka | 5 | 5 | 0 | 0 | 0 | 12 | 7 |",
    ]
    assert len(said.splitlines()) == 10


def test_what_is_no_list_of_deeds_stands_below_as_it_is() -> None:
    said = molecule_page.page("plan", FACTS, {"rounds": [{"seconds": 3}], "lag_s": 121})
    assert said.splitlines()[-7:] == ["| seconds |", "|---|", "| 3 |", "", "    {", '      "lag_s": 121', "    }"]


def test_without_numbers_there_is_the_run_alone() -> None:
    assert len(molecule_page.page("resume", FACTS, {}).splitlines()) == 5


def test_each_test_has_its_time_and_what_the_scenario_shows_stands_at_the_end() -> None:
    report = ET.fromstring(
        '<testsuites><testsuite><testcase name="test_a_disk_is_lost" time="97.6"/>'
        '<testcase name="test_a_drill[T36]" time="0.1"><skipped message="no memory limits"/></testcase>'
        "</testsuite></testsuites>"
    )
    assert molecule_page.page("broker_loss", FACTS, {}, report, "Clients produced.\n").splitlines()[5:] == [
        "",
        "## Tests",
        "",
        "| test | seconds |",
        "|---|--:|",
        "| a disk is lost | 98 |",
        "| a drill[T36] | skipped: no memory limits |",
        "",
        "## What this shows",
        "",
        "Clients produced.",
    ]
