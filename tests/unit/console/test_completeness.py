"""What the completeness pages say, from accounts with known losses."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from pylog.audit.render import moment
from pylog.audit.reports import Tier
from pylog.client.connection import Connection
from pylog.console import completeness
from pylog.console import counts as module
from pylog.console.completeness import Span
from pylog.console.counts import Counts, Look, Producers
from pylog.console.readings import Reading
from pylog.errors import Unreachable
from tests.unit.console.ledgers import NOW_MS, T0, WINDOW_MS, ledger_of, look_of, reports, unstamped

LATEST = Span("", 2)
SECOND = T0 + WINDOW_MS


def test_a_loss_is_named_down_to_the_first_missing_record() -> None:
    look = look_of(ledger_of(*reports("clicks", lost=(107, 108, 250)), *reports("views", lost=())))
    page = completeness.overview(look, LATEST, None, 1)
    assert page["verdict"] == "incomplete"
    assert page["sentence"] == (
        "Not complete: 3 records are lost or altered. The first: topic clicks, window 2030-01-01T00:01:00Z, "
        "record 107 of producer p1 on web1, is not at mirror."
    )
    assert [(row["topic"], row["state"]) for row in page["topics"]] == [("clicks", "lost"), ("views", "doubled")]
    assert [cell["state"] for cell in page["topics"][0]["cells"]] == ["doubled", "lost", "lost", "doubled", "doubled"]
    assert page["topics"][0]["first_missing"]["ranges"] == [[107, 108]]


def test_a_loss_without_a_stamp_leads_to_its_record_where_it_still_is() -> None:
    page = completeness.topic(look_of(ledger_of(*unstamped("plain", (7, 8, 30)))), LATEST, "plain", 1)
    assert page["verdict"] == "incomplete"
    assert "partition 0, offset 7 of live, is not at mirror" in page["sentence"]
    [finding] = page["findings"]
    assert (finding["partition"], finding["offset"], finding["count"]) == (0, 7, 3)
    assert page["all_records"] == [{"tier": Tier.MIRROR, "due": 50, "seen": 47, "is_behind": False}]


def test_a_place_in_another_cluster_has_no_link_here() -> None:
    look = look_of(ledger_of(*unstamped("plain", (7,))))
    other = Look(look.from_ms, None, look.judgement, None, look.readings, "", frozenset({Tier.MIRROR}))
    [finding] = completeness.topic(other, LATEST, "plain", 1)["findings"]
    assert (finding["partition"], finding["offset"]) == (None, None)


def test_complete_windows_say_so_and_where() -> None:
    page = completeness.overview(look_of(ledger_of(*reports("clicks", lost=()))), LATEST, None, 1)
    assert (page["verdict"], page["sentence"]) == (
        "complete", "Complete: nothing is missing at live and mirror in 1 topic, 5 windows judged.",
    )  # fmt: skip


def test_a_tier_that_still_reads_is_late_and_loses_nothing() -> None:
    look = look_of(ledger_of(*reports("clicks", lost=(107,), mirror_ms=T0)))
    page = completeness.topic(look, LATEST, "clicks", 1)
    assert page["verdict"] == "pending"
    assert page["findings"] == []
    assert {cell["state"] for lane in page["lanes"] if lane["tier"] == "mirror" for cell in lane["cells"]} == {
        "pending"
    }
    assert {cell["state"] for lane in page["lanes"] if lane["tier"] == "live" for cell in lane["cells"]} == {"complete"}


def test_a_killed_producer_is_unknown_and_not_complete() -> None:
    page = completeness.overview(look_of(ledger_of(*reports("clicks", lost=(), closed=False))), LATEST, None, 1)
    assert page["verdict"] == "unknown"
    assert "producer p1 on web1 and 4 more ended before it said what it had sent" in page["sentence"]


@pytest.mark.parametrize("lost", [(), (107,)])
def test_counts_that_cannot_be_read_never_look_complete(lost: tuple[int, ...]) -> None:
    readings: dict[str, Reading[int]] = {
        "log-a1:9092": Reading(1, NOW_MS, "", None, NOW_MS),
        "log-b1:9092": Reading().failed("no broker answers", NOW_MS - 5_000),
    }
    page = completeness.overview(look_of(ledger_of(*reports("clicks", lost=lost)), readings), LATEST, None, 1)
    assert page["verdict"] == ("incomplete" if lost else "unknown")
    assert page["unknown"] == [
        {"what": "counts of log-b1:9092", "reason": "no broker answers", "since_ms": NOW_MS - 5_000,
         "shown_from_ms": None},
    ]  # fmt: skip


def test_reports_that_are_still_being_read_judge_nothing() -> None:
    look = Look(T0, None, None, None, {}, "1,000 of 90,000 reports have been read")
    page = completeness.overview(look, LATEST, None, 1)
    assert (page["verdict"], page["topics"]) == ("unknown", [])
    assert page["sentence"].startswith("Reports are still being read: 1,000 of 90,000")


def test_nothing_counted_is_unknown() -> None:
    assert completeness.overview(look_of(ledger_of()), LATEST, None, 1)["verdict"] == "unknown"
    assert completeness.latest(None, None)["verdict"] == "unknown"


def test_a_person_sees_the_counts_of_their_topics_alone() -> None:
    look = look_of(ledger_of(*reports("salaries"), *reports("clicks", lost=())))
    page = completeness.overview(look, LATEST, {"clicks"}, 1)
    assert [row["topic"] for row in page["topics"]] == ["clicks"]
    assert (page["verdict"], page["findings"]) == ("complete", [])
    assert completeness.latest(look, {"clicks"})["verdict"] == "complete"
    assert completeness.latest(look, None)["verdict"] == "incomplete"


def test_a_window_says_what_each_tier_lacks_of_each_producer() -> None:
    ledger = ledger_of(*reports("clicks", lost=(107, 109, 110)))
    look = look_of(ledger)
    assert look.judgement is not None
    judgement = look.judgement.between(SECOND, SECOND + WINDOW_MS)
    producers = Producers(ledger, threading.Lock()).of("clicks", SECOND)
    page = completeness.window(look, judgement, "clicks", SECOND, producers)
    assert page["window"] == moment(SECOND) == "2030-01-01T00:01:00Z"
    [first] = page["producers"]
    assert first["counts"] == [
        {"arrived": 100, "copies": 0, "missing": 0, "ranges": []},
        {"arrived": 100, "copies": 0, "missing": 0, "ranges": []},
        {"arrived": 97, "copies": 3, "missing": 3, "ranges": [[107, 107], [109, 110]]},
    ]
    assert [tier["tier"] for tier in page["tiers"]] == ["producer", "live", "mirror"]
    assert page["finding_count"] == 2  # what is lost, and the copies
    assert page["sentence"].startswith("Not complete: 3 records")


def test_pages_of_windows_begin_with_the_newest() -> None:
    page = completeness.topic(look_of(ledger_of(*reports("clicks", windows=150))), LATEST, "clicks", 2)
    assert (page["page"], page["pages"], len(page["windows"])) == (2, 2, 50)
    assert page["windows"][-1]["window"] == moment(T0)


def test_the_command_has_what_the_page_was_asked_for() -> None:
    said = completeness.span_command(["a:1", "b:1"], Span("2030-01-01T10:00", 1, "2030-01-01T11:00:00Z"), "my topic")
    assert said == (
        "pylog audit report --ledger a:1 --ledger b:1 --from 2030-01-01T10:00 --to 2030-01-01T11:00:00Z "
        "--topic 'my topic' --format wide"
    )
    assert completeness.span_command(["a:1"], LATEST, None).endswith("--ledger a:1 --since 2h --format wide")


def test_few_wait_for_counts_of_which_nothing_is_known_and_none_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a thread of the server: as many as there are threads ended the console for everybody."""
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.5)
    counts = Counts((Connection(bootstrap="127.0.0.1:1", timeout_s=1),), WINDOW_MS, lambda: NOW_MS)

    def look(number: int) -> None:
        with pytest.raises(Unreachable, match="counts of other times are being read"):
            counts.look(T0 + number * 3_600_000, NOW_MS)

    with counts._lock, ThreadPoolExecutor(40) as threads:
        looks = [threads.submit(look, number) for number in range(40)]
        done = wait(looks, timeout=60)
        assert not done.not_done
    for one in looks:
        one.result()


def test_who_looks_while_another_waits_for_a_cluster_is_shown_what_is_known() -> None:
    away = Connection(bootstrap="127.0.0.1:1", timeout_s=1)
    now_s = [0.0]
    counts = Counts((away,), WINDOW_MS, lambda: NOW_MS, lambda: now_s[0])
    first = counts.look(T0, NOW_MS)
    assert (first.judgement, first.readings["127.0.0.1:1"].unknown_since_ms) == (None, NOW_MS)
    now_s[0] = 60.0
    with counts._lock:
        assert counts.look(T0, NOW_MS) is first
    page = completeness.overview(first, LATEST, None, 1)
    assert page["sentence"] == "Unknown: no cluster's counts could be read."
    assert page["unknown"][0]["what"] == "counts of 127.0.0.1:1"
