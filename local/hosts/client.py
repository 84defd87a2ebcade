"""Files with which clients on this machine connect to the hosts of `make up`.

    python3 -m local.hosts.client

.local/client.properties        for librdkafka and kcat (KCAT_CONFIG, or kcat -F)
.local/client.java.properties   for Java clients and Kafka's tools (--command-config)
.local/client.yml               for pylog (PYLOG_CONFIG)

On secured hosts all log in as the user `demo`, whose password is in .local/users/demo.password. On open ones they name
the brokers alone.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".local"
USER = "demo"
MECHANISM = "SCRAM-SHA-512"


def bootstrap(state: Mapping[str, Any]) -> str:
    """Return the brokers of the live datacenter, or of the only one there is."""
    hosts = state["hosts"]
    names = sorted(name for name in hosts if name.startswith("live")) or sorted(hosts)
    return ",".join(f"{hosts[name]['ip']}:9092" for name in names)


def properties(servers: str, password: str, authority: Path) -> str:
    """Return the file for librdkafka and kcat."""
    given = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": password,
        "ssl.ca.location": str(authority),
    }
    return "".join(f"{name}={value}\n" for name, value in given.items())


def java_properties(servers: str, password: str, authority: Path) -> str:
    """Return the file for Java clients."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    given = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }
    return "".join(f"{name}={value}\n" for name, value in given.items())


def settings(servers: str, password_file: Path, authority: Path) -> str:
    """Return the file for pylog; JSON is YAML too."""
    security = {
        "protocol": "SASL_SSL",
        "mechanism": MECHANISM,
        "user": USER,
        "password_file": str(password_file),
        "ca_file": str(authority),
    }
    return json.dumps({"bootstrap": servers, "security": security}, indent=2) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file that its owner alone can read."""
    part = path.with_name(f"{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    part.rename(path)


def main() -> int:
    """Write all three files."""
    servers = bootstrap(json.loads((STATE / "hosts.json").read_text()))
    security = STATE / "security"  # an earlier release wrote none
    if not security.exists():
        sys.exit(f"error: {security} is missing: run make up")
    if security.read_text().strip() == "none":
        write(STATE / "client.properties", f"bootstrap.servers={servers}\n")
        write(STATE / "client.java.properties", f"bootstrap.servers={servers}\n")
        write(STATE / "client.yml", json.dumps({"bootstrap": servers}) + "\n")
        return 0
    password_file, authority = STATE / "users" / f"{USER}.password", STATE / "ca" / "ca.pem"
    password = password_file.read_text().strip()
    write(STATE / "client.properties", properties(servers, password, authority))
    write(STATE / "client.java.properties", java_properties(servers, password, authority))
    write(STATE / "client.yml", settings(servers, password_file, authority))
    return 0


if __name__ == "__main__":
    sys.exit(main())
