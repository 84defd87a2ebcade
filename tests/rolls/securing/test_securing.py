"""Open hosts become secured, and open again, by playbook `secure`, while a producer sends on and on."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.ops.migration import LAST, STEPS
from tests.cluster.test_listeners import Load
from tests.rolls import cluster

INVENTORY = ("-i", "molecule/securing/inventory")
QUIET_S = 15
TOPIC = "sent-on"
PROGRAMS = [step.name for step in STEPS].index("programs-secured") + 1
CLOSING = [step.name for step in STEPS].index("rights-enforced") + 1


def addresses(port: int) -> str:
    return ",".join(f"{target.address}:{port}" for target in cluster.targets())


def is_open() -> dict[str, Any]:
    return {"bootstrap.servers": addresses(9092)}


def secured() -> dict[str, Any]:
    state = cluster.ROOT / ".local"
    return {
        "bootstrap.servers": addresses(9093), "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "demo", "sasl.password": (state / "users" / "demo.password").read_text().strip(),
        "ssl.ca.location": str(state / "ca" / "ca.pem"),
    }  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def wanted_security() -> Iterator[None]:
    """The inventory says from the first step on that its hosts are to be secured, and until the last one back."""
    before = os.environ["SECURITY"]
    os.environ["SECURITY"] = "sasl_ssl"
    yield
    os.environ["SECURITY"] = before


def secure(to: str, quiet_s: int = QUIET_S) -> str:
    """Make one step and return what the playbook said."""
    asked = {"secure_to": to, "secure_datacenter": "live", "secure_quiet_s": quiet_s}
    done = cluster.playbook("secure", asked, *INVENTORY)
    assert done.returncode == 0, "see above"
    return done.stdout


def go(to: str, first: int, last: int) -> list[dict[str, Any]]:
    """Make the steps with these numbers, each in a run of its own."""
    took = []
    for number in range(first, last + 1) if to == "secured" else range(first, last - 1, -1):
        if STEPS[number - 1].name in ("rights-enforced", "listener-closed", "listener-secured"):
            time.sleep(QUIET_S + 1)  # what it asks for: that nobody was there for so long
        began_s = time.monotonic()
        said = secure(to)
        assert f"step {number} of {LAST}" in said
        took.append({"step": STEPS[number - 1].name, "to": to, "seconds": round(time.monotonic() - began_s)})
    return took


def refused(config: dict[str, Any]) -> bool:
    try:
        AdminClient(config | {"log_level": 0}).list_topics(timeout=10)
    except Exception:  # noqa: BLE001  whichever way it is refused
        return True
    return False


def test_an_open_cluster_is_secured_without_a_failed_send() -> None:
    admin = AdminClient(is_open())
    topic = NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic], operation_timeout=30)[TOPIC].result(60)
    with Load(is_open(), TOPIC) as plain:
        took = go("secured", 1, 7)
        asked = {"secure_to": "secured", "secure_datacenter": "live"}
        cluster.interrupt("secure", asked, "Give its leaderships back", more=INVENTORY)
        took += go("secured", 8, CLOSING - 1)
        done = cluster.playbook("secure", asked, *INVENTORY)
        assert done.returncode != 0
        assert "ANONYMOUS used listener client" in done.stdout
    with Load(secured(), TOPIC) as moved:
        took += go("secured", CLOSING, LAST)
    assert (plain.failed, moved.failed) == ([], [])
    assert min(plain.sent, moved.sent) > 100
    sent = {"open": plain.sent, "secured": moved.sent}
    cluster.keep_result("securing", {"there": took, "sent": sent})
    assert "nothing is left to do" in secure("secured")
    assert refused(is_open())
    assert TOPIC in AdminClient(secured()).list_topics(timeout=10).topics


def test_site_changes_nothing_of_a_cluster_that_was_secured_so() -> None:
    starts = cluster.starts()
    done = cluster.playbook("site", None, *INVENTORY)
    assert done.returncode == 0
    assert cluster.starts() == starts


def test_a_secured_cluster_is_opened_again_without_a_failed_send() -> None:
    with Load(secured(), TOPIC) as moved:
        took = go("open", LAST, PROGRAMS)
    with Load(is_open(), TOPIC) as back:
        took += go("open", PROGRAMS - 1, 1)
    assert (moved.failed, back.failed) == ([], [])
    assert min(moved.sent, back.sent) > 100
    kept = cluster.kept("securing")
    cluster.keep_result("securing", {"back": took, "sent_back": {"secured": moved.sent, "open": back.sent}, **kept})
    assert refused(secured())
    os.environ["SECURITY"] = "none"
    assert cluster.playbook("site", None, *INVENTORY).returncode == 0
