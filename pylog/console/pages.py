"""What each address shows: the facts it asks for, the model it makes of them, and the command that says the same.

page => GET path (HTML) and GET /api path (JSON, the model itself)
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pylog.audit.judge import Judgement
from pylog.audit.render import moment
from pylog.client.admin.cluster import TopicView
from pylog.client.rows import Row
from pylog.console import completeness, rights, screens
from pylog.console.alerts import Alert, alerts_data, runbook_data, visible
from pylog.console.completeness import Span
from pylog.console.counts import Counts, Look
from pylog.console.readings import Reading
from pylog.console.records import Deserialize, parse_places, records_data, search_data
from pylog.console.screens import command
from pylog.console.sources import ClusterSource, clock_ms
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError, Unreachable
from pylog.faults import CATALOGUE
from pylog.model import Offset, TopicPartition

LATEST_COUNT = 50
"""Offsets that a page of records shows that was asked for no place."""

MAX_QUERY = 200
"""Characters of a filter or a search."""

MAX_PLACES = 16_000
"""Characters of the places at which a search goes on: of a topic with 1,000 partitions."""

MAX_OFFSET = (1 << 63) - 1

DEFAULT_OLD_S = 1_200
"""For how long the producer of a hanging transaction has not written, as in ``pylog txn hanging``."""

MAX_OLD_S = 30 * 86_400

DEFAULT_HOURS = 2
MAX_HOURS = 6
"""Of completeness at a time: every window of every producer is kept in memory meanwhile."""


class Forbidden(PylogError):
    """The person may not see this; the message says which right it takes."""


class NotFound(PylogError):
    """There is no such page."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who looks.

    Attributes:
        user: name of the user who logged in; empty without login.
        source: the cluster as this person sees it.
        may_read_payloads: whether keys and values are shown.
    """

    user: str
    source: ClusterSource
    may_read_payloads: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as pages see it.

    Attributes:
        person: who looks.
        path: variable parts of the path.
        query: the last value of each name.
        counts: what the audit counted.
        alerts: reads Prometheus's alerts; its answer is None without a Prometheus.
        deserialize: for values in Avro; None without a registry.
    """

    person: Person
    path: Mapping[str, str]
    query: Mapping[str, str]
    counts: Counts
    alerts: Callable[[], Reading[Sequence[Alert]] | None]
    deserialize: Deserialize | None = None

    def text(self, name: str) -> str:
        """Return a value of the query; empty if it is missing.

        Raises:
            ConfigError: it is too long.
        """
        value = self.query.get(name, "").strip()
        if len(value) > MAX_QUERY:
            raise ConfigError(f"{name} must have at most {MAX_QUERY} characters, got {len(value)}")
        return value

    def number(self, name: str) -> int | None:
        """Return a whole number of the query; None if it is missing.

        Raises:
            ConfigError: it is none, or out of range.
        """
        return None if not (value := self.text(name)) else _number(name, value)

    def partition(self) -> int:
        """Return the partition that the path names.

        Raises:
            ConfigError: it is no number.
        """
        return _number("partition", self.path["partition"])


@dataclass(frozen=True, slots=True)
class Page:
    """What a request is answered with.

    Attributes:
        template: name without ending.
        title: for the window and the heading.
        model: what the page shows.
        command: the command line that says the same.
    """

    template: str
    title: str
    model: Row
    command: str


def overview(ask: Ask) -> Page:
    """Return the verdict and its reasons."""
    source = ask.person.source
    problems, since_ms = source.problems()
    latest = completeness.latest(ask.counts.latest(), _visible_if_known(ask))
    model = screens.overview(
        source.view(), source.answering(), source.disks(), source.groups(), since_ms, problems, latest
    )
    return Page("overview", "Overview", model, command("cluster", "health"))


def all_completeness(ask: Ask) -> Page:
    """Return whether every record arrived, for all topics."""
    span, look = _look(ask)
    model = completeness.overview(look, span, _visible(ask), ask.number("page") or 1)
    return Page("completeness", "Completeness", model, _audit_command(ask, span, None))


def topic_completeness(ask: Ask) -> Page:
    """Return the windows of one topic, a lane a tier."""
    name = _visible_topic(ask)
    span, look = _look(ask)
    model = completeness.topic(look, span, name, ask.number("page") or 1)
    return Page("completeness_topic", f"Completeness of {name}", model, _audit_command(ask, span, name))


