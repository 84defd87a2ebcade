"""How to reach a cluster, and what librdkafka's errors mean in pylog's own words.

librdkafka carries all client-side networking; this module is the only one that knows its property and error names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from pylog.client.security import ClientSecurity, security_properties
from pylog.errors import ApiError, ErrorCode, OffsetOutOfRange, PylogError, Unreachable

_UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._WAIT_COORD,
    }
)


class ClientError(PylogError):
    """librdkafka refused: a property it does not know, a queue that is full, a codec that is not built in."""

    fault = 101


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a cluster is and how to talk to it.

    Attributes:
        bootstrap: ``host:port``, several separated by commas; any one that answers is enough.
        timeout_s: how long one request may take before the cluster counts as unreachable.
        properties: librdkafka properties, for what has no option of its own; they win over pylog's choices.
    """

    bootstrap: str
    timeout_s: float = 10.0
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # a password may be among them

    def security(self) -> ClientSecurity:
        """Return how blocking connections of ours are encrypted and log in: by the same properties.

        Raises:
            ConfigError: they ask for what is not built.
        """
        return ClientSecurity.from_properties(self.properties)

    def secured(self, block: Mapping[str, str]) -> "Connection":
        """Return this connection with what a block ``security:`` says; its password is read from its file.

        Raises:
            ConfigError: names the key; see `pylog.client.security.security_properties`.
        """
        return replace(self, properties={**self.properties, **security_properties(block, self.properties)})

    # Any, because confluent-kafka's stubs want plain values although callbacks go into the same dictionary.
    def librdkafka(self, **own: object) -> dict[str, Any]:
        """Return librdkafka's configuration; keyword arguments use ``__`` for ``.`` in property names."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "pylog",
            # librdkafka prints every failed connection attempt to stderr; what matters comes back as an error.
            "log_level": 0,
            # Connection refused must show within one request's time-out, not after librdkafka's ten-second back-off.
            "reconnect.backoff.max.ms": 1000,
        }
        config |= {name.replace("__", "."): value for name, value in own.items()}
        return config | dict(self.properties)


def as_connection(cluster: "Connection | str") -> Connection:
    """Return *cluster* itself, or a connection to the bootstrap address it is."""
    return Connection(bootstrap=cluster) if isinstance(cluster, str) else cluster


def translate(error: KafkaError, cluster: Connection) -> PylogError:
    """Return the exception that stands for *error*: `ApiError`, `Unreachable` or `ClientError`."""
    code = error.code()
    if code > 0:
        known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
        return ApiError(known, error.str())
    if code == KafkaError._AUTO_OFFSET_RESET:  # what "error" as auto.offset.reset makes of the broker's answer
        return OffsetOutOfRange(error.str())
    if code in (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.str())
    if code == KafkaError._NOENT:  # looking for whom to ask about offsets, it found nobody
        return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, error.str())
    if code in _UNREACHABLE:
        return Unreachable(f"{cluster.bootstrap}: {error.str()}")
    return ClientError(error.str())


def error_of(exception: KafkaException) -> KafkaError:
    """Return the `KafkaError` inside *exception*; confluent-kafka hands it over as an untyped argument."""
    error = exception.args[0]
    assert isinstance(error, KafkaError), f"{error!r} is no KafkaError"
    return error
