"""How many connections may be open before their client has shown who it is."""

from collections import Counter
from ipaddress import IPv6Address

MAX_LOGIN_BYTES = 128 << 20
"""Of all unfinished frames before a login on one listener: whoever reaches the port can have as much kept."""


def _network(host: str) -> str:
    """Return what one client may have of addresses: the /64 of an IPv6 address, which any host has whole."""
    return str(int(IPv6Address(host.split("%")[0])) >> 64) if ":" in host else host


class Unproven:
    """Counts connections of one listener in a handshake or before their login, in all and by address."""

    def __init__(self, max_connections: int, max_frame_bytes: int) -> None:
        """Make it for a listener with *max_connections*, which takes *max_frame_bytes* before a login."""
        # Half of the places: else whoever can reach the port keeps everybody out without a password.  Half of these
        # for one address: else one host does.  No less, since all clients behind a load balancer have one address.
        self._limit = max(min(max_connections // 2, MAX_LOGIN_BYTES // max_frame_bytes), 1)
        self._limit_of_one = max(self._limit // 2, 1)
        self._by_host: Counter[str] = Counter()
        self._count = 0

    def refusal(self, host: str) -> str:
        """Return why a further connection from *host* is refused; nothing if it is not."""
        if self._count >= self._limit:
            return f"{self._count} connections have not logged in yet"
        if (count := self._by_host.get(_network(host), 0)) >= self._limit_of_one:
            return f"{count} connections of this address have not logged in yet"
        return ""

    def enter(self, host: str) -> None:
        """Count a connection from *host*."""
        self._by_host[_network(host)] += 1
        self._count += 1

    def leave(self, host: str) -> None:
        """Count one less: its client has logged in, or it has ended."""
        network = _network(host)
        self._by_host[network] -= 1
        self._count -= 1
        if not self._by_host[network]:
            del self._by_host[network]
