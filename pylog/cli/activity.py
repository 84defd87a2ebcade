"""Made-up activity events: who viewed, searched, logged in, and how the hosts felt meanwhile.

value => {"id": key, ...fields of its topic}      (JSON, about 200 bytes; or Avro under the schemas here, about 100)
key   => run "-" topic "-" sequence of 9 digits   (unique, so that two readers can compare what they saw)

The same seed and run give the same bytes.  Only the id differs from record to record within `_TEMPLATE_COUNT`: making
a million values with `json.dumps` takes 8 s, cutting them from templates takes 0.5 s.

Source: the paper's section 1, "activity data" and "operational data".
"""

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

KeyValue: TypeAlias = tuple[bytes | None, bytes | None]
Encode: TypeAlias = Callable[[str, Mapping[str, Any]], bytes]
"""Makes a value of a topic's event; the text of its id must stand in it as it is."""

_TEMPLATE_COUNT = 2048
_PAGES = ("/feed", "/in/{}", "/jobs/view/{}", "/company/{}", "/groups/{}", "/messaging/thread/{}", "/mynetwork")
_COUNTRIES = ("us", "in", "br", "gb", "de", "fr", "ca", "nl", "au", "sg")
_WORDS = ("kafka", "log", "engineer", "remote", "spark", "manager", "berlin", "data", "platform", "intern", "sre", "go")
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64) Firefox/121.0", "Mozilla/5.0 (iPhone; iOS 17.1) Mobile Safari/604.1")


def as_json(_topic: str, event: Mapping[str, Any]) -> bytes:
    """Return an event as JSON."""
    return json.dumps(event, separators=(",", ":")).encode()


class Activity:
    """An endless, repeatable stream of events.

    Args:
        run: names this stream in every key.
        seed: decides the values.
        encode: makes values of events.
    """

    def __init__(self, run: str, seed: int, encode: Encode = as_json) -> None:
        self._run = run
        self._templates = {topic: _templates(self._key(topic, 0), topic, seed, encode) for topic in _EVENTS}
        self._made = 0
        self._sequences = dict.fromkeys(_EVENTS, 0)

    def take(self, count: int) -> dict[str, list[KeyValue]]:
        """Return the next *count* events by topic, as keys and values."""
        before, self._made = self._made, self._made + count
        return {
            topic: self._events(topic, _share_of(self._made, topic) - _share_of(before, topic)) for topic in _EVENTS
        }

    def _key(self, topic: str, sequence: int) -> str:
        return f"{self._run}-{topic}-{sequence:09}"

    def _events(self, topic: str, count: int) -> list[KeyValue]:
        first = self._sequences[topic]
        self._sequences[topic] = first + count
        name, (before, templates) = f"{self._run}-{topic}-".encode(), self._templates[topic]
        events: list[KeyValue] = []
        for sequence in range(first, first + count):
            key = b"%b%09d" % (name, sequence)
            events.append((key, before + key + templates[sequence % _TEMPLATE_COUNT]))
        return events


def _templates(key: str, topic: str, seed: int, encode: Encode) -> tuple[bytes, list[bytes]]:
    """Return what stands before the id, the same in all values, and what stands behind it in each."""
    source = random.Random(f"{seed}-{topic}")
    make = _EVENTS[topic].make
    # All keys of a run and topic are of one length, so whatever frames the text of one frames the others.
    cut = [encode(topic, {"id": key, **make(source)}).partition(key.encode()) for _ in range(_TEMPLATE_COUNT)]
    [before] = {one[0] for one in cut}
    return before, [one[2] for one in cut]


def _share_of(total: int, topic: str) -> int:
    """Return how many of the first *total* events belong to *topic*: each hundred holds its share of each topic."""
    share, order = _EVENTS[topic].share, _ORDER[: total % 100]
    return total // 100 * share + order.count(topic)


