"""Mirror and audit of topics that are written in transactions: committed, aborted, and open ones."""

from pathlib import Path

from pylog.client.connection import Connection
from pylog.config import load_mirror_config
from pylog.mirror import follow
from pylog.mirror.config import Cluster
from pylog.mirror.offsets import MapKey
from tests.programs.conftest import Datacenter
from tests.programs.program import scrape, wait_until
from tests.programs.test_audit import Counter, audit_topics, report  # noqa: F401  the fixture makes `_audit`
from tests.programs.test_mirror import SOON_LOST, Mirror
from tests.servers.transactions import create, history, write_undecided


def test_a_mirror_brings_committed_records_and_its_map_skips_none(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    made = create(live.broker, topic, write_undecided)
    stable = made.stable
    with Mirror(tmp_path, live, offline, topic) as mirror:
        wait_until(
            lambda: len(offline.ends(topic)) == 1 and offline.ends(topic) == [len(made.committed)], lambda: mirror.log
        )
        wait_until(lambda: mirror.sample("pylog_mirror_lag_records", topic, 0) == made.end - stable, lambda: mirror.log)
        assert mirror.stop() == 0
        assert offline.values(topic)[0] == made.committed
        live.broker.stop()
        with history(live.broker, topic) as again:
            again.commit(4)
        live.broker.start()
        mirror.start()
        wait_until(lambda: mirror.has_caught_up(topic, 1), lambda: mirror.log)
        assert mirror.stop() == 0
        config = load_mirror_config(mirror.config_path)
    sources, copies = live.records(topic)[0], offline.records(topic)[0]
    assert [one.value for one in copies] == [one.value for one in sources]
    assert [one.value for one in sources] == [*made.committed, b"open 0", b"behind", b"committed behind"]
    [topic_id] = follow.topic_ids(Cluster("live", Connection(bootstrap=live.bootstrap)), [topic]).values()
    pairs = follow.load_maps(config)[MapKey(topic_id, 0)]
    for offset in range(again.end + 1):
        target = pairs.translate(offset) or 0
        unread = [copy.value for copy, source in zip(copies, sources, strict=True) if source.offset >= offset]
        assert unread == [one.value for one in copies if one.offset >= target][-len(unread) or len(copies) :], offset
    assert pairs.translate(again.end) == len(copies), "markers at the end are passed over"


def test_a_mirror_brings_everything_if_it_is_told_to(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    made = create(live.broker, topic, write_undecided)
    properties = {**SOON_LOST, "isolation.level": "read_uncommitted"}
    with Mirror(tmp_path, live, offline, topic, properties=properties) as mirror:
        wait_until(lambda: mirror.has_caught_up(topic, 1), lambda: mirror.log)
        assert mirror.stop() == 0
    assert offline.values(topic)[0] == made.written


def test_the_audit_misses_nothing_that_was_aborted_and_waits_for_what_is_open(
    tmp_path: Path, live: Datacenter, offline: Datacenter, topic: str
) -> None:
    made = create(live.broker, topic, write_undecided)
    total = len(made.committed) + len([b"open 0", b"behind", b"committed behind"])
    with (
        Mirror(tmp_path, live, offline, topic) as mirror,
        Counter(tmp_path, "live", live, topic) as first,
        Counter(tmp_path, "mirror", offline, topic) as second,
    ):

        def counted() -> list[float]:
            found = zip((first, second), ("live", "mirror"), strict=True)
            return [scrape(one.port).get(f'pylog_audit_records_total{{tier="{tier}"}}', 0) for one, tier in found]

        wait_until(lambda: counted() == [len(made.committed)] * 2, lambda: first.log + second.log + mirror.log)
        code, found = report(live, offline, topic)
        assert (code, found["findings"]) == (0, [])
        assert not found["all_records"].get(topic, {}).get("due", {}).get("mirror"), "records may wait at the source"
        live.broker.stop()
        with history(live.broker, topic) as again:
            again.commit(4)
        live.broker.start()

        def is_judged() -> bool:
            passage = report(live, offline, topic)[1]["all_records"].get(topic, {})
            return bool(passage.get("due", {}).get("mirror") == total)

        wait_until(is_judged, lambda: f"{report(live, offline, topic)} {first.log} {second.log} {mirror.log}")
        code, found = report(live, offline, topic)
    assert (code, found["findings"]) == (0, [])
    assert found["all_records"][topic] == {"due": {"mirror": total}, "seen": {"mirror": total}, "pending": []}
