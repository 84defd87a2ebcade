"""Calls web servers of pylog: encrypted, checked and logged in by the properties of a cluster's clients.

A name and a password are sent to ``https`` alone.
"""

import base64
import http.client
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from pylog.client.security import ClientSecurity, client_context
from pylog.errors import ConfigError

HTTPS = "https"


class WebAnswer(NamedTuple):
    """What a server answered; `headers` ignores case."""

    status: int
    body: bytes
    headers: http.client.HTTPMessage


def check_url(url: str, setting: str) -> str:
    """Return *url*, which has to be ``http://HOST:PORT`` or ``https://HOST:PORT``.

    Raises:
        ConfigError: it is not; the message begins with *setting*.
    """
    try:
        where = urlsplit(url)
        is_right = where.scheme in ("http", HTTPS) and bool(where.hostname) and "@" not in where.netloc
        _ = where.port
    except ValueError:
        is_right = False
    if not is_right:
        raise ConfigError(f"{setting}: must be http://HOST:PORT or https://HOST:PORT, got {url}")
    return url


def basic_login(user: str, password: str) -> str:
    """Return the header ``Authorization`` of a user (RFC 7617, in UTF-8)."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def call(
    url: str,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float,
    security: ClientSecurity | None = None,
) -> WebAnswer:
    """Return what the server at *url* answers to one request, on a connection of its own.

    Args:
        url: ``http://HOST:PORT`` or ``https://HOST:PORT``, maybe with a path that goes before *target*.
        method: of HTTP.
        target: path and query.
        body: content of the request.
        headers: of the request; an ``Authorization`` among them goes before the user of *security*.
        timeout_s: for each wait.
        security: authorities and certificate by which an ``https`` server is called, and who logs in there; without it
            the authorities of the system, and nobody.

    Raises:
        OSError: the server cannot be reached, or its certificate is not trusted.
        http.client.HTTPException: what it sent is not HTTP.
        ConfigError: a file of *security* cannot be read.
    """
    where = urlsplit(url)
    host, sent = where.hostname or "", dict(headers or {})
    connection: http.client.HTTPConnection
    if where.scheme == HTTPS:
        known = security or ClientSecurity()
        # Made for each call, since the files may have been replaced since the last one.
        context = client_context(known.ca_location, known.certificate_location, known.key_location)
        connection = http.client.HTTPSConnection(host, where.port, timeout=timeout_s, context=context)
        if known.user:
            sent.setdefault("Authorization", basic_login(known.user, known.password))
    else:
        connection = http.client.HTTPConnection(host, where.port, timeout=timeout_s)
    try:
        connection.request(method, where.path.rstrip("/") + target, body, sent)
        response = connection.getresponse()
        return WebAnswer(response.status, response.read(), response.headers)
    finally:
        connection.close()
