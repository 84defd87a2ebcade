"""Apache Kafka's DumpLogSegments over our files."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.servers.kafka import DUMP_LOG_SEGMENTS, java_tool

COMPLAINT = re.compile(r"(?i)mismatch|invalid|isvalid: false|error|exception|corrupt|non-consecutive|not found")
"""Words that the tool prints when it finds fault; a sound file shows none of them."""

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def dump(files: Sequence[Path], *options: str) -> str:
    """Return what the tool says of *files*."""
    # It ends with 0 whatever it finds; what it found wrong it says on standard error.
    output = java_tool(DUMP_LOG_SEGMENTS, *options, "--files", ",".join(map(str, files)), with_stderr=True).decode()
    assert output.count("Dumping ") == len(files)
    return output


def check_all(data_dir: Path) -> None:
    """Have the tool read every segment and index of a broker that is down; fail on the first fault it finds."""
    files = sorted(file for file in data_dir.glob("*-[0-9]*/*") if file.suffix in SUFFIXES and file.stat().st_size)
    assert files, f"{data_dir} has no segments"
    output = dump(files, "--deep-iteration")
    found = COMPLAINT.search(output.replace("isvalid: true", ""))
    assert not found, output[max(found.start() - 1500, 0) : found.end() + 1500]
