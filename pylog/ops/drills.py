"""Faults that can be rehearsed on a live cluster, and why the others cannot: rows T1 to T38 of the feature list.

A drill is two shell scripts for a host, one that breaks something and one that heals it, which must do no harm when
nothing is broken (any more): a timer on the host runs it too, should whoever rehearses lose the connection.
`pylog.ops.rehearsal` carries them out.  The scripts find these variables::

    ID UNIT DATA DISK TOPIC         the broker, its unit, data directory and disk; the topic of the drill
    CLIENT_PORT PEER_PORT STORE_PORT
    PEERS                           addresses of the other hosts
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Where(Enum):
    """On which hosts a drill breaks something."""

    LEADER = "the broker that leads the drill's first partition"
    STORES = "all ZooKeeper servers at once"
    EACH_STORE = "one ZooKeeper server after the other"
    NOWHERE = "no host: a client does it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One fault.

    Attributes:
        code: its row.
        name: as the row names it.
        expected: what must come of it.
        inject: shell script that breaks something; run by root.
        heal: shell script that mends it.
        hold_s: seconds in between.
        needs: shell script that fails on a host where this cannot be done.
        lacking: what to do about that.
        acks: of the producer that goes on meanwhile; only with "all" a lost record fails the drill.
    """

    code: str
    name: str
    expected: str
    where: Where = Where.LEADER
    inject: str = ""
    heal: str = ""
    hold_s: int = 5
    needs: str = ""
    lacking: str = ""
    acks: str = "all"


_KILL = 'systemctl kill --signal=KILL "$UNIT"'
_DOWN = f'{_KILL}; systemctl stop "$UNIT"'
_UP = 'systemctl reset-failed "$UNIT" 2>/dev/null || true; systemctl start "$UNIT"'

_TABLE = "inet pylog_drill"
_CHAINS = f"""nft add table {_TABLE}
nft add chain {_TABLE} input '{{ type filter hook input priority 0; }}'
nft add chain {_TABLE} output '{{ type filter hook output priority 0; }}'
"""
_OPEN = f"nft delete table {_TABLE} 2>/dev/null || true"
_NFT = f"""nft add table {_TABLE} && nft delete table {_TABLE}"""
_NFT_LACKING = "apt-get install nftables; a container also needs CAP_NET_ADMIN"

# Metadata of the file system may need the last blocks, so what is left is written until nothing goes in any more.
_FILL = """free=$(df --output=avail --block-size=1 "$DISK" | tail -1)
fallocate --length "$free" "$DISK/pylog-drill.fill" 2>/dev/null ||
  fallocate --length $((free * 9 / 10)) "$DISK/pylog-drill.fill"
dd if=/dev/zero of="$DISK/pylog-drill.rest" bs=64k status=none 2>/dev/null || true
"""
_EMPTY = 'rm -f "$DISK/pylog-drill.fill" "$DISK/pylog-drill.rest"'
_OWN_DISK = '[ "$(findmnt --noheadings --output TARGET --target "$DATA")" != / ]'
_OWN_DISK_LACKING = "the broker's data needs a disk of its own: filling the host's would hit everything on it"

_OWN_LIMIT = "/run/systemd/system.control/$UNIT.d"

