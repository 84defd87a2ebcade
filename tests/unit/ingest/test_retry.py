"""Dead letters that decode now leave the dead and land, once."""

import os
import tempfile
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from pylog.cli.app import run as pylog
from pylog.client.raw import RawBatches, RawConfig, Topic
from pylog.client.security import ClientSecurity
from pylog.errors import ConfigError
from pylog.ingest import retry as module
from pylog.ingest.decode import whole_batches
from pylog.ingest.fetch import Fetched
from pylog.ingest.lake import Kind, Lake
from pylog.ingest.landing import Landing, Task, report
from pylog.ingest.plan import Position, Range
from pylog.ingest.retry import Retried, RetryConfig, retry
from pylog.model import IsolationLevel, TopicPartition
from pylog.security.principal import SecurityProtocol
from pylog.wire import records as wire
from pylog.wire.records import Record, encode_batch
from tests.servers.certificates import Authority

P = TopicPartition("logins", 0)
TOPIC_ID = str(UUID(int=1))


def batch(offset: int, count: int, value: bytes | None = None) -> bytes:
    return encode_batch(
        [Record(offset + n, 1000, b"k", value or b"v%d" % (offset + n), [("hx", b"1")]) for n in range(count)],
        base_offset=offset,
    )


def with_crc(body: bytearray) -> bytes:
    body[wire.CRC_START - 4 : wire.CRC_START] = crc32c(body[wire.CRC_START :]).to_bytes(4, "big")
    return bytes(body)


def bad_header(offset: int) -> bytes:
    """A batch with a header name that is no text."""
    body = bytearray(batch(offset, 1))
    at = body.index(b"\x04hx")
    body[at + 1 : at + 3] = b"\xff\xfe"
    return with_crc(body)


def flipped(offset: int) -> bytes:
    body = bytearray(batch(offset, 1))
    body[-1] ^= 1
    return bytes(body)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lake_with_dead_letters(tmp_path, IsolationLevel.READ_COMMITTED)


def lake_with_dead_letters(tmp_path: Path, isolation_level: IsolationLevel) -> Path:
    """A lake of offsets 0, 1 and 4, with two dead letters between."""
    lake = Lake.create(tmp_path / "lake")
    attempt = lake.begin(Kind.LOAD, lake.finish())
    task = Task(
        Landing(
            bootstrap="",
            directory=attempt.directory,
            prefix="1",
            fail_on_data_loss=True,
            topic_ids={"logins": TOPIC_ID},
            isolation_level=isolation_level,
        )
    )
    task.begin(Range(P, 0, 5))
    stored = batch(0, 2) + bad_header(2) + flipped(3) + batch(4, 1)
    task.take(Fetched(memoryview(stored), whole_batches(stored), 0))
    landed = task.end()
    position = Position({P: 5}, {"logins": TOPIC_ID}).to_json()
    lake.commit(
        attempt, landed.files, dead_letters=landed.dead_letters, more={**report([landed], []), "position": position}
    )
    return lake.root


def offsets(root: Path) -> list[int]:
    files = Lake.open(root).visible().files
    return sorted(o for path in files for o in pq.read_table(root / path)["offset"].to_pylist())


def test_what_still_does_not_decode_changes_nothing(root: Path) -> None:
    before = Lake.open(root).state()
    assert retry(RetryConfig(lake=root)) == Retried(0, 2, 2)
    assert Lake.open(root).state() == before
    assert Lake.open(root).staged() == []


def test_a_batch_that_decodes_now_lands_once_and_the_other_stays(root: Path) -> None:
    allowing = RetryConfig(lake=root, topic="logins", header_errors="replace")
    assert retry(allowing) == Retried(1, 2, 1)
    assert offsets(root) == [0, 1, 2, 4]
    state = Lake.open(root).state()
    assert sum(file.rows for file in state.dead_letters.values()) == 1
    assert state.position == Position({P: 5}, {"logins": TOPIC_ID})
    (name,) = {
        header["key"]
        for path in state.files
        for row in pq.read_table(root / path).to_pylist()
        if row["offset"] == 2
        for header in row["headers"]
    }
    assert name == "\ufffd\ufffd"
    assert retry(allowing) == Retried(0, 1, 1)
    assert offsets(root) == [0, 1, 2, 4]
    assert retry(RetryConfig(lake=root, topic="searches")) == Retried(0, 0, 0)


class Brokers:
    """What `RawClient` asks them for: one topic, whose batches are all that it holds."""

    def __init__(self, topic_id: UUID, held: bytes) -> None:
        self.topic_id, self.held = topic_id, held
        self.levels: list[IsolationLevel] = []

    def connect(self, _bootstrap: str, config: RawConfig, security: ClientSecurity) -> "Brokers":
        self.levels.append(config.isolation_level)
        security.context()
        return self

    def topics(self, names: list[str]) -> dict[str, Topic]:
        return {name: Topic(self.topic_id, {0: 1}) for name in names}

    def fetch(self, starts: dict[TopicPartition, int]) -> dict[TopicPartition, RawBatches]:
        (start,) = starts.values()
        at = next(at for at, header in whole_batches(self.held) if header.last_offset >= start)
        return {P: RawBatches(memoryview(self.held)[at:], high_watermark=1000, log_start_offset=0)}

    def close(self) -> None:
        pass


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Brokers with sound copies of all that the lake's letters hold."""
    brokers = Brokers(UUID(int=1), b"".join(batch(offset, 1, b"good") for offset in range(5)))
    monkeypatch.setattr(module, "RawClient", brokers.connect)
    return brokers


