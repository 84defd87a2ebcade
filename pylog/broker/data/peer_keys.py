"""What brokers show each other: the cluster's secrets, and certificates where their connections are encrypted."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from pylog.errors import ConfigError
from pylog.wire import internal

if TYPE_CHECKING:
    from pylog.security.server_tls import ServerTls


class PeerKeys:
    """See the module; all its files are read again when they change.

    Attributes:
        secrets: see `internal.secrets_of`.
        tls: contexts for connections of other brokers and to them, if any are encrypted.
    """

    def __init__(
        self, secret: bytes, *, file: Path | None = None, tls: "ServerTls | None" = None, calls_by_tls: bool = False
    ) -> None:
        """Take *secret*, which is the content of *file* if there is one.

        With *calls_by_tls* connections to other brokers are encrypted.
        """
        self.secrets = internal.secrets_of(secret)
        self.tls = tls
        self._file = file
        self._calls_by_tls = calls_by_tls

    def context(self) -> ssl.SSLContext | None:
        """Return the context for the next connection to another broker; None for a plain one."""
        return self.tls.caller_context if self.tls is not None and self._calls_by_tls else None

    def reload_secrets(self) -> bool:
        """Use the secrets of the file for the next proofs; return whether they have changed.

        Raises:
            ConfigError: the file cannot be read or is empty, and the secrets from before stay in use.
        """
        if self._file is None:
            return False
        try:
            content = self._file.read_bytes()
        except OSError as error:
            raise ConfigError(f"cluster_secret_file: {self._file}: {error.strerror}") from None
        if not content.strip():
            raise ConfigError(f"cluster_secret_file: {self._file} is empty")
        before, self.secrets = self.secrets, internal.secrets_of(content)
        return self.secrets != before
