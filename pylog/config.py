"""Reads a broker's configuration file once and fills each part's own dataclass.

The file is YAML, read by a safe loader.  An unknown key is an error with file and line: a misspelled switch that is
silently ignored is how a cluster runs for a year without the setting its operator believes in.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pylog.broker.config import INTERNAL, STANDALONE_ID, BrokerConfig, ListenerConfig, StoreConfig
from pylog.broker.listener_settings import (
    INTERNAL_SETTINGS,
    LISTENER_SETTINGS,
    SECURITY_PROTOCOL,
    ListenerSettings,
    parse_internal_settings,
    parse_listener_settings,
)
from pylog.broker.settings import parse_broker_settings
from pylog.errors import ConfigError
from pylog.model import MAIN_LISTENER, is_loopback
from pylog.security.principal import SecurityProtocol
from pylog.store.zookeeper_security import (
    PLAIN,
    ZOOKEEPER_SETTINGS,
    Part,
    ZooKeeperSecurity,
    parse_zookeeper_security,
)

if TYPE_CHECKING:
    from pylog.audit.counter import CounterConfig
    from pylog.client.connection import Connection
    from pylog.console.config import ConsoleConfig
    from pylog.console.masks import Mask
    from pylog.ingest.stream.config import Input, StreamConfig
    from pylog.mirror.config import Cluster, MirrorConfig
    from pylog.probe.config import ProbeConfig
    from pylog.registry.instance import RegistryConfig
    from pylog.security.server_tls import TlsConfig

FORMAT_VERSION = 1

_LISTENER_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def load_broker_config(path: Path) -> BrokerConfig:
    """Read the file at *path*.

    Raises:
        ConfigError: the file is missing, not YAML, has an unknown key or a wrong value; the message has file and line.
    """
    reader, raw = _open(path)
    config = _read_broker(reader, hashlib.sha256(raw).hexdigest()[:16])
    reader.finish()
    return config


def load_registry_config(path: Path) -> "RegistryConfig":
    """Read the file of an instance of the registry.

    Raises:
        ConfigError: as of `load_broker_config`.
    """
    from pylog.client.web import check_url
    from pylog.registry.avro import Level
    from pylog.registry.instance import RegistryConfig

    reader, _ = _open(path)
    reader.integer("version", 1, FORMAT_VERSION)
    listen = _split_address(reader.text("listen"), reader, "listen")
    level = reader.text("compatibility", Level.BACKWARD).upper()
    if level not in list(Level):
        raise reader.fault("compatibility", f"{level}: wanted one of {', '.join(Level)}")
    zookeeper = reader.text("zookeeper", "") or None
    follow = tuple(reader.text("follow", "").replace(",", " ").split())
    cluster = _read_cluster(reader)
    tls = _read_tls(reader, "listen_security", client_auth="requested")
    own_url = f"{'https' if tls else 'http'}://{_advertised(listen[0])}:{listen[1]}"
    config = RegistryConfig(
        listen=listen,
        advertised_url=reader.text("advertised_url", own_url),
        cluster=cluster,
        topic=reader.text("topic", "_schemas"),
        replication_factor=reader.integer("replication_factor", 1, 100, 3),
        zookeeper=zookeeper,
        zookeeper_security=_read_zookeeper_security(reader, Part.REGISTRY),
        session_timeout_ms=reader.integer("session_timeout_ms", 1000, 600_000, 6000),
        level=Level(level),
        follow=follow,
        tls=tls,
        login_mechanism=_read_registry_login(reader, cluster, listen[0], has_tls=tls is not None),
    )
    try:
        for url in (config.advertised_url, *follow):
            check_url(url, "follow" if url in follow else "advertised_url")
    except ConfigError as error:
        raise reader.fault("follow" if follow else "advertised_url", str(error)) from error
    reader.finish()
    return config


def _read_registry_login(reader: "_Section", cluster: "Connection", host: str, *, has_tls: bool) -> str:
    """Return the mechanism by which users of the registry log in; empty without login."""
    from pylog.security.scram import SCRAM_MECHANISMS

    login = reader.text("login", "none")
    mechanism = reader.text("login_mechanism", "SCRAM-SHA-256")
    if login not in ("none", "scram"):
        raise reader.fault("login", f"must be none or scram, got {login}")
    if mechanism not in SCRAM_MECHANISMS:
        raise reader.fault("login_mechanism", f"must be one of {', '.join(SCRAM_MECHANISMS)}, got {mechanism}")
    if login == "none":
        return ""
    if not cluster.security().protocol.has_sasl:
        raise reader.fault("login", "scram needs brokers that users log in at: set security or properties")
    if not has_tls and not is_loopback(host):
        raise reader.fault("login", f"scram at {host} needs listen_security: passwords could be read on their way")
    return mechanism


def load_mirror_config(path: Path) -> "MirrorConfig":
    """Read the file of an instance of a mirror.

    Raises:
        ConfigError: as of `load_broker_config`.
    """
    from pylog.mirror.config import MirrorConfig

    reader, _ = _open(path)
    reader.integer("version", 1, FORMAT_VERSION)
    source, target = (_read_end(reader.section(name)) for name in ("source", "target"))
    if source.name == target.name:
        raise reader.fault("target", f"both clusters are named {source.name}: their records could not be told apart")
    metrics = reader.text("metrics_listen", "")
    config = MirrorConfig(
        source=source,
        target=target,
        topics=_patterns(reader, "topics"),
        exclude=_patterns(reader, "exclude") if reader.has("exclude") else (),
        group=reader.text("group", f"pylog-mirror-{target.name}"),
        replication_factor=reader.integer("replication_factor", -1, 100, -1),
        internal_replication_factor=reader.integer("internal_replication_factor", 1, 100, 3),
        metrics_listen=_split_address(metrics, reader, "metrics_listen") if metrics else None,
        metrics_tls=_read_tls(reader, "metrics_security"),
        refresh_s=reader.integer("refresh_ms", 100, 3_600_000, 30_000) / 1000,
        commit_s=reader.integer("commit_ms", 100, 600_000, 5_000) / 1000,
        groups_s=reader.integer("groups_ms", 100, 3_600_000, 10_000) / 1000,
        buffered_bytes=reader.integer("buffered_bytes", 1 << 20, 1 << 32, 64 << 20),
        flush_s=reader.integer("flush_ms", 1_000, 3_600_000, 120_000) / 1000,
        audit_topic=reader.text("audit_topic", "_audit") if reader.text("audit", "true") == "true" else None,
    )
    reader.finish()
    return config


def load_counter_config(path: Path) -> "CounterConfig":
    """Read the file of a reader that counts one tier.

    Raises:
        ConfigError: as of `load_broker_config`.
    """
    from pylog.audit.counter import CounterConfig
    from pylog.audit.reports import Tier

    reader, _ = _open(path)
    reader.integer("version", 1, FORMAT_VERSION)
    tier = reader.text("tier")
    if tier not in (Tier.LIVE, Tier.MIRROR):
        raise reader.fault("tier", f"{tier}: wanted {Tier.LIVE} or {Tier.MIRROR}")
    metrics = reader.text("metrics_listen", "")
    config = CounterConfig(
        tier=Tier(tier),
        cluster=_read_cluster(reader),
        topics=_patterns(reader, "topics"),
        exclude=_patterns(reader, "exclude") if reader.has("exclude") else (),
        window_ms=reader.integer("window_ms", 1_000, 86_400_000, 60_000),
        report_s=reader.integer("report_ms", 100, 3_600_000, 10_000) / 1000,
        refresh_s=reader.integer("refresh_ms", 100, 3_600_000, 30_000) / 1000,
        replication_factor=reader.integer("replication_factor", 1, 100, 3),
        metrics_listen=_split_address(metrics, reader, "metrics_listen") if metrics else None,
        metrics_tls=_read_tls(reader, "metrics_security"),
    )
    reader.finish()
    return config


def load_probe_config(path: Path) -> "ProbeConfig":
    """Read the file of a probe.

    Raises:
        ConfigError: as of `load_broker_config`.
    """
    from pylog.probe.config import CANARY_TOPIC, ProbeConfig

    reader, _ = _open(path)
    reader.integer("version", 1, FORMAT_VERSION)
    servers = tuple(reader.text("zookeeper", "").replace(",", " ").split())
    for server in servers:
        _split_address(server, reader, "zookeeper")
    config = ProbeConfig(
        cluster=_read_cluster(reader),
        listen=_split_address(reader.text("listen"), reader, "listen"),
        metrics_tls=_read_tls(reader, "metrics_security"),
        zookeeper=servers,
        zookeeper_security=_read_zookeeper_security(reader, Part.OWNER),
        canary_topic=reader.text("canary_topic", CANARY_TOPIC),
        canary_interval_s=reader.integer("canary_interval_ms", 10, 3_600_000, 1_000) / 1000,
        replication_factor=reader.integer("replication_factor", 1, 100, 3),
        lag_interval_s=reader.integer("lag_interval_ms", 100, 3_600_000, 15_000) / 1000,
        zookeeper_interval_s=reader.integer("zookeeper_interval_ms", 100, 3_600_000, 15_000) / 1000,
    )
    reader.finish()
    return config


def _read_mask(reader: "_Section") -> "Mask":
    from pylog.console.masks import PARTS, Mask

    topic, part = reader.text("topic"), reader.text("part", "value")
    if part not in PARTS:
        raise reader.fault("part", f"must be one of {', '.join(PARTS)}, got {part}")
    field = reader.text("field") if reader.has("field") else ""
    reader.finish()
    return Mask(topic=topic, part=part, field=field)


def load_console_config(path: Path) -> "ConsoleConfig":
    """Read the file of a console.

    Raises:
        ConfigError: as of `load_broker_config`; or nobody may listen there like that.
    """
    from pylog.console.config import ConsoleConfig

    reader, _ = _open(path)
    reader.integer("version", 1, FORMAT_VERSION)
    login = reader.text("login", "none")
    if login not in ("none", "scram"):
        raise reader.fault("login", f"must be none or scram, got {login}")
    certificate, key = reader.text("certificate_file", "-"), reader.text("key_file", "-")
    cluster = _read_cluster(reader)
    listen = _split_address(reader.text("listen", "127.0.0.1:8085"), reader, "listen")
    mechanism = reader.text("login_mechanism", "SCRAM-SHA-256")
    payloads = reader.texts("read_payloads") if reader.has("read_payloads") else ()
    masks = tuple(map(_read_mask, reader.sections("masks"))) if reader.has("masks") else ()
    changes = reader.texts("changes") if reader.has("changes") else ()
    changers = reader.texts("changers") if reader.has("changers") else ()
    url, registries = reader.text("public_url", "-"), reader.texts("registry") if reader.has("registry") else ()
    names = reader.texts("names") if reader.has("names") else ()
    ledgers = tuple(map(_read_ledger, reader.sections("ledgers"))) if reader.has("ledgers") else ()
    prometheus, lake = reader.text("prometheus", "-"), reader.text("lake", "-")
    datacenter = reader.text("datacenter", "-")
    if lake != "-" and not Path(lake).is_absolute():
        raise reader.fault("lake", f"must be an absolute path, got {lake}")
    window_ms = reader.integer("audit_window_ms", 1_000, 86_400_000, 60_000)
    reader.finish()
    try:
        return ConsoleConfig(
            cluster=cluster,
            listen=listen,
            has_login=login == "scram",
            mechanism=mechanism,
            read_payloads=payloads,
            masks=masks,
            changes=changes,
            changers=changers,
            certificate=None if certificate == "-" else Path(certificate),
            key=None if key == "-" else Path(key),
            public_url="" if url == "-" else url,
            names=names,
            registries=registries,
            ledgers=ledgers,
            window_ms=window_ms,
            prometheus="" if prometheus == "-" else prometheus,
            datacenter="" if datacenter == "-" else datacenter,
            lake=None if lake == "-" else Path(lake),
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def load_stream_config(path: Path) -> "StreamConfig":
    """Read the file of a query that runs on and on.

    Raises:
        ConfigError: as of `load_broker_config`.
    """
    from pylog.ingest.stream.config import DEFAULT_MASTER, DEFAULT_TRIGGER, StreamConfig

    reader, _ = _open(path)
    reader.integer("version", 1, FORMAT_VERSION)
    name = reader.text("name")
    inputs = reader.section("inputs")
    metrics = reader.text("metrics_file", "-")
    cluster, text = _read_cluster(reader), _read_sql(reader, path)
    group = reader.text("group", f"stream-{name}")
    found = {alias: _read_input(inputs.section(alias)) for alias in inputs.names()}
    security = reader.section("security").plain() if reader.has("security") else {}
    options = reader.section("options").plain() if reader.has("options") else {}
    output, checkpoint = reader.text("output"), Path(reader.text("checkpoint"))
    trigger, master = reader.text("trigger", DEFAULT_TRIGGER), reader.text("master", DEFAULT_MASTER)
    reader.finish()
    try:
        return StreamConfig(
            name=name,
            cluster=cluster,
            security=security,
            sql=text,
            inputs=found,
            output=output,
            options=options,
            checkpoint=checkpoint,
            trigger=trigger,
            group="" if group == "none" else group,
            metrics_file=None if metrics == "-" else Path(metrics),
            master=master,
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _read_sql(reader: "_Section", path: Path) -> str:
    """Return the text of ``sql``, or of the file that ``sql_file`` names, beside *path* unless it is absolute."""
    if not reader.has("sql_file"):
        return reader.text("sql")
    if reader.has("sql"):
        raise reader.fault("sql_file", "wanted sql or sql_file, got both")
    file = path.parent / reader.text("sql_file")
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise reader.fault("sql_file", f"{file} cannot be read: {error}") from error


def _read_input(reader: "_Section") -> "Input":
    from pylog.ingest.stream.config import Input

    table = reader.text("table", "false")
    if table not in ("true", "false"):
        raise reader.fault("table", f"must be true or false, got {table}")
    found = Input(
        topic=reader.text("topic", ""),
        watermark=reader.text("watermark", ""),
        is_table=table == "true",
        path=reader.text("path", ""),
        format=reader.text("format", "parquet"),
        options=reader.section("options").plain() if reader.has("options") else {},
    )
    reader.finish()
    return found


def _read_end(reader: "_Section") -> "Cluster":
    from pylog.mirror.config import Cluster

    found = Cluster(reader.text("name"), _read_cluster(reader))
    reader.finish()
    return found


def _read_ledger(reader: "_Section") -> "Connection":
    cluster = _read_cluster(reader)
    reader.finish()
    return cluster


def _patterns(reader: "_Section", name: str) -> tuple[str, ...]:
    found = reader.texts(name)
    for pattern in found:
        try:
            re.compile(pattern)
        except re.error as error:
            raise reader.fault(name, f"{pattern!r} is no pattern: {error}") from error
    return found


def _open(path: Path) -> tuple["_Section", bytes]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    try:
        node = yaml.compose(raw, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}:1: wanted keys and values")
    return _Section(path, node, ""), raw


def _read_cluster(reader: "_Section") -> "Connection":
    """Read ``bootstrap``, ``timeout_s``, ``properties``, which are librdkafka's, and ``security``."""
    from pylog.client.connection import Connection

    properties = reader.section("properties").plain() if reader.has("properties") else {}
    if reader.has("security"):
        from pylog.client.security import security_properties

        try:
            properties |= security_properties(reader.section("security").plain(), properties)
        except ConfigError as error:
            raise reader.fault("security", str(error)) from error
    return Connection(
        bootstrap=reader.text("bootstrap"), timeout_s=reader.integer("timeout_s", 1, 3600, 10), properties=properties
    )


