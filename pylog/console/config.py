"""What a console shows, to whom, and where it listens."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pylog.client.connection import Connection
from pylog.console.masks import Mask
from pylog.errors import ConfigError
from pylog.security.scram import SCRAM_MECHANISMS

EVERYBODY = "*"
"""In `read_payloads` and `changers`: whoever may see the page of a topic."""

DEFAULT_PORT = 8085

RESET_OFFSETS = "reset-offsets"
PRODUCE = "produce"
VERBS = (RESET_OFFSETS, PRODUCE)
"""What the inventory may allow to be changed; nothing unless it names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """One console.

    Attributes:
        cluster: its brokers, and the console's own user.
        listen: host and port.
        has_login: whether people log in with users of the cluster; else everybody is the console's own user.
        mechanism: of SCRAM, by which people log in.
        read_payloads: users who may read keys and values; `EVERYBODY` for all.  The cluster's ACLs hold beside it.
        masks: what of records nobody sees.
        changes: what may be changed from the console; nothing if empty.
        changers: users who may do so; `EVERYBODY` for all.  The cluster's ACLs hold beside it.
        certificate: PEM file with the certificate chain of the console itself; None for plain HTTP.
        key: PEM file with its private key.
        public_url: where people find it, if that is not the address it listens on: a proxy stands in front.
        names: by which browsers may come besides; of a console that listens on every address of its host.
        registries: URLs of the schema registry.
        ledgers: other clusters whose `_audit` is compared with that of *cluster*.
        window_ms: length of the audit's windows.
        lake: directory of the lake that is shown; None for none.
        prometheus: URL of the Prometheus whose alerts and measurements are shown; empty for none.
        datacenter: whose measurements are shown of all that Prometheus has; empty for all.
    """

    cluster: Connection
    listen: tuple[str, int] = ("127.0.0.1", DEFAULT_PORT)
    has_login: bool = False
    mechanism: str = "SCRAM-SHA-256"
    read_payloads: tuple[str, ...] = ()
    masks: tuple[Mask, ...] = ()
    changes: tuple[str, ...] = ()
    changers: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    public_url: str = ""
    names: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    ledgers: tuple[Connection, ...] = ()
    window_ms: int = 60_000
    prometheus: str = ""
    datacenter: str = ""
    lake: Path | None = None

    def __post_init__(self) -> None:
        host = self.listen[0]
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("certificate_file and key_file: one of them is missing")
        if not is_loopback(host) and not self.has_login:
            raise ConfigError(
                f"listen: {host} is no loopback address, and without login everybody who reaches it sees the cluster; "
                "set login: scram, or listen on 127.0.0.1 and come by ssh -L"
            )
        if not is_loopback(host) and self.certificate is None:
            raise ConfigError(
                f"listen: {host} is no loopback address, and passwords would pass the network unencrypted; "
                "set certificate_file and key_file"
            )
        if self.public_url and not self.has_login:
            raise ConfigError(
                "public_url: without login everybody who reaches the proxy sees the cluster; set login: scram, or let "
                "people come by ssh -L"
            )
        if self.public_url.startswith("http:"):
            raise ConfigError(
                f"public_url: passwords would pass the network unencrypted; must be https://HOST, got {self.public_url}"
            )
        if self.changes and not self.has_login:
            raise ConfigError("changes: without a login nobody could say who made them; set login: scram")
        for verb in self.changes:
            if verb not in VERBS:
                raise ConfigError(f"changes: must be of {', '.join(VERBS)}, got {verb}")
        if self.changers and not self.changes:
            raise ConfigError("changers: they may change nothing; name what in changes")
        if self.has_login and not self.cluster.security().protocol.has_sasl:
            raise ConfigError("login: scram needs brokers with logins: security.protocol must be SASL_SSL")
        if self.mechanism not in SCRAM_MECHANISMS:
            raise ConfigError(f"login_mechanism: must be one of {', '.join(SCRAM_MECHANISMS)}, got {self.mechanism}")
        for name, url in (("public_url", self.public_url), ("prometheus", self.prometheus)):
            parts = urlsplit(url)
            if url and (
                parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query
            ):
                raise ConfigError(f"{name}: must be https://HOST or https://HOST:PORT, got {url}")

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers come by HTTPS, to the console itself or to a proxy in front of it."""
        return self.certificate is not None or self.public_url.startswith("https:")

    @property
    def hosts(self) -> frozenset[str]:
        """Names that a request's Host may have."""
        named = urlsplit(self.public_url).hostname if self.public_url else None
        return frozenset(
            {
                "localhost",
                "127.0.0.1",
                "::1",
                self.listen[0].lower(),
                *([named] if named else []),
                *map(str.lower, self.names),
            }
        )

    def may_read_payloads(self, user: str) -> bool:
        """Return whether *user* may read keys and values; the empty name is who came without login."""
        return EVERYBODY in self.read_payloads or bool(user and user in self.read_payloads)

    def may_change(self, user: str) -> frozenset[str]:
        """Return what *user* may change."""
        is_named = EVERYBODY in self.changers or bool(user and user in self.changers)
        return frozenset(self.changes) if is_named else frozenset()


def is_loopback(host: str) -> bool:
    """Return whether only programs of this host reach *host*."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
