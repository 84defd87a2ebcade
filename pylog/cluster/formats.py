"""Which formats a cluster may write while brokers of two releases run in it (rule 15).

A *level* stands for one version of everything that brokers write for each other: cluster images, internal requests,
nodes in the store.  Every release reads its own levels and that of the release before.  It writes the cluster's level,
which an operator raises with ``pylog cluster finalize`` once every broker runs the new release; until then a broker may
go back.

Level 1: before the first release; no release reads it any more.
Level 2: release 0.1.0.
Level 3: release 0.2.0, before it had transactions.  A committed offset carries the id of its topic, and so does every
    fetch of a follower.
Level 4: release 0.2.0, before clients could give each transaction an epoch.  Producers may have transactions.
Level 5: release 0.2.0.  Each transaction may have an epoch of its own.
"""

from collections.abc import Mapping

from pylog.cluster.image import FIRST_LEVEL, BrokerInfo
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.wire.api.versions import EPOCH_EACH, Features

NEWEST_LEVEL = 5
"""What this release writes once the cluster is finalized, and the newest that it reads."""

OLDEST_LEVEL = 2
"""The oldest that it reads: that of the release before."""

TOPIC_ID_LEVEL = 3
"""From which on what brokers write for each other about a topic names its id."""

TRANSACTION_LEVEL = 4
"""From which on producers may have transactions: an earlier release would lead their partitions, and the groups whose
offsets they commit, as if all were committed."""

EPOCH_EACH_LEVEL = 5
"""From which on clients are told that each transaction may have an epoch of its own: every broker answers what they
send then, and leaders that add partitions."""

assert OLDEST_LEVEL >= FIRST_LEVEL


def features_of(level: int) -> Features:
    """Return what clients are told of a cluster of this level."""
    return Features(level, EPOCH_EACH if level >= EPOCH_EACH_LEVEL else 0)


def check_level(level: int) -> None:
    """Raise ConfigError unless this release can run in a cluster of this level."""
    if level > NEWEST_LEVEL:
        raise ConfigError(
            f"the cluster is finalized to formats of level {level}; this release knows up to {NEWEST_LEVEL}: "
            "install the release that the other brokers run"
        )
    if level < OLDEST_LEVEL:
        raise ConfigError(
            f"the cluster writes formats of level {level}; this release reads from {OLDEST_LEVEL} on: "
            "run `pylog cluster finalize` with the release before this one first"
        )


def level_to_finalize(brokers: Mapping[int, BrokerInfo]) -> int:
    """Return the level that a cluster of these brokers can be raised to.

    Raises:
        ApiError: FEATURE_UPDATE_FAILED; a broker that is registered could not read it.
    """
    behind = sorted(broker.broker_id for broker in brokers.values() if broker.max_level < NEWEST_LEVEL)
    if behind:
        message = f"brokers {', '.join(map(str, behind))} still run an older release: upgrade them first"
        raise ApiError(ErrorCode.FEATURE_UPDATE_FAILED, message)
    return NEWEST_LEVEL
