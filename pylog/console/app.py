"""The console over HTTP: routes, sessions, headers and templates around `pylog.console.pages`.

Functions that may wait are plain functions, which Starlette runs in its pool of threads.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pylog import __version__
from pylog.client.connection import Connection
from pylog.client.person import log_in
from pylog.client.rows import Row
from pylog.console.alerts import Alert, read_alerts, read_samples
from pylog.console.changes import Journal
from pylog.console.config import ConsoleConfig
from pylog.console.counts import Counts
from pylog.console.measures import QUERIES, Sample, of_datacenter
from pylog.console.pages import CHANGE_PAGES, PAGES, Action, Ask, Forbidden, NotFound, Page, Person, View
from pylog.console.pipeline import Pipeline
from pylog.console.readings import Question, Reading, reason_of
from pylog.console.records import Deserialize
from pylog.console.screens import missing
from pylog.console.sessions import Sessions
from pylog.console.sources import ClusterSource, Lags, TooManyReaders, clock_ms
from pylog.console.tails import Tails
from pylog.daemon.attempts import Attempts
from pylog.daemon.web import read_body
from pylog.errors import ApiError, ConfigError, ErrorCode, PylogError, Unreachable
from pylog.faults import CATALOGUE

HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    # With no-referrer a browser would send "Origin: null" with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Of every answer."""

ATTEMPTS_OF_USER = 5
"""Logins a minute of one user from one address."""

ATTEMPTS_OF_ADDRESS = 20
"""Logins a minute from one address, whatever the user."""

CHANGES_OF_USER = 30
"""Changes a minute of one user."""

ALERTS_MS = 5_000
"""How long an answer of Prometheus counts, or that there was none."""

MEASURES_MS = 10_000
"""The same of a measurement, which Prometheus takes no more often."""

ALERTS_TIMEOUT_S = 3.0

MAX_FORM_BYTES = 16 << 10

_FORM_TYPE = "application/x-www-form-urlencoded"
_LOGIN = "/login"

_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HTTPStatus.NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.INVALID_GROUP_ID: HTTPStatus.NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: HTTPStatus.FORBIDDEN,
}


LOGIN_MS = 30_000
"""How long a login counts; then a broker is asked again."""


