"""The lake's files as Iceberg tables, one a topic; the files stay where they are and are registered, not written again.

catalog => SQLite at <lake>/_iceberg/catalog.db; namespace ``pylog``, with property "commit": last one registered
snapshot => property "pylog.commit": number of the lake's commit that its files came with

The lake's commits stay the truth: a driver that dies between its commit and this leaves it to the next one, and a
snapshot that says its commit's number is never made twice.
"""

from collections import defaultdict
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from pylog.errors import StorageError
from pylog.ingest.lake import Kind, Lake, LakeError
from pylog.ingest.landing import COLUMNS

DIRECTORY = "_iceberg"
NAMESPACE = "pylog"
_COMMIT = "pylog.commit"


def register(lake: Lake) -> int:
    """Register what was committed since the last time; return how many files that were.

    Raises:
        LakeError: a compaction replaced files, which these tables cannot follow.
        StorageError: the catalog cannot be written, or another driver registers the same; the next run goes on.
    """
    catalog = open_catalog(lake.root)
    done = int(catalog.load_namespace_properties(NAMESPACE).get("commit", 0))
    last = lake.visible().number
    count = 0
    try:
        for number in range(done + 1, last + 1):
            count += _register(catalog, lake, number)
        if last > done:
            catalog.update_namespace_properties(NAMESPACE, updates={"commit": str(last)})
    except CommitFailedException as error:
        raise StorageError(f"another driver registers files in {lake.root}/{DIRECTORY} at the same time") from error
    return count


def open_catalog(root: Path) -> SqlCatalog:
    """Return the lake's catalog, made if need be."""
    directory = root / DIRECTORY
    directory.mkdir(exist_ok=True)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}")
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog


def _register(catalog: SqlCatalog, lake: Lake, number: int) -> int:
    commit = lake.commit_of(number)
    if commit["kind"] == Kind.COMPACTION:
        raise LakeError(
            f"commit {number} of lake {lake.root} is a compaction, whose replaced files its Iceberg tables still name: "
            "load without --table-format iceberg, or a new lake without compaction"
        )
    by_topic: dict[str, list[str]] = defaultdict(list)
    for file in commit["files"]:
        by_topic[file["path"].split("/", 1)[0].removeprefix("topic=")].append(str(lake.root / file["path"]))
    for topic, paths in sorted(by_topic.items()):
        table = catalog.create_table_if_not_exists((NAMESPACE, topic), COLUMNS)
        if number not in _registered(table):
            table.add_files(paths, snapshot_properties={_COMMIT: str(number)})
    return len(commit["files"])


def _registered(table: Table) -> set[int]:
    """Return the commits that the table's snapshots came with."""
    summaries = (snapshot.summary for snapshot in table.metadata.snapshots)
    return {
        int(one.additional_properties[_COMMIT])
        for one in summaries
        if one is not None and _COMMIT in one.additional_properties
    }