def window_completeness(ask: Ask) -> Page:
    """Return one window of a topic, down to the first missing record."""
    name, start_text = _visible_topic(ask), ask.path["window"]
    start_ms = parse_time(start_text)
    start_ms -= start_ms % ask.counts.window_ms
    end_ms = start_ms + ask.counts.window_ms
    look = ask.counts.look(start_ms, end_ms)
    judgement: Judgement | None = None
    producers = {}
    if look.judgement is not None and look.producers is not None:
        judgement = ask.counts.confirmed(look.judgement.between(start_ms, end_ms).only({name}))
        producers = look.producers.of(name, start_ms)
    model = completeness.window(look, judgement, name, start_ms, producers)
    said = ["--from", model["window"], "--to", moment(end_ms)]
    ledgers = [word for one in ask.counts.clusters for word in ("--ledger", one.bootstrap)]
    return Page(
        "completeness_window",
        f"{name} at {model['window']}",
        model,
        command("audit", "report", *ledgers, *said, "--topic", name, "--format", "wide"),
    )


def _look(ask: Ask) -> tuple[Span, Look]:
    """Return the time that was asked for, and what is known of it.

    Raises:
        ConfigError: it is no time, or longer than `MAX_HOURS`.
    """
    from_text = ask.text("from")
    hours = ask.number("hours") or DEFAULT_HOURS
    if hours > MAX_HOURS:
        raise ConfigError(f"hours must be from 1 to {MAX_HOURS}, got {hours}")
    if not from_text:
        return Span("", DEFAULT_HOURS), ask.counts.look(None, None)
    from_ms = parse_time(from_text)
    to_ms = from_ms + hours * 3_600_000
    return Span(from_text, hours, moment(to_ms)), ask.counts.look(from_ms, to_ms)


def _audit_command(ask: Ask, span: Span, name: str | None) -> str:
    return completeness.span_command([one.bootstrap for one in ask.counts.clusters], span, name)


def _visible(ask: Ask) -> set[str] | None:
    """Return the topics whose counts the person may see; None for all.

    Raises:
        Unreachable: the brokers did not say yet which these are.
    """
    view = ask.person.source.view()
    if not ask.person.user:
        return None
    if view.value is None:
        raise Unreachable(view.error)
    return set(view.value.topics)


def _visible_if_known(ask: Ask) -> set[str] | None:
    view = ask.person.source.view()
    return None if not ask.person.user else set(view.value.topics if view.value else ())


def _visible_topic(ask: Ask) -> str:
    """Return the topic that the path names.

    Raises:
        ApiError: UNKNOWN_TOPIC_OR_PARTITION; also for one that the person may not see.
    """
    name, visible = ask.path["topic"], _visible(ask)
    if visible is not None and name not in visible:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return name


def topics(ask: Ask) -> Page:
    """Return a page of topics."""
    source = ask.person.source
    model = screens.topics(source.view(), source.disks(), ask.text("q"), ask.number("page") or 1)
    return Page("topics", "Topics", model, command("topic", "list", "--format", "wide"))


def topic(ask: Ask) -> Page:
    """Return one topic."""
    source, name = ask.person.source, ask.path["topic"]
    found = screens.topic_of(source.view(), name)
    model = screens.topic(found, source.offsets(found), source.settings(name), source.disks())
    return Page("topic", f"Topic {name}", model, command("topic", "describe", name, "--format", "wide"))


def partition(ask: Ask) -> Page:
    """Return why a partition is not in sync."""
    source, name = ask.person.source, ask.path["topic"]
    found, number = _topic_and_partition(ask)
    model = screens.partition(
        found,
        number,
        source.view(),
        source.answering(),
        source.disks(),
        source.moves(),
        source.offsets(found),
        source.settings(name),
    )
    return Page("partition", f"Partition {number} of {name}", model, command("topic", "describe", name))


