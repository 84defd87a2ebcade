"""Values in Avro, framed with the id of the schema that wrote them.

payload => magic: int8 (0), schema id: int32 (big-endian), Avro binary

An id stands for one schema for ever, so each is looked up once and kept; what is kept goes on while the registry is
away.  One look-up a schema, also from many threads at once.

Source: Confluent Schema Registry, "Wire format".
"""

import http.client
import io
import json
import struct
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

import fastavro
import fastavro.schema
from fastavro.read import SchemaResolutionError

from pylog.client.avro_bounds import OutOfBounds, check_payload, is_bounded
from pylog.client.security import ClientSecurity
from pylog.client.web import call
from pylog.errors import PylogError

_FRAME = struct.Struct(">bi")
FRAME_BYTES = _FRAME.size
MAGIC = 0
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"

MAX_SCHEMAS = 10_000
"""Schemas kept; beyond this the one that was kept first goes, and is looked up again when it is met."""

UNKNOWN_FOR_S = 60.0
"""How long an id that the registry does not know is not asked for again: a topic may hold any number of values that
only look framed, and a schema is registered before a value is written under it."""

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
Parsed: TypeAlias = Any
"""What fastavro makes of a schema."""
_Wanted: TypeAlias = tuple[int, str | None]
"""An id, and the subject that the payload's topic is read under."""


