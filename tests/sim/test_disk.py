"""The simulated disk refuses what a real one refuses."""

import errno
import os
import random
from pathlib import Path

import pytest

from tests.sim.disk import Disks
from tests.sim.world import CURRENT, Process


def test_a_full_disk_takes_no_further_file_and_opens_those_that_are_there(tmp_path: Path) -> None:
    disks, there = Disks(random.Random(1)), tmp_path / "there"
    there.write_bytes(b"12345678")
    disks.full.add("h")
    token = CURRENT.set(Process("h", is_broker=True))
    try:
        with pytest.raises(OSError, match="No space left") as found:
            disks.open(tmp_path / "new", os.O_RDWR | os.O_CREAT)
        assert found.value.errno == errno.ENOSPC
        fd = disks.open(there, os.O_RDWR | os.O_CREAT)
        with pytest.raises(OSError, match="No space left"):
            disks.pwrite(fd, b"abcd", 8)
        disks.full.clear()
        disks.close(disks.open(tmp_path / "new", os.O_RDWR | os.O_CREAT))
        disks.close(fd)
    finally:
        CURRENT.reset(token)
    assert there.read_bytes() == b"12345678ab", "half of it was written before the disk refused"