def records(ask: Ask) -> Page:
    """Return records of a partition, from an offset or a time, or those that contain a text."""
    _check_payloads(ask)
    source, name = ask.person.source, ask.path["topic"]
    found, number = _topic_and_partition(ask)
    place = TopicPartition(name, number)
    held = source.offsets(found)
    if held.value is None or place not in held.value:
        raise Unreachable(held.error or f"partition {place} has no leader; nobody can read it")
    start, end = held.value[place].start, held.value[place].end
    query, at = ask.text("q"), ask.text("time")
    offset = ask.number("offset")
    if offset is not None and at:
        raise ConfigError("offset and time: give one of them")
    if at:
        offset = source.offset_at(place, parse_time(at))
    elif offset is None:
        offset = start if query else end - LATEST_COUNT
    begin: Offset = min(max(offset, start), end)
    read = source.records(place, begin, end, query.encode())
    model = {"topic": name, "partition": number} | records_data(read, begin, (start, end), query, ask.deserialize)
    model["time"] = at
    model["unknown"] = screens.missing(offsets=held)
    said = command("consume", name, "-p", str(number), "--from", str(begin), "-n", str(LATEST_COUNT), "-e")
    return Page("records", f"Records of {name}, partition {number}", model, said)


def search(ask: Ask) -> Page:
    """Return the records of all partitions of a topic that contain a text, from a time on if one is given."""
    _check_payloads(ask)
    source, name = ask.person.source, ask.path["topic"]
    topic_view = screens.topic_of(source.view(), name)
    query, at, go_on = ask.text("q"), ask.text("time"), ask.query.get("go_on", "")
    if len(go_on) > MAX_PLACES:
        raise ConfigError(f"go_on must have at most {MAX_PLACES} characters, got {len(go_on)}")
    held = source.offsets(topic_view)
    if held.value is None:
        raise Unreachable(held.error)
    starts = parse_places(go_on) if go_on else {}
    if at and not starts:
        places = sorted(held.value)
        starts = {place.partition: offset for place, offset in source.offsets_at(places, parse_time(at)).items()}
    spans = {
        place.partition: (min(max(starts.get(place.partition, kept.start), kept.start), kept.end), kept.end)
        for place, kept in held.value.items()
    }
    leaderless = [one.partition for one in topic_view.partitions if not one.has_leader]
    model: dict[str, Any] = {"topic": name, "time": at, "query": query, "sentence": "", "records": [], "next": None}
    if query:
        model |= search_data(source.search(name, spans, query.encode()), spans, query, ask.deserialize)
    model["unknown"] = screens.missing(offsets=held) + [
        {"what": f"partition {one}", "reason": "it has no leader, so nobody can read it", "since_ms": None,
         "shown_from_ms": None}
        for one in leaderless
    ]  # fmt: skip
    said = command("consume", name, *(["--from", at] if at else []), "-e")
    if query:
        said += f" | grep -F -e {shlex.quote(query)}"
    return Page("search", f"Search {name}", model, said)


def _check_payloads(ask: Ask) -> None:
    if not ask.person.may_read_payloads:
        raise Forbidden(
            "reading keys and values needs the right read_payloads; whoever runs this console can name you there"
        )


def groups(ask: Ask) -> Page:
    """Return a page of groups."""
    source = ask.person.source
    model = screens.groups(source.groups(), source.lags(), ask.text("q"), ask.number("page") or 1)
    return Page("groups", "Groups", model, command("group", "list"))


def group(ask: Ask) -> Page:
    """Return one group."""
    source, name = ask.person.source, ask.query.get("id", "")
    if not name:
        raise NotFound("id: names the group, and is missing")
    view, progress = source.group(name)
    model = screens.group(view, progress, source.verdicts(name, progress), source.lags(), clock_ms())
    return Page("group", f"Group {name}", model, command("group", "describe", "--format", "wide", "--", name))


def transactions(ask: Ask) -> Page:
    """Return a page of transactional ids."""
    found = ask.person.source.transactions()
    model = rights.transactions(found, ask.text("q"), ask.number("page") or 1, clock_ms())
    return Page("transactions", "Transactions", model, command("txn", "list"))


def transaction(ask: Ask) -> Page:
    """Return one transactional id."""
    name = ask.query.get("id", "")
    if not name:
        raise NotFound("id: names the transactional id, and is missing")
    model = rights.transaction(ask.person.source.transaction(name), clock_ms())
    return Page("transaction", f"Transactional id {name}", model, command("txn", "describe", "--", name))


