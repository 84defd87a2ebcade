"""The command `pylog` with a broker whose watch over the in-sync replicas fails once the file FAIL_WHEN is there."""

import os
from pathlib import Path
from typing import Any

from pylog.__main__ import main
from pylog.broker.data.replication import Replication

if __name__ == "__main__":
    find = Replication._wanted_changes

    def fail(self: Replication) -> Any:
        assert not Path(os.environ["FAIL_WHEN"]).exists(), "a bug"
        return find(self)

    Replication._wanted_changes = fail  # type: ignore[method-assign]
    main()
