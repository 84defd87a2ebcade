"""The settings of one listener, under Kafka's names: they stand in its section of the broker's file.

None of them can be changed over the wire, and none names a class.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from pylog.broker.settings import Kind, Setting, Value, typed
from pylog.errors import ConfigError
from pylog.security.principal import SecurityProtocol

SECURITY_PROTOCOL = "security.protocol"
_MECHANISMS = "sasl.enabled.mechanisms"
_CRL = "ssl.crl.location"
_KEY_STORE = "ssl.keystore.location"
_TRUST_STORE = "ssl.truststore.location"
ACCEPTED_PROTOCOLS = "accepted.protocols"
_MAX_INT32 = 2**31 - 1
_JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_MAX_LOGIN_FRAME = "sasl.server.max.receive.size"
_TOKEN_FRAME_BYTES = 65_536
"""Enough for a token that names hundreds of groups.

Kafka's half a megabyte is for tickets of Kerberos; here five thousand connections of strangers could hold 2.6 GB by it.
"""
_AUDIENCE = "sasl.oauthbearer.expected.audience"
_OAUTHBEARER = "OAUTHBEARER"
_MECHANISM_NAMES = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", _OAUTHBEARER)
_SECRET_ON_THE_WIRE = frozenset({"PLAIN", _OAUTHBEARER})

LISTENER_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            SECURITY_PROTOCOL,
            Kind.STRING,
            "PLAINTEXT",
            "Encryption (SSL) and login (SASL) of the listener.",
            choices=tuple(SecurityProtocol),
        ),
        Setting(
            "ssl.keystore.location",
            Kind.STRING,
            "",
            "PEM file with the private key and the certificate chain; read again when it changes.",
        ),
        Setting(
            "ssl.truststore.location",
            Kind.STRING,
            "",
            "PEM file with the authorities that sign certificates of clients; read again when it changes.",
        ),
        Setting(
            _CRL,
            Kind.STRING,
            "",
            "PEM file with the revocation lists of these authorities; read again when it changes.",
        ),
        Setting(
            "ssl.client.auth",
            Kind.STRING,
            "none",
            "Whether clients show a certificate.",
            choices=("none", "requested", "required"),
        ),
        Setting(
            "ssl.enabled.protocols",
            Kind.LIST,
            "TLSv1.2,TLSv1.3",
            "Versions of TLS.",
            choices=("TLSv1.2", "TLSv1.3"),
        ),
        Setting(
            "ssl.principal.mapping.rules",
            Kind.STRING,
            "DEFAULT",
            "How the name of a certificate becomes the name of a user.",
        ),
        Setting(
            _MECHANISMS,
            Kind.LIST,
            "SCRAM-SHA-256,SCRAM-SHA-512",
            "Mechanisms by which clients log in; PLAIN and OAUTHBEARER only with SASL_SSL.",
            choices=_MECHANISM_NAMES,
        ),
        Setting(
            "connections.max.reauth.ms",
            Kind.LONG,
            0,
            "Longest time between two logins of one connection, also of clients with a certificate; 0 for no limit.",
            low=0,
            high=_MAX_INT32,
        ),
        Setting(
            "connection.failed.authentication.delay.ms",
            Kind.INT,
            100,
            "How long a failed login waits for its answer.",
            low=0,
            high=9_000,
        ),
        Setting(
            _MAX_LOGIN_FRAME,
            Kind.INT,
            16_384,
            "Largest frame that a client may send before its login; if not set, 65536 where OAUTHBEARER is offered.",
            low=1_024,
            high=_MAX_INT32,
        ),
        Setting(
            _JWKS_URL,
            Kind.STRING,
            "",
            "Keys by which tokens of OAUTHBEARER are signed: `file:///PATH` or `https://…` of a JWKS document.",
            pattern=r"|file:///.+|https://.+",
        ),
        Setting(
            "sasl.oauthbearer.jwks.ca.location",
            Kind.STRING,
            "",
            "PEM file with the authorities of that server, if they are not the system's.",
        ),
        Setting(_AUDIENCE, Kind.LIST, "", "Audiences, one of which a token must name."),
        Setting("sasl.oauthbearer.expected.issuer", Kind.STRING, "", "Issuer that a token must name; any if empty."),
        Setting("sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub", "Claim of a token with the user's name."),
        Setting(
            "sasl.oauthbearer.clock.skew.seconds",
            Kind.INT,
            30,
            "By how much the clock of the tokens' issuer may differ.",
            low=0,
            high=600,
        ),
        Setting(
            "login.timeout.ms",
            Kind.INT,
            10_000,
            "How long the TLS handshake of a connection may take, and then its login.",
            low=100,
            high=600_000,
        ),
    )
}
"""All there are; `docs/settings.md` lists them."""


_PEER_PROTOCOLS = (SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL)

INTERNAL_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            SECURITY_PROTOCOL,
            Kind.STRING,
            "PLAINTEXT",
            "How this broker calls other brokers; SSL shows a certificate in both directions.",
            choices=_PEER_PROTOCOLS,
        ),
        Setting(
            ACCEPTED_PROTOCOLS,
            Kind.LIST,
            "",
            "Which connections of other brokers are accepted, on the same port; `security.protocol` alone if empty.",
            choices=_PEER_PROTOCOLS,
        ),
        *(LISTENER_SETTINGS[name] for name in (_KEY_STORE, _TRUST_STORE, _CRL, "ssl.enabled.protocols")),
    )
}
"""Those of the brokers' own listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The values for one listener; each field is named after its setting."""

    security_protocol: str
    ssl_keystore_location: str
    ssl_truststore_location: str
    ssl_crl_location: str
    ssl_client_auth: str
    ssl_enabled_protocols: str
    ssl_principal_mapping_rules: str
    sasl_enabled_mechanisms: str
    connections_max_reauth_ms: int
    connection_failed_authentication_delay_ms: int
    sasl_server_max_receive_size: int
    sasl_oauthbearer_jwks_endpoint_url: str
    sasl_oauthbearer_jwks_ca_location: str
    sasl_oauthbearer_expected_audience: str
    sasl_oauthbearer_expected_issuer: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_clock_skew_seconds: int
    login_timeout_ms: int
    accepted_protocols: str = ""

    @property
    def protocol(self) -> SecurityProtocol:
        """Of the listener."""
        return SecurityProtocol(self.security_protocol)

    @property
    def accepted(self) -> frozenset[SecurityProtocol]:
        """What other brokers may speak on the brokers' own listener."""
        return frozenset(map(SecurityProtocol, (self.accepted_protocols or self.security_protocol).split(",")))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Names of the mechanisms that are offered."""
        return tuple(self.sasl_enabled_mechanisms.split(","))

    @property
    def key_store(self) -> Path:
        """PEM file of the listener's own key and certificates."""
        return Path(self.ssl_keystore_location)

    @property
    def trust_store(self) -> Path | None:
        """PEM file of the authorities of clients, if there is one."""
        return Path(self.ssl_truststore_location) if self.ssl_truststore_location else None

    @property
    def crl(self) -> Path | None:
        """PEM file of revocation lists, if there is one."""
        return Path(self.ssl_crl_location) if self.ssl_crl_location else None