def hanging(ask: Ask) -> Page:
    """Return transactions that nobody will end."""
    given = ask.number("older_than")
    older_than_s = DEFAULT_OLD_S if given is None else given
    if older_than_s > MAX_OLD_S:
        raise ConfigError(f"older_than must be from 0 to {MAX_OLD_S} seconds, got {older_than_s}")
    model = rights.hanging(ask.person.source.hanging(older_than_s * 1_000), older_than_s, clock_ms())
    return Page("hanging", "Hanging transactions", model, command("txn", "hanging", "--older-than", f"{older_than_s}s"))


def rules(ask: Ask) -> Page:
    """Return who may log in, and who may do what."""
    source = ask.person.source
    model = rights.rules(source.users(), source.rules(), ask.text("q"), ask.number("page") or 1)
    return Page("rules", "Users and rules", model, command("acl", "list"))


def brokers(ask: Ask) -> Page:
    """Return brokers and disks."""
    source = ask.person.source
    model = screens.brokers(source.view(), source.answering(), source.disks())
    return Page("brokers", "Brokers", model, command("cluster", "info", "--format", "wide"))


def _visible_alerts(ask: Ask) -> Reading[Sequence[Alert]] | None:
    reading, topics = ask.alerts(), _visible_if_known(ask)
    if reading is None or topics is None:
        return reading
    return visible(reading, topics, {one.group_id for one in ask.person.source.groups().value or ()})


def alerts(ask: Ask) -> Page:
    """Return the alerts that fire, and what to do about each alert that there is."""
    model = alerts_data(_visible_alerts(ask), ask.number("page") or 1)
    return Page("alerts", "Alerts", model, command("explain"))


def runbook(ask: Ask) -> Page:
    """Return what to do about one alert."""
    name = ask.path["alert"]
    model = runbook_data(name, _visible_alerts(ask))
    if model is None:
        raise NotFound(f"there is no alert {name!r}")
    return Page("runbook", f"Alert {name}", model, command("explain", name))


def codes(ask: Ask) -> Page:
    """Return all codes with cause and remedy."""
    rows = [
        {"code": one.code, "what": one.what, "cause": one.cause, "remedy": one.remedy}
        for one in sorted(CATALOGUE.values(), key=lambda one: one.number)
    ]
    return Page("codes", "Codes", {"codes": rows, "unknown": []}, command("explain"))


View: TypeAlias = Callable[[Ask], Page]

PAGES: tuple[tuple[str, View], ...] = (
    ("/", overview),
    ("/completeness", all_completeness),
    ("/completeness/{topic}", topic_completeness),
    ("/completeness/{topic}/{window}", window_completeness),
    ("/topics", topics),
    ("/topics/{topic}", topic),
    ("/topics/{topic}/search", search),
    ("/topics/{topic}/{partition}", partition),
    ("/topics/{topic}/{partition}/records", records),
    ("/groups", groups),
    ("/group", group),
    ("/transactions", transactions),
    ("/transactions/hanging", hanging),
    ("/transaction", transaction),
    ("/brokers", brokers),
    ("/rules", rules),
    ("/alerts", alerts),
    ("/alerts/{alert}", runbook),
    ("/codes", codes),
)
"""Path and function of every page; the twin in JSON has the same path under /api."""


def parse_time(text: str) -> int:
    """Return the ms since the Unix epoch of an ISO 8601 time, in UTC where it names no zone.

    Raises:
        ConfigError: it is no such time, or before 1970.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f'time must be like 2030-01-31T12:00, in UTC, got "{text}"') from None
    try:
        at_ms = int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except (OverflowError, ValueError):
        at_ms = -1
    if at_ms < 0:
        raise ConfigError(f'time must be after 1970, got "{text}"')
    return at_ms


def _topic_and_partition(ask: Ask) -> tuple[TopicView, int]:
    found, number = screens.topic_of(ask.person.source.view(), ask.path["topic"]), ask.partition()
    if number not in {one.partition for one in found.partitions}:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {found.name!r} has no partition {number}")
    return found, number


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= MAX_OFFSET):
        raise ConfigError(f'{name} must be a whole number from 0 to {MAX_OFFSET}, got "{text[:30]}"')
    return int(text)
