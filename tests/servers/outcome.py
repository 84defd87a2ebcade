"""What a client knows of its transaction, whoever runs it and judges what readers got."""

from enum import Enum


class Outcome(Enum):
    """What became of a transaction, as far as its client knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
