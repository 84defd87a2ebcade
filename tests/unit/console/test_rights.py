"""Models of the pages about transactions, users and rules."""

from pylog.client.admin.transactions import OpenTransaction, TransactionView
from pylog.client.admin.users import UserView
from pylog.console.readings import Reading
from pylog.console.rights import MAX_USERS, hanging, rules, transaction, transactions
from pylog.model import TopicPartition
from pylog.security.acl import Binding, Entry, Operation, Pattern, PatternType, Permission, ResourceType

NOW_MS = 100_000
PLACE = TopicPartition("clicks", 3)


def view(name: str, state: str = "Empty", start_ms: int | None = None) -> TransactionView:
    return TransactionView(name, 1, 7, 2, state, 60_000, start_ms, (PLACE,) if start_ms is not None else ())


def rule(principal: str, name: str = "clicks") -> Binding:
    pattern = Pattern(ResourceType.TOPIC, PatternType.LITERAL, name)
    return Binding(pattern, Entry(principal, "*", Operation.READ, Permission.ALLOW))


def test_what_is_open_longest_comes_first() -> None:
    views = [view("a"), view("b", "Ongoing", 90_000), view("c", "PrepareCommit", 10_000), view("d")]
    model = transactions(Reading(views, 1), "", 1, NOW_MS)
    assert [row["transactional_id"] for row in model["transactions"]] == ["c", "b", "a", "d"]
    assert [row["open_s"] for row in model["transactions"]] == [90, 10, None, None]
    assert (model["total"], model["open_count"]) == (4, 2)


def test_ids_are_found_by_part_of_their_name() -> None:
    model = transactions(Reading([view("orders-1"), view("clicks-1")], 1), "ord", 1, NOW_MS)
    assert [row["transactional_id"] for row in model["transactions"]] == ["orders-1"]


def test_an_open_transaction_says_when_it_ends_by_itself() -> None:
    said = transaction(view("a", "Ongoing", 90_000), NOW_MS)
    assert said["sentence"].startswith("Ongoing: open for 10 s; the coordinator aborts it after 60 s.")
    assert said["partitions"] == [{"topic": "clicks", "partition": 3}]
    assert transaction(view("a", "PrepareAbort", 1), NOW_MS)["sentence"].startswith("PrepareAbort: its end is decided")
    assert transaction(view("a", "CompleteCommit"), NOW_MS)["sentence"] == "CompleteCommit: no transaction is open."


def test_a_hanging_transaction_comes_with_the_command_that_ends_it() -> None:
    one = OpenTransaction(TopicPartition("it's", 3), 7, 2, -1, 50, 40_000)
    model = hanging(Reading([one], 1), 20, NOW_MS)
    assert model["sentence"].startswith("1 transaction hangs:")
    [row] = model["transactions"]
    assert row["abort"] == """pylog txn abort --hanging 'it'"'"'s:3' --start-offset 50"""
    assert row["silent_s"] == 60


def test_nobody_who_was_not_asked_says_that_nothing_hangs() -> None:
    model = hanging(Reading(error="no broker answers", unknown_since_ms=5), 20, NOW_MS)
    assert model["sentence"] == "Whether a transaction hangs is not known."
    assert [row["what"] for row in model["unknown"]] == ["hanging transactions"]
    assert hanging(Reading([], 1), 20, NOW_MS)["sentence"] == "No transaction hangs."


def test_users_say_whether_a_rule_names_them() -> None:
    users = [
        UserView("alice", {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}),
        UserView("bob", {"SCRAM-SHA-256": 4096}),
    ]
    model = rules(Reading(users, 1), Reading([rule("User:alice")], 1), "", 1)
    assert [(row["user"], row["has_rules"]) for row in model["users"]] == [("alice", True), ("bob", False)]
    assert model["users"][0]["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [row["operation"] for row in model["rules"]] == ["Read"]


def test_rules_are_found_by_user_and_by_resource() -> None:
    found = Reading([rule("User:alice"), rule("User:bob", "orders")], 1)
    assert [row["principal"] for row in rules(Reading([], 1), found, "ord", 1)["rules"]] == ["User:bob"]
    assert [row["name"] for row in rules(Reading([], 1), found, "alice", 1)["rules"]] == ["clicks"]


def test_thousands_of_users_are_counted_and_cut() -> None:
    users = [UserView(f"u{number:04}", {}) for number in range(MAX_USERS + 1)]
    model = rules(Reading(users, 1), Reading([], 1), "", 1)
    assert (model["user_count"], len(model["users"])) == (MAX_USERS + 1, MAX_USERS)
