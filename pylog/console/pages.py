"""What each address shows: the facts it asks for, the model it makes of them, and the command that says the same.

page => GET path (HTML) and GET /api path (JSON, the model itself)
"""

import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from pylog.audit.judge import Judgement
from pylog.audit.render import moment
from pylog.client.admin.cluster import ClusterView, TopicView
from pylog.client.rows import Row
from pylog.console import completeness, measures, rights, screens, tiers
from pylog.console.alerts import Alert, alerts_data, runbook_data, visible
from pylog.console.changes import (
    CHANGES_TOPIC,
    MAX_RECORD_BYTES,
    MOVABLE,
    Journal,
    Target,
    changes_data,
    parse_target,
    rehearsal_data,
)
from pylog.console.completeness import Span
from pylog.console.config import PRODUCE, RESET_OFFSETS
from pylog.console.counts import Counts, Look
from pylog.console.masks import Mask, hide_of
from pylog.console.measures import Sample
from pylog.console.pipeline import Pipeline
from pylog.console.readings import Question, Reading, reason_of
from pylog.console.records import (
    BROWSE,
    SEARCH,
    TAIL,
    Deserialize,
    Found,
    Hide,
    parse_places,
    records_data,
    search_data,
    tail_data,
    tail_spans,
)
from pylog.console.screens import command
from pylog.console.sources import ClusterSource, TooManyReaders, clock_ms
from pylog.console.tails import EVERY_S, MAX_TAILS, MAX_TAILS_OF_PERSON, TAIL_S, Standing, Tails
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError, Unreachable
from pylog.faults import CATALOGUE
from pylog.model import OWN_TOPICS, Offset, TopicPartition

LATEST_COUNT = 50
"""Offsets that a page of records shows that was asked for no place."""

MAX_QUERY = 200
"""Characters of a filter or a search."""

MAX_PLACES = 16_000
"""Characters of the places at which a search goes on: of a topic with 1,000 partitions."""

MAX_LISTED = 500
"""Partitions of a moved group that its line in the journal names; it counts them all."""

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


VISIBLE_MS = 30_000
"""How long the last list of the topics that a person may see decides what else is shown."""


def _not_allowed(verb: str) -> Forbidden:
    return Forbidden(f"you may not {verb} from here; whoever runs this console can name you as a changer")


@dataclass(frozen=True, slots=True)
class Person:
    """Who looks.

    Attributes:
        user: name of the user who logged in; empty without login.
        source: the cluster as this person sees it.
        may_read_payloads: whether keys and values are shown.
        changes: what the person may change here; the cluster's ACLs hold beside it.
        journal: writes down who changed what; None where nobody may change anything.
        deserialize: for values in Avro, under the schemas that this person may read; None without a registry.
        is_user: whether brokers take the person's login; None without login.
    """

    user: str
    source: ClusterSource
    may_read_payloads: bool
    changes: frozenset[str] = frozenset()
    journal: Journal | None = None
    deserialize: Deserialize | None = None
    is_user: Question[bool] | None = None

    def change(self, address: str, verb: str, subject: str, details: Row, act: Callable[[], Row]) -> Row:
        """Make a change, which is written down before; return what *act* returned.

        Raises:
            Forbidden: the person may not do it here.
            NotWritten: it could not be written down, and was not made.
            PylogError: it failed.
        """
        if self.journal is None or verb not in self.changes:
            raise _not_allowed(verb)
        return dict(self.journal.carry_out(self.user, address, verb, subject, details, act))


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as pages see it.

    Attributes:
        person: who looks.
        path: variable parts of the path.
        query: the last value of each name.
        counts: what the audit counted.
        alerts: reads Prometheus's alerts; its answer is None without a Prometheus.
        samples: reads what it measured, by the name of one of `measures.QUERIES`; the same.
        pipeline: mirrors and the lake.
        tails: those that are followed.
        deserialize: for values in Avro; None without a registry.
        masks: what of records nobody sees.
    """

    person: Person
    path: Mapping[str, str]
    query: Mapping[str, str]
    counts: Counts
    alerts: Callable[[], Reading[Sequence[Alert]] | None]
    samples: Callable[[str], Reading[Sequence[Sample]] | None]
    pipeline: Pipeline
    tails: Tails
    deserialize: Deserialize | None = None
    masks: Sequence[Mask] = ()

    def hide(self, topic: str) -> Hide | None:
        """Return what hides the masked parts of records of *topic*; None if nothing is masked there."""
        return hide_of(self.masks, topic, self.deserialize)

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
class Refresh:
    """After *seconds* the browser opens *address*, which is a path of the console in ASCII."""

    seconds: int
    address: str


@dataclass(frozen=True, slots=True)
class Page:
    """What a request is answered with.

    Attributes:
        template: name without ending.
        title: for the window and the heading.
        model: what the page shows.
        command: the command line that says the same.
        refresh: when and where the browser goes on by itself; None to stay.
    """

    template: str
    title: str
    model: Row
    command: str
    refresh: Refresh | None = None


def overview(ask: Ask) -> Page:
    """Return the verdict and its reasons."""
    source = ask.person.source
    problems, since_ms = source.problems()
    latest = completeness.latest(ask.counts.latest(), _visible_if_known(ask))
    model = screens.overview(
        source.view(),
        source.answering(),
        source.disks(),
        source.groups(),
        since_ms,
        problems,
        latest,
        is_all=not ask.person.user,
    )
    model["clients"] = measures.health(ask.samples("health"), model["brokers"])
    model["unknown"] += model["clients"].pop("unknown")
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
    if view.value is None or _is_old(view):
        raise Unreachable(view.error)
    return set(view.value.topics)


def _sees_operations(ask: Ask) -> bool:
    """Return whether the person may know of mirrors, the lake's place, connectors and the like."""
    return not ask.person.user or ask.person.source.describes_cluster()