def _pageview(source: random.Random) -> dict[str, Any]:
    page = source.choice(_PAGES).format(source.randrange(10_000_000))
    return {
        "event": "pageview",
        "member": _member(source),
        "page": page,
        "country": source.choice(_COUNTRIES),
        "session": f"{source.getrandbits(64):016x}",
        "agent": source.choice(_AGENTS),
        "load_ms": int(source.lognormvariate(5.5, 0.6)),
    }


def _search(source: random.Random) -> dict[str, Any]:
    return {
        "event": "search",
        "member": _member(source),
        "query": " ".join(source.choices(_WORDS, k=3)),
        "results": int(source.lognormvariate(6, 2)),
        "clicked_rank": source.choice((None, 1, 1, 2, 3, 7)),
        "country": source.choice(_COUNTRIES),
        "session": f"{source.getrandbits(64):016x}",
        "took_ms": int(source.lognormvariate(4, 0.5)),
    }


def _login(source: random.Random) -> dict[str, Any]:
    return {
        "event": "login",
        "member": _member(source),
        "method": source.choice(("password", "sso", "passkey")),
        "is_success": source.random() > 0.03,
        "ip": "10." + ".".join(str(source.randrange(256)) for _ in range(3)),
        "country": source.choice(_COUNTRIES),
        "session": f"{source.getrandbits(64):016x}",
        "agent": source.choice(_AGENTS),
    }


def _host_metrics(source: random.Random) -> dict[str, Any]:
    return {
        "event": "host_metrics",
        "host": f"web-{source.randrange(400):03d}",
        "cpu_percent": round(source.betavariate(2, 5) * 100, 1),
        "memory_percent": round(source.betavariate(5, 3) * 100, 1),
        "network_in_bytes": source.randrange(10**8),
        "network_out_bytes": source.randrange(10**8),
        "disk_free_bytes": source.randrange(10**12),
        "load_1m": round(source.expovariate(0.5), 2),
    }


def _member(source: random.Random) -> int:
    """Return a member's number; few members do most of everything."""
    return int(source.paretovariate(1.2) * 1000) % 50_000_000


class _Kind(NamedTuple):
    """Events of one topic.

    Attributes:
        share: in hundredths of all events.
        make: makes one, but for its id.
        fields: names and Avro types of what it makes.
    """

    share: int
    make: Callable[[random.Random], dict[str, Any]]
    fields: str


# Views outnumber everything a member does on purpose; hosts report every few seconds.
_EVENTS: Mapping[str, _Kind] = {
    "pageviews": _Kind(
        70, _pageview, "event string member long page string country string session string agent string load_ms long"
    ),
    "searches": _Kind(
        12, _search, "event string member long query string results long clicked_rank int? country string "
        "session string took_ms long"
    ),
    "logins": _Kind(
        6, _login, "event string member long method string is_success boolean ip string country string "
        "session string agent string"
    ),
    "host.metrics": _Kind(
        12, _host_metrics, "event string host string cpu_percent double memory_percent double network_in_bytes long "
        "network_out_bytes long disk_free_bytes long load_1m double"
    ),
}  # fmt: skip
_ORDER = [topic for topic, kind in _EVENTS.items() for _ in range(kind.share)]
random.Random(0).shuffle(_ORDER)
assert len(_ORDER) == 100, f"the shares add up to {len(_ORDER)} hundredths"

TOPICS = tuple(_EVENTS)
"""Every topic that events go to."""


def schema(topic: str) -> str:
    """Return the Avro schema of a topic's events, as text."""
    words = _EVENTS[topic].fields.split()
    fields: list[dict[str, Any]] = [{"name": "id", "type": "string"}]
    for name, kind in zip(words[::2], words[1::2], strict=True):
        is_optional = kind.endswith("?")
        fields.append({"name": name, "type": ["null", kind[:-1]], "default": None} if is_optional
                      else {"name": name, "type": kind})  # fmt: skip
    return json.dumps({"type": "record", "name": topic.replace(".", "_"), "namespace": "demo", "fields": fields})
