"""What a broker logs of connections that fail: each fault of an address once a minute, and how often it came."""

from pylog.broker.connection_log import MAX_KINDS, REPEAT_MS, ConnectionLog


class Noted:
    """A log, its lines, and the time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.lines: list[str] = []
        self.log = ConnectionLog("client", lambda: self.now_ms, self.lines.append)

    def closed(self, peer: str, reason: str) -> None:
        self.log.note("connection_closed", peer, reason)


def test_a_fault_that_repeats_is_one_line_a_minute_with_its_count() -> None:
    noted = Noted()
    for port in range(100):
        noted.closed(f"192.0.2.1:{port}", f"frame claims {port} bytes")
    assert noted.lines == ["connection_closed listener=client peer=192.0.2.1:0 reason=frame claims 0 bytes"]
    noted.now_ms = REPEAT_MS
    noted.closed("192.0.2.1:7", "frame claims 7 bytes")
    assert noted.lines[1:] == [
        "connection_closed listener=client peer=192.0.2.1:7 reason=frame claims 7 bytes repeated_before=99"
    ]


def test_another_address_and_another_fault_are_lines_of_their_own() -> None:
    noted = Noted()
    for peer in ("192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1"):
        for reason in ("TLS client hello on a plain listener", "login took too long"):
            noted.closed(peer, reason)
    noted.log.note("connection_refused", "192.0.2.1:1", "login took too long")
    assert len(noted.lines) == 7


def test_what_is_counted_is_bounded() -> None:
    noted = Noted()
    for number in range(MAX_KINDS + 1):
        noted.closed(f"192.0.2.{number}:1", "x")
    assert len(noted.log._kinds) == MAX_KINDS
    noted.closed("192.0.2.0:1", "x")
    assert len(noted.lines) == MAX_KINDS + 2, "the oldest was forgotten"