def _visible_if_known(ask: Ask) -> set[str] | None:
    view = ask.person.source.view()
    if not ask.person.user:
        return None
    return set() if view.value is None or _is_old(view) else set(view.value.topics)


def _is_old(view: Reading[ClusterView]) -> bool:
    """Return whether what the person might see is known from too long ago: rights are taken away, too."""
    return bool(view.error) and (view.tried_ms or 0) - (view.read_ms or 0) > VISIBLE_MS


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
    model["is_kept_by_pylog"] = OWN_TOPICS.fullmatch(name) is not None
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
    budget = SEARCH if query else BROWSE
    read = source.read(name, {number: (begin, end)}, query.encode(), budget, ask.hide(name))
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
        model |= search_data(
            source.read(name, spans, query.encode(), SEARCH, ask.hide(name)), spans, query, ask.deserialize
        )
    model["unknown"] = screens.missing(offsets=held) + [
        {"what": f"partition {one}", "reason": "it has no leader, so nobody can read it", "since_ms": None,
         "shown_from_ms": None}
        for one in leaderless
    ]  # fmt: skip
    said = command("consume", name, *(["--from", at] if at else []), "-e")
    if query:
        said += f" | grep -F -e {shlex.quote(query)}"
    return Page("search", f"Search {name}", model, said)


def tail(ask: Ask) -> Page:
    """Return the latest records of a topic; one that is followed is opened again every few seconds."""
    _check_payloads(ask)
    source, name = ask.person.source, ask.path["topic"]
    topic_view = screens.topic_of(source.view(), name)
    followed, seen_text = ask.text("follow"), ask.query.get("seen", "")
    if len(seen_text) > MAX_PLACES:
        raise ConfigError(f"seen must have at most {MAX_PLACES} characters, got {len(seen_text)}")
    seen = parse_places(seen_text, "seen") if seen_text else {}
    standing = ask.tails.look(ask.person.user, followed, time.monotonic()) if followed else Standing.ENDED
    if standing is Standing.TOO_MANY:
        raise TooManyReaders(f"{MAX_TAILS} tails are being followed; try again when one has ended")
    if standing is Standing.TOO_MANY_OF_PERSON:
        raise TooManyReaders(f"you follow {MAX_TAILS_OF_PERSON} tails already; stop one, or wait a moment")
    held = source.offsets(topic_view)
    ends = {place.partition: (one.start, one.end) for place, one in (held.value or {}).items()}
    spans = tail_spans(ends, seen)
    unknown = screens.missing(offsets=held)
    found = Found({})
    try:
        found = source.read(name, spans, b"", TAIL, ask.hide(name))
    except PylogError as error:
        # It is followed: the next look may find more.
        unknown.append({"what": "records", "reason": reason_of(error), "since_ms": None, "shown_from_ms": None})
    model: Row = {"topic": name} | tail_data(found, ends, seen, ask.deserialize)
    model |= {
        "is_followed": standing is Standing.GOES_ON,
        "has_ended": bool(followed) and standing is Standing.ENDED,
        "every_s": EVERY_S,
        "minutes": int(TAIL_S / 60),
        "follow": secrets.token_hex(8),
        "unknown": unknown,
    }
    refresh = None
    if standing is Standing.GOES_ON:
        query = urlencode({"follow": followed, "seen": model["seen"] or seen_text})
        refresh = Refresh(EVERY_S, f"/topics/{quote(name, safe='')}/tail?{query}")
    return Page("tail", f"Tail of {name}", model, command("consume", name, "--from", "end"), refresh)


