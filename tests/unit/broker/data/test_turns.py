"""A batch that was refused comes before what its producer sent behind it, and what is stored is not called refused."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pylog.broker.data import held_back
from pylog.cluster.image import PartitionImage, TopicImage
from pylog.errors import ApiError, ErrorCode
from pylog.log.producers import MAX_PRODUCER_ID, NO_PROGRESS
from pylog.wire.records import TRANSACTIONAL, BatchHeader, check_batch
from tests.unit.broker.data.test_identity import FOLLOWER, LEADER
from tests.unit.broker.data.test_produce_twice import Producing
from tests.unit.log.batches import batch

TOO_FEW, NEXT = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
ELSEWHERE, UNKNOWN = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
PRODUCER = 5


class Turns(Producing):
    """A leader that needs its follower in sync, and one producer of batches of two records."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.steady_ms = 0
        self.partitions.now_ms = lambda: self.steady_ms
        self.configure({"min.insync.replicas": "2"})

    def configure(self, configs: dict[str, str]) -> None:
        topics = {**self.image.topics, "t": replace(self.image.topics["t"], configs=configs)}
        self.change(topics)

    def change(self, topics: Mapping[str, TopicImage]) -> None:
        self.image = replace(self.image, version=self.image.version + 1, topics=topics)
        self.apply(self.image)

    def state(self, **fields: object) -> None:
        """Apply an image in which the partition is another one in *fields*."""
        topic = self.image.topics["t"]
        before = topic.partitions[0]
        state: PartitionImage = replace(before, partition_epoch=before.partition_epoch + 1, **fields)  # type: ignore[arg-type]
        self.change({**self.image.topics, "t": replace(topic, partitions={0: state})})

    def lose(self) -> None:
        """Take the follower out of the in-sync replicas, which are too few then."""
        self.state(isr=(LEADER,))

    def win(self) -> None:
        """Take it in again, and let it ask twice: its second fetch shows that it had our answer to the first."""
        self.state(isr=(LEADER, FOLLOWER))
        for _ in range(2):
            self.follow(self.log.high_watermark)

    def ask(  # type: ignore[override]
        self, sequence: int, *, producer: int = PRODUCER, epoch: int = 0, is_damaged: bool = False
    ) -> ErrorCode | None:
        """Send a batch; return its error, None while its answer is being waited for."""
        self.replies.clear()
        view = batch(2, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        if is_damaged:
            view[-1] ^= 1
        self.send(view)
        codes = self.error_codes()
        return codes[0] if codes else None


def told(directory: Path, story: Callable[[Turns], None]) -> None:
    async def run() -> None:
        story(Turns(directory))

    asyncio.run(run())


def test_what_comes_behind_a_refused_batch_waits_for_it(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.ask(0)
        one.follow(2)
        one.lose()
        assert one.ask(2) is TOO_FEW
        one.win()
        assert one.ask(4) is TOO_FEW, "2 has to come first: out of order, its producer would begin a new epoch"
        assert one.ask(6) is TOO_FEW
        assert one.ask(2) is None
        assert one.ask(4) is None
        assert one.ask(8) is NEXT, "nobody refused 6 since 4 was stored"
        assert one.log.log_end_offset == 6
        assert len(one.produce._held_back.first) == 0

    told(tmp_path, story)


def test_the_first_batches_of_a_producer_come_in_their_order_too(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.lose()
        assert one.ask(0) is TOO_FEW
        one.win()
        assert one.ask(2) is TOO_FEW, "a log that does not know the producer would take it, and never 0"
        assert one.ask(0) is None
        assert one.ask(2) is None

    told(tmp_path, story)


def test_a_broker_that_hears_between_two_batches_that_it_leads_keeps_their_order(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.state(leader=FOLLOWER, leader_epoch=2)
        assert one.ask(0) is ELSEWHERE
        one.state(leader=LEADER, leader_epoch=3)
        assert one.ask(2) is TOO_FEW
        assert one.ask(0) is None
        assert one.ask(2) is None

    told(tmp_path, story)


def test_a_broker_that_hears_between_two_batches_of_the_topic_keeps_their_order(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        topics = dict(one.image.topics)
        before = topics.pop("t")
        one.partitions.retire(replace(one.image, version=one.image.version + 1, topics=topics))
        one.change(topics)
        assert one.ask(0) is UNKNOWN
        one.change({**topics, "t": before})
        assert one.ask(2) is TOO_FEW
        assert one.ask(0) is None
        assert one.ask(2) is None

    told(tmp_path, story)


def test_what_another_leader_may_have_taken_holds_nothing_back(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.lose()
        assert one.ask(0) is TOO_FEW
        one.state(leader=FOLLOWER, leader_epoch=2, isr=(LEADER, FOLLOWER))
        one.state(leader=LEADER, leader_epoch=3)
        assert one.ask(2) is None

    told(tmp_path, story)


def test_a_stored_batch_that_was_refused_elsewhere_holds_nothing_back(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.ask(0)
        one.state(leader=FOLLOWER, leader_epoch=2)
        assert one.ask(0) is ELSEWHERE, "it is stored here; who leads acknowledges it, which changes nothing here"
        one.state(leader=LEADER, leader_epoch=3)
        assert one.ask(2) is None

    told(tmp_path, story)


def test_a_batch_refused_for_good_holds_nothing_back(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.ask(0)
        one.lose()
        assert one.ask(2) is TOO_FEW
        one.win()
        one.configure({"min.insync.replicas": "2", "max.message.bytes": "60"})
        assert one.ask(2) is ErrorCode.MESSAGE_TOO_LARGE
        one.configure({"min.insync.replicas": "2"})
        assert one.ask(4) is NEXT, "its producer gives 2 up, and is to know at once that it begins a new epoch"

    told(tmp_path, story)


def test_other_producers_and_epochs_wait_for_nothing(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.lose()
        assert one.ask(0) is TOO_FEW
        one.win()
        assert one.ask(7, producer=PRODUCER + 1) is None
        assert one.ask(0, epoch=1) is None

    told(tmp_path, story)


def test_a_stored_batch_is_not_called_refused_while_too_few_are_in_sync(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        assert one.ask(0) is None
        one.lose()
        after = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert one.ask(0) is after, "librdkafka tells its user that what was not enough replicas was not written"
        assert one.ask(2) is TOO_FEW
        one.win()
        one.follow(2)
        one.lose()
        assert one.ask(0) is ErrorCode.NONE, "all that were in sync have it"
        assert one.log.log_end_offset == 2

    told(tmp_path, story)


def test_a_batch_that_does_not_come_again_holds_nothing_back_for_long(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.state(leader=FOLLOWER, leader_epoch=2)
        assert one.ask(0) is ELSEWHERE, "who leads has it, and all that follow, and this broker forgets the producer"
        one.state(leader=LEADER, leader_epoch=3)
        assert one.ask(200) is TOO_FEW
        one.steady_ms += held_back.HOLD_MS - 1
        assert one.ask(200) is TOO_FEW
        one.steady_ms += 1
        assert one.ask(200) is None
        assert one.produce._held_back.first == {}

    told(tmp_path, story)


def test_a_batch_that_comes_again_and_is_refused_holds_back_from_then_on(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.lose()
        for _ in range(3):
            assert one.ask(0) is TOO_FEW
            one.steady_ms += held_back.HOLD_MS - 1
        one.win()
        assert one.ask(2) is TOO_FEW
        assert one.ask(0) is None

    told(tmp_path, story)


def test_what_nobody_needs_to_have_sent_holds_nothing_back(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.ask(10)
        assert one.ask(5, is_damaged=True) is ErrorCode.CORRUPT_MESSAGE
        one.lose()
        assert one.ask(5) is TOO_FEW, "not what comes next: somebody else may have made it up"
        one.win()
        assert one.ask(12) is None

    told(tmp_path, story)


def test_a_name_that_no_topic_can_have_is_not_kept(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        view = batch(2, producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
        error = ApiError(UNKNOWN, "")
        one.produce._note_refusal("t" * 250, 0, view, None, error)
        assert one.produce._held_back.first == {}
        one.produce._note_refusal("t" * 249, 0, view, None, error)
        assert len(one.produce._held_back.first) == 1

    told(tmp_path, story)


def test_a_number_that_a_topic_does_not_have_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_back, "MAX_COUNT", 1)

    def story(one: Turns) -> None:
        view = batch(2, producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
        error = ApiError(UNKNOWN, "")
        one.produce._note_refusal("t", 99, view, None, error)
        assert one.produce._held_back.first == {}
        one.lose()
        one.ask(0)
        one.produce._note_refusal("unheard", 99, view, None, error)
        assert [key for key, *_ in one.produce._held_back.first] == [("t", 0)], "nobody is pushed out by it"

    told(tmp_path, story)


def test_a_copy_of_an_earlier_batch_does_not_settle_what_is_held_back(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.ask(0)
        one.lose()
        assert one.ask(2) is TOO_FEW
        one.ask(0)
        one.win()
        assert one.ask(0) is None
        assert one.ask(4) is TOO_FEW
        assert one.ask(2) is None

    told(tmp_path, story)


@pytest.mark.parametrize("code", [TOO_FEW, ELSEWHERE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT])
def test_whatever_may_be_over_soon_holds_back(tmp_path: Path, code: ErrorCode) -> None:
    def story(one: Turns) -> None:
        one.win()
        view = batch(2, producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
        one.produce._note_refusal("t", 0, view, None, ApiError(code, ""))
        assert one.ask(2) is TOO_FEW
        assert one.ask(0) is None

    told(tmp_path, story)


def test_whoever_names_the_producer_of_another_transactional_id_holds_back_nothing_of_it() -> None:
    held = held_back.HeldBack(lambda: 0)

    def header(sequence: int, attributes: int = TRANSACTIONAL) -> BatchHeader:
        view = batch(2, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, attributes=attributes)
        return check_batch(view)

    key = ("t", 0)
    held.refused(key, header(0), "theirs", 1, NO_PROGRESS)
    held.refused(key, header(0, 0), None, 1, NO_PROGRESS)
    assert not held.must_wait(key, header(2), "ours", 1, NO_PROGRESS)
    held.refused(key, header(0), "ours", 1, NO_PROGRESS)
    held.settled(key, header(0), "theirs")
    assert held.must_wait(key, header(2), "ours", 1, NO_PROGRESS)


def test_what_nobody_could_say_while_a_tail_was_read_again_holds_back_too(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        one.win()
        one.log.producers._unsure = frozenset({PRODUCER})
        assert one.ask(0) is ELSEWHERE
        one.log.producers._unsure = frozenset()
        assert one.ask(2) is TOO_FEW
        assert one.ask(0) is None

    told(tmp_path, story)


def test_an_id_that_leaves_no_room_for_others_is_refused(tmp_path: Path) -> None:
    def story(one: Turns) -> None:
        assert one.ask(0, producer=MAX_PRODUCER_ID) is ErrorCode.INVALID_RECORD
        assert one.ask(0, producer=MAX_PRODUCER_ID - 1) is None

    told(tmp_path, story)


def test_the_producers_remembered_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_back, "MAX_COUNT", 3)

    def story(one: Turns) -> None:
        one.lose()
        for producer in range(5):
            assert one.ask(0, producer=producer) is TOO_FEW
        assert len(one.produce._held_back.first) == 3
        one.win()
        assert one.ask(2, producer=0) is None, "forgotten"
        assert one.ask(2, producer=4) is TOO_FEW

    told(tmp_path, story)
