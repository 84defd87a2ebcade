"""Which records go on, and what they say of where they come from."""

import pytest
from confluent_kafka import Message

from pylog.mirror.session import Headers, Relay

LIVE, OFFLINE = {"clicks": "C-live", "views": "V-live"}, {"clicks": "C-off", "views": "V-off"}


def relay(source: str = "live", target: str = "offline") -> Relay:
    ids = {"live": LIVE, "offline": OFFLINE, "third": {"clicks": "C-3", "views": "V-3"}}
    found = Relay(source, target)
    for topic in ("clicks", "views"):
        found.learn(topic, ids[source][topic], ids[target][topic])
    return found


def through(which: Relay, headers: Headers, topic: str = "clicks") -> Headers | None:
    copies = which.outgoing(Message(topic=topic, partition=0, offset=0, headers=headers, timestamp=(1, 5)))
    assert len(copies) < 2
    return list(copies[0]) if copies else None


def marks(cluster: bytes, topic_id: bytes, offset: int = 0) -> Headers:
    return [("pylog.origin", cluster), ("pylog.origin.id", topic_id), ("pylog.origin.offset", b"%d" % offset)]


def test_a_record_says_where_it_was_first_written_and_never_returns() -> None:
    copy = through(relay(), [("a", b"1")])
    assert copy == [("a", b"1"), *marks(b"live", b"C-live")]
    assert through(relay("offline", "live"), copy) is None
    assert through(relay("offline", "third"), copy) == copy
    assert through(relay("third", "live"), copy) is None


def test_what_was_made_of_a_copy_goes_back_although_it_kept_the_headers() -> None:
    copy = through(relay(), [("a", b"1")])
    assert copy is not None
    back = through(relay("offline", "live"), copy, topic="views")
    assert back == [("a", b"1"), *marks(b"offline", b"V-off")]
    assert through(relay(), back, topic="views") is None, "and not round and round"


def test_what_was_made_of_a_copy_goes_on_to_a_third_cluster_and_back_from_there() -> None:
    copy = through(relay(), [])
    assert copy is not None
    third = through(relay("offline", "third"), copy, topic="views")
    assert third is not None
    assert through(relay("third", "live"), third, topic="views") == marks(b"third", b"V-3")


@pytest.mark.parametrize(("source", "target", "goes"), [("live", "offline", True), ("offline", "live", False)])
def test_the_header_of_the_release_before_is_believed(source: str, target: str, goes: bool) -> None:
    old: Headers = [("pylog.origin", b"live")]
    assert through(relay(source, target), list(old)) == (old if goes else None)


def test_an_id_without_a_cluster_is_no_mark() -> None:
    assert through(relay(), [("pylog.origin.id", b"C-off")]) == marks(b"live", b"C-live")