def went(ask: Ask) -> Page:
    """Return where one record went: whether the log still holds it, and with which commit the lake took it in."""
    source, name = ask.person.source, ask.path["topic"]
    found, number = _topic_and_partition(ask)
    place = TopicPartition(name, number)
    offsets = source.offsets(found)
    held = (offsets.value or {}).get(place)
    given = ask.number("offset")
    offset = given if given is not None else max(held.end - 1, 0) if held else 0
    read, unknown = None, screens.missing(offsets=offsets)
    if ask.person.may_read_payloads and held and held.start <= offset < held.end:
        try:
            read = source.read(name, {number: (offset, offset + 1)}, b"", BROWSE)
        except PylogError as error:
            unknown.append({"what": "the record", "reason": reason_of(error), "since_ms": None, "shown_from_ms": None})
    model = tiers.went(place, offset, held, read, source.topic_id(name), ask.pipeline.lake(), ask.counts.window_ms)
    model["unknown"] += unknown
    said = command("consume", name, "-p", str(number), "--from", str(offset), "-n", "1", "-e")
    return Page("went", f"Where offset {offset} of {place} went", model, said)


def mirror(ask: Ask) -> Page:
    """Return how far the mirror is."""
    # Asked as the console's own user, which sees more than a person may.
    found = ask.pipeline.mirrors() if _sees_operations(ask) else {}
    model = tiers.mirror(found, ask.counts.latest(), _visible_if_known(ask), clock_ms())
    model["is_all"] = _sees_operations(ask)
    model["unknown"] += screens.missing(cluster=ask.person.source.view())
    return Page("mirror", "Mirror", model, command("mirror", "status", "--config", "/etc/pylog/mirror.yml"))


def lake(ask: Ask) -> Page:
    """Return how fresh the lake is, and what it holds."""
    directory = ask.pipeline.directory
    model = tiers.lake(directory, ask.pipeline.lake(), ask.counts.latest(), _visible_if_known(ask), clock_ms())
    if not _sees_operations(ask) and directory is not None:
        for row in model["unknown"]:
            row["reason"] = row["reason"].replace(str(directory), "DIRECTORY")
        model |= {"directory": "for those who may describe the cluster", "id": None}
        directory = None
    model["unknown"] += screens.missing(cluster=ask.person.source.view())
    return Page("lake", "Lake", model, tiers.lake_command(directory))


def _check_payloads(ask: Ask) -> None:
    if not ask.person.may_read_payloads:
        raise Forbidden(
            "reading keys and values needs the right read_payloads; whoever runs this console can name you there"
        )


def groups(ask: Ask) -> Page:
    """Return a page of groups."""
    source = ask.person.source
    lags = screens.seen_lags(source.lags(), _visible_if_known(ask))
    model = screens.groups(source.groups(), lags, ask.text("q"), ask.number("page") or 1)
    return Page("groups", "Groups", model, command("group", "list"))


def group(ask: Ask) -> Page:
    """Return one group."""
    source, name = ask.person.source, ask.query.get("id", "")
    if not name:
        raise NotFound("id: names the group, and is missing")
    view, progress = source.group(name)
    lags = screens.seen_lags(source.lags(), _visible_if_known(ask))
    model = screens.group(view, progress, source.verdicts(name, progress), lags, clock_ms())
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


def group_reset(ask: Ask) -> Page:
    """Return what it would do to move a group; it changes nothing."""
    name, to = ask.query.get("id", ""), ask.text("to")
    if not name:
        raise NotFound("id: names the group, and is missing")
    state, committed, planned = ask.person.source.rehearsal(name, _target(to))
    is_allowed = RESET_OFFSETS in ask.person.changes
    model = rehearsal_data(name, state, to, committed, planned, is_allowed=is_allowed)
    return Page("group_reset", f"Move group {name}", model, _reset_command(name, to))


