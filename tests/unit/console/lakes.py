"""A lake on disk: real commits; what is in its files, no page reads."""

from pathlib import Path

from pylog.ingest.lake import File, Kind, Lake, dead_letter_path_of, path_of
from pylog.ingest.plan import Position
from pylog.model import TopicPartition


def commit(root: Path, end: int, *, dead: int = 0, topic: str = "clicks") -> None:
    """Load the topic's partition up to *end*."""
    opened = Lake.create(root)
    state = opened.finish()
    attempt = opened.begin(Kind.LOAD, state)
    files: list[File] = []
    letters: list[File] = []
    landed, left = path_of(topic, 500_000, f"{end}.parquet"), dead_letter_path_of(topic, f"{end}-dead.parquet")
    for path, kept in ((landed, files), (left, letters)):
        if kept is files or dead:
            (attempt.directory / path.rpartition("/")[2]).write_bytes(b"12345")
            kept.append(File(path, end if kept is files else dead, 5))
    position = Position({TopicPartition(topic, 0): end}, {topic: "id-1"})
    opened.commit(attempt, files, dead_letters=letters, more={"position": position.to_json()})
