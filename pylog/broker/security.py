"""The clients' listener as its settings say: its TLS, its logins, and the certificates that change while it runs."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pylog.broker.config import INTERNAL, BrokerConfig, ListenerConfig
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.listener_settings import ListenerSettings
from pylog.broker.login import LOGINS, LoginLimits, Logins
from pylog.broker.reloads import Reloads
from pylog.broker.watchdog import notify
from pylog.errors import CertificateExpired, ConfigError
from pylog.faults import code_of
from pylog.metrics import Metrics
from pylog.net.connection import FrameHandler
from pylog.net.listener import ListenerSecurity
from pylog.security.exchange import Exchange
from pylog.security.plain import PlainServer
from pylog.security.principal import SecurityProtocol
from pylog.security.scram import (
    SCRAM_MECHANISMS,
    CredentialSource,
    ScramCredential,
    ScramMechanism,
    ScramServer,
)
from pylog.wire.api.versions import Features

if TYPE_CHECKING:
    from pylog.security.server_tls import ServerTls, TlsConfig

_logger = logging.getLogger(__name__)

VALIDITY_POLL_S = 5.0
"""How often a start that waits for a valid certificate looks at the files."""

_PEERS = "brokers"
"""Principal of connections of other brokers, in metrics."""
_CERTIFICATE = (
    "pylog_certificate_expires_timestamp_seconds",
    "gauge",
    "When the certificate of a listener expires, since the Unix epoch.",
)

Credentials = Callable[[], Mapping[str, Mapping[str, str]]]
"""Returns the credentials of all users by mechanism, as the image in force has them."""


def credential_source(credentials: Credentials, cluster_secret: bytes) -> CredentialSource:
    """Return the credentials of the image in force, and substitutes that all brokers of the cluster agree upon."""

    def find(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        text = credentials().get(user, {}).get(mechanism.sasl_name)
        if text is None:
            return None
        try:
            return ScramCredential.parse(mechanism, text)
        except ConfigError as error:
            _logger.warning("credential ignored user=%r reason=%s", user, error)
            return None

    return CredentialSource(find, cluster_secret or os.urandom(32))


def mechanisms_of(settings: ListenerSettings, source: CredentialSource) -> Mapping[str, Callable[[], Exchange]]:
    """Return what begins a login by each mechanism that is offered."""
    offered: dict[str, Callable[[], Exchange]] = {}
    for name in settings.mechanisms:
        if name in SCRAM_MECHANISMS:
            offered[name] = partial(ScramServer, SCRAM_MECHANISMS[name], source)
        elif name == "PLAIN":
            offered[name] = partial(PlainServer, source)
        else:
            assert name == "OAUTHBEARER", f"{name} passed the check of the settings"
            offered[name] = _oauthbearer(settings)
    return offered


def _oauthbearer(settings: ListenerSettings) -> Callable[[], Exchange]:
    from pylog.broker.token_keys import TokenKeys  # brokers that take no tokens do not load what reads them
    from pylog.security.oauthbearer import OAuthBearerServer, TokenRules

    ca_location = settings.sasl_oauthbearer_jwks_ca_location
    keys = TokenKeys(settings.sasl_oauthbearer_jwks_endpoint_url, Path(ca_location) if ca_location else None)
    rules = TokenRules(
        audiences=tuple(settings.sasl_oauthbearer_expected_audience.split(",")),
        issuer=settings.sasl_oauthbearer_expected_issuer,
        user_claim=settings.sasl_oauthbearer_sub_claim_name,
        skew_s=settings.sasl_oauthbearer_clock_skew_seconds,
    )
    return lambda: OAuthBearerServer(lambda token: keys.check(token, rules, time.time()))


@dataclass(slots=True)
class Door:
    """What stands between a new connection of a client and the handler of its requests.

    Attributes:
        handler: gets the frames.
        security: for the listener; None with PLAINTEXT.
        tls: its contexts, if there is encryption.
    """

    handler: FrameHandler
    security: ListenerSecurity | None = None
    tls: "ServerTls | None" = None

    async def close(self) -> None:
        """End the logins that are under way."""
        if isinstance(self.handler, Logins):
            await self.handler.close()


def open_door(
    listener_name: str,
    listener: ListenerConfig,
    requests: FrameHandler,
    source: CredentialSource,
    metrics: Metrics,
    *,
    reloads: Reloads,
    features: Callable[[], Features] = Features,
) -> Door:
    """Return what the settings of *listener* ask for; *reloads* gets its certificates.

    Clients are told *features* also before their login.

    Raises:
        ConfigError: a file of certificates is missing or wrong.
    """
    settings = listener.settings
    protocol = settings.protocol
    # On the page of every broker: an alert on what is not there never fires.
    metrics.declare(*LOGINS)
    metrics.declare(*_CERTIFICATE)
    if protocol is SecurityProtocol.PLAINTEXT:
        return Door(requests)
    tls = _tls(listener_name, listener, metrics, reloads) if protocol.has_tls else None
    handler: FrameHandler = requests
    if protocol.has_sasl:
        limits = LoginLimits(
            failure_delay_ms=settings.connection_failed_authentication_delay_ms,
            max_reauth_ms=settings.connections_max_reauth_ms,
        )
        mechanisms = mechanisms_of(settings, source)
        handler = Logins(listener_name, requests, mechanisms, limits, metrics, features=features)
    return Door(handler, _security(settings, tls), tls)


def _security(settings: ListenerSettings, tls: "ServerTls | None") -> ListenerSecurity:
    user_of: Callable[[bytes], str] = _no_certificates
    if tls is not None:
        from pylog.security import certificates

        user_of = partial(certificates.user_of, rules=certificates.parse_rules(settings.ssl_principal_mapping_rules))
    return ListenerSecurity(
        protocol=settings.protocol,
        tls=tls,
        login_timeout_s=settings.login_timeout_ms / 1000,
        max_login_frame_bytes=settings.sasl_server_max_receive_size,
        max_session_ms=settings.connections_max_reauth_ms,
        user_of=user_of,
    )


def peer_keys(secret: bytes, config: BrokerConfig, metrics: Metrics, reloads: Reloads) -> PeerKeys:
    """Return what this broker shows other brokers; *reloads* gets the files.

    Raises:
        ConfigError: a file of certificates is missing or wrong.
    """
    internal, tls, calls_by_tls = config.internal, None, False
    if internal is not None and SecurityProtocol.SSL in internal.settings.accepted:
        tls = _tls(INTERNAL, internal, metrics, reloads, is_mutual=True)
        calls_by_tls = internal.settings.protocol is SecurityProtocol.SSL
    keys = PeerKeys(secret, file=config.cluster_secret_file, tls=tls, calls_by_tls=calls_by_tls)
    if config.cluster_secret_file is not None:
        reloads.add(f"cluster secret of {config.cluster_secret_file}", keys.reload_secrets)
    return keys


def peer_security(config: BrokerConfig, keys: PeerKeys) -> ListenerSecurity | None:
    """Return how connections of other brokers are protected; None without a listener for them."""
    if config.internal is None:
        return None
    settings = config.internal.settings
    return ListenerSecurity(
        protocol=SecurityProtocol.PLAINTEXT if keys.tls is None else SecurityProtocol.SSL,
        tls=keys.tls,
        asks_proof=True,
        login_timeout_s=settings.login_timeout_ms / 1000,
        user_of=lambda certificate: _PEERS,  # the proof says which broker it is
        accepts_plain=SecurityProtocol.PLAINTEXT in settings.accepted,
    )


def metrics_tls(config: BrokerConfig, metrics: Metrics, reloads: Reloads) -> "ServerTls | None":
    """Return how the page of metrics is encrypted; None if it is plain.  *reloads* gets its files.

    Raises:
        ConfigError: a file of certificates is missing or wrong.
    """
    if config.metrics_tls is None:
        return None
    from pylog.security.server_tls import ServerTls

    tls = ServerTls(config.metrics_tls)
    reloads.add("certificates of metrics_listen", tls.reload)
    name, _, help = _CERTIFICATE
    metrics.gauge(name, help, read=lambda: tls.expires_s, listener="metrics_listen")
    return tls


async def wait_for_certificates(config: BrokerConfig, stop: asyncio.Event) -> None:
    """Return once the certificates and revocation lists of all listeners are valid by the clock, or *stop* is set.

    A start that ended here would be repeated every two seconds until somebody comes.

    Raises:
        ConfigError: a file is missing or wrong, which time does not mend.
    """
    told = ""
    while not stop.is_set():
        try:
            await asyncio.to_thread(_check_certificates, config)
            return
        except CertificateExpired as error:
            if str(error) != told:
                told = str(error)
                _logger.critical("start waits for a valid file code=%s reason=%s", code_of(error), error)
                notify(f"STATUS={code_of(error)}: {error}")
        notify(f"EXTEND_TIMEOUT_USEC={int(10 * VALIDITY_POLL_S * 1_000_000)}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), VALIDITY_POLL_S)


def _check_certificates(config: BrokerConfig) -> None:
    listeners = [*config.clients.values(), *([config.internal] if config.internal is not None else [])]
    for listener in listeners:
        if listener.settings.protocol.has_tls or SecurityProtocol.SSL in listener.settings.accepted:
            from pylog.security.server_tls import ServerTls

            ServerTls(_tls_config(listener))
    if config.metrics_tls is not None:
        from pylog.security.server_tls import ServerTls

        ServerTls(config.metrics_tls)


def _tls_config(listener: ListenerConfig, *, is_mutual: bool = False) -> "TlsConfig":
    from pylog.security.server_tls import TlsConfig

    settings = listener.settings
    return TlsConfig(
        key_store=settings.key_store,
        trust_store=settings.trust_store,
        client_auth=settings.ssl_client_auth,
        protocols=tuple(settings.ssl_enabled_protocols.split(",")),
        crl=settings.crl,
        names=(listener.advertised_host,),
        is_mutual=is_mutual,
    )


def _no_certificates(certificate: bytes) -> str:
    raise AssertionError("a certificate came without TLS")


def _tls(
    listener_name: str, listener: ListenerConfig, metrics: Metrics, reloads: Reloads, *, is_mutual: bool = False
) -> "ServerTls":
    from pylog.security.server_tls import ServerTls

    settings = listener.settings
    tls = ServerTls(_tls_config(listener, is_mutual=is_mutual))
    reloads.add(f"certificates of listener {listener_name}", tls.reload)
    if settings.crl is not None:
        metrics.gauge(
            "pylog_revocation_list_expires_timestamp_seconds",
            "When the revocation lists of a listener expire: from then on it lets nobody with a certificate in.",
            read=lambda: tls.crl_expires_s,
            listener=listener_name,
        )
    name, _, help = _CERTIFICATE
    metrics.gauge(name, help, read=lambda: tls.expires_s, listener=listener_name)
    return tls