def do_group_reset(ask: Ask, form: Mapping[str, str], address: str) -> Page:
    """Move a group, and return what was done."""
    name, to = form.get("id", ""), form.get("to", "").strip()
    _confirm(form, name)
    target = _target(to)
    if target is None:
        raise ConfigError("to: say where the group is to go on")
    source = ask.person.source

    def move() -> Row:
        # Looked up only now: between a rehearsal and this, members may have come, and ends have moved.
        state, _, planned = source.rehearse(name, target)
        if state not in MOVABLE:
            raise ConfigError(f"the group is {state}: only a group without members can be moved; nothing was changed")
        source.move_group(name, planned)
        moved = {f"{place.topic}:{place.partition}": offset for place, offset in sorted(planned.items())}
        return {"partitions": len(moved), "offsets": dict(list(moved.items())[:MAX_LISTED])}

    done = ask.person.change(address, RESET_OFFSETS, name, {"to": to}, move)
    rows = [{"what": place, "now": f"offset {offset:,}"} for place, offset in done["offsets"].items()]
    model = {
        "sentence": f"Group {name} goes on at {to} in {done['partitions']:,} partitions.",
        "rows": rows,
        "back": f"/group?{urlencode({'id': name})}",
        "back_words": "Group",
        "unknown": [],
    }
    said = command("group", "reset-offsets", "--to", to, "--execute", "--", name)
    return Page("done", f"Moved group {name}", model, said)


def _reset_command(name: str, to: str) -> str:
    return command("group", "reset-offsets", "--to", to or "earliest", "--", name)


def _target(to: str) -> Target | None:
    return parse_target(to, parse_time) if to else None


def _confirm(form: Mapping[str, str], name: str) -> None:
    if not name or form.get("confirm", "") != name:
        raise ConfigError(f"type the name to confirm: {name!r} is wanted; nothing was changed")


def produce(ask: Ask) -> Page:
    """Return a form for one record."""
    if PRODUCE not in ask.person.changes:
        raise _not_allowed(PRODUCE)
    found = screens.topic_of(ask.person.source.view(), ask.path["topic"])
    _check_writable(found.name)
    model = {"topic": found.name, "partitions": len(found.partitions), "max_bytes": MAX_RECORD_BYTES, "unknown": []}
    return Page("produce", f"Produce to {found.name}", model, command("produce", found.name))


def _check_writable(topic: str) -> None:
    if OWN_TOPICS.fullmatch(topic):
        raise Forbidden(
            f"topic {topic} belongs to pylog itself: a record by hand could pass for one of its own, such as a line of "
            f"{CHANGES_TOPIC}"
        )


def do_produce(ask: Ask, form: Mapping[str, str], address: str) -> Page:
    """Write one record, and return where it is."""
    source = ask.person.source
    found = screens.topic_of(source.view(), ask.path["topic"])
    _check_writable(found.name)
    _confirm(form, found.name)
    partition = _number("partition", form["partition"]) if form.get("partition") else None
    if partition is not None and partition >= len(found.partitions):
        raise ConfigError(f"partition must be from 0 to {len(found.partitions) - 1}, got {partition}")
    key = form["key"].encode() if form.get("key") else None
    # Browsers send line ends of a text as CR LF, whatever was typed.
    value = None if form.get("is_null") else form.get("value", "").replace("\r\n", "\n").encode()
    if value is None and key is None:
        raise ConfigError("a record without a value deletes its key, so it needs one")
    size = len(key or b"") + len(value or b"")
    if size > MAX_RECORD_BYTES:
        raise ConfigError(f"key and value may have {MAX_RECORD_BYTES} bytes here, got {size}")

    def write() -> Row:
        number, offset = source.produce(found.name, partition, key, value)
        return {"partition": number, "offset": offset}

    # Who may read the journal need not be one who may read payloads.
    sizes = {"key_bytes": None if key is None else len(key), "value_bytes": None if value is None else len(value)}
    done = ask.person.change(address, PRODUCE, found.name, sizes, write)
    place = f"{found.name}:{done['partition']}"
    model = {
        "sentence": "The record is written: all replicas that are in sync have it.",
        "rows": [{"what": place, "now": f"offset {done['offset']:,}"}],
        "back": f"/topics/{quote(found.name, safe='')}",
        "back_words": "Topic",
        "unknown": [],
    }
    return Page("done", f"Produced to {found.name}", model, command("produce", found.name))


