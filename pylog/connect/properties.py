"""Files of Java properties, and the settings of Kafka Connect's worker that an inventory may give.

Pure.  Source: ``java.util.Properties.load`` for the file, ``DistributedConfig`` of Kafka 3.9.2 for the names.
"""

import difflib
from collections.abc import Iterator, Mapping

_OWN = frozenset({
    "bootstrap.servers", "config.providers", "config.storage.replication.factor", "config.storage.topic", "group.id",
    "listeners", "offset.storage.partitions", "offset.storage.replication.factor", "offset.storage.topic",
    "plugin.path", "rest.advertised.host.name", "rest.advertised.listener", "rest.advertised.port", "sasl.jaas.config",
    "sasl.mechanism", "scheduled.rebalance.max.delay.ms", "security.protocol", "status.storage.partitions",
    "status.storage.replication.factor", "status.storage.topic",
})  # fmt: skip
"""Settings that role `connect` writes itself, from variables of their own."""

_OWN_PREFIXES = ("config.providers.", "listeners.https.", "ssl.")

_KNOWN = frozenset({
    "access.control.allow.methods", "access.control.allow.origin", "admin.listeners", "auto.include.jmx.reporter",
    "client.dns.lookup", "client.id", "connect.protocol", "connections.max.idle.ms",
    "connector.client.config.override.policy", "exactly.once.source.support", "header.converter",
    "heartbeat.interval.ms", "inter.worker.key.generation.algorithm", "inter.worker.key.size",
    "inter.worker.key.ttl.ms", "inter.worker.signature.algorithm", "inter.worker.verification.algorithms",
    "key.converter", "metadata.max.age.ms", "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples",
    "metrics.recording.level", "metrics.sample.window.ms", "offset.flush.interval.ms", "offset.flush.timeout.ms",
    "plugin.discovery", "rebalance.timeout.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.timeout.ms", "response.http.headers.config", "rest.extension.classes",
    "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes", "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
    "task.shutdown.graceful.timeout.ms", "topic.creation.enable", "topic.tracking.allow.reset",
    "topic.tracking.enable", "value.converter", "worker.sync.timeout.ms", "worker.unsync.backoff.ms",
})  # fmt: skip

_KNOWN_PREFIXES = (
    "admin.", "config.storage.", "consumer.", "header.converter.", "key.converter.", "offset.storage.", "producer.",
    "status.storage.", "value.converter.",
)  # fmt: skip
"""What follows these is for a client, a converter or a topic, which judge it themselves."""

_CLIENTS = ("", "producer.", "consumer.", "admin.")
"""The worker's own clients, and those of connectors, which have settings of their own."""


def properties(settings: Mapping[str, object]) -> str:
    r"""Return *settings* as a file of properties, in their order.

    Only ASCII, whatever is in them: Java reads such files as ISO-8859-1 or as UTF-8, by who asks.

    >>> properties({"a b": " é=1"})
    'a\\ b=\\ \\u00e9=1\n'
    """
    return "".join(f"{_escaped(key, is_key=True)}={_escaped(text(value))}\n" for key, value in settings.items())


def text(value: object) -> str:
    """Return a setting as Java reads it: YAML's true is a text there."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def login_line(user: str, password: str) -> str:
    """Return the value of ``sasl.jaas.config`` with which *user* logs in by SCRAM."""
    quoted = "".join(_JAAS.get(character, character) for character in password)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{quoted}";'


def for_all_clients(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings of a client for the worker itself, and for the clients of its connectors."""
    return {f"{prefix}{name}": value for prefix in _CLIENTS for name, value in settings.items()}


def wrong_settings(given: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yield (setting, found, wanted) of each that the worker does not have, or that the role writes itself."""
    for name, value in given.items():
        if _is_own(name):
            yield name, "set", "not set: the role writes it"
        elif name not in _KNOWN and not (name.startswith(_KNOWN_PREFIXES) and not name.endswith(".")):
            near = difflib.get_close_matches(name, _KNOWN, n=1)
            yield name, "no setting of the worker", f"{near[0]}?" if near else "a setting of Kafka Connect's worker"
        elif not isinstance(value, str | int | float | bool):
            yield name, type(value).__name__, "a text, a number, true or false"


def _is_own(name: str) -> bool:
    bare = next((name.removeprefix(one) for one in _CLIENTS[1:] if name.startswith(one)), name)
    return name in _OWN or name.startswith(_OWN_PREFIXES) or bare in ("security.protocol", "sasl.jaas.config")


# What a string of Java's StreamTokenizer, which reads such lines, cannot hold as it is.
_JAAS = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
_PLAIN = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def _escaped(value: str, *, is_key: bool = False) -> str:
    found = []
    for number, character in enumerate(value):
        if character in _PLAIN:
            found.append(_PLAIN[character])
        elif (character == " " and (is_key or not number)) or (is_key and character in "=:#!"):
            found.append(f"\\{character}")
        elif " " <= character <= "~":
            found.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass").hex()
            found += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
    return "".join(found)
