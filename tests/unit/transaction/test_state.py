"""One transactional id: what each request does in each state, in both protocols."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from pylog.errors import ErrorCode
from pylog.model import Key
from pylog.transaction.state import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    Action,
    Answer,
    Forget,
    SendMarkers,
    Transaction,
    TransactionConfig,
    TransactionMetadata,
    TransactionState,
    Write,
)

CONFIG = TransactionConfig(max_timeout_ms=60_000, expiration_ms=1_000_000)
NOW = 5_000
ID, EPOCH, NEW_ID = 7, 3, 900
ORDERS: Key = ("orders", 0)
PAYMENTS: Key = ("payments", 2)
TOPIC_IDS = {"orders": UUID(int=1), "payments": UUID(int=2)}

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState
OK = ErrorCode.NONE
AGAIN = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
WRONG_STATE = ErrorCode.INVALID_TXN_STATE
UNKNOWN_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
NOT_IN_IT = ErrorCode.TRANSACTION_ABORTABLE


def of(state: TransactionState | None, **changes: object) -> Transaction:
    """Return a transaction in *state*; None: nobody has used the id yet."""
    if state is None:
        return Transaction(CONFIG)
    has_partitions = state is ONGOING or state.is_ending
    metadata = TransactionMetadata(
        producer_id=ID,
        producer_epoch=EPOCH,
        timeout_ms=10_000,
        state=state,
        partitions=frozenset({ORDERS}) if has_partitions else frozenset(),
        topic_ids=TOPIC_IDS if has_partitions else {},
        start_ms=NOW if has_partitions else NO_TIME,
        update_ms=NOW,
    )
    transaction = Transaction(CONFIG, replace(metadata, **changes))  # type: ignore[arg-type]
    transaction.resume(NOW)
    return transaction


def init(transaction: Transaction, producer_id: int = NO_PRODUCER_ID, epoch: int = NO_EPOCH) -> list[Action]:
    return transaction.initialize("client", producer_id, epoch, 20_000, NOW + 1, lambda: NEW_ID)


def add(transaction: Transaction, *partitions: Key) -> list[Action]:
    return transaction.add("client", ID, EPOCH, TOPIC_IDS, partitions or (ORDERS,), NOW + 1)


def end(transaction: Transaction, *, is_commit: bool, epoch: int = EPOCH, producer_id: int = ID) -> list[Action]:
    return transaction.end("client", producer_id, epoch, NOW + 1, is_commit=is_commit)


def end_epoch(transaction: Transaction, *, is_commit: bool, epoch: int = EPOCH, producer_id: int = ID) -> list[Action]:
    return transaction.end_epoch("client", producer_id, epoch, NOW + 1, lambda: NEW_ID, is_commit=is_commit)


def code_of(actions: list[Action]) -> ErrorCode:
    [answer] = actions
    assert isinstance(answer, Answer)
    return answer.code


def written_state(actions: list[Action]) -> TransactionState:
    [write] = actions
    assert isinstance(write, Write)
    assert write.metadata is not None
    return write.metadata.state


def outcome(actions: list[Action]) -> ErrorCode | TransactionState:
    """Return the error that a client gets, or the state that is written for it."""
    return code_of(actions) if isinstance(actions[0], Answer) else written_state(actions)


ALL = (None, *TransactionState)


@pytest.mark.parametrize(
    ("request_", "outcomes"),
    [
        (init, (EMPTY, EMPTY, PREPARE_ABORT, AGAIN, AGAIN, EMPTY, EMPTY)),
        (lambda t: init(t, ID, EPOCH), (EMPTY, EMPTY, PREPARE_ABORT, AGAIN, AGAIN, EMPTY, EMPTY)),
        (lambda t: init(t, ID, EPOCH - 1), (EMPTY, FENCED, FENCED, AGAIN, AGAIN, FENCED, FENCED)),
        (lambda t: init(t, ID + 1, EPOCH), (EMPTY, *[FENCED] * 6)),
        (add, (UNKNOWN_ID, ONGOING, OK, AGAIN, AGAIN, ONGOING, ONGOING)),
        (lambda t: add(t, PAYMENTS), (UNKNOWN_ID, ONGOING, ONGOING, AGAIN, AGAIN, ONGOING, ONGOING)),
        (
            lambda t: end(t, is_commit=True),
            (UNKNOWN_ID, WRONG_STATE, PREPARE_COMMIT, AGAIN, WRONG_STATE, OK, WRONG_STATE),
        ),
        (
            lambda t: end(t, is_commit=False),
            (UNKNOWN_ID, WRONG_STATE, PREPARE_ABORT, WRONG_STATE, AGAIN, WRONG_STATE, OK),
        ),
        (lambda t: end(t, is_commit=True, epoch=EPOCH - 1), (UNKNOWN_ID, *[FENCED] * 6)),
        (lambda t: end(t, is_commit=True, producer_id=ID + 1), (UNKNOWN_ID, *[UNKNOWN_ID] * 6)),
    ],
    ids=[
        "initialize",
        "initialize-again",
        "initialize-old-epoch",
        "initialize-other-id",
        "add-known",
        "add-new",
        "commit",
        "abort",
        "commit-old-epoch",
        "commit-other-id",
    ],
)
def test_classic_requests_by_state(
    request_: Callable[[Transaction], list[Action]], outcomes: tuple[ErrorCode | TransactionState, ...]
) -> None:
    assert tuple(outcome(request_(of(state))) for state in ALL) == outcomes


@pytest.mark.parametrize(
    ("is_commit", "epoch", "outcomes"),
    [
        (False, EPOCH, (UNKNOWN_ID, PREPARE_ABORT, PREPARE_ABORT, FENCED, FENCED, PREPARE_ABORT, PREPARE_ABORT)),
        (False, EPOCH - 1, (UNKNOWN_ID, FENCED, FENCED, WRONG_STATE, AGAIN, WRONG_STATE, OK)),
        (True, EPOCH, (UNKNOWN_ID, WRONG_STATE, PREPARE_COMMIT, FENCED, FENCED, WRONG_STATE, WRONG_STATE)),
        (True, EPOCH - 1, (UNKNOWN_ID, FENCED, FENCED, AGAIN, WRONG_STATE, OK, WRONG_STATE)),
        (True, EPOCH - 2, (UNKNOWN_ID, *[FENCED] * 6)),
        (True, EPOCH + 1, (UNKNOWN_ID, *[FENCED] * 6)),
    ],
)
def test_ends_with_an_epoch_a_transaction_by_state(
    is_commit: bool, epoch: int, outcomes: tuple[ErrorCode | TransactionState, ...]
) -> None:
    ids = [of(None), *(of(state, is_per_epoch=True) for state in TransactionState)]
    assert tuple(outcome(end_epoch(one, is_commit=is_commit, epoch=epoch)) for one in ids) == outcomes


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("state", TransactionState)
def test_a_late_end_of_a_predecessor_is_not_answered_for_a_classic_producer(
    state: TransactionState, is_commit: bool
) -> None:
    transaction = of(state)  # one epoch serves all of its transactions: the epoch before is another producer's
    assert end_epoch(transaction, is_commit=is_commit, epoch=EPOCH - 1) == [Answer("client", FENCED)]


def test_a_late_end_under_the_last_epoch_of_an_earlier_id_is_not_answered_for_a_classic_producer() -> None:
    transaction = of(COMPLETE_ABORT, producer_epoch=0, previous_producer_id=ID - 1)
    answer = end_epoch(transaction, is_commit=False, epoch=MAX_EPOCH - 1, producer_id=ID - 1)
    assert answer == [Answer("client", FENCED)]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (None, UNKNOWN_ID),
        (EMPTY, NOT_IN_IT),
        (ONGOING, OK),
        (PREPARE_COMMIT, AGAIN),
        (PREPARE_ABORT, AGAIN),
        (COMPLETE_COMMIT, NOT_IN_IT),
        (COMPLETE_ABORT, NOT_IN_IT),
    ],
)
def test_verification_by_state(state: TransactionState | None, code: ErrorCode) -> None:
    assert of(state).verify(ID, EPOCH, ORDERS) is code


def test_verification_compares_partition_epoch_and_id() -> None:
    assert of(ONGOING).verify(ID, EPOCH, PAYMENTS) is NOT_IN_IT
    assert of(ONGOING).verify(ID, EPOCH - 1, ORDERS) is FENCED
    assert of(ONGOING).verify(ID + 1, EPOCH, ORDERS) is UNKNOWN_ID


def test_verification_does_not_wait_for_what_is_being_written() -> None:
    transaction = of(ONGOING)
    add(transaction, PAYMENTS)

    assert transaction.verify(ID, EPOCH, ORDERS) is OK
    assert transaction.verify(ID, EPOCH, PAYMENTS) is NOT_IN_IT, "not in the log of every in-sync replica yet"


@pytest.mark.parametrize(
    "request_",
    [init, add, lambda t: end(t, is_commit=True), lambda t: end_epoch(t, is_commit=True)],
    ids=["initialize", "add", "end", "end-epoch"],
)
def test_while_one_change_is_written_others_are_told_to_come_again(
    request_: Callable[[Transaction], list[Action]],
) -> None:
    transaction = of(ONGOING)
    add(transaction, PAYMENTS)
    assert code_of(request_(transaction)) is AGAIN


def test_nothing_changes_before_it_is_written_and_nothing_if_it_is_refused() -> None:
    transaction = of(EMPTY)
    before = transaction.metadata
    add(transaction)
    assert transaction.metadata is before

    assert transaction.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE) == [
        Answer("client", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    ]
    assert transaction.metadata is before
    assert outcome(add(transaction)) is ONGOING


def test_a_transaction_from_its_first_partition_to_its_last_marker() -> None:
    transaction = of(None)
    init(transaction)
    assert transaction.written() == [Answer("client", OK, NEW_ID, 0)]
    transaction.add("client", NEW_ID, 0, TOPIC_IDS, [ORDERS], NOW)
    assert transaction.written() == [Answer("client", OK, NEW_ID, 0)]
    transaction.add("client", NEW_ID, 0, TOPIC_IDS, [PAYMENTS], NOW + 5)
    transaction.written()
    assert transaction.metadata is not None
    assert transaction.metadata.start_ms == NOW, "it began with its first partition"

    end(transaction, is_commit=True, producer_id=NEW_ID, epoch=0)
    assert transaction.written() == [
        Answer("client", OK, NEW_ID, 0),
        SendMarkers(NEW_ID, 0, True, frozenset({ORDERS, PAYMENTS})),
    ]
    assert transaction.marked(ORDERS, NOW) == []
    assert transaction.marked(ORDERS, NOW) == [], "a marker may be reported twice"
    assert written_state(transaction.marked(PAYMENTS, NOW)) is COMPLETE_COMMIT
    assert transaction.written() == []
    assert transaction.metadata.state is COMPLETE_COMMIT
    assert not transaction.metadata.partitions


def test_an_ending_transaction_goes_on_after_loading() -> None:
    transaction = of(PREPARE_ABORT)
    assert transaction.resume(NOW) == [SendMarkers(ID, EPOCH, False, frozenset({ORDERS}))]


def test_the_last_record_of_a_transaction_is_written_until_it_is_in_the_log() -> None:
    transaction = of(PREPARE_COMMIT)
    transaction.marked(ORDERS, NOW)
    assert written_state(transaction.refused(ErrorCode.NOT_ENOUGH_REPLICAS)) is COMPLETE_COMMIT
    assert code_of(add(transaction)) is AGAIN


def test_a_new_producer_ends_the_open_transaction_of_its_predecessor_first() -> None:
    transaction = of(ONGOING)
    assert written_state(init(transaction)) is PREPARE_ABORT
    assert transaction.written() == [
        Answer("client", AGAIN),
        SendMarkers(ID, EPOCH + 1, False, frozenset({ORDERS})),
    ]
    transaction.marked(ORDERS, NOW)
    transaction.written()
    init(transaction)

    assert transaction.written() == [Answer("client", OK, ID, EPOCH + 2)]
    assert code_of(end(transaction, is_commit=True)) is FENCED, "the predecessor is fenced"


def test_a_refused_fence_does_not_use_epochs_up() -> None:
    transaction = of(ONGOING)
    for _ in range(5):
        init(transaction)
        transaction.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    init(transaction)
    transaction.written()
    assert transaction.metadata is not None
    assert transaction.metadata.producer_epoch == EPOCH + 1


def test_the_retry_of_a_bump_gets_the_same_epoch() -> None:
    transaction = of(COMPLETE_COMMIT)
    init(transaction, ID, EPOCH)
    assert transaction.written() == [Answer("client", OK, ID, EPOCH + 1)]
    init(transaction, ID, EPOCH)
    assert transaction.written() == [Answer("client", OK, ID, EPOCH + 1)]
    init(transaction, ID, EPOCH + 1)
    assert transaction.written() == [Answer("client", OK, ID, EPOCH + 2)]


def test_a_bump_is_no_retry_any_more_once_a_transaction_has_begun() -> None:
    transaction = of(EMPTY)
    init(transaction, ID, EPOCH)
    transaction.written()
    transaction.add("client", ID, EPOCH + 1, TOPIC_IDS, [ORDERS], NOW)
    transaction.written()
    assert code_of(init(transaction, ID, EPOCH)) is FENCED


@pytest.mark.parametrize("epoch", [MAX_EPOCH - 1, MAX_EPOCH])
def test_a_producer_whose_epochs_are_used_up_gets_a_new_id(epoch: int) -> None:
    transaction = of(EMPTY, producer_epoch=epoch)
    init(transaction)
    assert transaction.written() == [Answer("client", OK, NEW_ID, 0)]
    assert transaction.metadata is not None
    assert transaction.metadata.previous_producer_id == ID


def test_the_retry_of_a_bump_to_a_new_id_gets_that_id() -> None:
    transaction = of(EMPTY, producer_epoch=MAX_EPOCH - 1)
    init(transaction, ID, MAX_EPOCH - 1)
    transaction.written()
    init(transaction, ID, MAX_EPOCH - 1)
    assert transaction.written() == [Answer("client", OK, NEW_ID, 0)]


def test_the_last_epoch_of_an_earlier_id_is_not_taken_for_that_of_the_present_one() -> None:
    transaction = of(EMPTY, producer_epoch=MAX_EPOCH - 1, previous_producer_id=ID - 1)
    assert code_of(init(transaction, ID - 1, MAX_EPOCH - 1)) is FENCED


def test_without_a_producer_id_at_hand_the_client_comes_again() -> None:
    transaction = of(None)
    actions = transaction.initialize("client", NO_PRODUCER_ID, NO_EPOCH, 20_000, NOW, lambda: None)
    assert code_of(actions) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("timeout_ms", [-1, 0, 60_001])
def test_a_timeout_that_is_not_allowed(timeout_ms: int) -> None:
    actions = of(EMPTY).initialize("client", NO_PRODUCER_ID, NO_EPOCH, timeout_ms, NOW, lambda: NEW_ID)
    assert code_of(actions) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize(("producer_id", "epoch"), [(ID, NO_EPOCH), (NO_PRODUCER_ID, EPOCH)])
def test_half_a_producer_is_refused(producer_id: int, epoch: int) -> None:
    assert code_of(init(of(EMPTY), producer_id, epoch)) is ErrorCode.INVALID_REQUEST


# -- an epoch a transaction --------------------------------------------------------------------------------------------


def test_each_transaction_ends_under_the_next_epoch() -> None:
    transaction = of(ONGOING)
    end_epoch(transaction, is_commit=True)
    assert transaction.written() == [
        Answer("client", OK, ID, EPOCH + 1),
        SendMarkers(ID, EPOCH + 1, True, frozenset({ORDERS})),
    ]
    transaction.marked(ORDERS, NOW)
    transaction.written()
    assert end_epoch(transaction, is_commit=True) == [Answer("client", OK, ID, EPOCH + 1)], "a retry"


def test_a_late_end_does_not_end_the_next_transaction() -> None:
    transaction = of(ONGOING)
    end_epoch(transaction, is_commit=True)
    transaction.written()
    transaction.marked(ORDERS, NOW)
    transaction.written()
    transaction.add("client", ID, EPOCH + 1, TOPIC_IDS, [PAYMENTS], NOW, is_per_epoch=True)
    transaction.written()

    assert code_of(end_epoch(transaction, is_commit=False)) is FENCED


def test_the_last_epoch_ends_with_a_new_id() -> None:
    last = MAX_EPOCH - 1
    transaction = of(ONGOING, producer_epoch=last)
    end_epoch(transaction, is_commit=True, epoch=last)
    assert transaction.written() == [
        Answer("client", OK, NEW_ID, 0),
        SendMarkers(ID, MAX_EPOCH, True, frozenset({ORDERS})),
    ]
    assert code_of(end_epoch(transaction, is_commit=True, epoch=last)) is AGAIN
    transaction.marked(ORDERS, NOW)
    transaction.written()
    assert transaction.metadata is not None
    assert (transaction.metadata.producer_id, transaction.metadata.previous_producer_id) == (NEW_ID, ID)
    assert end_epoch(transaction, is_commit=True, epoch=last) == [Answer("client", OK, NEW_ID, 0)], "a retry"


def test_who_goes_on_under_a_new_id_is_told_to_wait_for_the_end_before() -> None:
    last = MAX_EPOCH - 1
    transaction = of(ONGOING, producer_epoch=last)
    end_epoch(transaction, is_commit=True, epoch=last)
    transaction.written()
    following = (NEW_ID, 0)
    added = transaction.add("client", *following, TOPIC_IDS, [ORDERS], NOW, is_per_epoch=True)
    assert code_of(added) is AGAIN
    assert transaction.verify(*following, ORDERS) is AGAIN
    assert code_of(init(transaction, *following)) is AGAIN
    assert code_of(transaction.end_epoch("client", *following, NOW, lambda: None, is_commit=True)) is AGAIN
    assert code_of(transaction.add("client", NEW_ID + 1, 0, TOPIC_IDS, [ORDERS], NOW)) is UNKNOWN_ID
    transaction.marked(ORDERS, NOW)
    transaction.written()
    added = transaction.add("client", *following, TOPIC_IDS, [ORDERS], NOW, is_per_epoch=True)
    assert outcome(added) is ONGOING


def test_only_markers_above_the_epoch_of_their_batches_are_said_to_be() -> None:
    for is_added_by_leader in (True, False):
        transaction = of(EMPTY)
        transaction.add("client", ID, EPOCH, TOPIC_IDS, [ORDERS], NOW, is_per_epoch=is_added_by_leader)
        transaction.written()
        transaction.end("client", ID, EPOCH, NOW, is_commit=True)
        transaction.written()
        assert transaction.metadata is not None
        assert not transaction.metadata.has_own_marker_epoch

        transaction = of(EMPTY)
        transaction.add("client", ID, EPOCH, TOPIC_IDS, [ORDERS], NOW, is_per_epoch=is_added_by_leader)
        transaction.written()
        end_epoch(transaction, is_commit=True)
        transaction.written()
        assert transaction.metadata is not None
        assert transaction.metadata.has_own_marker_epoch


def test_a_leader_of_another_topic_of_the_name_has_the_transaction_aborted() -> None:
    transaction = of(ONGOING)
    others = {name: UUID(int=99) for name in TOPIC_IDS}
    added = transaction.add("client", ID, EPOCH, others, [ORDERS], NOW, is_per_epoch=True)
    assert code_of(added) is ErrorCode.TRANSACTION_ABORTABLE


def test_no_epoch_is_no_retry_of_epoch_zero() -> None:
    transaction = of(COMPLETE_ABORT, producer_epoch=0)
    assert code_of(end_epoch(transaction, is_commit=False, epoch=NO_EPOCH)) is FENCED


def test_an_abort_of_nothing_is_complete_at_once() -> None:
    transaction = of(EMPTY)
    end_epoch(transaction, is_commit=False)
    answer, write = transaction.written()
    assert answer == Answer("client", OK, ID, EPOCH + 1)
    assert written_state([write]) is COMPLETE_ABORT


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_is_open_for_too_long_is_aborted_under_an_epoch_of_the_coordinator() -> None:
    transaction = of(ONGOING)
    assert transaction.expire(NOW + 10_000, lambda: NEW_ID) == []
    assert written_state(transaction.expire(NOW + 10_001, lambda: NEW_ID)) is PREPARE_ABORT
    assert transaction.written() == [SendMarkers(ID, EPOCH + 1, False, frozenset({ORDERS}))]


def test_a_prepared_transaction_is_left_to_its_sink() -> None:
    assert of(ONGOING).expire(NOW + 10_001, lambda: NEW_ID, is_prepared=True) == []


def test_an_epoch_that_nobody_may_have_is_fenced_by_a_new_id() -> None:
    transaction = of(ONGOING, producer_epoch=MAX_EPOCH)
    init(transaction)
    transaction.written()
    transaction.marked(ORDERS, NOW)
    transaction.written()
    assert transaction.metadata is not None
    assert (transaction.metadata.producer_id, transaction.metadata.producer_epoch) == (NEW_ID, 0)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_an_id_that_nobody_uses_is_deleted(state: TransactionState) -> None:
    transaction = of(state)
    assert transaction.expire(NOW + 999_999, lambda: NEW_ID) == []
    assert transaction.expire(NOW + 1_000_000, lambda: NEW_ID) == [Write(None)]
    assert code_of(add(transaction)) is AGAIN
    assert transaction.written() == [Forget()]
    assert code_of(add(transaction)) is UNKNOWN_ID


def test_an_id_whose_deletion_is_refused_lives_on() -> None:
    transaction = of(EMPTY)
    transaction.expire(NOW + 1_000_000, lambda: NEW_ID)
    assert transaction.refused(ErrorCode.NOT_ENOUGH_REPLICAS) == []
    assert outcome(add(transaction)) is ONGOING


# -- after a restoration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "outcome_"),
    [(ONGOING, COMPLETE_ABORT), (PREPARE_ABORT, COMPLETE_ABORT), (PREPARE_COMMIT, COMPLETE_COMMIT)],
)
def test_a_replaced_producer_is_fenced_once_its_transaction_has_ended(
    state: TransactionState, outcome_: TransactionState
) -> None:
    transaction = of(state)
    actions = transaction.replace_producer(NEW_ID, NOW)
    if state is ONGOING:
        assert written_state(actions) is PREPARE_ABORT
        actions = transaction.written()
    # Above whatever epoch a partition has seen, but for a commit: that is of this one transaction.
    epoch = EPOCH if outcome_ is COMPLETE_COMMIT else MAX_EPOCH
    is_commit = outcome_ is COMPLETE_COMMIT
    assert actions == [SendMarkers(ID, epoch, is_commit, frozenset({ORDERS}), is_restored=is_commit)]
    assert written_state(transaction.marked(ORDERS, NOW)) is outcome_
    transaction.written()
    assert transaction.metadata is not None
    assert (transaction.metadata.producer_id, transaction.metadata.producer_epoch) == (NEW_ID, 0)
    assert code_of(add(transaction)) is UNKNOWN_ID
    assert code_of(init(transaction, ID, EPOCH)) is FENCED


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
@pytest.mark.parametrize("epoch", [EPOCH, MAX_EPOCH - 1])
def test_a_replaced_producer_without_transaction_is_fenced_at_once(state: TransactionState, epoch: int) -> None:
    transaction = of(state, producer_epoch=epoch)
    assert written_state(transaction.replace_producer(NEW_ID, NOW)) is EMPTY
    transaction.written()
    assert code_of(add(transaction)) is UNKNOWN_ID
    assert code_of(init(transaction, ID, epoch)) is FENCED
    assert written_state(init(transaction)) is EMPTY
    assert Answer("client", OK, NEW_ID, 1) in transaction.written()


# -- any order ---------------------------------------------------------------------------------------------------------


class Walk:
    """Requests of present and former producers, writes, refusals, markers and time-outs in any order."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        epoch = self._random.choice([0, 1, MAX_EPOCH - 4])
        metadata = TransactionMetadata(producer_id=100, producer_epoch=epoch, timeout_ms=10_000, update_ms=NOW)
        self.transaction = Transaction(CONFIG, metadata)
        self.metadata = metadata
        self._now_ms = NOW
        self._next_id = 100

    def step(self) -> None:
        """Do one thing, and begin anew with an id that was forgotten."""
        transaction, chance = self.transaction, self._random.random()
        if transaction.pending is not None and chance < 0.5:
            if self._random.random() < 0.8:
                transaction.written()
            else:
                transaction.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif transaction.unmarked and chance < 0.7:
            transaction.marked(self._random.choice([ORDERS, PAYMENTS]), self._now_ms)
        elif chance < 0.95:
            self._request()
        else:
            self._now_ms += self._random.choice([1, 11_000])
            transaction.expire(self._now_ms, self._draw)
        if transaction.metadata is not None:
            self.metadata = transaction.metadata

    def _draw(self) -> int:
        self._next_id += 1
        return self._next_id

    def _request(self) -> None:
        random, transaction = self._random, self.transaction
        back = random.choice([0, 0, 0, 1, 2])
        ids = self.metadata.producer_id, max(self.metadata.producer_epoch - back, 0)
        is_commit, is_per_epoch = random.random() < 0.7, random.random() < 0.5
        match random.choice(["init", "add", "add", "end", "end"]):
            case "init":
                ids = random.choice([ids, (NO_PRODUCER_ID, NO_EPOCH)])
                transaction.initialize("client", *ids, 10_000, self._now_ms, self._draw)
            case "add":
                partitions = [random.choice([ORDERS, PAYMENTS])]
                transaction.add("client", *ids, TOPIC_IDS, partitions, self._now_ms, is_per_epoch=is_per_epoch)
            case _ if is_per_epoch:
                transaction.end_epoch("client", *ids, self._now_ms, self._draw, is_commit=is_commit)
            case _:
                transaction.end("client", *ids, self._now_ms, is_commit=is_commit)


