"""How a session with ZooKeeper is encrypted, as whom it works, and which rights its nodes get.

The settings have one form for all programs: beside ``hosts`` in a broker's file, and in a block ``zookeeper_security:``
of other programs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from cryptography import x509

from pylog.errors import ConfigError
from pylog.security.certificates import subject_of
from pylog.security.password_file import read_password
from pylog.store.node_rights import Identity, NodeRights, digest_identity, parse_identities

_ENABLE = "zookeeper.ssl.client.enable"
_TRUST_STORE = "zookeeper.ssl.truststore.location"
_KEY_STORE = "zookeeper.ssl.keystore.location"
_USER = "zookeeper.auth.user"
_PASSWORD_FILE = "zookeeper.auth.password.file"  # the name of a setting
_SET_ACL = "zookeeper.set.acl"
_OWNERS = "zookeeper.acl.owners"
_CONSUMERS = "zookeeper.acl.consumers"
_REGISTRIES = "zookeeper.acl.registries"

ZOOKEEPER_SETTINGS: Mapping[str, tuple[str, str]] = {
    _ENABLE: ("false", "Connect by TLS 1.2 or later; `hosts` then names the servers' secure ports."),
    _TRUST_STORE: ("", "PEM file with the authorities of the servers; read at each connection."),
    _KEY_STORE: (
        "",
        "PEM file with our own key and certificate chain, for servers that ask for one; read at each connection.",
    ),
    _USER: ("", "User of an identity of the scheme `digest`."),
    _PASSWORD_FILE: (
        "",
        "File with the user's password in its first line, not readable by everybody; read at the start.",
    ),
    _SET_ACL: ("false", "Make nodes with ACLs instead of open to the world."),
    _OWNERS: (
        "",
        "Identities with all rights, as `scheme:id` separated by `;` (`x509:CN=pylog,O=example`, `digest:USER:HASH`). "
        "Empty: the identity of `zookeeper.auth.user`.",
    ),
    _CONSUMERS: (
        "",
        "Identities of clients of the paper's API, which read brokers and topics, and write below `/consumers`.",
    ),
    _REGISTRIES: ("", "Identities of schema registries, which write below `/pylog_registry` alone."),
}
"""Every setting: its default and what it is."""


class Part(Enum):
    """Whom a program works as; its own identity must have the rights of that."""

    OWNER = _OWNERS
    CONSUMER = _CONSUMERS
    REGISTRY = _REGISTRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurity:
    """What a program needs to know for its sessions; without arguments a plain, anonymous one.

    Attributes:
        is_encrypted: whether connections are TLS.
        trust_store: PEM file with the authorities of the servers; None without encryption.
        key_store: PEM file with our key and certificate chain; None where servers ask for none.
        user: of the identity that we show; "" for none.
        password: of the user.
        rights: what nodes that we make are made with; None leaves them open to the world.
        key_store_identity: what servers take us for because of the key store.
    """

    is_encrypted: bool = False
    trust_store: Path | None = None
    key_store: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    rights: NodeRights | None = None
    key_store_identity: Identity | None = None

    @property
    def identities(self) -> tuple[Identity, ...]:
        """What ZooKeeper knows us as; empty for a session that it takes for anybody's."""
        own = () if self.key_store_identity is None else (self.key_store_identity,)
        return (*own, digest_identity(self.user, self.password)) if self.user else own

    def __str__(self) -> str:
        """Return our identities as they are shown in errors."""
        return " and ".join(map(str, self.identities)) or "nobody (no identity is configured)"


PLAIN = ZooKeeperSecurity()


def parse_zookeeper_security(given: Mapping[str, str], *, part: Part = Part.OWNER) -> ZooKeeperSecurity:
    """Return what the settings *given* ask for; the files that they name are read.

    Args:
        given: settings of `ZOOKEEPER_SETTINGS` by name.
        part: whom the program works as. A broker must be one of the owners; a registry or a client of the paper's API
            may be one of the owners instead.

    Raises:
        ConfigError: names the setting that is unknown, wrong, or does not fit the others.
    """
    for name in given:
        if name not in ZOOKEEPER_SETTINGS:
            raise ConfigError(f"{name}: unknown setting; must be one of {', '.join(ZOOKEEPER_SETTINGS)}")
    value = {name: given.get(name, default) for name, (default, _) in ZOOKEEPER_SETTINGS.items()}
    is_encrypted, sets_acl = (_boolean(name, value[name]) for name in (_ENABLE, _SET_ACL))
    if is_encrypted != bool(value[_TRUST_STORE]):
        raise ConfigError(f"{_TRUST_STORE}: must be given exactly where {_ENABLE} is true")
    if value[_KEY_STORE] and not is_encrypted:
        raise ConfigError(f"{_KEY_STORE}: needs {_ENABLE} = true")
    if bool(value[_USER]) != bool(value[_PASSWORD_FILE]):
        raise ConfigError(f"{_USER}: must be given together with {_PASSWORD_FILE}")
    if ":" in value[_USER]:
        raise ConfigError(f"{_USER}: must have no colon, got {value[_USER]!r}")
    security = ZooKeeperSecurity(
        is_encrypted=is_encrypted,
        trust_store=Path(value[_TRUST_STORE]) if is_encrypted else None,
        key_store=Path(value[_KEY_STORE]) if value[_KEY_STORE] else None,
        user=value[_USER],
        password=read_password(Path(value[_PASSWORD_FILE]), _PASSWORD_FILE) if value[_USER] else "",
        rights=_rights(value, part) if sets_acl else None,
        key_store_identity=_certificate_identity(Path(value[_KEY_STORE])) if value[_KEY_STORE] else None,
    )
    if security.rights is not None:
        _check_own(security, security.rights, part)
    elif named := next((one.value for one in Part if value[one.value]), None):
        raise ConfigError(f"{named}: needs {_SET_ACL} = true")
    return security


def _rights(value: Mapping[str, str], part: Part) -> NodeRights:
    named = {one: parse_identities(value[one.value], one.value) for one in Part}
    if value[_USER] and not named[part]:
        password = read_password(Path(value[_PASSWORD_FILE]), _PASSWORD_FILE)
        named[part] = frozenset({digest_identity(value[_USER], password)})
    if not named[Part.OWNER]:
        raise ConfigError(f"{_OWNERS}: must name the identities that keep all rights")
    return NodeRights(named[Part.OWNER], named[Part.CONSUMER], named[Part.REGISTRY])


def _check_own(security: ZooKeeperSecurity, rights: NodeRights, part: Part) -> None:
    of_part = {Part.OWNER: rights.owners, Part.CONSUMER: rights.consumers, Part.REGISTRY: rights.registries}
    if not (rights.owners | of_part[part]) & set(security.identities):
        names = _OWNERS if part is Part.OWNER else f"{_OWNERS} or {part.value}"
        raise ConfigError(
            f"{names}: must have this program's own identity, which is {security}; it would lock itself out"
        )


def _boolean(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ConfigError(f"{name}: must be true or false, got {text!r}")
    return text == "true"


def _certificate_identity(path: Path) -> Identity:
    """Return who the owner of this file is for ZooKeeper: the subject of its certificate, as Java writes it."""
    try:
        return Identity("x509", subject_of(x509.load_pem_x509_certificates(path.read_bytes())[0]))
    except OSError as error:
        raise ConfigError(f"{_KEY_STORE}: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{_KEY_STORE}: {path} must be a PEM file with a certificate: {error}") from None
