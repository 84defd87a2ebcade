"""The registry over HTTP: requests become questions to the table of routes, answers and refusals become JSON."""

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from threading import BoundedSemaphore
from urllib.parse import unquote

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pylog.daemon.web import has_certificate, metrics_route, read_body
from pylog.errors import PylogError
from pylog.metrics import Metrics
from pylog.model import Offset
from pylog.registry import apicurio, avro, faults
from pylog.registry.access import Access, Person
from pylog.registry.faults import RegistryError
from pylog.registry.routes import CHANGES, PREPARED, READS, Ask, Decide, Prepare, Read
from pylog.registry.rules import RULES, Rule, referred, seen
from pylog.registry.service import OFFSET_HEADER, PRIMARY_WAIT_S, PrimaryRequest, Service
from pylog.security.acl import Operation

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"

MAX_JUDGED = 2
"""Schemas that are parsed and compared at once for reads, and as many for changes; more wait."""

MAX_CHANGES = 32
"""Changes at once; more wait.  Each keeps a thread while there is no primary, and reads need threads too."""


def new_app(service: Service, metrics: Metrics, access: Access | None = None) -> Starlette:
    """Return the application of one instance.

    Args:
        service: reads and changes.
        metrics: counts requests; scraped at ``/metrics``, by whoever shows a trusted certificate or logs in.
        access: lets people in; None lets everybody do everything.
    """

    def gate(method: str, path: str) -> _Gate:
        return _Gate(service, access, RULES[method, path])

    def judge(method: str, path: str) -> _Judge | None:
        prepare = PREPARED.get((method, path))
        return None if prepare is None else _Judge(service, prepare)

    judging = CapacityLimiter(MAX_JUDGED)
    reads = [
        Route(path, _reader(service, read, metrics, gate(method, path), judge(method, path), judging), methods=[method])
        for method, path, read in READS
    ]
    limiter = CapacityLimiter(MAX_CHANGES)
    changes_judged = BoundedSemaphore(MAX_JUDGED)
    writes = [
        Route(
            path,
            _changer(service, decide, metrics, limiter, gate(method, path), judge(method, path), changes_judged),
            methods=[method],
        )
        for method, path, decide in CHANGES
    ]
    page = metrics_route(metrics)
    if access is not None:
        page = Route("/metrics", _scraped(access, page))

    def refuse(_: Request, error: Exception) -> Response:
        status, code = 500, 50001
        if isinstance(error, RegistryError):
            status, code = error.status, error.code
        elif isinstance(error, HTTPException):
            status = code = error.status_code
        message = f"HTTP {status} {error.detail}" if isinstance(error, HTTPException) else str(error)
        answer = _answer(metrics, status, _as_json({"error_code": code, "message": message}))
        answer.headers.update(getattr(error, "headers", None) or {})
        if status == HTTPStatus.UNAUTHORIZED:
            answer.headers["www-authenticate"] = 'Basic realm="pylog registry", charset="UTF-8"'
        return answer

    return Starlette(
        routes=[*reads, *writes, page],
        middleware=[Middleware(_PathAsSent)],
        exception_handlers={PylogError: refuse, HTTPException: refuse},
    )