def default_listener_settings() -> ListenerSettings:
    """Return the settings of a listener of which the configuration says nothing."""
    return parse_listener_settings({})


def parse_listener_settings(given: Mapping[str, object]) -> ListenerSettings:
    """Return the settings of a listener; what is not given has its default.

    Raises:
        ConfigError: all wrong values of *given* at once, one a line; or settings that do not go together.
    """
    values = _parse(LISTENER_SETTINGS, given)
    if faults := _contradictions(values, given.keys()):
        raise ConfigError("\n".join(faults))
    if _MAX_LOGIN_FRAME not in given and _OAUTHBEARER in str(values[_MECHANISMS]).split(","):
        values[_MAX_LOGIN_FRAME] = _TOKEN_FRAME_BYTES
    return typed(ListenerSettings, values | {ACCEPTED_PROTOCOLS: ""})


def parse_internal_settings(given: Mapping[str, object]) -> ListenerSettings:
    """Return the settings of the brokers' own listener.

    Raises:
        ConfigError: as of `parse_listener_settings`.
    """
    values = _parse(INTERNAL_SETTINGS, given)
    protocol, accepted = str(values[SECURITY_PROTOCOL]), str(values[ACCEPTED_PROTOCOLS])
    faults = []
    if accepted and protocol not in accepted.split(","):
        faults.append(f"{ACCEPTED_PROTOCOLS}={accepted}: must contain {protocol}, its own security.protocol")
    if SecurityProtocol.SSL in (protocol, *accepted.split(",")):
        faults += [f"{SecurityProtocol.SSL}: needs {name}" for name in (_KEY_STORE, _TRUST_STORE) if not values[name]]
    else:
        faults += [f"{name}: has no effect with {protocol}" for name in sorted(given) if name.startswith("ssl.")]
    if faults:
        raise ConfigError("\n".join(faults))
    others = {name: setting.default for name, setting in LISTENER_SETTINGS.items()}
    return typed(ListenerSettings, others | values | {"ssl.client.auth": "required"})


def _parse(settings: Mapping[str, Setting], given: Mapping[str, object]) -> dict[str, Value]:
    values: dict[str, Value] = {name: setting.default for name, setting in settings.items()}
    faults: list[str] = []
    for name, text in given.items():
        try:
            values[name] = settings[name].parse(text)
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    return values


def _contradictions(values: Mapping[str, Value], names: Set[str]) -> list[str]:
    protocol = SecurityProtocol(str(values[SECURITY_PROTOCOL]))
    faults = []
    if not protocol.has_tls:
        faults += [f"{name}: has no effect with {protocol}" for name in sorted(names) if name.startswith("ssl.")]
    elif not values["ssl.keystore.location"]:
        faults.append(f"{SECURITY_PROTOCOL}={protocol}: needs ssl.keystore.location")
    if values[_CRL] and not values[_TRUST_STORE]:
        faults.append(f"{_CRL}: needs {_TRUST_STORE}")
    if values["ssl.client.auth"] != "none" and not values["ssl.truststore.location"]:
        faults.append(f"ssl.client.auth={values['ssl.client.auth']}: needs ssl.truststore.location")
    if not protocol.has_sasl:
        faults += [f"{name}: has no effect with {protocol}" for name in sorted(names) if name.startswith("sasl.")]
    elif not values[_MECHANISMS]:
        faults.append(f"{_MECHANISMS}: must not be empty with {protocol}")
    else:
        exposed = _SECRET_ON_THE_WIRE.intersection(str(values[_MECHANISMS]).split(","))
        if exposed and not protocol.has_tls:
            faults.append(f"{_MECHANISMS}={','.join(sorted(exposed))}: sends secrets readable; needs SASL_SSL")
        if _OAUTHBEARER in str(values[_MECHANISMS]).split(","):
            missing = [name for name in (_JWKS_URL, _AUDIENCE) if not values[name]]
            faults += [f"{_MECHANISMS}={_OAUTHBEARER}: needs {name}" for name in missing]
    if protocol is SecurityProtocol.PLAINTEXT:
        others = [name for name in sorted(names - {SECURITY_PROTOCOL}) if not name.startswith(("ssl.", "sasl."))]
        faults += [f"{name}: has no effect with PLAINTEXT" for name in others]
    return faults
