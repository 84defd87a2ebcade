"""Made-up activity events: who viewed, searched, logged in, and how the hosts felt meanwhile.

value => {"id": key, ...fields of its topic}      (JSON, about 200 bytes)
key   => run "-" topic "-" sequence of 9 digits   (unique, so that two readers can compare what they saw)

The same seed and run give the same bytes.  Only the id differs from record to record within `_TEMPLATE_COUNT`: making
a million values with `json.dumps` takes 8 s, cutting them from templates takes 0.5 s.

Source: the paper's section 1, "activity data" and "operational data".
"""

import json
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

KeyValue: TypeAlias = tuple[bytes | None, bytes | None]

_TEMPLATE_COUNT = 2048
_PAGES = ("/feed", "/in/{}", "/jobs/view/{}", "/company/{}", "/groups/{}", "/messaging/thread/{}", "/mynetwork")
_COUNTRIES = ("us", "in", "br", "gb", "de", "fr", "ca", "nl", "au", "sg")
_WORDS = ("kafka", "log", "engineer", "remote", "spark", "manager", "berlin", "data", "platform", "intern", "sre", "go")
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64) Firefox/121.0", "Mozilla/5.0 (iPhone; iOS 17.1) Mobile Safari/604.1")


class Activity:
    """An endless, repeatable stream of events.

    Args:
        run: names this stream in every key.
        seed: decides the values.
    """

    def __init__(self, run: str, seed: int) -> None:
        self._run = run
        self._templates = {topic: _templates(topic, seed) for topic in _EVENTS}
        self._made = 0
        self._sequences = dict.fromkeys(_EVENTS, 0)

    def take(self, count: int) -> dict[str, list[KeyValue]]:
        """Return the next *count* events by topic, as keys and values."""
        before, self._made = self._made, self._made + count
        return {
            topic: self._events(topic, _share_of(self._made, topic) - _share_of(before, topic)) for topic in _EVENTS
        }

    def _events(self, topic: str, count: int) -> list[KeyValue]:
        first = self._sequences[topic]
        self._sequences[topic] = first + count
        name, templates = f"{self._run}-{topic}-".encode(), self._templates[topic]
        events: list[KeyValue] = []
        for sequence in range(first, first + count):
            key = b"%b%09d" % (name, sequence)
            events.append((key, b'{"id":"%b",%b' % (key, templates[sequence % _TEMPLATE_COUNT])))
        return events


@cache
def _templates(topic: str, seed: int) -> list[bytes]:
    """Return values without their opening brace and id."""
    source = random.Random(f"{seed}-{topic}")
    make = _EVENTS[topic][1]
    return [json.dumps(make(source), separators=(",", ":")).encode()[1:] for _ in range(_TEMPLATE_COUNT)]


def _share_of(total: int, topic: str) -> int:
    """Return how many of the first *total* events belong to *topic*: each hundred holds its share of each topic."""
    share, order = _EVENTS[topic][0], _ORDER[: total % 100]
    return total // 100 * share + order.count(topic)


def _pageview(source: random.Random) -> dict[str, Any]:
    page = source.choice(_PAGES).format(source.randrange(10_000_000))
    return {"event": "pageview", "member": _member(source), "page": page, "country": source.choice(_COUNTRIES),
            "session": f"{source.getrandbits(64):016x}", "agent": source.choice(_AGENTS),
            "load_ms": int(source.lognormvariate(5.5, 0.6))}


def _search(source: random.Random) -> dict[str, Any]:
    return {"event": "search", "member": _member(source), "query": " ".join(source.choices(_WORDS, k=3)),
            "results": int(source.lognormvariate(6, 2)), "clicked_rank": source.choice((None, 1, 1, 2, 3, 7)),
            "country": source.choice(_COUNTRIES), "session": f"{source.getrandbits(64):016x}",
            "took_ms": int(source.lognormvariate(4, 0.5))}


def _login(source: random.Random) -> dict[str, Any]:
    return {"event": "login", "member": _member(source), "method": source.choice(("password", "sso", "passkey")),
            "is_success": source.random() > 0.03, "ip": "10." + ".".join(str(source.randrange(256)) for _ in range(3)),
            "country": source.choice(_COUNTRIES), "session": f"{source.getrandbits(64):016x}",
            "agent": source.choice(_AGENTS)}


def _host_metrics(source: random.Random) -> dict[str, Any]:
    return {"event": "host_metrics", "host": f"web-{source.randrange(400):03d}",
            "cpu_percent": round(source.betavariate(2, 5) * 100, 1),
            "memory_percent": round(source.betavariate(5, 3) * 100, 1),
            "network_in_bytes": source.randrange(10**8), "network_out_bytes": source.randrange(10**8),
            "disk_free_bytes": source.randrange(10**12), "load_1m": round(source.expovariate(0.5), 2)}


def _member(source: random.Random) -> int:
    """Return a member's number; few members do most of everything."""
    return int(source.paretovariate(1.2) * 1000) % 50_000_000


# Hundredths of all events.  Views outnumber everything a member does on purpose; hosts report every few seconds.
_EVENTS: Mapping[str, tuple[int, Callable[[random.Random], dict[str, Any]]]] = {
    "pageviews": (70, _pageview),
    "searches": (12, _search),
    "logins": (6, _login),
    "host.metrics": (12, _host_metrics),
}
_ORDER = [topic for topic, (share, _) in _EVENTS.items() for _ in range(share)]
random.Random(0).shuffle(_ORDER)
assert len(_ORDER) == 100, f"the shares add up to {len(_ORDER)} hundredths"

TOPICS = tuple(_EVENTS)
"""Every topic that events go to."""