@pytest.mark.parametrize("seed", range(20))
def test_what_holds_in_any_order_of_requests_and_failures(seed: int) -> None:
    walk = Walk(seed)
    highest: dict[int, int] = {}
    seen: Counter[TransactionState] = Counter()
    for _ in range(2_000):
        before = walk.transaction.metadata
        walk.step()
        after, pending = walk.transaction.metadata, walk.transaction.pending
        if after is None:
            walk.transaction = Transaction(CONFIG)
            walk.transaction.initialize("client", NO_PRODUCER_ID, NO_EPOCH, 10_000, NOW, walk._draw)
            continue
        assert after.producer_epoch >= highest.get(after.producer_id, 0), "epochs of a producer id only grow"
        highest[after.producer_id] = after.producer_epoch
        has_partitions = after.state is ONGOING or after.state.is_ending
        assert has_partitions or not (after.partitions or after.topic_ids), "of no transaction"
        if after.state.is_ending:
            assert bool(walk.transaction.unmarked) != (pending is not None), "waits for markers or its last record"
        if before is not None and before.state.is_ending and after.state.is_ending:
            assert (before.state, before.producer_epoch) == (after.state, after.producer_epoch), "a decision stays"
        seen[after.state] += before is not after
    assert set(seen) == set(TransactionState), seen
