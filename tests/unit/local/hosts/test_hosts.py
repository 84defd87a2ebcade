"""Names, addresses and devices of local hosts: two checkouts, or two sets, never meet."""

import os
from ipaddress import IPv4Network
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from local.hosts import apt_cache, hosts


def host_set(name: str = "main") -> hosts.HostSet:
    return hosts.HostSet(set=name, network="pylog-x", subnet="10.70.3.0/24", gateway="10.70.3.1")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("live1", "10.70.3.11"),
        ("live89", "10.70.3.99"),
        ("offline1", "10.70.3.101"),
        ("offline99", "10.70.3.199"),
        ("spark1", "10.70.3.201"),
        ("spark50", "10.70.3.250"),
    ],
)
def test_a_name_alone_fixes_the_address(host: str, address: str) -> None:
    assert hosts.address(host_set(), host) == address


def test_hosts_with_dns_names_get_the_next_addresses_and_a_name_in_each_network() -> None:
    found = host_set()
    for name in ("bastion.example.internal", "zk-a1.example.internal"):
        found.hosts[name] = hosts.Host(ip=hosts.address(found, name), container="", disks=[])
    found.hosts["zk-a1.example.internal"].data_ip = "10.70.4.11"
    assert hosts.names(found) == [
        ("10.70.3.10", "bastion.example.internal"),
        ("10.70.3.11", "zk-a1.example.internal"),
        ("10.70.4.11", "zk-a1.data.example.internal"),
    ]
    assert hosts.names(host_set()) == []


def test_plan_takes_what_a_company_hands_over() -> None:
    words = ["plan", "a.x", "b.x", "--user", "deploy", "--data-network", "--bastion", "a.x", "--behind", "b.x"]
    found = hosts.parse(words)
    assert (found.hosts, found.user, found.data_network) == (["a.x", "b.x"], "deploy", True)
    assert (found.bastion, found.behind) == ("a.x", ["b.x"])
    assert hosts.parse(["plan"]).user == "root"


@pytest.mark.parametrize("host", ["", "live", "live0", "live100", "spark51", "web1", "live1;reboot"])
def test_other_names_are_refused(host: str) -> None:
    with pytest.raises(hosts.HostsError, match="unknown host"):
        hosts.address(host_set(), host)


def test_a_subnet_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "used_subnets", list)
    first = hosts.free_subnet("seed")
    assert first.subnet_of(IPv4Network("10.64.0.0/10"))
    monkeypatch.setattr(hosts, "used_subnets", lambda: [first.supernet(new_prefix=16)])
    second = hosts.free_subnet("seed")
    assert not second.overlaps(first.supernet(new_prefix=16))


def test_no_free_subnet_is_an_error_not_a_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "used_subnets", lambda: [IPv4Network("10.0.0.0/8")])
    with pytest.raises(hosts.HostsError, match="no free"):
        hosts.free_subnet("seed")


def test_devices_of_a_stopped_set_stay_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "attached_loops", dict)
    monkeypatch.setattr(hosts, "known_sets", list)
    free = hosts.pick_loops(host_set(), 3)
    stopped = host_set("other")
    stopped.hosts["live1"] = hosts.Host(ip="", container="", disks=[free[0]])
    monkeypatch.setattr(hosts, "known_sets", lambda: [stopped])
    monkeypatch.setattr(hosts, "attached_loops", lambda: {free[1]: "/somebody/else.img"})
    assert hosts.pick_loops(host_set(), 1) == [free[2]]


def test_state_survives_writing_and_reading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hosts, "STATE", tmp_path)
    assert hosts.load("main") is None
    written = host_set()
    written.hosts["live1"] = hosts.Host(ip="10.70.3.11", container="pylog-x-live1", disks=["/dev/loop1000"])
    hosts.save(written)
    assert hosts.load("main") == written
    assert [each.set for each in hosts.known_sets()] == ["main"]


@pytest.mark.parametrize("name", ["cache", "ssh", "../etc", "Main", ""])
def test_a_set_may_not_be_named_like_other_state(name: str) -> None:
    with pytest.raises(SystemExit):
        hosts.parse(["--set", name, "status"])


@pytest.mark.parametrize(
    ("url", "is_allowed", "is_kept"),
    [
        ("//archive.example/debian/pool/main/x/xfsprogs/xfsprogs_6.1.0-1_amd64.deb", True, True),
        ("//archive.example/debian/dists/bookworm/main/binary-amd64/by-hash/SHA256/00", True, True),
        ("//archive.example/debian/dists/bookworm/InRelease", True, False),
        ("//archive.example.evil.example/x.deb", False, True),
        ("//evilarchive.example/x.deb", False, True),
        ("//archive.example:8080/x.deb", False, True),
        ("//other.example/x.deb", False, True),
        ("file:///etc/shadow", False, False),
    ],
)
def test_the_package_cache_serves_debian_only_and_keeps_what_never_changes(
    url: str, is_allowed: bool, is_kept: bool
) -> None:
    targets = "http://archive.example/debian bookworm\nhttp://archive.example/debian-security bookworm-security\n"
    servers = apt_cache.mirrors(targets + "http://other.example/tools nodistro\n")
    asked = urlsplit(url, scheme="http")
    assert apt_cache.is_allowed(asked, servers) is is_allowed
    assert apt_cache.is_immutable(asked) is is_kept


def test_processor_time_is_that_of_the_living_and_of_those_they_waited_for() -> None:
    tick = os.sysconf("SC_CLK_TCK")
    init = f"1 (systemd) S 0 1 1 0 -1 4194560 9 9 9 9 {tick} {2 * tick} {30 * tick} {40 * tick} 20 0 1 0 5"
    odd = f"77 (a) (b c) R 1 1 1 0 -1 4194560 9 9 9 9 {tick} 0 0 0 20 0 1 0 5"
    assert hosts.processor_seconds(f"{init}\n{odd}\n") == 74
    assert hosts.processor_seconds("") == 0