def standalone_config(
    data_dir: Path, host: str = "127.0.0.1", port: int = 9092, overrides: Mapping[str, str] | None = None
) -> BrokerConfig:
    """Return the configuration of a single broker with its own store in *data_dir*.

    Raises:
        ConfigError: an override is unknown or wrong.
    """
    return BrokerConfig(
        broker_id=STANDALONE_ID,
        data_dir=data_dir,
        client=ListenerConfig(host=host, port=port, advertised_host=_advertised(host), advertised_port=port),
        internal=None,
        admin_socket=data_dir / "admin.sock",
        store=StoreConfig(kind="embedded"),
        # There will never be a second broker, so the topic that keeps groups must not wait for two more.
        settings=parse_broker_settings({"offsets.topic.replication.factor": "1", **(overrides or {})}),
    )


def _read_broker(reader: "_Section", config_hash: str) -> BrokerConfig:
    version = reader.integer("version", 1, FORMAT_VERSION)
    assert version == FORMAT_VERSION
    listeners = reader.section("listeners")
    clients = _read_client_listeners(listeners)
    client_name, client = next(iter(clients.items()))
    internal = _read_listener(listeners.section(INTERNAL), client) if listeners.has(INTERNAL) else None
    listeners.finish()
    store = _read_store(reader.section("store"))
    secret, secret_path = b"", None
    if reader.has("cluster_secret_file"):
        secret_path = Path(reader.text("cluster_secret_file"))
        try:
            secret = secret_path.read_bytes().strip()
        except OSError as error:
            raise reader.fault("cluster_secret_file", f"{secret_path}: {error.strerror}") from error
    if store.kind == "zookeeper" and (internal is None or not secret):
        raise reader.fault("store", "a broker of a cluster needs listeners.internal and cluster_secret_file")
    metrics = reader.text("metrics_listen") if reader.has("metrics_listen") else None
    config = reader.section("config").plain() if reader.has("config") else {}
    try:
        settings = parse_broker_settings(config)
    except ConfigError as error:
        raise reader.fault("config", str(error)) from error
    return BrokerConfig(
        broker_id=reader.integer("broker_id", 0, 2**31 - 1),
        rack=reader.text("rack") if reader.has("rack") else None,
        data_dir=Path(reader.text("data_dir")),
        client=client,
        client_name=client_name,
        more_clients={name: one for name, one in clients.items() if name != client_name},
        internal=internal,
        admin_socket=Path(reader.text("admin_socket")),
        metrics_listen=_split_address(metrics, reader, "metrics_listen") if metrics else None,
        metrics_tls=_read_tls(reader, "metrics_security"),
        store=store,
        cluster_secret=secret,
        cluster_secret_file=secret_path,
        settings=settings,
        config_hash=config_hash,
    )