def changes(ask: Ask) -> Page:
    """Return who changed what from consoles, the newest first."""
    source = ask.person.source
    view = source.view()
    known = view.value.topics.get(CHANGES_TOPIC) if view.value else None
    rows: list[Row] = []
    unknown = screens.missing(cluster=view)
    if known is not None:
        place = TopicPartition(CHANGES_TOPIC, 0)
        held = source.offsets(known)
        unknown += screens.missing(offsets=held)
        one = (held.value or {}).get(place)
        if one is not None:
            try:
                read = source.read(CHANGES_TOPIC, {0: (max(one.start, one.end - LATEST_COUNT), one.end)}, b"", BROWSE)
                rows = changes_data(record.value for record in read.records)
            except PylogError as error:
                unknown.append({"what": "changes", "reason": reason_of(error), "since_ms": None, "shown_from_ms": None})
    moves = source.moves()
    model: Row = {"is_kept": known is not None, "topic": CHANGES_TOPIC, "changes": rows}
    model |= screens.moves(moves, source.disks(), view.value.topics if view.value else {})
    model["unknown"] = unknown + screens.missing(reassignments=moves)
    return Page("changes", "Changes", model, command("consume", CHANGES_TOPIC, "--from", f"-{LATEST_COUNT}", "-e"))


def brokers(ask: Ask) -> Page:
    """Return brokers and disks."""
    source = ask.person.source
    model = screens.brokers(source.view(), source.answering(), source.disks())
    model["latency"] = measures.latency(ask.samples("latency"), [one["id"] for one in model["brokers"]])
    model["unknown"] += model["latency"].pop("unknown")
    return Page("brokers", "Brokers", model, command("cluster", "info", "--format", "wide"))


def streams(ask: Ask) -> Page:
    """Return the queries that run on and on."""
    if not _sees_operations(ask):
        raise Forbidden("which queries run on is shown to those who may describe the cluster")
    return Page("streams", "Streams", measures.streams(ask.samples("streams")), command("explain", "PylogStreamSilent"))


def _visible_alerts(ask: Ask) -> tuple[Reading[Sequence[Alert]] | None, int]:
    """Return the alerts that the person may see, and how many others there are."""
    reading, topics = ask.alerts(), _visible_if_known(ask)
    if reading is None or topics is None:
        return reading, 0
    groups = {one.group_id for one in ask.person.source.groups().value or ()}
    shown = visible(reading, topics, groups, is_all=_sees_operations(ask))
    return shown, len(reading.value or ()) - len(shown.value or ())


def alerts(ask: Ask) -> Page:
    """Return the alerts that fire, and what to do about each alert that there is."""
    shown, hidden = _visible_alerts(ask)
    model = alerts_data(shown, ask.number("page") or 1, hidden)
    return Page("alerts", "Alerts", model, command("explain"))


def runbook(ask: Ask) -> Page:
    """Return what to do about one alert."""
    name = ask.path["alert"]
    model = runbook_data(name, _visible_alerts(ask)[0])
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
    ("/topics/{topic}/tail", tail),
    ("/topics/{topic}/{partition}", partition),
    ("/topics/{topic}/{partition}/records", records),
    ("/topics/{topic}/{partition}/went", went),
    ("/mirror", mirror),
    ("/lake", lake),
    ("/groups", groups),
    ("/group", group),
    ("/group/reset", group_reset),
    ("/changes", changes),
    ("/transactions", transactions),
    ("/transactions/hanging", hanging),
    ("/transaction", transaction),
    ("/brokers", brokers),
    ("/streams", streams),
    ("/rules", rules),
    ("/alerts", alerts),
    ("/alerts/{alert}", runbook),
    ("/codes", codes),
)
"""Path and function of every page; the twin in JSON has the same path under /api."""

Action: TypeAlias = Callable[[Ask, Mapping[str, str], str], Page]
"""Makes a change that a form asked for: the request, what the form brought, and the browser's address."""

CHANGE_PAGES: tuple[tuple[str, str, View, Action], ...] = (
    ("/group/reset", RESET_OFFSETS, group_reset, do_group_reset),
    ("/topics/{topic}/produce", PRODUCE, produce, do_produce),
)
"""Path, verb, form and action of everything that can be changed."""


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
