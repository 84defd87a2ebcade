"""The models of pages, from planted facts: healthy, broken, unknown, empty and large clusters."""

from typing import TypeVar

from pylog.client.admin.cluster import ClusterView, OffsetRange, PartitionView, TopicView
from pylog.client.admin.configs import Setting
from pylog.client.admin.disks import BrokerDisks, LogDir, ReplicaSize
from pylog.client.admin.groups import GroupListing, GroupView, MemberView, Progress
from pylog.client.admin.lag import Status
from pylog.client.commits import Verdict
from pylog.client.rows import Row
from pylog.console import screens
from pylog.console.readings import Reading
from pylog.errors import Unreachable
from pylog.model import NO_LEADER, NodeAddress, TopicPartition
from pylog.probe.lag import LagReport

BROKERS = tuple(NodeAddress(number, "h", 9092) for number in (1, 2, 3))
C0 = TopicPartition("clicks", 0)


_T = TypeVar("_T")


def reading(value: _T) -> Reading[_T]:
    return Reading(value, 1_000, "", None, 1_000)


def away(value: _T) -> Reading[_T]:
    """Return what is left of *value* after its source went away at 2,000."""
    return reading(value).failed("no broker answers", 2_000)


def view(*partitions: PartitionView, brokers: tuple[NodeAddress, ...] = BROKERS) -> ClusterView:
    return ClusterView("id", 1, brokers, {"clicks": TopicView("clicks", partitions)})


WHOLE = PartitionView(0, 1, (1, 2, 3), (1, 2, 3))
SHRUNK = PartitionView(0, 1, (1, 2, 3), (1, 3))
OFFLINE = PartitionView(0, NO_LEADER, (1, 2, 3), (2,))
NO_VIEW: Reading[ClusterView] = Reading()
NO_REPORT: Reading[LagReport] = Reading()
NO_DISKS: Reading[dict[int, BrokerDisks]] = Reading({}, 1_000)


def disks(used: float = 0.5) -> dict[int, BrokerDisks]:
    replicas = {C0: ReplicaSize(700, 0)}
    return {1: BrokerDisks((LogDir("/d", 1_000, int(1_000 * (1 - used)), replicas),))}


def overview(
    cluster: Reading[ClusterView],
    answering: set[int] | None = None,
    said: dict[int, BrokerDisks] | None = None,
    *,
    is_all: bool = True,
) -> Row:
    alive = {1, 2, 3} if answering is None else answering
    problems = screens.problems_of(cluster.value, alive, said or {}) if cluster.value else []
    since = dict.fromkeys(problems, 500)
    return screens.overview(
        cluster,
        reading(alive),
        reading(said or {}),
        reading([]),
        since,
        problems,
        {"verdict": "complete", "sentence": ""},
        is_all=is_all,
    )


def test_a_healthy_cluster_is_one_sentence() -> None:
    found = overview(reading(view(WHOLE)))
    assert (found["verdict"], found["healthy"], found["unknown"]) == ("healthy", True, [])
    assert found["sentence"] == "Healthy: all 3 brokers answer, and the only partition is led and in sync."


def test_somebody_who_need_not_see_all_topics_is_told_of_what_the_verdict_is() -> None:
    assert overview(reading(view(WHOLE)), is_all=False)["sentence"] == (
        "Healthy: all 3 brokers answer, and the only partition that you may see is led and in sync."
    )
    assert overview(reading(view(SHRUNK, OFFLINE)), is_all=False)["sentence"] == (
        "1 of 2 partitions that you may see has no leader; 1 of 2 partitions that you may see is not in sync."
    )


def test_the_most_urgent_reason_comes_first() -> None:
    found = overview(reading(view(SHRUNK, OFFLINE, brokers=BROKERS[:2])), {1}, disks(0.9))
    assert found["verdict"] == "unhealthy"
    assert found["sentence"] == (
        "1 of 2 partitions has no leader; broker 2 does not answer; the disk of broker 1 is nearly full; "
        "1 of 2 partitions is not in sync."
    )
    assert [row["kind"] for row in found["problems"]] == ["no_leader", "broker_silent", "disk_full", "not_in_sync"]
    assert found["problems"][0] | {"detail": ""} == {
        "kind": "no_leader", "subject": "clicks-0", "detail": "", "seen_since_ms": 500, "topic": "clicks",
        "partition": 0,
    }  # fmt: skip


