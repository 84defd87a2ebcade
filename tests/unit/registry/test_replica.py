"""The thread that reads the schemas outlives whatever the cluster answers."""

import io

import pytest

from pylog.client.connection import ClientError, Connection
from pylog.daemon.notices import Notices
from pylog.registry import replica
from pylog.registry.state import Registry


def test_a_topic_without_a_leader_yet_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception] = [ClientError("Failed to query partition leaders: No leaders found")]

    class Admin:
        def __init__(self, _cluster: Connection) -> None:
            raise answers.pop() if answers else RuntimeError("it asked again")

    said = io.StringIO()
    found = replica.Replica(replica.TopicConfig(cluster=Connection(bootstrap="h:1")), Registry(), "me", Notices(said))
    monkeypatch.setattr(replica, "Admin", Admin)
    monkeypatch.setattr(replica, "_PAUSE_S", 0.0)
    with pytest.raises(RuntimeError, match="it asked again"):
        found._run()
    assert "No leaders found" in said.getvalue()
