"""An HTTP server for tests: a function answers each request."""

import json
from collections.abc import Callable
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pylog.daemon import web


class WebRequest(NamedTuple):
    """A request; `parts` are the path's, unquoted, and `target` is path and query as they came."""

    method: str
    parts: tuple[str, ...]
    body: bytes
    target: str


class WebAnswer(NamedTuple):
    status: int
    body: bytes


Answerer: TypeAlias = Callable[[WebRequest], WebAnswer]
"""Called on many threads at once."""


def json_answer(status: int, body: object) -> WebAnswer:
    return WebAnswer(status, json.dumps(body).encode())


class WebServer(web.WebServer):
    def __init__(self, host: str, port: int, answer: Answerer) -> None:
        async def endpoint(request: Request) -> Response:
            path, query = request.scope["raw_path"].decode(), request.url.query
            parts = tuple(unquote(part) for part in path.split("/") if part)
            asked = WebRequest(request.method, parts, await web.read_body(request), f"{path}?{query}".rstrip("?"))
            found = await to_thread.run_sync(answer, asked)
            return Response(found.body, found.status, media_type="application/json")

        methods = ["GET", "POST", "PUT", "DELETE"]
        super().__init__(host, port, Starlette(routes=[Route("/{path:path}", endpoint, methods=methods)]))
