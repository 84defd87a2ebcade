"""Judge a ZooKeeper configuration before any server gets it: ZooKeeper itself only finds out as it starts.

A misspelt key is no error to ZooKeeper, which hands it to the JVM as a property that nobody reads.
"""

from collections.abc import Collection, Iterator

KNOWN = frozenset({
    "tickTime", "initLimit", "syncLimit", "dataDir", "dataLogDir", "clientPort", "clientPortAddress", "maxClientCnxns",
    "autopurge.purgeInterval", "autopurge.snapRetainCount", "admin.enableServer", "4lw.commands.whitelist",
    "quorumListenOnAllIPs", "minSessionTimeout", "maxSessionTimeout", "snapCount", "metricsProvider.className",
    "metricsProvider.httpPort", "metricsProvider.httpHost",
    "secureClientPort", "secureClientPortAddress", "serverCnxnFactory", "enforce.auth.enabled", "enforce.auth.schemes",
    "sslQuorum", "sslQuorumReloadCertFiles", "portUnification", "client.portUnification", "authProvider.x509",
    *(f"{side}.{store}.{key}" for side in ("ssl", "ssl.quorum") for store in ("keyStore", "trustStore")
      for key in ("location", "type")),
    *(f"{side}.{key}" for side in ("ssl", "ssl.quorum")
      for key in ("clientAuth", "enabledProtocols", "ciphersuites", "protocol", "hostnameVerification")),
})  # fmt: skip
"""Keys that the role writes, or that an operator's template may add."""

WANTED = ("tickTime", "initLimit", "syncLimit", "dataDir")
PORTS = ("clientPort", "secureClientPort")
"""One of them is needed, for clients."""
LOWEST = {"tickTime": 1, "initLimit": 1, "syncLimit": 1, "clientPort": 1, "secureClientPort": 1, "maxClientCnxns": 0,
          "autopurge.purgeInterval": 0, "autopurge.snapRetainCount": 3}  # fmt: skip
HIGHEST_PORT = 65_535


def problems(text: str, own_id: int) -> Iterator[str]:
    """Yield what is wrong with the zoo.cfg *text* of server *own_id*, as found and wanted."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        key, separator, value = line.partition("=")
        if not separator or not value.strip():
            yield f"{line}: wanted key=value"
        elif key in settings:
            yield f"{key} stands there twice"
        else:
            settings[key] = value.strip()
    yield from (f"{key} is missing" for key in WANTED if key not in settings)
    if not any(key in settings for key in PORTS):
        yield f"{PORTS[0]} is missing"
    for key, value in settings.items():
        if key.startswith("server."):
            continue
        if key not in KNOWN:
            yield f"{key}: not a key of ZooKeeper's that this role knows"
        elif key in LOWEST and not (value.isdecimal() and int(value) >= LOWEST[key]):
            yield f"{key}: found {value}, wanted a whole number from {LOWEST[key]}"
        elif key in ("dataDir", "dataLogDir") and not value.startswith("/"):
            yield f"{key}: found {value}, wanted an absolute path"
    yield from _servers({key: value for key, value in settings.items() if key.startswith("server.")}, own_id)


def _servers(servers: dict[str, str], own_id: int) -> Iterator[str]:
    if servers and f"server.{own_id}" not in servers:
        yield f"server.{own_id}, this server itself, is missing"
    seen: dict[str, str] = {}
    for key, value in servers.items():
        address, *ports = value.rsplit(":", 2)
        if len(ports) != len(("peer", "election")) or not address or not all(map(_is_port, ports)):
            yield f"{key}: found {value}, wanted HOST:PORT:PORT"
        elif address in seen:
            yield f"{key}: {address} is {seen[address]} already"
        seen[address] = key


def _is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) <= HIGHEST_PORT


def may_disagree(before: Collection[int], after: Collection[int]) -> bool:
    """Say whether two ensembles could each find a majority without a server in common.

    While an ensemble changes from one to the other some servers have the old configuration and some the new one.  Two
    majorities that share no server may elect a leader each, and both would write.

    Args:
        before: ids of the servers that the old configuration names.
        after: ids of the servers that the new configuration names.
    """
    both = {*before} & {*after}
    # Each majority takes the servers first that the other configuration does not name.
    shared = sum(
        max(0, len(one) // 2 + 1 - len({*one} - both)) for one in ({*before}, {*after})
    )  # fmt: skip
    return shared <= len(both)
