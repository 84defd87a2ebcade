"""How many connections may be open before a login: what strangers can have kept is bounded in bytes too."""

import pytest

from pylog.net.unproven import MAX_LOGIN_BYTES, Unproven


def room(unproven: Unproven, hosts: int) -> int:
    """Return how many connections get in until one is refused, taken from *hosts* addresses in turn."""
    count = 0
    while not unproven.refusal(host := f"192.0.2.{count % hosts}"):
        unproven.enter(host)
        count += 1
    return count


@pytest.mark.parametrize(
    ("max_connections", "frame_bytes", "all_places", "of_one"),
    [
        (10_000, 16_384, 5_000, 2_500),
        (100_000, 16_384, MAX_LOGIN_BYTES // 16_384, MAX_LOGIN_BYTES // 32_768),
        (10_000, 65_536, 2_048, 1_024),
        (1, 16_384, 1, 1),
        (10_000, 2**31 - 1, 1, 1),
    ],
)
def test_places_before_a_login(max_connections: int, frame_bytes: int, all_places: int, of_one: int) -> None:
    assert room(Unproven(max_connections, frame_bytes), 4) == all_places
    assert room(Unproven(max_connections, frame_bytes), 1) == of_one


def test_a_place_that_is_left_is_free_again() -> None:
    unproven = Unproven(4, 1)
    unproven.enter("a")
    assert unproven.refusal("a")
    unproven.leave("a")
    assert not unproven.refusal("a")


def test_addresses_of_one_network_of_ipv6_count_as_one() -> None:
    unproven = Unproven(8, 1)
    for host in ("2001:db8::1", "2001:db8::2%eth0"):
        assert not unproven.refusal(host)
        unproven.enter(host)
    assert unproven.refusal("2001:db8::3")
    assert not unproven.refusal("2001:db8:0:1::1")
    unproven.leave("2001:db8::1")
    assert not unproven.refusal("2001:db8::3")
