"""The lake's files as Iceberg tables: each once, whatever dies in between."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from pylog.ingest.compact import CompactConfig
from pylog.ingest.compact import run as compact
from pylog.ingest.iceberg import open_catalog, register
from pylog.ingest.lake import File, Kind, Lake, LakeError, path_of
from pylog.ingest.landing import COLUMNS
from pylog.ingest.plan import Position

HOUR = 490_000


def load(lake: Lake, topic: str, *offsets: int) -> None:
    attempt = lake.begin(Kind.LOAD, lake.finish())
    name = f"{attempt.directory.name}.parquet"
    common: dict[str, object] = {"key": b"k", "value": None, "partition": 0, "headers": []}
    rows = [common | {"offset": offset} for offset in offsets]
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), attempt.directory / name, store_schema=False)
    size = (attempt.directory / name).stat().st_size
    file = File(path_of(topic, HOUR, name), len(offsets), size)
    lake.commit(attempt, [file], more={"position": Position().to_json()})


def offsets(root: Path, topic: str) -> list[int]:
    table = open_catalog(root).load_table(("pylog", topic))
    return sorted(table.scan(selected_fields=("offset",)).to_arrow()["offset"].to_pylist())


def test_each_commit_is_registered_once(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    load(lake, "host.journal", 1, 2)
    load(lake, "logins", 7)
    assert register(lake) == 2
    assert register(lake) == 0
    load(lake, "host.journal", 3)
    assert register(lake) == 1
    assert (offsets(tmp_path, "host.journal"), offsets(tmp_path, "logins")) == ([1, 2, 3], [7])


def test_a_driver_that_dies_before_or_after_a_snapshot_registers_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.create(tmp_path)
    load(lake, "logins", 1)
    load(lake, "logins", 2)
    add_files = Table.add_files

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def killed_after(*arguments: object, **more: object) -> None:
        add_files(*arguments, **more)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    for owner, name, fake in (
        (Table, "add_files", killed),
        (Table, "add_files", killed_after),
        (SqlCatalog, "update_namespace_properties", killed),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fake)
            with pytest.raises(KeyboardInterrupt):
                register(lake)
    register(lake)
    assert offsets(tmp_path, "logins") == [1, 2]


def test_compaction_and_iceberg_exclude_each_other(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    load(lake, "logins", 1)
    register(lake)
    with pytest.raises(LakeError, match="has Iceberg tables, which name its files: it is not compacted"):
        compact(CompactConfig(lake=tmp_path))
    attempt = lake.begin(Kind.COMPACTION, lake.finish())
    lake.commit(attempt, [], more={})
    with pytest.raises(LakeError, match=r"commit 2 of lake .* is a compaction"):
        register(lake)
