"""The REST API of Kafka Connect's workers, as far as connectors as code need it.

Any worker answers for all: one that is not the leader passes changes on.  While the workers share out their tasks they
answer 409, and the same request is tried again.
"""

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pylog.connect.document import CLASS, Action, Change, Found
from pylog.connect.health import Status, read_statuses
from pylog.errors import PylogError

REBALANCE_PATIENCE_S = 120.0
"""How long a request is tried again while the workers share out their tasks: twice their longest rebalance."""

_PAUSE_S = 1.0
_MAX_ANSWER = 64 << 20
_JSON = "application/json"


class WorkerAway(PylogError):
    """No worker answers at an address."""

    fault = 108


class Refused(PylogError):
    """A worker refused a request; the text is Connect's own.

    Attributes:
        status: of HTTP.
    """

    fault = 221

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Workers:
    """One worker's REST API.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        user: for a worker that asks who it is; empty for one that does not.
        password: of that user.
        ca: certificates to trust instead of the system's, PEM.
        certificate: private key and chain to show, PEM; None where workers ask for none.
        timeout_s: for one answer; validating a connector may ask a database.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str = "",
        password: str = "",
        ca: Path | None = None,
        certificate: Path | None = None,
        timeout_s: float = 90.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no URL of a worker: http://HOST:PORT")
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._headers = {"Accept": _JSON, "Content-Type": _JSON}
        if user:
            self._headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if certificate is not None:
            context.load_cert_chain(certificate)
        # No proxy of the environment, and no redirect to somewhere else.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirects()
        )

    def version(self) -> str:
        """Return the version of Kafka Connect that answers."""
        return str(self._ask("GET", "/")["version"])

    def statuses(self) -> dict[str, Status]:
        """Return how all connectors and their tasks are."""
        return read_statuses(self._ask("GET", "/connectors?expand=status"))

    def connectors(self) -> dict[str, Found]:
        """Return all connectors with their settings and states."""
        rows = self._ask("GET", "/connectors?expand=info&expand=status")
        return {
            # One that was made a moment ago has no status yet; one that was deleted a moment ago has nothing else.
            name: Found(config=row["info"]["config"], state=str(_state(row)).lower())
            for name, row in rows.items()
            if "info" in row
        }

    def faults(self, config: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return (setting, Connect's message) of all that is wrong with a connector's settings.

        The setting is ``connector.class`` where no worker has the class.
        """
        name = config.get(CLASS, "")
        try:
            answer = self._ask("PUT", f"/connector-plugins/{quote(name, safe='')}/config/validate", config)
        except Refused as error:
            return [(CLASS, str(error))]
        return [
            (str(row["value"]["name"]), str(message))
            for row in answer["configs"]
            for message in row["value"].get("errors") or ()
        ]

    def carry_out(self, change: Change) -> None:
        """Make one change; it is done when the worker has accepted it, and connectors follow soon.

        Raises:
            Refused: with Connect's message.
            WorkerAway: nobody answered; the change may have been made.
        """
        path = f"/connectors/{quote(change.connector, safe='')}"
        match change.action:
            case Action.CREATE:
                body = {"name": change.connector, "config": dict(change.config), "initial_state": change.state.upper()}
                self._ask("POST", "/connectors", body)
            case Action.CONFIGURE:
                self._ask("PUT", f"{path}/config", change.config)
            case Action.DELETE:
                self._ask("DELETE", path)
            case Action.RUN:
                self._ask("PUT", f"{path}/resume")
            case Action.PAUSE:
                self._ask("PUT", f"{path}/pause")
            case Action.STOP:
                self._ask("PUT", f"{path}/stop")

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Restart a connector and its tasks, or only what has failed of both."""
        query = f"includeTasks=true&onlyFailed={str(only_failed).lower()}"
        self._ask("POST", f"/connectors/{quote(name, safe='')}/restart?{query}")

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  # JSON
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + REBALANCE_PATIENCE_S
        while True:
            try:
                return self._ask_once(method, path, data)
            except Refused as error:
                if error.status != HTTPStatus.CONFLICT or time.monotonic() > deadline or _is_final(str(error)):
                    raise
            self._sleep(_PAUSE_S)

    def _ask_once(self, method: str, path: str, data: bytes | None) -> Any:  # noqa: ANN401  # JSON
        # The scheme was looked at above.
        request = urllib.request.Request(self.url + path, data=data, headers=self._headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                text = answer.read(_MAX_ANSWER)
            return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            raise Refused(error.code, _message(error.code, error.read(_MAX_ANSWER))) from None
        except (OSError, ValueError) as error:
            raise WorkerAway(f"{self.url}: {getattr(error, 'reason', error) or error}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _state(row: Mapping[str, Any]) -> object:
    return row["status"]["connector"]["state"] if "status" in row else "UNASSIGNED"


def _is_final(message: str) -> bool:
    """Return whether a 409 will not go away by waiting: the connector exists."""
    return "already exists" in message


def _message(status: int, body: bytes) -> str:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return "the worker wants another user or password"
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}: {body[:200].decode(errors='replace')}"