def _read_client_listeners(listeners: "_Section") -> dict[str, ListenerConfig]:
    clients: dict[str, ListenerConfig] = {}
    for name in listeners.names():
        if name == INTERNAL:
            continue
        if not _LISTENER_NAME.fullmatch(name) or name.upper() in list(SecurityProtocol):
            wanted = "small letters, digits, - and _, and no name of a protocol"
            raise listeners.fault(name, f"not a name of a listener; wanted {wanted}")
        clients[name] = _read_listener(listeners.section(name), None)
    if not clients:
        raise listeners.fault(MAIN_LISTENER, "is missing; a broker needs a listener for clients")
    return clients


def _read_listener(reader: "_Section", like: ListenerConfig | None) -> ListenerConfig:
    host = reader.text("host")
    port = reader.integer("port", 0, 65535)
    default_host = like.advertised_host if like else _advertised(host)
    listener = ListenerConfig(
        host=host,
        port=port,
        advertised_host=reader.text("advertised_host") if reader.has("advertised_host") else default_host,
        advertised_port=reader.integer("advertised_port", 0, 65535) if reader.has("advertised_port") else port,
        settings=_read_listener_settings(reader, is_internal=like is not None),
    )
    reader.finish()
    return listener


def _read_listener_settings(reader: "_Section", *, is_internal: bool) -> ListenerSettings:
    names = INTERNAL_SETTINGS if is_internal else LISTENER_SETTINGS
    given = {name: reader.text(name) for name in names if reader.has(name)}
    try:
        return parse_internal_settings(given) if is_internal else parse_listener_settings(given)
    except ConfigError as error:
        raise reader.fault(SECURITY_PROTOCOL, str(error)) from error