DRILLS = {
    one.code: one
    for one in (
        Drill(
            code="T1",
            name="kill9_leader_acks_all",
            expected="nothing lost, order kept, in sync again",
            inject=_KILL,
            heal=_UP,
        ),
        Drill(
            code="T2",
            name="kill9_acks1_acks0",
            expected="what is lost is counted; nothing is doubled or out of order",
            inject=_KILL,
            heal=_UP,
            acks="1",
        ),
        Drill(
            code="T3",
            name="pause_leader_sigstop_30s",
            expected="others lead; what it acknowledges late is refused",
            inject='systemctl kill --signal=STOP "$UNIT"',
            heal='systemctl kill --signal=CONT "$UNIT"',
            hold_s=30,
        ),
        Drill(
            code="T4",
            name="partition_leader_from_zk",
            expected="one leader an epoch; nothing lost",
            inject=f'{_CHAINS}nft add rule {_TABLE} output tcp dport "$STORE_PORT" drop',
            heal=_OPEN,
            hold_s=30,
            needs=_NFT,
            lacking=_NFT_LACKING,
        ),
        Drill(
            code="T5",
            name="partition_isr_then_kill_leader",
            expected="no unclean election; nothing lost",
            inject=f'{_CHAINS}nft add rule {_TABLE} input tcp dport "$PEER_PORT" drop',
            # Killed while still alone: whoever leads next must be one that has everything.
            heal=f"{_KILL}; {_OPEN}; {_UP}",
            hold_s=40,
            needs=_NFT,
            lacking=_NFT_LACKING,
        ),
        Drill(
            code="T8",
            name="torn_tail_write",
            expected="cut at the last whole batch; nothing lost",
            inject=f"""{_DOWN}
for directory in "$DATA/$TOPIC"-*; do
  head -c 300 /dev/urandom >> "$(ls "$directory"/*.log | tail -1)"
done""",
            heal=_UP,
        ),
        Drill(
            code="T10",
            name="missing_index",
            expected="indexes are made anew; nothing lost",
            inject=f'{_DOWN}\nrm -f "$DATA/$TOPIC"-*/*.index "$DATA/$TOPIC"-*/*.timeindex',
            heal=_UP,
        ),
        Drill(
            code="T12",
            name="disk_full_leader",
            expected="others lead; reads go on; writes return once there is room",
            inject=_FILL,
            heal=_EMPTY,
            hold_s=20,
            needs=_OWN_DISK,
            lacking=_OWN_DISK_LACKING,
        ),
        Drill(
            code="T13",
            name="disk_full_at_start",
            expected="it does not start, others serve; it starts with room",
            inject=f'systemctl stop "$UNIT"\n{_FILL}\nsystemctl start --no-block "$UNIT"',
            heal=f"{_EMPTY}; {_UP}",
            hold_s=15,
            needs=_OWN_DISK,
            lacking=_OWN_DISK_LACKING,
        ),
        Drill(
            code="T17",
            name="future_timestamp_client",
            where=Where.NOWHERE,
            expected="refused with INVALID_TIMESTAMP where the topic limits it",
        ),
        Drill(
            code="T18",
            name="zk_session_expired",
            expected="registers again; no ISR stays small",
            inject=f'{_CHAINS}nft add rule {_TABLE} output tcp dport "$STORE_PORT" drop',
            heal=_OPEN,
            hold_s=12,
            needs=_NFT,
            lacking=_NFT_LACKING,
        ),
        Drill(
            code="T19",
            name="zk_quorum_lost",
            where=Where.STORES,
            expected="producing goes on; recovers unaided",
            inject="systemctl stop pylog-zookeeper",
            heal="systemctl start pylog-zookeeper",
            hold_s=30,
        ),
        Drill(
            code="T20",
            name="zk_rolling_restart",
            where=Where.EACH_STORE,
            expected="no outage",
            inject="systemctl restart pylog-zookeeper",
            heal="systemctl start pylog-zookeeper",
            hold_s=10,
        ),
        Drill(
            code="T24",
            name="flaky_net",
            expected="nothing lost at 5 % of packets dropped",
            inject=f"""{_CHAINS}for hook in input output; do
  nft add rule {_TABLE} \"$hook\" tcp dport 22 accept
  nft add rule {_TABLE} \"$hook\" tcp sport 22 accept
  nft add rule {_TABLE} \"$hook\" numgen random mod 100 \\< 5 drop
done""",
            heal=_OPEN,
            hold_s=30,
            needs=_NFT,
            lacking=_NFT_LACKING,
        ),
        Drill(
            code="T25",
            name="swizzle_clog",
            expected="converges; nothing lost",
            inject=f"""{_CHAINS}for peer in $PEERS; do
  nft add rule {_TABLE} input ip saddr \"$peer\" tcp dport \"$PEER_PORT\" drop
  sleep 6
done""",
            heal=_OPEN,
            hold_s=6,
            needs=_NFT,
            lacking=_NFT_LACKING,
        ),
        Drill(
            code="T29",
            name="frame_length",
            where=Where.NOWHERE,
            expected="connections that claim 2 GiB, a negative or no length are closed; others go on",
        ),
        Drill(
            code="T33",
            name="topic_names",
            where=Where.NOWHERE,
            expected="../x, a NUL, 250 characters: refused with INVALID_TOPIC_EXCEPTION",
        ),
        Drill(
            code="T35",
            name="secrets_scan",
            where=Where.NOWHERE,
            expected="the support bundle and the journals have none of the hosts' secrets",
        ),
        Drill(
            code="T36",
            name="oom_limit_cgroup",
            expected="ends and starts again; nothing lost",
            inject='systemctl set-property --runtime "$UNIT" MemoryMax=24M',
            hold_s=15,
            heal=f'rm -rf "{_OWN_LIMIT}"; systemctl daemon-reload; {_UP}',
            needs="systemctl show --property MemoryCurrent --value system.slice | grep -q '[0-9]'",
            lacking="no memory limits here: the cgroup controller `memory` is not delegated to this host",
        ),
    )
}
"""Drills by row."""

REASONS: Mapping[str, str] = {
    "T6": "what a disk had not synced cannot be taken from a running host; tests/unit/log has a disk that forgets, "
    "`make sim` and `make baremetal` cut power of one broker",
    "T7": "as T6; `make sim` and `make baremetal` cut power of all brokers",
    "T9": "needs a closed segment and a day of scrubbing; tests/unit/log/test_scrub.py",
    "T11": "a broker takes the marker away before it opens anything, so none can lie; tests/unit/log/test_directory.py",
    "T14": "needs a block device that fails on demand; tests/unit/log gives EIO from a file system of its own",
    "T15": "a broker has one data directory here; a host with several disks has several brokers",
    "T16": "a container's clock is its machine's, and on a host of its own NTP would fight it; `make sim` moves the "
    "clock of each broker",
    "T21": "a storm of consumers breaks nothing on a host; tests/consumers",
    "T22": "it is the consumer that crashes; tests/consumers",
    "T23": "needs retention to pass by; tests/pipeline and tests/consumers",
    "T26": "that is a roll under load: make molecule SCENARIO=rolling_upgrade",
    "T27": "needs a second datacenter: tests/programs/test_mirror.py",
    "T28": "tests/pipeline kills tasks and drivers of a Spark of its own",
    "T30": "fuzzing of an hour does not belong on a cluster: make fuzz",
    "T31": "needs a client that lies in its bytes: tests/net and tests/cluster/test_bad_input.py",
    "T32": "as T31; tests/net",
    "T34": "wrong logins end connections and disturb no host: tests/net/test_login.py",
    "T37": "tests/programs kills registries while they write",
    "T38": "tests/programs drops a record on its way and reads the report",
}
"""Why the other rows are no drills, and what shows them instead."""