class SchemaError(PylogError):
    """The registry refused, or a payload does not fit a schema.

    Attributes:
        code: the registry's error code, such as 40403 or 409; 0 where it did not come from there.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class RegistryUnreachable(SchemaError):
    """No instance of the registry answered: try again; schemas that were met before go on."""


class RegistryDenied(RegistryUnreachable):
    """The registry does not know the user, or the user lacks a right there: no fault of a payload."""


_DENIED = frozenset({401, 403, 429})
"""Answers about who asks: no login, no right, too many wrong logins."""

HIDDEN = 40301
"""Error code: the user lacks a right for the subjects that an answer is about."""


class _Readable(NamedTuple):
    """A schema, parsed; with the named types in it if its payloads have to be walked before they are read."""

    schema: Parsed
    unbounded: Mapping[str, Parsed] | None


class RegistryClient:
    """Asks a registry, whichever instance answers; keeps what it is told.

    Args:
        urls: of the instances, such as ``http://h1:8081`` or ``https://h1:8081``; tried in order.
        timeout_s: for one request.
        security: authorities that an ``https`` instance is checked by, and the user who logs in there.
        clock: seconds, for how long an unknown id stays unknown.

    Attributes:
        lookups: requests sent so far.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        *,
        timeout_s: float = 5.0,
        security: ClientSecurity | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        self._security = security
        self._timeout_s = timeout_s
        self._texts: _Once[_Wanted, tuple[str, ...]] = _Once(self._fetch_texts, _Refused(UNKNOWN_FOR_S, clock))
        self._schemas: _Once[_Wanted, _Readable] = _Once(self._parsed)
        self._ids: _Once[tuple[str, str, bool], int] = _Once(self._fetch_id)
        self.lookups = 0

    def schema(self, schema_id: int, subject: str | None = None) -> Parsed:
        """Return the schema with this id, parsed; see `texts`."""
        return self._schemas.get((schema_id, subject)).schema

    def check_bounds(self, payload: bytes, schema_id: int, subject: str | None = None) -> None:
        """Refuse a framed payload that is deeper, or holds more values, than a reader takes; see `schema`.

        Raises:
            SchemaError: it is so, or ends too early.
        """
        found = self._schemas.get((schema_id, subject))
        if found.unbounded is None:
            return
        try:
            check_payload(payload, FRAME_BYTES, found.schema, found.unbounded)
        except OutOfBounds as error:
            raise SchemaError(f"payload of {len(payload)} bytes does not fit schema {schema_id}: {error}") from None

    def texts(self, schema_id: int, subject: str | None = None) -> tuple[str, ...]:
        """Return the text of the schema with this id, behind the texts of those that it refers to.

        Args:
            schema_id: as a payload names it. Whoever may write a topic may name any id.
            subject: that the payload's topic is read under. A user who may see it, and not the schema of this id, is
                told so by an error about the payload: the subject does not hold the id. Without it, every id that the
                user may not see is RegistryDenied.

        Raises:
            SchemaError: 40403, there is none; 40301, it is of other subjects, which the user may not see. Both are
                kept for `UNKNOWN_FOR_S`.
            RegistryDenied: the user may not see *subject* either.
            RegistryUnreachable: it is not known yet and nobody answers.
        """
        return self._texts.get((schema_id, subject))

    def schema_id(self, subject: str, text: str, *, registers: bool = True) -> int:
        """Return the id of a schema under a subject.

        Args:
            subject: usually the topic's name and ``-value``.
            text: the schema.
            registers: whether it is registered if the subject lacks it.

        Raises:
            SchemaError: 409, it does not fit the earlier ones; 42201, it is none; 40401, 40403, it is not there.
            RegistryUnreachable: it is not known yet and nobody answers.
        """
        return self._ids.get((subject, text, registers))

    def latest(self, subject: str) -> tuple[str, ...]:
        """Return the text of a subject's latest schema, behind those that it refers to; asked anew each time.

        Raises:
            SchemaError: 40401, there is no such subject.
            RegistryUnreachable: nobody answers.
        """
        return self._with_references(self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest"))

    def _fetch_texts(self, key: _Wanted) -> tuple[str, ...]:
        schema_id, subject = key
        path = f"/schemas/ids/{schema_id}"
        try:
            found = self._ask("GET", path)
        except RegistryDenied as denied:
            if denied.code != HIDDEN or subject is None:
                raise
            self._check_visible(subject)
            found = self._ask_again(path)
        return self._with_references(found)

    def _check_visible(self, subject: str) -> None:
        try:
            self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions?deleted=true")
        except RegistryUnreachable:
            raise
        except SchemaError:
            pass  # there is no such subject: it holds nothing that the user may not see

    def _ask_again(self, path: str) -> dict[str, Any]:
        """Ask for an id once the user was seen to have rights, which may have been given since the first answer."""
        try:
            return self._ask("GET", path)
        except RegistryDenied as denied:
            if denied.code != HIDDEN:
                raise
            raise SchemaError(str(denied), denied.code) from None

    def _parsed(self, key: _Wanted) -> "_Readable":
        named: dict[str, Parsed] = {}
        schema = [parse(text, named) for text in self.texts(*key)][-1]
        return _Readable(schema, None if is_bounded(schema, named) else named)

    def _with_references(self, found: Mapping[str, Any]) -> tuple[str, ...]:
        # One may be referred to by several others: it is defined where it comes up first.
        texts: dict[str, None] = {}
        for one in found.get("references") or []:
            subject = quote(one["subject"], safe="")
            referred = self._ask("GET", f"/subjects/{subject}/versions/{one['version']}?deleted=true")
            texts.update(dict.fromkeys(self._with_references(referred)))
        return (*texts, str(found["schema"]))

    def _fetch_id(self, key: tuple[str, str, bool]) -> int:
        subject, text, registers = key
        path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if registers else "")
        return int(self._ask("POST", path, {"schema": text})["id"])

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        failures = []
        for url in self._urls:
            try:
                status, answer = self._ask_one(url, method, path, body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                failures.append(f"{url}: {error}")
                continue
            if status < 400:
                return answer
            said, code = f"{url}: {answer.get('message', status)}", int(answer.get("error_code", status))
            if status in _DENIED:
                raise RegistryDenied(said, code)
            found = SchemaError(said, code)
            if status < 500:
                raise found
            failures.append(str(found))
        raise RegistryUnreachable("; ".join(failures))

    def _ask_one(self, url: str, method: str, path: str, body: object) -> tuple[int, dict[str, Any]]:
        self.lookups += 1
        sent = None if body is None else json.dumps(body).encode()
        answer = call(
            url,
            method,
            path,
            sent,
            {"Content-Type": _CONTENT_TYPE},
            timeout_s=self._timeout_s,
            security=self._security,
        )
        return answer.status, json.loads(answer.body)


class AvroSerializer:
    """Turns values into payloads of one schema.

    Args:
        registry: knows the schema's id.
        subject: usually the topic's name and ``-value``.
        schema: text.
        registers: whether the schema is registered if the subject lacks it.
        strict: whether a field that the schema lacks is refused; otherwise it is left out.
    """

    def __init__(
        self, registry: RegistryClient, subject: str, schema: str, *, registers: bool = True, strict: bool = False
    ) -> None:
        self._registry, self._subject, self._text, self._registers = registry, subject, schema, registers
        self._strict = strict
        self._parsed = parse(schema, {})

    def __call__(self, value: object) -> bytes:
        """Return the payload.

        Raises:
            SchemaError: the value does not fit the schema, or the registry refuses the schema.
        """
        schema_id = self._registry.schema_id(self._subject, self._text, registers=self._registers)
        out = io.BytesIO()
        out.write(_FRAME.pack(MAGIC, schema_id))
        try:
            fastavro.schemaless_writer(out, self._parsed, value, strict_allow_default=self._strict)
        # fastavro has no exception of its own for a value of the wrong shape.
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise SchemaError(f"{self._subject}: the value does not fit the schema: {error!r}") from error
        return out.getvalue()


class AvroDeserializer:
    """Turns payloads into values.

    Args:
        registry: knows the schemas by id.
        reader_schema: text of the schema whose fields are wanted; None for those that were written.
        subject: that the topic is read under, usually the topic's name and ``-value``; see `RegistryClient.texts`.
    """

    def __init__(
        self, registry: RegistryClient, reader_schema: str | None = None, *, subject: str | None = None
    ) -> None:
        self._registry, self._subject = registry, subject
        self._reader = None if reader_schema is None else parse(reader_schema, {})

    def __call__(self, payload: bytes) -> Any:  # noqa: ANN401  whatever the schema says
        """Return the value.

        Raises:
            SchemaError: the payload is not framed, its id unknown or hidden, or its bytes do not fit the schema.
            RegistryUnreachable: the id was not met before and nobody answers.
        """
        schema_id = schema_id_of(payload)
        schema = self._registry.schema(schema_id, self._subject)
        self._registry.check_bounds(payload, schema_id, self._subject)
        data = io.BytesIO(payload)
        data.seek(FRAME_BYTES)
        try:
            value = fastavro.schemaless_reader(data, schema, self._reader)
        except (EOFError, LookupError, OverflowError, TypeError, ValueError, SchemaResolutionError) as error:
            raise SchemaError(f"payload of {len(payload)} bytes does not fit schema {schema_id}: {error!r}") from error
        if data.tell() != len(payload):
            raise SchemaError(
                f"payload of {len(payload)} bytes has {len(payload) - data.tell()} more than a value of "
                f"schema {schema_id}"
            )
        return value


def schema_id_of(payload: bytes) -> int:
    """Return the id in a payload's frame.

    Raises:
        SchemaError: there is no frame.
    """
    if len(payload) < FRAME_BYTES or payload[0] != MAGIC:
        raise SchemaError(
            f"payload begins with {payload[:5].hex() or 'nothing'}; 00 and four bytes of schema id are wanted"
        )
    return int(_FRAME.unpack_from(payload)[1])


def parse(text: str, named: dict[str, Parsed]) -> Parsed:
    """Return a schema as fastavro uses it; *named* holds the types it may refer to and takes its own.

    Raises:
        SchemaError: it is no Avro schema.
    """
    try:
        return fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise SchemaError(f"no Avro schema: {error}") from error


class _Refused:
    """Errors that stay true for a while.

    Args:
        for_s: how long; 0 keeps none.
        clock: seconds.
    """

    def __init__(self, for_s: float = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._for_s, self._clock = for_s, clock
        self._errors: dict[Hashable, tuple[float, SchemaError]] = {}

    def check(self, key: Hashable) -> None:
        """Raise the error that is kept for *key*."""
        since, error = self._errors.get(key, (0.0, None))
        if error is None:
            return
        if self._clock() - since < self._for_s:
            raise SchemaError(str(error), error.code)
        self._errors.pop(key, None)

    def keep(self, key: Hashable, error: SchemaError) -> None:
        """Keep *error*, unless it says only that nobody answered."""
        if not self._for_s or isinstance(error, RegistryUnreachable):
            return
        while len(self._errors) >= MAX_SCHEMAS:
            self._errors.pop(next(iter(self._errors)))
        self._errors[key] = (self._clock(), error)


class _Once(Generic[_K, _V]):
    """Keeps what a function returned; asks once for each key, however many threads want it."""

    def __init__(self, ask: Callable[[_K], _V], refused: _Refused | None = None) -> None:
        self._ask = ask
        self._refused = refused or _Refused()
        self._known: dict[_K, _V] = {}
        self._asking: dict[_K, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: _K) -> _V:
        try:
            return self._known[key]
        except KeyError:
            pass
        with self._lock:
            self._refused.check(key)
            turn = self._asking.setdefault(key, threading.Lock())
        with turn:
            try:
                if key not in self._known:
                    self._keep(key, self._asked(key))
                return self._known[key]
            finally:  # also of a key that nobody knows: there may be any number of those
                with self._lock:
                    self._asking.pop(key, None)

    def _asked(self, key: _K) -> _V:
        with self._lock:
            self._refused.check(key)  # by the thread whose turn it was before
        try:
            return self._ask(key)
        except SchemaError as error:
            with self._lock:
                self._refused.keep(key, error)
            raise

    def _keep(self, key: _K, value: _V) -> None:
        with self._lock:
            while len(self._known) >= MAX_SCHEMAS:
                self._known.pop(next(iter(self._known)))
            self._known[key] = value