def _read_store(reader: "_Section") -> StoreConfig:
    kind = reader.text("kind")
    if kind == "embedded":
        store = StoreConfig(kind=kind)
    elif kind == "zookeeper":
        timeout = reader.integer("session_timeout_ms", 1000, 600_000) if reader.has("session_timeout_ms") else 6000
        given = {name: reader.text(name) for name in ZOOKEEPER_SETTINGS if reader.has(name)}
        try:
            security = parse_zookeeper_security(given)
        except ConfigError as error:
            raise reader.fault(next(iter(given), "kind"), str(error)) from error
        hosts = reader.text("hosts")
        store = StoreConfig(kind=kind, hosts=hosts, session_timeout_ms=timeout, security=security)
    else:
        raise reader.fault("kind", f"{kind}: wanted zookeeper or embedded")
    reader.finish()
    return store


def _read_tls(reader: "_Section", name: str, client_auth: str = "required") -> "TlsConfig | None":
    """Read how a page is encrypted, by Kafka's names.

    Where authorities are named, *client_auth* says what that means for clients unless the file does: they need a
    certificate, or (``requested``) may show one.
    """
    if not reader.has(name):
        return None
    from pylog.security.server_tls import TlsConfig

    section = reader.section(name)
    trust_store = section.text("ssl.truststore.location", "-")
    allowed = tuple(dict.fromkeys(("none", client_auth, "required")))
    client_auth = section.text("ssl.client.auth", "none" if trust_store == "-" else client_auth)
    if client_auth not in allowed:
        raise section.fault("ssl.client.auth", f"must be one of {', '.join(allowed)}, got {client_auth}")
    if client_auth != "none" and trust_store == "-":
        raise section.fault("ssl.client.auth", f"{client_auth} needs ssl.truststore.location")
    found = TlsConfig(
        key_store=Path(section.text("ssl.keystore.location")),
        trust_store=None if trust_store == "-" else Path(trust_store),
        client_auth=client_auth,
    )
    section.finish()
    return found