def values(root: Path) -> dict[int, bytes]:
    files = Lake.open(root).visible().files
    return {row["offset"]: row["value"] for path in files for row in pq.read_table(root / path).to_pylist()}


def test_a_good_copy_of_the_brokers_lands(root: Path, brokers: Brokers) -> None:
    told: list[tuple[int, int]] = []
    config = RetryConfig(lake=root, bootstrap="127.0.0.1:1")
    assert retry(config, lambda *letters: told.append(letters)) == Retried(2, 2, 0)
    assert told == [(1, 2), (2, 2)]
    assert offsets(root) == [0, 1, 2, 3, 4]
    assert Lake.open(root).state().dead_letters == {}


def test_a_topic_that_was_made_again_is_not_asked_for_the_letters_of_the_one_before(
    root: Path, brokers: Brokers
) -> None:
    brokers.topic_id = UUID(int=2)
    lake = Lake.open(root)
    attempt = lake.begin(Kind.LOAD, lake.finish())
    position = Position({P: 5}, {"logins": str(UUID(int=2))}).to_json()
    lake.commit(attempt, [], dead_letters=[], more={**report([], []), "position": position})

    assert retry(RetryConfig(lake=root, bootstrap="127.0.0.1:1")) == Retried(0, 2, 2)
    assert offsets(root) == [0, 1, 4]
    allowing = RetryConfig(lake=root, bootstrap="127.0.0.1:1", header_errors="replace")
    assert retry(allowing) == Retried(1, 2, 1)
    assert values(root)[2] == b"v2"


def test_letters_without_a_topic_id_are_tried_as_they_were_stored_alone(root: Path, brokers: Brokers) -> None:
    for path in Lake.open(root).state().dead_letters:
        table = pq.read_table(root / path)
        pq.write_table(table.drop_columns(["topic_id", "isolation_level"]), root / path)
    assert retry(RetryConfig(lake=root, bootstrap="127.0.0.1:1", header_errors="replace")) == Retried(1, 2, 1)
    assert brokers.levels == []


def test_a_stored_batch_that_decodes_goes_before_the_copy_of_the_brokers(root: Path, brokers: Brokers) -> None:
    config = RetryConfig(lake=root, bootstrap="127.0.0.1:1", header_errors="replace")
    assert retry(config) == Retried(2, 2, 0)
    assert (values(root)[2], values(root)[3]) == (b"v2", b"good")


def test_a_letter_stays_if_compaction_took_its_records_from_the_brokers(root: Path, brokers: Brokers) -> None:
    brokers.held = batch(9, 1)
    assert retry(RetryConfig(lake=root, bootstrap="127.0.0.1:1")) == Retried(0, 2, 2)


def test_brokers_are_asked_at_the_isolation_level_of_the_load(tmp_path: Path, brokers: Brokers) -> None:
    root = lake_with_dead_letters(tmp_path, IsolationLevel.READ_UNCOMMITTED)
    assert retry(RetryConfig(lake=root, bootstrap="127.0.0.1:1")) == Retried(2, 2, 0)
    assert brokers.levels == [IsolationLevel.READ_UNCOMMITTED]


def test_a_file_of_the_connection_that_cannot_be_used_ends_the_retry(root: Path, brokers: Brokers) -> None:
    security = ClientSecurity(protocol=SecurityProtocol.SSL, ca_location=root / "none.pem")
    before = Lake.open(root).state()
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location=.*none\.pem"):
        retry(RetryConfig(lake=root, bootstrap="127.0.0.1:1", security=security))
    assert Lake.open(root).state() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes as another user")
def test_root_asks_the_brokers_by_files_that_the_lake_s_owner_may_not_read(
    tmp_path: Path, brokers: Brokers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path / "closed")
    authority.trusted.chmod(0o600)
    settings = tmp_path / "config.yml"
    settings.write_text(f"properties: {{security.protocol: SSL, ssl.ca.location: '{authority.trusted}'}}\n")
    monkeypatch.setenv("PYLOG_CONFIG", str(settings))
    with tempfile.TemporaryDirectory() as name:  # that of pytest is closed to other users
        root = lake_with_dead_letters(Path(name), IsolationLevel.READ_COMMITTED)
        for path in (root.parent, root, *root.rglob("*")):
            os.chown(path, 65_534, 65_534)
        assert pylog(["lake", "retry", str(root), "--bootstrap", "127.0.0.1:1"]) == 0
        assert offsets(root) == [0, 1, 2, 3, 4]
    assert "landed records=2 dead_letters=0 of=2" in capsys.readouterr().out