class Console:
    """One console.

    Args:
        config: what it shows, to whom.
        lags: lag of all groups, read as the console's own user.
        counts: what the audit counted, read as the console's own user.
        deserializer_of: makes what reads values in Avro with the rights of one person; None without a registry.
        clock_s: seconds of a clock that does not go back.
        source_of: makes what asks the cluster for one person.
        check: has a broker judge a user and password, as `log_in` does.
        pipeline: mirrors and the lake; None makes it from *config*.
    """

    def __init__(
        self,
        config: ConsoleConfig,
        lags: Lags,
        counts: Counts,
        deserializer_of: Callable[[Connection], Deserialize] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        source_of: Callable[..., ClusterSource] = ClusterSource,
        check: Callable[[Connection, str, str, str], Connection] = log_in,
        pipeline: Pipeline | None = None,
    ) -> None:
        self._config = config
        self._lags = lags
        self._counts = counts
        self._deserializer_of = deserializer_of
        self._clock_s = clock_s
        self._source_of = source_of
        self._check = check
        self._watched: Question[Sequence[Alert]] = Question(ALERTS_MS, clock_ms)
        self._measured: Mapping[str, Question[Sequence[Sample]]] = {
            name: Question(MEASURES_MS, clock_ms) for name in QUERIES
        }
        self._pipeline = pipeline or Pipeline((config.cluster, *config.ledgers), config.lake, clock_ms)
        self._journal = Journal(config.cluster, clock_ms) if config.changes else None
        self._tails = Tails()
        self._sessions: Sessions[Person] = Sessions()
        self._attempts = Attempts()
        self._cookie = "__Host-pylog" if config.is_encrypted else "pylog"
        self._files = _Files()
        self._everybody = (
            None if config.has_login else self._person("", source_of(config.cluster, lags, is_everybody=True))
        )

    def app(self) -> ASGIApp:
        """Return the application."""
        routes: list[Route] = []
        for path, verb, form, action in CHANGE_PAGES:
            if verb in self._config.changes:
                routes += [Route(path, self._change(action), methods=["POST"])]
                if path not in dict(PAGES):
                    # Before the pages: one of them takes any word at this place of the path.
                    routes += [Route(path, self._html(form)), Route("/api" + path, self._json(form))]
        routes += [Route(path, self._html(view)) for path, view in PAGES]
        routes += [Route("/api" + path, self._json(view)) for path, view in PAGES]
        routes += [Route("/static/{name}", self._files.answer)]
        if self._config.has_login:
            routes += [
                Route(_LOGIN, self._login_form),
                Route(_LOGIN, self._login, methods=["POST"]),
                Route("/logout", self._logout, methods=["POST"]),
            ]
        handlers: dict[Any, Any] = {HTTPException: self._on_http_error, Exception: self._on_bug}
        return _Guard(Starlette(routes=routes, exception_handlers=handlers), self._config.hosts)

    def _alerts(self) -> Reading[Sequence[Alert]] | None:
        url = self._config.prometheus
        return self._watched.read(lambda: read_alerts(url, ALERTS_TIMEOUT_S)) if url else None

    def _samples(self, name: str) -> Reading[Sequence[Sample]] | None:
        """Return the answer of Prometheus to one of `QUERIES`; None without a Prometheus."""
        url, datacenter = self._config.prometheus, self._config.datacenter

        def ask() -> Sequence[Sample]:
            return of_datacenter(read_samples(url, QUERIES[name], ALERTS_TIMEOUT_S), datacenter)

        return self._measured[name].read(ask) if url else None

    def _person(self, user: str, source: ClusterSource) -> Person:
        may_change = self._config.may_change(user)
        deserialize = None if self._deserializer_of is None else self._deserializer_of(source.connection)
        return Person(user, source, self._config.may_read_payloads(user), may_change, self._journal, deserialize)

    def _new_person(self, user: str, connection: Connection) -> Person:
        is_user: Question[bool] = Question(LOGIN_MS, lambda: int(self._clock_s() * 1000))
        is_user.read(lambda: True)
        return replace(self._person(user, self._source_of(connection, self._lags)), is_user=is_user)

    def _html(self, view: View) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            person = self._who(request)
            if person is None:
                place = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(f"{_LOGIN}?{urlencode({'next': place})}", HTTPStatus.SEE_OTHER)
            try:
                page = view(self._ask(request, person))
            except PylogError as error:
                return self._failed(request, person, error)
            return self._page(request, person, page, HTTPStatus.OK)

        return answer

    def _json(self, view: View) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            person = self._who(request)
            if person is None:
                return _json({"error": "log in first"}, HTTPStatus.UNAUTHORIZED)
            try:
                page = view(self._ask(request, person))
            except PylogError as error:
                return _json(_error_row(error), _status_of(error))
            return _json(page.model, HTTPStatus.OK)

        return answer

    def _change(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            # The form first: it may be one of another site, which is to learn nothing.
            form = await self._form(request)
            return await run_in_threadpool(self._make_change, request, form, action)

        return answer

    def _make_change(self, request: Request, form: Mapping[str, str], action: Action) -> Response:
        person = self._who(request)
        if person is None:
            return RedirectResponse(_LOGIN, HTTPStatus.SEE_OTHER)
        if not self._attempts.take(f"change {_digest(person.user)}", CHANGES_OF_USER, self._clock_s()):
            raise HTTPException(429, "Too many changes within a minute. Wait a minute.")
        address = request.client.host if request.client else ""
        try:
            page = action(self._ask(request, person), form, address)
        except PylogError as error:
            return self._failed(request, person, error)
        return self._page(request, person, page, HTTPStatus.OK)

    def _ask(self, request: Request, person: Person) -> Ask:
        return Ask(
            person,
            request.path_params,
            dict(request.query_params),
            self._counts,
            self._alerts,
            self._samples,
            self._pipeline,
            self._tails,
            person.deserialize,
            self._config.masks,
        )

    def _who(self, request: Request) -> Person | None:
        if self._everybody is not None:
            return self._everybody
        cookie = request.cookies.get(self._cookie, "")
        person = self._sessions.find(cookie, self._clock_s())
        if person is None or self._is_user(person):
            return person
        self._sessions.end_owner(person)
        return None

    def _is_user(self, person: Person) -> bool:
        """Return whether the brokers still take the person's login; connections that it opened live on without it."""
        if person.is_user is None:
            return True
        return person.is_user.read(lambda: self._is_taken(person)).value is not False

    def _is_taken(self, person: Person) -> bool:
        password = person.source.connection.properties["sasl.password"]
        try:
            self._check(self._config.cluster, self._config.mechanism, person.user, password)
        except ApiError as error:
            if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            return False
        return True

    def _page(self, request: Request, person: Person | None, page: Page, status: HTTPStatus) -> Response:
        cookie = request.cookies.get(self._cookie, "")
        text = _TEMPLATES.get_template(f"{page.template}.html").render(
            title=page.title,
            m=page.model,
            command=page.command,
            person=person,
            path=request.url.path,
            api="/api" + quote(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
            has_login=self._config.has_login,
            form_token=self._sessions.form_token(cookie) if person and person.user else "",
            bootstrap=self._config.cluster.bootstrap,
            styles=self._files.path("console.css"),
            icon=self._files.path("icon.svg"),
            now_ms=clock_ms(),
            version=__version__,
        )
        answer = Response(text, status, {"cache-control": "no-store"}, "text/html")
        if page.refresh is not None:
            # In the head alone: somebody who did not ask for a tail never gets a page that reloads itself.
            answer.headers["refresh"] = f"{page.refresh.seconds}; url={page.refresh.address}"
        return answer

    def _failed(self, request: Request, person: Person, error: PylogError) -> Response:
        # Since when nobody answers, the reading of the cluster knows; it is not asked again while its answer is young.
        unknown = missing(cluster=person.source.view()) if isinstance(error, Unreachable) else []
        row = _error_row(error) | {"unknown": unknown}
        status = _status_of(error)
        title = "Not found" if status == HTTPStatus.NOT_FOUND else "Not shown"
        return self._page(request, person, Page("failure", title, row, ""), status)

    def _on_http_error(self, request: Request, error: HTTPException) -> Response:
        if request.url.path.startswith("/api/"):
            return _json({"error": error.detail}, error.status_code)
        person = self._who(request)
        model: Row = {"error": error.detail, "code": None, "cause": None, "remedy": None, "unknown": []}
        return self._page(request, person, Page("failure", error.detail, model, ""), HTTPStatus(error.status_code))

    def _on_bug(self, request: Request, error: Exception) -> Response:
        # Starlette raises it again after the answer, and uvicorn writes it to the journal.
        model: Row = {"error": "this is a bug in pylog; the console's journal has its trace", "unknown": []}
        if request.url.path.startswith("/api/"):
            return _json(model, HTTPStatus.INTERNAL_SERVER_ERROR)
        model |= {"code": "PYLOG-0001", "cause": None, "remedy": None}
        return self._page(request, None, Page("failure", "Bug", model, ""), HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _login_form(self, request: Request) -> Response:
        # Not in the pool of threads: who waits for brokers that are away does not keep others from this page.
        return self._show_login(request, request.query_params.get("next", ""), "", HTTPStatus.OK)

    def _show_login(self, request: Request, place: str, problem: str, status: HTTPStatus) -> Response:
        cookie = request.cookies.get(self._cookie, "")
        is_new = not self._sessions.is_cookie(cookie)
        if is_new:
            cookie = self._sessions.new_cookie()
        model = {
            "problem": problem,
            "token": self._sessions.form_token(cookie),
            "next": _local_path(place),
            "unknown": [],
        }
        answer = self._page(request, None, Page("login", "Log in", model, ""), status)
        if is_new:
            self._set_cookie(answer, cookie)
        return answer

    async def _login(self, request: Request) -> Response:
        form = await self._form(request)
        return await run_in_threadpool(self._log_in, request, form)

    def _log_in(self, request: Request, form: Mapping[str, str]) -> Response:
        user, password, place = form.get("user", ""), form.get("password", ""), form.get("next", "")
        address, now_s = request.client.host if request.client else "", self._clock_s()
        # The address first: it is the one that an attacker cannot choose at will.
        if not self._attempts.take(f"address {address}", ATTEMPTS_OF_ADDRESS, now_s) or not self._attempts.take(
            f"user {address} {_digest(user)}", ATTEMPTS_OF_USER, now_s
        ):
            problem = "Too many attempts to log in. Wait a minute."
            answer = self._show_login(request, place, problem, HTTPStatus.TOO_MANY_REQUESTS)
            answer.headers["retry-after"] = "60"
            return answer
        try:
            connection = self._check(self._config.cluster, self._config.mechanism, user, password)
        except PylogError as error:
            is_wrong = isinstance(error, ApiError) and error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
            status = HTTPStatus.FORBIDDEN if is_wrong else HTTPStatus.SERVICE_UNAVAILABLE
            said = "Name or password is wrong." if is_wrong else f"No broker could be asked: {reason_of(error)}"
            return self._show_login(request, place, said, status)
        person = self._same_person(user, password) or self._new_person(user, connection)
        cookie = self._sessions.begin(user, person, now_s)
        if cookie is None:
            problem = "Too many people are logged in. Try again later."
            return self._show_login(request, place, problem, HTTPStatus.SERVICE_UNAVAILABLE)
        # A new cookie: one that somebody put there before the login is worth nothing after it.
        self._sessions.end(request.cookies.get(self._cookie, ""))
        found = RedirectResponse(_local_path(place), HTTPStatus.SEE_OTHER)
        self._set_cookie(found, cookie)
        return found

    def _same_person(self, user: str, password: str) -> Person | None:
        """Return the person of another session of this user, whose connections then serve both."""
        for one in self._sessions.owners(user):
            kept = one.source.connection.properties["sasl.password"]
            if hmac.compare_digest(kept.encode(), password.encode()):
                return one
        return None

    async def _logout(self, request: Request) -> Response:
        await self._form(request)
        self._sessions.end(request.cookies.get(self._cookie, ""))
        found = RedirectResponse(_LOGIN, HTTPStatus.SEE_OTHER)
        found.delete_cookie(self._cookie, secure=self._config.is_encrypted, httponly=True, samesite="strict")
        return found

    async def _form(self, request: Request) -> Mapping[str, str]:
        """Return what a form brought.

        Raises:
            HTTPException: it is not a form of ours, or did not come from a page of ours.
        """
        if not self._is_own(request) or request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise HTTPException(403, "The form comes from another site, so it was not accepted.")
        if request.headers.get("content-type", "").partition(";")[0] != _FORM_TYPE:
            raise HTTPException(415, "A form is wanted.")
        body = await read_body(request)
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, "The form is too large.")
        try:
            form = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))
        except ValueError:
            raise HTTPException(400, "The form cannot be read.") from None
        if not self._sessions.is_form_token(request.cookies.get(self._cookie, ""), form.get("token", "")):
            raise HTTPException(403, "The form has expired. Load the page again.")
        return form

    def _is_own(self, request: Request) -> bool:
        """Return whether the page of a form is ours: of the address that was asked, or of the proxy's."""
        origin = request.headers.get("origin", "")
        if origin and origin == self._config.public_url.rstrip("/"):
            return True  # the proxy may ask us by another name
        try:
            return urlsplit(origin).netloc == request.headers.get("host", "")
        except ValueError:
            return False

    def _set_cookie(self, answer: Response, cookie: str) -> None:
        answer.set_cookie(
            self._cookie, cookie, path="/", secure=self._config.is_encrypted, httponly=True, samesite="strict"
        )


