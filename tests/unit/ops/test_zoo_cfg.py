"""A ZooKeeper configuration is judged before any server gets it."""

from itertools import combinations

import pytest

from pylog.ops.zoo_cfg import may_disagree, problems

GOOD = """# managed
tickTime=2000
initLimit=10
syncLimit=5
dataDir=/var/lib/pylog-zookeeper
clientPort=2181
autopurge.snapRetainCount=3
quorumListenOnAllIPs=true
server.1=10.0.0.1:2888:3888
server.2=10.0.0.2:2888:3888
server.3=zk3.example.org:2888:3888
"""


def test_what_the_role_writes_is_good() -> None:
    assert list(problems(GOOD, 2)) == []


def test_a_server_alone_names_no_servers() -> None:
    assert list(problems("".join(line + "\n" for line in GOOD.splitlines() if "server." not in line), 1)) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("tickTime=2000", "tickTime=fast", "tickTime: found fast, wanted a whole number from 1"),
        ("tickTime=2000\n", "", "tickTime is missing"),
        ("syncLimit=5", "syncLimit=5\nsyncLimit=6", "syncLimit stands there twice"),
        ("syncLimit=5", "syncLimit=5\nmaxClientConnections=9", "maxClientConnections: not a key of ZooKeeper's"),
        ("dataDir=/var", "dataDir=var", "dataDir: found var/lib/pylog-zookeeper, wanted an absolute path"),
        ("clientPort=2181", "clientPort", "clientPort: wanted key=value"),
        ("snapRetainCount=3", "snapRetainCount=2", "found 2, wanted a whole number from 3"),
        ("server.2=10.0.0.2", "server.4=10.0.0.2", "server.2, this server itself, is missing"),
        ("server.2=10.0.0.2", "server.2=10.0.0.1", "server.2: 10.0.0.1 is server.1 already"),
        ("10.0.0.1:2888:3888", "10.0.0.1:2888", "server.1: found 10.0.0.1:2888, wanted HOST:PORT:PORT"),
        ("10.0.0.1:2888:3888", ":2888:3888", "server.1: found :2888:3888, wanted HOST:PORT:PORT"),
        ("zk3.example.org:2888", "zk3.example.org:70000", "wanted HOST:PORT:PORT"),
    ],
)
def test_a_mistake_is_named(old: str, new: str, told: str) -> None:
    assert old in GOOD
    assert any(told in found for found in problems(GOOD.replace(old, new, 1), 2))


def majorities(ids: set[int]) -> list[set[int]]:
    return [set(one) for one in combinations(sorted(ids), len(ids) // 2 + 1)]


def test_two_ensembles_may_disagree_where_two_of_their_majorities_share_no_server() -> None:
    """Against every pair of majorities, of all ensembles of up to five servers with four ids in common or fewer."""
    ensembles = [set(one) for size in range(1, 6) for one in combinations(range(1, 8), size)]
    for before in ({1}, {1, 2}, {1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}):
        for after in ensembles:
            seen = any(not one & other for one in majorities(before) for other in majorities(after))
            assert may_disagree(before, after) == seen, (before, after)


def test_one_server_at_a_time_never_makes_two_majorities() -> None:
    for size in range(2, 9):
        before = {*range(size)}
        assert not may_disagree(before, before | {size})
        assert not may_disagree(before | {size}, before)
    assert may_disagree({1, 2, 3}, {1, 2, 3, 4, 5})
    assert may_disagree({1, 2, 3}, {1, 2, 4})
