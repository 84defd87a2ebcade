"""Models of the mirror and the lake, and where a record went; and the reader of a real lake."""

from pathlib import Path

import pytest

from pylog.audit.reports import Tier
from pylog.client.admin.cluster import OffsetRange
from pylog.client.connection import Connection
from pylog.client.consumer import ConsumedRecord
from pylog.console.counts import Look, complete_of
from pylog.console.pipeline import COMMITS, LakeFacts, MirrorFacts, Pipeline
from pylog.console.readings import Reading
from pylog.console.records import Found
from pylog.console.tiers import lake, mirror, went
from pylog.ingest.lake import Lake, path_of
from pylog.ingest.status import Status, StatusFiles, Stop
from pylog.model import TopicPartition
from tests.unit.console.lakes import commit
from tests.unit.console.ledgers import NOW_MS, ledger_of, reports

PLACE = TopicPartition("clicks", 0)
WINDOW_MS = 60_000


def look(**behind_s: float) -> Look:
    """The audit's word that the lake and the mirror are so many seconds behind with each topic."""
    at = {topic: NOW_MS - int(age * 1000) for topic, age in behind_s.items()}
    return Look(0, None, complete_ms={topic: {Tier.MIRROR: one, Tier.LAKE: one} for topic, one in at.items()})


def pipeline(root: Path | None) -> Pipeline:
    ticks = iter(range(0, 10**9, 10_000))
    return Pipeline((), root, lambda: next(ticks))


def facts(root: Path) -> Reading[LakeFacts]:
    found = pipeline(root).lake()
    assert found is not None
    return found


def test_the_mirror_is_as_late_as_its_latest_topic() -> None:
    model = mirror({"b:9092": Reading([MirrorFacts("live", 0)], 1)}, look(clicks=5, logins=301, views=12), None, NOW_MS)
    assert model["verdict"] == "warn"
    assert model["sentence"].startswith("1 of 3 topics are late in the mirror: not all of logins has arrived since 2")
    assert [row["topic"] for row in model["topics"]] == ["logins", "views", "clicks"]
    assert mirror({}, look(clicks=5, views=12), None, NOW_MS)["sentence"] == (
        "Everything of 2 topics has arrived in the mirror up to 12 s ago."
    )


def test_records_that_the_target_refused_are_no_healthy_mirror() -> None:
    model = mirror({"b:9092": Reading([MirrorFacts("live", 7)], 1)}, look(clicks=5), None, NOW_MS)
    assert model["verdict"] == "warn"
    assert model["sentence"].endswith("7 records were refused by the target, and wait in a topic of their own.")
    assert model["mirrors"] == [{"target": "b:9092", "source": "live", "parked": 7}]


def test_a_target_that_is_away_is_said_with_since_when() -> None:
    away: Reading[list[MirrorFacts]] = Reading().failed("no broker answers", 5)
    [row] = mirror({"b:9092": away}, look(clicks=5), None, NOW_MS)["unknown"]
    assert (row["what"], row["reason"], row["since_ms"]) == ("mirrors that write to b:9092", "no broker answers", 5)


def test_nobody_who_counts_is_no_fresh_mirror() -> None:
    assert mirror({}, Look(0, None), None, NOW_MS)["verdict"] == "unknown"
    assert mirror({}, None, None, NOW_MS)["unknown"][0]["reason"] == "reports are being read"


def test_topics_that_one_may_not_see_are_left_out() -> None:
    both = look(clicks=5, salaries=900)
    assert [row["topic"] for row in mirror({}, both, {"clicks"}, NOW_MS)["topics"]] == ["clicks"]
    assert [row["topic"] for row in lake(None, None, both, {"clicks"}, NOW_MS)["fresh"]] == ["clicks"]


def test_what_the_audit_counted_says_how_fresh_a_tier_is() -> None:
    found = complete_of(ledger_of(*reports("clicks")))
    assert found["clicks"].keys() == {Tier.LIVE, Tier.MIRROR}
    assert all(one > 0 for one in found["clicks"].values())


def test_the_lake_says_its_commits_and_what_did_not_decode(tmp_path: Path) -> None:
    commit(tmp_path, 10)
    commit(tmp_path, 30, dead=2)
    model = lake(tmp_path, facts(tmp_path), look(clicks=5), None, NOW_MS)
    assert [(row["number"], row["records"], row["dead_batches"]) for row in model["commits"]] == [
        (2, 30, 2),
        (1, 10, 0),
    ]
    assert model["verdict"] == "warn"
    assert "The last load was commit 2," in model["sentence"]
    assert model["sentence"].endswith("2 batches did not decode.")
    [row] = model["topics"]
    assert (row["records"], row["files"], row["dead_batches"], row["next_offsets"]) == (40, 2, 2, ["0:30"])


def test_a_topic_whose_load_stopped_is_unhealthy(tmp_path: Path) -> None:
    commit(tmp_path, 10)
    StatusFiles(tmp_path).write(Status(at_ms=1, stopped={"clicks": Stop("PYLOG-0310", "was made again", 5)}))
    model = lake(tmp_path, facts(tmp_path), look(clicks=5), None, NOW_MS)
    assert model["verdict"] == "unhealthy"
    assert "Not loaded, because its load stopped: clicks." in model["sentence"]


def test_commits_show_only_topics_that_one_may_see(tmp_path: Path) -> None:
    commit(tmp_path, 10, topic="salaries")
    model = lake(tmp_path, facts(tmp_path), None, {"clicks"}, NOW_MS)
    assert model["topics"] == []
    assert [(row["topics"], row["records"]) for row in model["commits"]] == [([], 0)]


