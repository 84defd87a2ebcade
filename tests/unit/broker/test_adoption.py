"""What a standalone broker does with logs whose cluster is gone."""

import uuid
from pathlib import Path

from pylog.broker.adoption import adopt
from pylog.broker.config import STANDALONE_ID
from pylog.log.config import LogConfig
from pylog.log.directory import LogDirectory
from pylog.log.log import Log
from pylog.model import TopicPartition
from pylog.wire.records import TRANSACTIONAL, check_stored_batch
from tests.unit.log.batches import batch

KEY = TopicPartition("t", 0)
TOPIC_ID = uuid.UUID(int=5)


def open_log(path: Path) -> tuple[LogDirectory, Log]:
    directory = LogDirectory.open(path, broker_id=STANDALONE_ID)
    directory.join("c")
    log = directory.get_or_create(KEY, TOPIC_ID, LogConfig(), now_ms=0)
    log.high_watermark = log.log_end_offset
    return directory, log


def test_open_transactions_are_aborted_since_nobody_else_can_end_them(tmp_path: Path) -> None:
    directory, log = open_log(tmp_path)
    view = batch(producer_id=9, producer_epoch=4, base_sequence=0, attributes=TRANSACTIONAL)
    log.append_as_leader(view, check_stored_batch(view), 2, 0)
    directory.close()
    adopt(tmp_path, now_ms=5_000)
    directory, log = open_log(tmp_path)
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
    found = log.read(0, 1 << 20, upper_bound_offset=2, min_one_batch=True)
    assert found is not None
    assert log.aborted_transactions(0, found) == [(9, 0)]
    assert log.epochs.latest == 2
    directory.close()
