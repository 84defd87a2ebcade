"""The clients' listener as its settings say: its TLS, its logins, and the certificates that change while it runs."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pylog.broker.listener_settings import ListenerSettings
from pylog.broker.login import ExpiringSessions, LoginLimits, Logins
from pylog.broker.tasks import Tasks
from pylog.errors import ConfigError
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

if TYPE_CHECKING:
    from pylog.net.tls import ServerTls

_logger = logging.getLogger(__name__)

RELOAD_S = 60.0
"""How often the files of certificates are looked at."""

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
    _tasks: Tasks | None = None

    def start(self) -> None:
        """Begin to watch the certificate's files, on the running loop."""
        if self.tls is not None:
            self._tasks = Tasks()
            self._tasks.spawn(self._watch(self.tls))

    async def close(self) -> None:
        """End the logins that are under way, and the watch."""
        if self._tasks is not None:
            await self._tasks.stop()
        if isinstance(self.handler, Logins):
            await self.handler.close()

    @staticmethod
    async def _watch(tls: "ServerTls") -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            try:
                if await asyncio.to_thread(tls.reload):
                    _logger.info("certificate reloaded file=%s expires_s=%d", tls.config.key_store, tls.expires_s)
            except ConfigError as error:
                _logger.error("certificate not reloaded, the one before stays in use reason=%s", error)


def open_door(
    listener_name: str,
    settings: ListenerSettings,
    requests: FrameHandler,
    source: CredentialSource,
    metrics: Metrics,
    *,
    max_frame_bytes: int,
) -> Door:
    """Return what *settings* ask for.

    Raises:
        ConfigError: a file of certificates is missing or wrong.
    """
    protocol = settings.protocol
    if protocol is SecurityProtocol.PLAINTEXT:
        return Door(requests)
    tls = _tls(listener_name, settings, metrics) if protocol.has_tls else None
    handler: FrameHandler = requests
    if protocol.has_sasl:
        limits = LoginLimits(
            max_frame_bytes=max_frame_bytes,
            failure_delay_ms=settings.connection_failed_authentication_delay_ms,
            max_reauth_ms=settings.connections_max_reauth_ms,
        )
        handler = Logins(listener_name, requests, mechanisms_of(settings, source), limits, metrics)
    elif settings.connections_max_reauth_ms:
        handler = ExpiringSessions(requests)
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


def _no_certificates(certificate: bytes) -> str:
    raise AssertionError("a certificate came without TLS")


def _tls(listener_name: str, settings: ListenerSettings, metrics: Metrics) -> "ServerTls":
    from pylog.net.tls import ServerTls, TlsConfig

    tls = ServerTls(
        TlsConfig(
            key_store=settings.key_store,
            trust_store=settings.trust_store,
            client_auth=settings.ssl_client_auth,
            protocols=tuple(settings.ssl_enabled_protocols.split(",")),
        )
    )
    metrics.gauge(
        "pylog_certificate_expires_timestamp_seconds",
        "When the certificate of a listener expires.",
        read=lambda: tls.expires_s,
        listener=listener_name,
    )
    return tls
