"""The registry over HTTP: requests become questions to the table of routes, answers and refusals become JSON."""

import json
from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pylog.daemon.web import metrics_route, read_body
from pylog.errors import PylogError
from pylog.metrics import Metrics
from pylog.registry import faults
from pylog.registry.faults import RegistryError
from pylog.registry.routes import CHANGES, READS, Ask, Decide, Read
from pylog.registry.service import OFFSET_HEADER, PRIMARY_WAIT_S, PrimaryRequest, Service

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"

MAX_CHANGES = 32
"""Changes at once; more wait.  Each keeps a thread while there is no primary, and reads need threads too."""


def new_app(service: Service, metrics: Metrics) -> Starlette:
    """Return the application of one instance.

    Args:
        service: reads and changes.
        metrics: counts requests; scraped at ``/metrics``.
    """
    reads = [Route(path, _reader(service, read, metrics), methods=[method]) for method, path, read in READS]
    limiter = CapacityLimiter(MAX_CHANGES)
    writes = [
        Route(path, _changer(service, decide, metrics, limiter), methods=[method]) for method, path, decide in CHANGES
    ]

    def refuse(_: Request, error: Exception) -> Response:
        status, code = 500, 50001
        if isinstance(error, RegistryError):
            status, code = error.status, error.code
        elif isinstance(error, HTTPException):
            status = code = error.status_code
        message = f"HTTP {status} {error.detail}" if isinstance(error, HTTPException) else str(error)
        answer = _answer(metrics, status, _as_json({"error_code": code, "message": message}))
        answer.headers.update(getattr(error, "headers", None) or {})
        return answer

    return Starlette(
        routes=[*reads, *writes, metrics_route(metrics)],
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


def _reader(service: Service, read: Read, metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        ask = _ask(request, await read_body(request))
        found, offset = await to_thread.run_sync(service.read_at, lambda registry: read(registry, ask))
        answer = _answer(metrics, 200, _as_json(found))
        answer.headers[OFFSET_HEADER] = str(offset)
        return answer

    return endpoint


def _changer(
    service: Service, decide: Decide, metrics: Metrics, limiter: CapacityLimiter
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await read_body(request)
        ask = _ask(request, body)
        target = request.scope["raw_path"].decode() + (f"?{request.url.query}" if request.url.query else "")

        def change() -> Response:
            if not service.election.wait_primary(PRIMARY_WAIT_S):
                raise faults.no_primary()
            if not service.election.is_primary:
                forwarded = service.forward(PrimaryRequest(request.method, target, body, request.headers))
                return _answer(metrics, forwarded.status, forwarded.body, forwarded.content_type)
            found, offset = service.change(lambda registry: decide(registry, ask))
            answer = _answer(metrics, 200, _as_json(found))
            answer.headers[OFFSET_HEADER] = str(offset)
            return answer

        return await to_thread.run_sync(change, limiter=limiter)

    return endpoint


def _ask(request: Request, body: bytes) -> Ask:
    try:
        fields = json.loads((request.method in ("POST", "PUT") and body) or b"{}")
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise faults.invalid_request("the body is no JSON object")
    path = {name: unquote(part) for name, part in request.path_params.items()}
    return Ask(path, dict(request.query_params), fields)


def _as_json(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _answer(metrics: Metrics, status: int, body: bytes, content_type: str = CONTENT_TYPE) -> Response:
    metrics.counter("pylog_registry_requests_total", "Requests by status.", status=str(status)).add()
    return Response(body, status, media_type=content_type)
