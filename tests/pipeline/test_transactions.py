"""The load job and ``format("pylog")`` over committed, aborted and open transactions."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from pylog.ingest import job
from pylog.ingest.lake import Lake
from pylog.model import IsolationLevel
from pylog.testing import BrokerProcess
from tests.servers.transactions import History, create, history, write_all_kinds, write_undecided

TOPIC = "payments"
READ_COMMITTED, READ_UNCOMMITTED = IsolationLevel


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that may be stopped: the other tests share theirs."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture(scope="module")
def undecided(own_broker: BrokerProcess) -> History:
    return create(own_broker, TOPIC, write_undecided)


def landed(lake: Path) -> list[bytes]:
    """Return the values in a lake, in the order of their offsets."""
    rows = [row for file in Lake(lake).state().files for row in pq.read_table(lake / file).to_pylist()]
    return [row["value"] for row in sorted(rows, key=lambda row: row["offset"])]


def config_of(broker: BrokerProcess, directory: Path, topic: str, **more: object) -> job.JobConfig:
    given = {"lake": directory / "lake", "checkpoint": directory / "checkpoint", "group": "", **more}
    return job.JobConfig(bootstrap=broker.bootstrap, topics=(topic,), **given)  # type: ignore[arg-type]


def test_a_load_holds_committed_records_and_no_holes_where_others_were(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    made = create(own_broker, "loaded", write_undecided)
    stable = made.stable
    config = config_of(own_broker, tmp_path, "loaded", max_offsets_per_batch=3)
    with job.Loader(config) as loader:
        assert loader.load() == len(made.committed)
        assert (landed(config.lake), loader.stopped) == (made.committed, {})
    state = Lake(config.lake).state()
    assert list(state.position.offsets.values()) == [stable]
    # The transaction ends, and the next load goes on where the one before waited.
    own_broker.stop()
    with history(own_broker, "loaded") as again:
        again.commit(4).send(5, b"open at last")
    own_broker.start()
    assert job.run(config) == len(b"open 0, behind, committed behind".split(b", "))
    assert landed(config.lake) == [*made.committed, b"open 0", b"behind", b"committed behind"]


def test_a_load_may_take_everything_and_another_go_on_with_committed_records(
    spark: SparkSession, own_broker: BrokerProcess, undecided: History, tmp_path: Path
) -> None:
    config = config_of(own_broker, tmp_path, TOPIC, isolation_level=READ_UNCOMMITTED)
    assert job.run(config) == len(undecided.written)
    assert landed(config.lake) == undecided.written
    assert job.run(config_of(own_broker, tmp_path, TOPIC)) == 0, "the log is not cut, only undecided"


@pytest.mark.parametrize("level", IsolationLevel)
def test_a_query_reads_what_its_level_gives(
    spark: SparkSession, own_broker: BrokerProcess, undecided: History, level: IsolationLevel
) -> None:
    given = {} if level is READ_COMMITTED else {"isolationLevel": level.value}
    records = spark.read.format("pylog").options(bootstrap=own_broker.bootstrap, topic=TOPIC, **given).load()
    rows = records.orderBy("offset").select("value").collect()
    assert [bytes(row.value) for row in rows] == (undecided.committed if level is READ_COMMITTED else undecided.written)


def test_a_stream_waits_before_an_open_transaction_and_goes_on_once_it_ends(
    spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    def write(history: History) -> None:
        write_all_kinds(history)
        history.send(4, b"open").plain(b"behind")

    made = create(own_broker, "streamed", write)
    seen: list[bytes] = []

    def collect(records: DataFrame, batch_id: int) -> None:
        seen.extend(bytes(row.value) for row in records.orderBy("offset").select("value").collect())

    def drain() -> None:
        options = {"bootstrap": own_broker.bootstrap, "topic": "streamed", "startingOffsets": "earliest"}
        records = spark.readStream.format("pylog").options(**options, maxOffsetsPerTrigger="4").load()
        query = (
            records.writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    drain()
    assert seen == made.committed
    own_broker.stop()
    with history(own_broker, "streamed") as again:
        again.abort(4)
    own_broker.start()
    drain()
    assert seen == [*made.committed, b"behind"]