class _PathAsSent:
    """Lets routes see the path before it is unquoted: a subject's name may hold a slash, as ``%2F``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = "/" + "/".join(part for part in scope["raw_path"].decode().split("/") if part)
        await self._app({**scope, "path": path}, receive, send)


class _Gate:
    """What one route asks of who calls it."""

    def __init__(self, service: Service, access: Access | None, rule: Rule) -> None:
        self._service, self._access, self._rule = service, access, rule

    def enter(self, request: Request, ask: Ask) -> Person | None:
        """Return who asks, None where everybody may; waits for a broker.

        Raises:
            RegistryError: 401, 40301 or 429.
        """
        person = self._person(request)
        if person is not None:
            rule = self._rule.of(ask)
            person.require(rule, self._service.read(lambda registry: rule.touched(registry, ask)))
            names = referred(ask)
            if len(person.allowed(Operation.DESCRIBE, names)) < len(names):
                raise faults.denied("the schema refers to a subject that the user may not describe")
        return person

    def leave(self, person: Person | None, found: object) -> object:
        """Return what of *found* the person may see; waits for a broker."""
        if person is None or not self._rule.is_list:
            return found
        return seen(found, lambda names: person.allowed(Operation.DESCRIBE, names))

    def _person(self, request: Request) -> Person | None:
        return None if self._access is None else _logged_in(self._access, request)


def _logged_in(access: Access, request: Request) -> Person:
    return access.person(request.headers.get("authorization"), request.client.host if request.client else "")


def _scraped(access: Access, page: Route) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        if not has_certificate(request):
            _logged_in(access, request)
        answer: Response = page.endpoint(request)
        return answer

    return endpoint


class _Judge:
    """Parses and compares the schema in a request before the state is locked: that may take seconds."""

    def __init__(self, service: Service, prepare: Prepare) -> None:
        self._service, self._prepare = service, prepare

    def run(self, ask: Ask) -> None:
        """Have the answers ready that the route will ask for.

        Raises:
            RegistryError: 42201, 422; whatever the state says against the request is left to the route.
        """
        wanted = ask.schema
        avro.check_size(wanted.text)
        schema = wanted.stored()
        try:
            found = self._service.read(lambda registry: self._prepare(registry, ask, schema))
        except RegistryError:
            return
        found.run()


def _reader(
    service: Service, read: Read, metrics: Metrics, gate: _Gate, judge: _Judge | None, judging: CapacityLimiter
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        ask = _ask(request, await read_body(request))

        def look() -> tuple[object, Offset]:
            try:
                return look_once()
            except RegistryError as error:
                if error.code != faults.NO_SCHEMA or "id" not in ask.path:
                    raise
                if not service.catch_up(ask.schema_id, PrimaryRequest("GET", _target(request), b"", request.headers)):
                    raise
            return look_once()

        def look_once() -> tuple[object, Offset]:
            person = gate.enter(request, ask)
            if judge is not None:
                judge.run(ask)
            found, offset = service.read_at(lambda registry: read(registry, ask))
            return gate.leave(person, found), offset

        found, offset = await to_thread.run_sync(look, limiter=None if judge is None else judging)
        answer = _answer(metrics, 200, _as_json(found))
        answer.headers[OFFSET_HEADER] = str(offset)
        return answer

    return endpoint


def _changer(
    service: Service,
    decide: Decide,
    metrics: Metrics,
    limiter: CapacityLimiter,
    gate: _Gate,
    judge: _Judge | None,
    judging: BoundedSemaphore,
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await read_body(request)
        ask = _ask(request, body)

        def change() -> Response:
            gate.enter(request, ask)
            if not service.election.wait_primary(PRIMARY_WAIT_S):
                raise faults.no_primary()
            if not service.election.is_primary:
                forwarded = service.forward(PrimaryRequest(request.method, _target(request), body, request.headers))
                return _answer(metrics, forwarded.status, forwarded.body, forwarded.content_type)
            if judge is not None:
                with judging:
                    judge.run(ask)
            found, offset = service.change(lambda registry: decide(registry, ask))
            answer = _answer(metrics, 200, _as_json(found))
            answer.headers[OFFSET_HEADER] = str(offset)
            return answer

        return await to_thread.run_sync(change, limiter=limiter)

    return endpoint


def _ask(request: Request, body: bytes) -> Ask:
    path = {name: unquote(part) for name, part in request.path_params.items()}
    query = dict(request.query_params)
    if "group" in path:
        path, fields = apicurio.upload(path["group"], query, request.headers, body)
        return Ask(path, query, fields)
    try:
        fields = json.loads((request.method in ("POST", "PUT") and body) or b"{}")
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise faults.invalid_request("the body is no JSON object")
    return Ask(path, query, fields)


def _target(request: Request) -> str:
    """Return path and query as they came."""
    target: str = request.scope["raw_path"].decode()
    return f"{target}?{request.url.query}" if request.url.query else target


def _as_json(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _answer(metrics: Metrics, status: int, body: bytes, content_type: str = CONTENT_TYPE) -> Response:
    metrics.counter("pylog_registry_requests_total", "Requests by status.", status=str(status)).add()
    return Response(body, status, media_type=content_type)
