"""What a session takes for arrived, with librdkafka's own queues and nobody at the other end."""

import io
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message

from pylog.audit.places import ORIGIN_HEADER, ORIGIN_OFFSET_HEADER
from pylog.client.connection import Connection
from pylog.daemon.notices import Notices
from pylog.metrics import Metrics
from pylog.mirror import follow
from pylog.mirror import session as module
from pylog.mirror.config import Cluster, MirrorConfig
from pylog.mirror.meters import Meters
from pylog.mirror.offsets import MapKey, OffsetMap
from pylog.mirror.scout import Scout
from pylog.mirror.session import RecordRefused, Relay, Session, SessionFailed, original_offset
from pylog.model import TopicPartition

NOBODY = "127.0.0.1:1"
BUFFER_BYTES = 64 << 10
FULL, OTHER = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


@pytest.fixture
def session() -> Iterator[Session]:
    config = MirrorConfig(
        source=Cluster("live", Connection(bootstrap=NOBODY)),
        target=Cluster("offline", Connection(bootstrap=NOBODY)),
        topics=("clicks",),
        group="mirror",
        buffered_bytes=BUFFER_BYTES,
        flush_s=0.2,
    )
    meters, notices = Meters(Metrics()), Notices()
    relay = Relay("live", "offline")
    relay.learn("clicks", "clicks-live", "clicks-offline")
    found = Session(config, relay, Scout(config, meters, notices), meters, notices)
    for partition in (FULL, OTHER):
        found._begin(partition, 0, None)
        found._maps[partition] = MapKey("id", partition.partition), OffsetMap("clicks", "clicks-offline")
    yield found
    found._producer.purge()
    found._consumer.close()


def record(partition: TopicPartition, offset: int, size: int = 100, origin: str | None = None) -> Message:
    headers: list[tuple[str, str | bytes | None]] = [] if origin is None else [(ORIGIN_HEADER, origin.encode())]
    return Message(
        topic=partition.topic, partition=partition.partition, offset=offset, value=bytes(size), headers=headers,
        timestamp=(1, 5),
    )  # fmt: skip


def test_a_record_that_is_not_to_go_does_not_stand_for_those_before_it_that_wait(session: Session) -> None:
    """Its offset would be committed, and they would be left out for ever after a kill."""
    session._take(record(FULL, 0, BUFFER_BYTES - 1000))
    session._take(record(OTHER, 0, 2000))  # does not fit any more
    session._take(record(OTHER, 1, origin="offline"))
    assert session._flights[OTHER].next_source == 0
    assert [int(one.offset() or 0) for one, _ in session._waiting] == [0, 1]


def test_records_that_are_not_to_go_are_passed_over_at_once_when_nothing_waits(session: Session) -> None:
    session._take(record(OTHER, 0, origin="offline"))
    session._take(record(OTHER, 1, origin="offline"))
    assert session._flights[OTHER].next_source == 2


def test_the_end_of_a_partition_is_reached_though_its_last_offset_holds_no_record(session: Session) -> None:
    session._take(record(FULL, 0, BUFFER_BYTES - 1000))
    end = Message(topic="clicks", partition=1, offset=3, error=KafkaError(KafkaError._PARTITION_EOF))
    session._reach_end(end)
    assert session._flights[OTHER].next_source == 3
    session._take(record(OTHER, 3, 2000))  # waits for room
    session._reach_end(Message(topic="clicks", partition=1, offset=6, error=KafkaError(KafkaError._PARTITION_EOF)))
    assert session._flights[OTHER].next_source == 3


def test_a_record_larger_than_the_buffer_is_sent_by_itself(session: Session) -> None:
    with pytest.raises(SessionFailed, match=r"the target took nothing for 0\.2 s"):
        session._take(record(OTHER, 7, 2 * BUFFER_BYTES))
    assert session._wide is not None


def test_a_record_larger_than_any_client_sends_is_left_out_and_counted(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_RECORD_BYTES", 20_000)
    monkeypatch.setattr(follow, "ensure_parked_topic", lambda config: None)
    session._producer = session._new_producer(BUFFER_BYTES >> 10)
    session._notices = Notices(told := io.StringIO())
    session._take(record(OTHER, 7, 30_000))
    session._take(record(OTHER, 8, 2 * BUFFER_BYTES))
    assert session._flights[OTHER].next_source == 9
    left_out = [line for line in session._meters._metrics.render().splitlines() if "left_out" in line]
    assert left_out[-1] == 'pylog_mirror_left_out_total{topic="clicks"} 2'
    assert "event=left_out partition=clicks-1 first=7 last=7" in told.getvalue()


def test_a_batch_that_is_refused_leaves_its_records_to_be_sent_one_by_one(session: Session) -> None:
    for offset in range(2):
        session._take(record(OTHER, offset))
    refused = KafkaError(KafkaError.INVALID_RECORD)
    for offset in range(2):
        session._delivered(refused, record(OTHER, offset))
    assert all((OTHER, offset) in session._suspects for offset in range(2))
    with pytest.raises(RecordRefused, match="clicks-1 offset 0"):
        session._pump()


def test_what_is_not_the_record_s_fault_suspects_none(session: Session) -> None:
    session._take(record(OTHER, 0))
    session._delivered(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), record(OTHER, 0))
    assert not len(session._suspects)
    with pytest.raises(SessionFailed):
        session._pump()


def test_partitions_that_were_given_away_end_the_session(session: Session) -> None:
    """A record that is still under way would be taken for one that is sent again, and come behind what follows it."""
    session._take(record(OTHER, 0))
    session._lost(session._consumer, [])
    with pytest.raises(SessionFailed, match="gave this instance's partitions away"):
        session._pump()


def test_a_copy_without_an_offset_of_its_own_counts_as_the_first_of_its_log() -> None:
    """The release before wrote none, and a group must not go on behind it."""
    marks: list[tuple[str, str | bytes | None]] = [(ORIGIN_HEADER, b"offline"), (ORIGIN_OFFSET_HEADER, b"50")]
    assert original_offset(Message(headers=marks)) == 50
    assert original_offset(Message(headers=marks[:1])) == 0
    assert original_offset(Message(headers=[marks[0], (ORIGIN_OFFSET_HEADER, b"9" * 5_000)])) == 0


def test_a_session_does_not_commit_past_a_record_of_the_target_while_its_map_is_not_written(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.mirror.session._ANSWER_S", 0.0)
    session._maps[OTHER][1].note(90, 80)
    session._take(record(OTHER, 100, origin="offline"))
    with pytest.raises(SessionFailed, match=r"pylog\.offsets\.live cannot be written"):
        session._checkpoint(asynchronous=True)
    assert session._committed[OTHER] == 0


def test_a_topic_that_was_made_again_at_either_end_ends_the_session(session: Session) -> None:
    session._ids, session._target_ids = {"clicks": "a"}, {"clicks": "b"}
    session._scout.ids, session._scout.target_ids = {"clicks": "a"}, {"clicks": "b"}
    session._subscribe()
    session._scout.target_ids = {"clicks": "c"}
    with pytest.raises(SessionFailed, match="clicks was deleted and made again at the target"):
        session._subscribe()