def test_a_cluster_that_never_answered_is_unknown() -> None:
    found = overview(NO_VIEW.failed("no broker answers", 2_000))
    assert (found["verdict"], found["sentence"]) == ("unknown", "Unknown: no broker answers.")
    assert found["unknown"] == [
        {"what": "cluster", "reason": "no broker answers", "since_ms": 2_000, "shown_from_ms": None}
    ]


def test_a_cluster_that_went_away_shows_what_was_known() -> None:
    found = overview(away(view(WHOLE)))
    assert found["verdict"] == "unknown"
    assert found["sentence"].startswith("Unknown: no broker answers. The last complete answer was: Healthy: all 3")
    assert found["unknown"][0]["since_ms"] == 2_000
    assert found["unknown"][0]["shown_from_ms"] == 1_000


def test_all_problems_are_counted_and_the_first_are_listed() -> None:
    many = [PartitionView(number, 1, (1, 2), (1,)) for number in range(screens.MAX_PROBLEMS + 50)]
    found = overview(reading(view(*many)))
    assert found["problem_count"] == len(many)
    assert len(found["problems"]) == screens.MAX_PROBLEMS


def test_topics_come_in_pages_and_by_part_of_their_names() -> None:
    names = [f"t{number:04}" for number in range(250)]
    cluster = reading(ClusterView("id", 1, BROKERS, {name: TopicView(name, (WHOLE,)) for name in names}))
    first = screens.topics(cluster, NO_DISKS, "", 1)
    assert (first["total"], first["page"], first["pages"]) == (250, 1, 3)
    assert [row["name"] for row in first["topics"]] == names[:100]
    assert [row["name"] for row in screens.topics(cluster, NO_DISKS, "", 99)["topics"]] == names[200:]
    assert [row["name"] for row in screens.topics(cluster, NO_DISKS, "24", 1)["topics"]] == [
        "t0024", "t0124", "t0224", *names[240:]
    ]  # fmt: skip


def test_sizes_are_of_all_replicas_and_unknown_without_an_answer() -> None:
    said = disks() | {2: BrokerDisks((LogDir("/d", -1, -1, {C0: ReplicaSize(300, 0)}),))}
    assert screens.topics(reading(view(WHOLE)), reading(said), "", 1)["topics"][0]["size_bytes"] == 1_000
    silent = {1: BrokerDisks(error=Unreachable("h:9092: refused"))}
    found = screens.topics(reading(view(WHOLE)), reading(silent), "", 1)
    assert found["topics"][0]["size_bytes"] is None
    assert found["unknown"][0]["what"] == "disk of broker 1"


def test_a_topic_shows_offsets_sizes_and_its_own_settings() -> None:
    settings = [
        Setting("retention.ms", "5", "topic", False),
        Setting("min.insync.replicas", "2", "default", False),
    ]
    offsets = reading({C0: OffsetRange(3, 10)})
    found = screens.topic(view(SHRUNK).topics["clicks"], offsets, reading(settings), reading(disks()))
    assert found["own_config"] == ["retention.ms"]
    assert found["partitions"][0] == {
        "partition": 0, "leader": 1, "replicas": [1, 2, 3], "isr": [1, 3], "start_offset": 3, "end_offset": 10,
        "count": 7, "size_bytes": 700, "is_in_sync": False,
    }  # fmt: skip


def test_a_partition_is_explained_from_all_facts() -> None:
    cluster = reading(view(SHRUNK))
    settings = reading([Setting("min.insync.replicas", "2", "default", False)])
    said = reading({2: BrokerDisks((LogDir("/d", -1, -1, {C0: ReplicaSize(3, 9)}),))})
    found = screens.partition(
        view(SHRUNK).topics["clicks"], 0, cluster, reading({1, 2, 3}), said, reading({}), reading({}), settings
    )
    assert found["state"] == "not_in_sync"
    assert "is 9 offsets behind" in found["replicas"][1]["sentence"]
    assert "one more replica falls out" in found["effects"][0]


REPORT = LagReport(
    records={("readers", "clicks"): 12.0, ("readers", "views"): 0.0},
    seconds={("readers", "clicks"): 41.5, ("readers", "views"): 0.0},
    status={("readers", "clicks"): 3.0, ("readers", "views"): 0.0},
    members={("readers",): 2.0},
)


