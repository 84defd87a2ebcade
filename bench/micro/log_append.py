"""Cost of Log.append_as_leader in microseconds per batch, with and without the write call.

    python bench/micro/log_append.py [--count 20000] [--rounds 7]

Prints one CSV line per size: batch bytes, median and best us per append, and the same for the bare pwrite.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pylog.log.config import LogConfig
from pylog.log.log import Log
from pylog.model import TopicPartition
from pylog.wire.records import Record, check_batch, encode_batch


def rounds(count: int, times: int, work: Callable[[], None]) -> tuple[float, float]:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(found), min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--idempotent", action="store_true", help="batches carry a producer id")
    args = parser.parse_args()
    print("batch_bytes,append_us_median,append_us_best,pwrite_us_median,pwrite_us_best")
    with tempfile.TemporaryDirectory() as directory:
        for value_bytes in (200, 10_170):
            batch = memoryview(bytearray(encode_batch([Record(0, 1_700_000_000_000, None, b"x" * value_bytes)])))
            header = check_batch(batch)
            log = Log.open(
                Path(directory) / str(value_bytes), TopicPartition("bench", 0), LogConfig(), now_ms=0, clean=True
            )

            def append(log: Log = log, batch: memoryview = batch) -> None:
                append, header = log.append_as_leader, check_batch(batch)
                if args.idempotent:
                    header.producer_id, header.producer_epoch, header.base_sequence = 1, 0, log.log_end_offset
                for _ in range(args.count):
                    append(batch, header, 1, 0)
                    if args.idempotent:
                        header.base_sequence += 1

            fd = os.open(Path(directory) / "bare", os.O_RDWR | os.O_CREAT | os.O_TRUNC)

            def write(fd: int = fd, batch: memoryview = batch) -> None:
                position = os.fstat(fd).st_size
                for _ in range(args.count):
                    os.pwrite(fd, batch, position)
                    position += len(batch)

            cells = [*rounds(args.count, args.rounds, append), *rounds(args.count, args.rounds, write)]
            print(header.size_bytes, *(f"{cell:.2f}" for cell in cells), sep=",")
            os.close(fd)
            log.close()


if __name__ == "__main__":
    main()
