"""An ensemble grows, or loses disks, and new servers never agree among themselves that there is nothing.

As role `zookeeper` does it: servers without data do not vote (``zookeeper.db.autocreate=false``), but for as many as
those who have some lack for a majority.
"""

from contextlib import ExitStack, closing
from pathlib import Path

from pylog.store.zookeeper import ZooKeeperStore
from tests.cluster.conftest import wait_for
from tests.servers.zookeeper import ZooKeeper, ZooKeeperServer

UNIT = Path(__file__).resolve().parents[2] / "templates/etc/systemd/system/pylog-zookeeper.service.j2"


def mode(server: ZooKeeperServer) -> str:
    """Return leader, follower or standalone; empty while it serves nobody."""
    lines = [line for line in server.four_letters("srvr").splitlines() if line.startswith("Mode: ")]
    return lines[0].removeprefix("Mode: ") if lines else ""


def nodes(server: ZooKeeperServer) -> str:
    """Return how many nodes the server has."""
    return next((one for one in server.four_letters("srvr").splitlines() if one.startswith("Node count")), "")


def test_new_servers_take_over_what_the_old_ones_have(tmp_path: Path) -> None:
    assert "-Dzookeeper.db.autocreate=false" in UNIT.read_text()
    made = ZooKeeper(tmp_path, servers=5, heap_mb=64)
    one, two, three, four, five = made.servers
    with ExitStack() as stack:
        stack.callback(made.stop)
        one.join([], may_begin=True)
        two.join(made.members[:3], may_begin=True)  # one of three has data, so one more may vote
        three.join(made.members[:3])
        four.join(made.members)
        five.join(made.members)

        one.start()
        one.wait_serving()
        with closing(ZooKeeperStore(f"127.0.0.1:{one.port}")) as store:
            store.connect()
            for number in range(50):
                store.create(f"/kept/{number}", b"x", make_parents=True)
        held = nodes(one)

        two.start()
        three.start()
        # Both know that they would be a majority, and tell each other so for a while.
        wait_for(
            lambda: "Notification" in two.log_path.read_text() and "Notification" in three.log_path.read_text(),
            "the new ones have talked",
        )
        assert (mode(two), mode(three), mode(one)) == ("", "", "standalone")

        one.kill()
        one.join(made.members[:3])
        one.start()
        wait_for(lambda: sorted(map(mode, (one, two, three))) == ["follower", "follower", "leader"], "three are one")
        assert {nodes(server) for server in (one, two, three)} == {held}

        four.start()
        five.start()
        wait_for(lambda: [mode(four), mode(five)] == ["follower", "follower"], "new ones follow before the old restart")
        for server in sorted((one, two, three), key=mode):  # followers first
            server.kill()
            server.join(made.members)
            server.start()
            wait_for(lambda server=server: mode(server) in ("leader", "follower"), "it is back")
        wait_for(lambda: sorted(map(mode, made.servers)) == ["follower"] * 4 + ["leader"], "five are one")
        assert {nodes(server) for server in made.servers} == {held}


def test_f23_servers_form_an_ensemble_over_ipv6(tmp_path: Path) -> None:
    made = ZooKeeper(tmp_path, servers=3, heap_mb=64)
    members = [line.replace("127.0.0.1", "[::1]") for line in made.members]
    assert [line.count("[::1]") for line in members] == [1, 1, 1]
    for server in made.servers:
        server.join(members, may_begin=True)
    with made:
        assert sorted(map(mode, made.servers)) == ["follower", "follower", "leader"]


def test_f6_a_server_leaves_and_a_successor_with_another_id_takes_its_place(tmp_path: Path) -> None:
    made = ZooKeeper(tmp_path, servers=4, heap_mb=64)
    one, two, three, four = made.servers
    with ExitStack() as stack:
        stack.callback(made.stop)
        for server in (one, two, three):
            server.join(made.members[:3], may_begin=True)
            server.start()
        wait_for(lambda: sorted(map(mode, (one, two, three))) == ["follower", "follower", "leader"], "three are one")
        with closing(ZooKeeperStore(f"127.0.0.1:{one.port}")) as store:
            store.connect()
            for number in range(50):
                store.create(f"/kept/{number}", b"x", make_parents=True)

        # As playbook `remove_zookeeper` does it: the one that leaves stops first.
        leaver, *staying = sorted((one, two, three), key=mode, reverse=True)
        leaver.kill()
        wait_for(lambda: sorted(map(mode, staying)) == ["follower", "leader"], "two are a majority of three")
        held = nodes(staying[0])
        names = [made.members[made.servers.index(server)] for server in staying]
        for server in sorted(staying, key=mode):
            server.kill()
            server.join(names)
            server.start()
            wait_for(lambda: sorted(map(mode, staying)) == ["follower", "leader"], "two are one")

        # As `site` does it with the successor in the group.
        names.append(made.members[3])
        four.join(names)
        four.start()
        wait_for(lambda: mode(four) == "follower", "it follows before the others know of it")
        for server in sorted(staying, key=mode):
            server.kill()
            server.join(names)
            server.start()
            wait_for(lambda server=server: mode(server) in ("leader", "follower"), "it is back")
        now = (*staying, four)
        wait_for(lambda: sorted(map(mode, now)) == ["follower", "follower", "leader"], "three are one again")
        assert {nodes(server) for server in now} == {held}
