"""Closing and opening a tree that is there: what is changed, what is left, and what an interruption leaves behind."""

from collections.abc import Iterable, Mapping

import pytest

from pylog.store import tree_rights
from pylog.store.base import NotAllowed
from pylog.store.node_rights import OPEN, Identity, NodeRights, Rights
from pylog.store.tree_rights import is_closed, open_tree, secure_tree

BROKER = Identity("digest", "pylog:hash")
CONSUMER = Identity("digest", "reader:hash")
RIGHTS = NodeRights(frozenset({BROKER}), frozenset({CONSUMER}))
PATHS = ("/", "/brokers", "/brokers/ids", "/brokers/ids/1", "/consumers", "/consumers/g", "/controller", "/zookeeper")


class Tree:
    """Nodes with rights, of which the one named *closed* refuses, as a node does whose ACL we are not in."""

    def __init__(self, paths: Iterable[str] = PATHS, closed: str = "") -> None:
        self.rights: dict[str, Rights] = dict.fromkeys(paths, OPEN)
        self.closed = closed
        self.written: list[str] = []

    def children_many(self, paths: Iterable[str]) -> list[list[str]]:
        return [self._children(path.rstrip("/") + "/") for path in paths]

    def _children(self, prefix: str) -> list[str]:
        below = (path.removeprefix(prefix) for path in self.rights if path.startswith(prefix) and path != "/")
        return sorted(name for name in below if "/" not in name)

    def rights_many(self, paths: Iterable[str]) -> list[Rights | None]:
        return [self.rights.get(path) for path in paths]

    def set_rights(self, wanted: Mapping[str, Rights]) -> None:
        for path, rights in wanted.items():
            if path == self.closed:
                raise NotAllowed(path)
            self.rights[path] = rights
            self.written.append(path)


def test_each_node_gets_the_rights_of_its_path_and_the_root_last() -> None:
    tree = Tree()
    outcome = secure_tree(tree, RIGHTS)
    assert outcome.changed == tree.written
    assert outcome.changed[-1] == "/"
    assert sorted(outcome.changed) == sorted(set(PATHS) - {"/zookeeper"})
    assert all(tree.rights[path] == RIGHTS.of(path) for path in outcome.changed)
    assert tree.rights["/zookeeper"] == OPEN
    for path in PATHS[1:-1]:
        assert outcome.changed.index(path) < outcome.changed.index(path.rpartition("/")[0] or "/")


def test_it_tells_how_many_nodes_it_has_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_rights, "MAX_BATCH", 3)
    told: list[tuple[int, int]] = []
    secure_tree(Tree(), RIGHTS, on_progress=lambda *found: told.append(found))
    assert told == [(3, 7), (6, 7), (7, 7)]


def test_a_tree_counts_as_closed_once_its_root_is() -> None:
    tree = Tree(closed="/brokers")
    with pytest.raises(NotAllowed):
        secure_tree(tree, RIGHTS)
    assert not is_closed(tree, RIGHTS)
    tree.closed = ""
    secure_tree(tree, RIGHTS)
    assert is_closed(tree, RIGHTS)
    assert not is_closed(tree, NodeRights(frozenset({CONSUMER}))), "with other owners it has to be closed anew"


def test_a_repetition_changes_nothing() -> None:
    tree = Tree()
    secure_tree(tree, RIGHTS)
    again = secure_tree(tree, RIGHTS)
    assert (again.changed, again.seen) == ([], 7)


def test_an_interrupted_run_is_finished_by_the_next() -> None:
    tree = Tree(closed="/brokers")
    told: list[str] = []
    with pytest.raises(NotAllowed, match="/brokers"):
        secure_tree(tree, RIGHTS, told.append)
    before = list(tree.written)
    tree.closed = ""
    after = secure_tree(tree, RIGHTS).changed
    assert before
    assert not set(before) & set(after)
    assert sorted([*before, *after]) == sorted(set(PATHS) - {"/zookeeper"})


def test_opening_is_the_way_back() -> None:
    tree = Tree()
    secure_tree(tree, RIGHTS)
    outcome = open_tree(tree)
    assert sorted(outcome.changed) == sorted(set(PATHS) - {"/zookeeper"})
    assert set(map(id, tree.rights.values())) == {id(OPEN)}


def test_what_others_keep_below_the_root_is_left_alone_and_so_is_the_root() -> None:
    tree = Tree((*PATHS, "/solr", "/solr/live"))
    outcome = secure_tree(tree, RIGHTS)
    assert outcome.foreign == ["/solr"]
    assert tree.rights["/solr"] == tree.rights["/solr/live"] == tree.rights["/"] == OPEN
    assert tree.rights["/brokers"] == RIGHTS.of("/brokers")


def test_rights_that_others_added_are_taken_away() -> None:
    tree = Tree()
    secure_tree(tree, RIGHTS)
    tree.rights["/controller"] = {**RIGHTS.of("/controller"), CONSUMER: RIGHTS.of("/brokers")[CONSUMER]}
    assert secure_tree(tree, RIGHTS).changed == ["/controller"]