def test_a_lake_that_goes_away_and_comes_back_is_said_with_since_when(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    commit(root, 10)
    source = pipeline(root)
    first = source.lake()
    assert first is not None
    assert first.value is not None
    root.rename(tmp_path / "elsewhere")
    away = source.lake()
    assert away is not None
    assert away.value is first.value
    assert f"{root}/_lake.json cannot be read" in away.error
    assert away.unknown_since_ms is not None
    model = lake(root, away, None, None, NOW_MS)
    assert "lake" in [row["what"] for row in model["unknown"]]
    assert model["commits"]
    (tmp_path / "elsewhere").rename(root)
    back = source.lake()
    assert back is not None
    assert not back.error


def test_a_lake_that_may_not_be_read_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path, 10)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Lake, "open", refuse)
    assert "cannot be read: [Errno 13] Permission denied" in facts(tmp_path).error


def test_the_newest_commits_alone_are_read(tmp_path: Path) -> None:
    for end in range(1, 6):
        commit(tmp_path, end)
    assert [body["number"] for body, _ in Lake.open(tmp_path).recent(3)] == [5, 4, 3]
    assert [body["number"] for body, _ in Lake.open(tmp_path).recent(COMMITS)] == [5, 4, 3, 2, 1]


def holding(*offsets: int, timestamp_ms: int = 125_000) -> Found:
    """What reading brings of a log that holds these offsets."""
    return Found({}, [ConsumedRecord("clicks", 0, one, timestamp_ms, None, b"x", []) for one in offsets])


def steps(offset: int, held: OffsetRange | None, root: Path, topic_id: str = "id-1") -> dict[str, tuple[str, str]]:
    model = went(PLACE, offset, held, holding(offset), Reading(topic_id, 1), facts(root), WINDOW_MS)
    return {row["step"]: (row["state"], row["words"]) for row in model["steps"]}


def test_a_record_names_the_commit_that_took_it_in(tmp_path: Path) -> None:
    for end in (10, 20, 30):
        commit(tmp_path, end)
    found = steps(15, OffsetRange(0, 40), tmp_path)
    assert found["Log"] == ("there", "Held: 24 offsets were written after it.")
    assert found["Lake"][0] == "there"
    assert found["Lake"][1].startswith("Loaded with commit 2 at ")
    assert found["Lake"][1].endswith("Its files of the topic: " + path_of("clicks", 500_000, "20.parquet") + ".")
    assert steps(35, OffsetRange(0, 40), tmp_path)["Lake"] == (
        "waiting",
        "Not loaded yet: the lake has this partition up to before offset 30.",
    )
    assert steps(5, OffsetRange(8, 40), tmp_path)["Lake"][1] == (
        "Loaded with or before commit 1, the oldest that this page reads."
    )


@pytest.mark.parametrize(("offset", "state"), [(7, "gone"), (8, "there"), (39, "there"), (40, "waiting")])
def test_the_log_says_whether_it_still_holds_a_record(offset: int, state: str, tmp_path: Path) -> None:
    commit(tmp_path, 10)
    assert steps(offset, OffsetRange(8, 40), tmp_path)["Log"][0] == state
    assert steps(offset, None, tmp_path)["Log"][0] == "unknown"


def test_a_lake_of_another_cluster_does_not_know_this_one_s_offsets(tmp_path: Path) -> None:
    commit(tmp_path, 10)
    assert steps(5, OffsetRange(0, 40), tmp_path, "id-2")["Lake"][0] == "elsewhere"
    commit(tmp_path / "other", 10, topic="views")
    assert steps(5, OffsetRange(0, 40), tmp_path / "other")["Lake"] == ("absent", "The lake does not load this topic.")


def test_the_window_of_a_record_is_that_of_its_time() -> None:
    model = went(PLACE, 1, OffsetRange(0, 9), holding(1), Reading("id", 1), None, WINDOW_MS)
    assert (model["window"], model["timestamp_ms"]) == ("1970-01-01T00:02:00Z", 125_000)
    assert [row["step"] for row in model["steps"]] == ["Log"]


@pytest.mark.parametrize(
    ("read", "state", "words"),
    [
        (holding(1, timestamp_ms=-1), "there", "Held: 7 offsets were written after it."),
        (holding(), "gone", "No record is there: compaction deleted it, its transaction was aborted, or"),
        (Found({}, open_at={0: 1}), "waiting", "Not committed yet: an open transaction begins at offset 1."),
        (None, "unknown", "Whether compaction has deleted the record, only reading it tells."),
    ],
)
def test_an_offset_that_is_kept_may_hold_no_record(read: Found | None, state: str, words: str) -> None:
    model = went(PLACE, 1, OffsetRange(0, 9), read, Reading("id", 1), None, WINDOW_MS)
    assert (model["steps"][0]["state"], model["window"]) == (state, None)
    assert words in model["steps"][0]["words"]


def test_mirrors_of_two_clusters_are_asked_apart() -> None:
    clusters = (Connection(bootstrap="127.0.0.1:1", timeout_s=1), Connection(bootstrap="127.0.0.1:2", timeout_s=1))
    found = Pipeline(clusters, None, lambda: 7).mirrors()
    assert set(found) == {"127.0.0.1:1", "127.0.0.1:2"}
    assert all(one.error and one.unknown_since_ms == 7 for one in found.values())
