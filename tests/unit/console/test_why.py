"""Why a partition is not in sync: each cause has its own sentence and its own command."""

import pytest
import typer
from click import Group

from pylog.cli.app import app
from pylog.client.admin.cluster import PartitionView
from pylog.client.admin.disks import ReplicaSize
from pylog.console.why import ReplicaFacts, explain
from pylog.model import NO_LEADER

ALL = {1, 2, 3}
WHOLE = ReplicaSize(1_000, 0)


def partition(leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionView:
    return PartitionView(0, leader, (1, 2, 3), isr)


def sentence(broker: int, one: PartitionView, facts: ReplicaFacts) -> str:
    found = next(row["sentence"] for row in explain(one, facts)["replicas"] if row["broker"] == broker)
    return str(found)


def test_in_sync() -> None:
    found = explain(partition(), ReplicaFacts(registered=ALL, answering=ALL, min_isr=2))
    assert (found["state"], found["sentence"]) == ("in_sync", "All 3 replicas are in sync.")
    assert found["effects"] == []
    assert [row["role"] for row in found["replicas"]] == ["leader", "in sync", "in sync"]
    assert [row["next"] for row in found["replicas"]] == [None] * 3


def test_a_broker_that_is_not_registered() -> None:
    facts = ReplicaFacts(registered={1, 3}, answering={1, 3})
    one = partition(isr=(1, 3))
    assert explain(one, facts)["sentence"] == "2 of 3 replicas are in sync; missing: broker 2."
    assert "is not registered" in sentence(2, one, facts)
    assert explain(one, facts)["replicas"][1]["next"] == "journalctl -u pylog-broker@2 -n 100"


def test_a_broker_that_does_not_answer() -> None:
    facts = ReplicaFacts(registered=ALL, answering={1, 3})
    assert "is registered, but does not answer" in sentence(2, partition(isr=(1, 3)), facts)


def test_a_broker_whose_answers_are_not_known_is_not_called_away() -> None:
    facts = ReplicaFacts(registered=ALL, answering=None)
    assert "not known" in sentence(2, partition(isr=(1, 3)), facts)


def test_a_member_of_the_isr_that_hangs_is_named() -> None:
    facts = ReplicaFacts(registered=ALL, answering={1, 3})
    assert sentence(2, partition(), facts).endswith("It is still counted as in sync.")


@pytest.mark.parametrize(
    ("lag", "words"),
    [(1_204, "is 1,204 offsets behind"), (1, "is 1 offset behind"), (0, "has everything that consumers see")],
)
def test_a_follower_that_catches_up(lag: int, words: str) -> None:
    facts = ReplicaFacts(registered=ALL, answering=ALL, replicas={2: ReplicaSize(5, lag)})
    assert words in sentence(2, partition(isr=(1, 3)), facts)


def test_a_broker_without_a_copy() -> None:
    facts = ReplicaFacts(registered=ALL, answering=ALL, replicas={2: None})
    assert "has no copy" in sentence(2, partition(isr=(1, 3)), facts)


def test_a_broker_that_a_reassignment_adds() -> None:
    facts = ReplicaFacts(registered=ALL, answering=ALL, adding={2}, replicas={2: ReplicaSize(5, 77)})
    row = explain(partition(isr=(1, 3)), facts)["replicas"][1]
    assert row["sentence"] == (
        "A reassignment adds broker 2. It is 77 offsets behind what consumers see, and joins once it has caught up."
    )
    assert row["next"] == "pylog partition reassign --status"


@pytest.mark.parametrize(
    ("isr", "min_isr", "words"),
    [
        ((1,), 2, "are refused (NOT_ENOUGH_REPLICAS)"),
        ((1, 3), 2, "as soon as one more replica falls out"),
        ((1, 3), 1, ""),
        ((1, 3), None, ""),
        ((1,), 5, "are refused"),
    ],
)
def test_what_producers_notice(isr: tuple[int, ...], min_isr: int | None, words: str) -> None:
    facts = ReplicaFacts(registered=ALL, answering=ALL, min_isr=min_isr)
    effects = explain(partition(isr=isr), facts)["effects"]
    assert words in "".join(effects)
    assert bool(effects) == bool(words)


@pytest.mark.parametrize(
    ("registered", "isr", "words"),
    [
        (set(), (1,), "none of its brokers (1, 2, 3) is available"),
        ({2, 3}, (1,), "in sync last are on 1, which is away"),
        (ALL, (1,), "has not elected one yet"),
    ],
)
def test_no_leader(registered: set[int], isr: tuple[int, ...], words: str) -> None:
    facts = ReplicaFacts(registered=registered, answering=registered, min_isr=1)
    found = explain(partition(NO_LEADER, isr), facts)
    assert found["state"] == "offline"
    assert words in found["sentence"]
    assert found["effects"] == ["Producers cannot write to it, and consumers cannot read from it."]


@pytest.mark.parametrize("adding", [set(), {2}])
def test_each_command_of_pylog_exists(adding: set[int]) -> None:
    facts = ReplicaFacts(registered=ALL, answering=ALL, adding=adding, replicas={2: WHOLE})
    words = str(explain(partition(isr=(1, 3)), facts)["replicas"][1]["next"]).split()
    assert words[0] == "pylog"
    group = typer.main.get_command(app)
    assert isinstance(group, Group)
    context = group.make_context("pylog", words[1:2], resilient_parsing=True)
    verb = group.get_command(context, words[1])
    assert isinstance(verb, Group)
    leaf = verb.get_command(context, words[2])
    assert leaf is not None
    leaf.make_context(words[2], words[3:], parent=context)
