"""Topics that pylog keeps for itself: a pattern of topics means none of them, whoever reads it."""

import re

import pytest

from pylog.audit.counter import CounterConfig, _is_chosen
from pylog.audit.counting import AUDIT_TOPIC
from pylog.audit.reports import Tier
from pylog.client.connection import Connection
from pylog.console.changes import CHANGES_TOPIC
from pylog.ingest.fetch import is_meant
from pylog.mirror.offsets import MAP_TOPIC_PREFIX
from pylog.mirror.plan import GROUPS_TOPIC_PREFIX, PARKED_TOPIC_PREFIX, chosen
from pylog.model import INTERNAL_TOPICS
from pylog.probe.config import CANARY_TOPIC

OWN = [
    *INTERNAL_TOPICS,
    AUDIT_TOPIC,
    CANARY_TOPIC,
    CHANGES_TOPIC,
    "_schemas",
    *(f"{prefix}live" for prefix in (MAP_TOPIC_PREFIX, GROUPS_TOPIC_PREFIX, PARKED_TOPIC_PREFIX)),
]


@pytest.mark.parametrize(("name", "is_own"), [*((name, True) for name in OWN), ("clicks", False), ("_clicks", False)])
def test_a_pattern_for_all_topics_means_none_that_pylog_keeps_for_itself(name: str, is_own: bool) -> None:
    config = CounterConfig(tier=Tier.LIVE, cluster=Connection(bootstrap="h:1"), topics=(".*",))
    assert _is_chosen(name, config) is not is_own
    assert is_meant(name, re.compile(".*")) is not is_own
    assert bool(chosen([name], [".*"], [])) is not is_own
