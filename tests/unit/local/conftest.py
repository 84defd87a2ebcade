"""The scripts of local/ are programs, not a package: their directory joins the path for these tests only."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "local"))