def test_groups_that_are_worst_come_first_and_strangers_are_not_shown() -> None:
    listed = reading([GroupListing("fresh", "Empty"), GroupListing("readers", "Stable")])
    report = LagReport(
        {**REPORT.records, ("secret", "s"): 1.0},
        {**REPORT.seconds, ("secret", "s"): 1.0},
        {**REPORT.status, ("secret", "s"): 0.0},
        REPORT.members,
    )
    found = screens.groups(listed, reading(report), "", 1)
    assert found["groups"] == [
        {"group": "readers", "state": "Stable", "members": 2, "lag": 12, "seconds_behind": 41.5, "status": "STOP"},
        {"group": "fresh", "state": "Empty", "members": None, "lag": None, "seconds_behind": None, "status": None},
    ]


def test_a_group_names_no_topic_that_the_person_may_not_see() -> None:
    listed = reading([GroupListing("readers", "Stable")])
    seen = screens.seen_lags(reading(REPORT), {"views"})
    (row,) = screens.groups(listed, seen, "", 1)["groups"]
    assert (row["lag"], row["status"]) == (0, "OK")
    group = GroupView("readers", "Stable", "range", BROKERS[0], ())
    found = screens.group(group, reading({}), reading({}), seen, 0)
    assert [one["topic"] for one in found["topics"]] == ["views"]
    assert screens.seen_lags(reading(REPORT), None).value is REPORT
    assert screens.seen_lags(NO_REPORT, set()) is NO_REPORT


def test_a_group_whose_lag_is_not_known_says_so() -> None:
    found = screens.groups(reading([GroupListing("a", "Stable")]), NO_REPORT.failed("refused", 5), "", 1)
    assert found["groups"][0]["lag"] is None
    assert found["unknown"][0] == {
        "what": "lag of all groups", "reason": "refused", "since_ms": 5, "shown_from_ms": None
    }  # fmt: skip


def test_a_group_says_how_far_it_is_behind_and_who_reads_what() -> None:
    member = MemberView("m-1", None, "app", "10.0.0.1", (C0,))
    group = GroupView("readers", "Stable", "range", BROKERS[0], (member,))
    progress = reading({C0: Progress(3, OffsetRange(0, 15))})
    verdicts = reading({C0: Verdict(Status.STOP, 900)})
    found = screens.group(group, progress, verdicts, reading(REPORT), 61_000)
    assert found["sentence"] == (
        "STOP: It commits no longer, although there is something to read. 12 records are left to read; the oldest "
        "has waited for 42 s."
    )
    assert found["partitions"][0]["client"] == "app"
    assert found["partitions"][0]["silent_s"] == 60


def test_a_group_without_members_says_so() -> None:
    group = GroupView("readers", "Empty", "", None, ())
    found = screens.group(group, reading({C0: Progress(15, OffsetRange(0, 15))}), reading({}), reading(REPORT), 0)
    assert found["sentence"].endswith("It has no members.")


def test_brokers_show_how_full_their_disks_are() -> None:
    found = screens.brokers(reading(view(WHOLE)), reading({1, 2}), reading(disks(0.25)))
    assert [row["answers"] for row in found["brokers"]] == [True, True, False]
    assert found["brokers"][0]["dirs"] == [
        {"broker": 1, "path": "/d", "total_bytes": 1_000, "usable_bytes": 750, "used_ratio": 0.25, "replica_count": 1,
         "size_bytes": 700},
    ]  # fmt: skip
    assert (found["brokers"][0]["leads"], found["brokers"][0]["controller"]) == (1, True)


def test_an_empty_cluster_has_pages_too() -> None:
    nothing = NO_VIEW.failed("away", 1)
    assert screens.topics(nothing, NO_DISKS, "", 1)["topics"] == []
    assert screens.brokers(nothing, reading(set()), NO_DISKS)["brokers"] == []
    assert screens.groups(reading([]), reading(LagReport()), "", 1)["pages"] == 1


def test_commands_are_quoted_for_a_shell() -> None:
    assert screens.command("group", "describe", "a b;c'd") == "pylog group describe 'a b;c'\"'\"'d'"
