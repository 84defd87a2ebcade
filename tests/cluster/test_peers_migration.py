"""Brokers come from plain connections among themselves to encrypted ones, while clients go on."""

from typing import Any

from tests.cluster.conftest import bootstrap, create
from tests.cluster.test_listeners import ALL, Cluster, Load, cluster

__all__ = ["cluster"]  # the fixture

STEPS: tuple[dict[str, str], ...] = (
    {"security.protocol": "PLAINTEXT", "accepted.protocols": "PLAINTEXT,SSL"},
    {"security.protocol": "SSL", "accepted.protocols": "PLAINTEXT,SSL"},
    {"security.protocol": "SSL"},
)


def test_brokers_encrypt_in_three_rolls_without_a_failed_send(cluster: Cluster) -> None:
    create(cluster.brokers[1], "t", 6, 3, min_insync_replicas="2")
    files = {number: str(cluster.authority.server(f"peer-{number}.pem")) for number in ALL}

    def to(step: dict[str, str], number: int) -> Any:
        def change(listeners: dict[str, Any]) -> None:
            place = {name: listeners["internal"][name] for name in ("host", "port")}
            trust = {"ssl.keystore.location": files[number], "ssl.truststore.location": str(cluster.authority.trusted)}
            listeners["internal"] = place | trust | step

        return change

    with Load({"bootstrap.servers": bootstrap(cluster.brokers)}, "t") as load:
        for step in STEPS:
            for number in sorted(ALL):
                cluster.roll(number, to(step, number))
    assert (load.failed, load.sent > 100) == ([], True)
    for broker in cluster.brokers.values():
        assert broker.admin("GET", "/metrics")[1].count(
            'pylog_certificate_expires_timestamp_seconds{listener="internal"}'
        )