class _Guard:
    """Refuses names that are not ours, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app_for(scope)(scope, receive, send_with_headers)

    def _app_for(self, scope: Scope) -> ASGIApp:
        if scope["type"] != "http":
            return self._app
        request = Request(scope)
        if not self._is_ours(request):
            return _NOT_OURS
        return _NOT_FROM_THERE if _is_embedded(request) else self._app

    def _is_ours(self, request: Request) -> bool:
        try:
            # A page of another site may let its own name point to this host, and would then be of our origin.
            return (urlsplit(f"//{request.headers.get('host', '')}").hostname or "") in self._hosts
        except ValueError:
            return False


_NOT_OURS = Response("This console does not have the name that the request asks for.\n", 421, media_type="text/plain")


def _is_embedded(request: Request) -> bool:
    """Return whether a page of another site asks for something of ours for itself, which would have us read records.

    Somebody who follows a link from there asks for a document.
    """
    headers = request.headers
    is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    return is_foreign and (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document")


_NOT_FROM_THERE = Response("A page of another site asks for this.\n", 403, media_type="text/plain")


class _Files:
    """The style sheet and the icon, each under an address that changes with its content."""

    _TYPES: Mapping[str, str] = {"console.css": "text/css", "icon.svg": "image/svg+xml"}

    def __init__(self) -> None:
        directory = resources.files("pylog.console") / "static"
        self._contents = {name: (directory / name).read_bytes() for name in self._TYPES}

    def path(self, name: str) -> str:
        """Return the address of a file."""
        return f"/static/{name}?v={hashlib.sha256(self._contents[name]).hexdigest()[:12]}"

    async def answer(self, request: Request) -> Response:
        """Answer a request for a file; not in the pool of threads, where pages wait."""
        name = request.path_params["name"]
        if name not in self._contents:
            raise HTTPException(404)
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(self._contents[name], headers=headers, media_type=self._TYPES[name])


def _error_row(error: PylogError) -> dict[str, Any]:
    fault = None if isinstance(error, ConfigError | Forbidden | NotFound | TooManyReaders) else CATALOGUE[error.fault]
    return {
        "error": reason_of(error),
        "code": fault and fault.code,
        "cause": fault and fault.cause,
        "remedy": fault and fault.remedy,
    }


def _status_of(error: PylogError) -> HTTPStatus:
    if isinstance(error, ApiError):
        return _STATUS.get(error.code, HTTPStatus.BAD_GATEWAY)
    if isinstance(error, ConfigError):
        return HTTPStatus.BAD_REQUEST
    if isinstance(error, Forbidden):
        return HTTPStatus.FORBIDDEN
    return HTTPStatus.NOT_FOUND if isinstance(error, NotFound) else HTTPStatus.SERVICE_UNAVAILABLE


def _json(data: object, status: int) -> Response:
    text = json.dumps(data, ensure_ascii=False)
    # Names may hold half of a surrogate pair, which is no text in UTF-8.
    return Response(text.encode(errors="replace"), status, {"cache-control": "no-store"}, "application/json")


def _local_path(text: str) -> str:
    """Return *text* if it is a path of this console, else the first page's."""
    is_local = text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
    return text if is_local and not text.startswith(_LOGIN) else "/"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _utc(at_ms: int | None) -> str:
    if at_ms is None:
        return "—"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))


def _byte_count(count: int | None) -> str:
    if count is None:
        return "—"
    size = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f}"


def _segment(text: str) -> str:
    """Return *text* as one part of a path."""
    return quote(text, safe="")


_TEMPLATES = Environment(
    loader=PackageLoader("pylog.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True, auto_reload=False,
)  # fmt: skip
"""Every text is escaped, whatever the template's name; a name that a model lacks is an error, not an empty place."""
_TEMPLATES.filters |= {
    "utc": _utc,
    "bytes": _byte_count,
    "number": _number,
    "segment": lambda text: quote(text, safe=""),
}
