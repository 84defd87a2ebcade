"""What would be denied is a list: a row for each kind, bounded however many names a client makes up."""

from pylog.broker.decision_log import MAX_NAME_CHARS
from pylog.broker.denials import MAX_ROWS, Denials
from pylog.security.acl import Operation, ResourceType
from pylog.security.authorizer import Decision
from pylog.security.rules import Client


def denial(name: str = "orders", principal: str = "User:alice") -> Decision:
    return Decision(False, Client(principal, "10.0.0.1"), Operation.READ, ResourceType.TOPIC, name, "fetch")


def test_repetitions_are_one_row_with_their_count_and_the_last_time() -> None:
    denials = Denials()
    for now_ms in (5, 9, 7_000):
        denials.note(denial(), now_ms)
    assert denials.report() == {
        "denials": [
            {
                "principal": "User:alice",
                "host": "10.0.0.1",
                "operation": "READ",
                "resource": "TOPIC",
                "name": "orders",
                "request": "fetch",
                "count": 3,
                "last_ms": 7_000,
            }
        ],
        "dropped": 0,
        "dropped_ms": 0,
    }


def test_those_seen_last_come_first() -> None:
    denials = Denials()
    for now_ms, name in enumerate(("a", "b", "a", "c")):
        denials.note(denial(name), now_ms)
    assert [(row["name"], row["count"]) for row in denials.report()["denials"]] == [("c", 1), ("a", 2), ("b", 1)]


def test_ever_other_names_drop_the_oldest_and_are_counted() -> None:
    denials = Denials()
    denials.note(denial("first"), 0)
    for number in range(MAX_ROWS * 3):
        denials.note(denial("kept"), number)
        denials.note(denial(f"{number}" + "x" * 10_000), number)
    found = denials.report()
    names = {row["name"] for row in found["denials"]}
    assert (len(found["denials"]), found["dropped"]) == (MAX_ROWS, MAX_ROWS * 3 + 2 - MAX_ROWS)
    assert found["dropped_ms"] == min(row["last_ms"] for row in found["denials"]) - 1, "the latest that had no room"
    assert "kept" in names
    assert "first" not in names
    assert max(map(len, names)) == MAX_NAME_CHARS + 1