def _read_zookeeper_security(reader: "_Section", part: Part) -> ZooKeeperSecurity:
    """Read the block of a program that is no broker."""
    name = "zookeeper_security"
    if not reader.has(name):
        return PLAIN
    try:
        return parse_zookeeper_security(reader.section(name).plain(), part=part)
    except ConfigError as error:
        raise reader.fault(name, str(error)) from error


def _advertised(host: str) -> str:
    # A wildcard is no address to connect to; the machine's own loopback is what a first try on a laptop wants.
    return "127.0.0.1" if host in ("0.0.0.0", "::") else host


def _split_address(text: str, reader: "_Section", name: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise reader.fault(name, f"{text}: wanted HOST:PORT")
    return host, int(port)


class _Section:
    """One mapping of the file; knows its keys' lines and which of them were asked for."""

    def __init__(self, path: Path, node: yaml.MappingNode, prefix: str) -> None:
        self._path = path
        self._node = node
        self._prefix = prefix
        self._values: dict[str, yaml.Node] = {}
        self._lines: dict[str, int] = {}
        self._known: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in self._values:
                raise ConfigError(f"{path}:{key.start_mark.line + 1}: {prefix}{name} stands twice")
            self._values[name] = value
            self._lines[name] = key.start_mark.line + 1

    def has(self, name: str) -> bool:
        self._known.add(name)
        return name in self._values

    def fault(self, name: str, message: str) -> ConfigError:
        line = self._lines.get(name, self._node.start_mark.line + 1)
        return ConfigError(f"{self._path}:{line}: {self._prefix}{name}: {message}")

    def section(self, name: str) -> "_Section":
        node = self._required(name)
        if not isinstance(node, yaml.MappingNode):
            raise self.fault(name, "wanted keys and values")
        return _Section(self._path, node, f"{self._prefix}{name}.")

    def sections(self, name: str) -> "list[_Section]":
        """Return the elements of a list of sections."""
        node = self._required(name)
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(one, yaml.MappingNode) for one in node.value):
            raise self.fault(name, "wanted a list of keys and values")
        return [
            _Section(self._path, one, f"{self._prefix}{name}[{number}].")
            for number, one in enumerate(node.value)
            if isinstance(one, yaml.MappingNode)
        ]

    def names(self) -> list[str]:
        """Return all keys as they stand, for a section whose keys are names."""
        self._known.update(self._values)
        return list(self._values)

    def text(self, name: str, default: str | None = None) -> str:
        if default is not None and not self.has(name):
            return default
        node = self._required(name)
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            raise self.fault(name, "wanted a text")
        return str(node.value)

    def texts(self, name: str) -> tuple[str, ...]:
        node = self._required(name)
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(one, yaml.ScalarNode) for one in node.value):
            raise self.fault(name, "wanted a list of texts")
        return tuple(str(one.value) for one in node.value)

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        if default is not None and not self.has(name):
            return default
        text = self.text(name)
        if not text.lstrip("-").isdigit() or not low <= int(text) <= high:
            raise self.fault(name, f"{text}: wanted a whole number from {low} to {high}")
        return int(text)

    def plain(self) -> dict[str, Any]:
        """Return the section as it stands; its keys are checked by who asked."""
        loaded: dict[str, Any] = {}
        for name, node in self._values.items():
            if not isinstance(node, yaml.ScalarNode):
                raise self.fault(name, "wanted one value")
            loaded[name] = node.value
        return loaded

    def finish(self) -> None:
        """Refuse what nobody asked for."""
        for name in self._values:
            if name not in self._known:
                raise self.fault(name, f"unknown key; known here: {', '.join(sorted(self._known))}")

    def _required(self, name: str) -> yaml.Node:
        self._known.add(name)
        if name not in self._values:
            raise self.fault(name, "is missing")
        return self._values[name]
