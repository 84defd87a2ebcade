"""Open hosts become secured, and open again, by playbook `secure`, while a producer sends on and on."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pylog.ops.migration import LAST, STEPS
from tests.infra.load import PARTITIONS
from tests.rolls import cluster
from tests.rolls.securing.sender import Sender

INVENTORY = ("-i", "molecule/securing/inventory")
QUIET_S = 15
TOPICS = [f"{way}-{listener}" for way in ("there", "back") for listener in ("open", "secured")]
PROGRAMS = [step.name for step in STEPS].index("programs-secured") + 1
PAGES = [step.name for step in STEPS].index("pages-secured") + 1
CLOSING = [step.name for step in STEPS].index("rights-enforced") + 1


def addresses(port: int) -> str:
    return ",".join(f"{target.address}:{port}" for target in cluster.targets())


def is_open() -> dict[str, Any]:
    return {"bootstrap.servers": addresses(9092)}


def secured() -> dict[str, Any]:
    state = cluster.ROOT / ".local"
    return {
        "bootstrap.servers": addresses(9094), "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
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


def go(to: str, first: int, last: int, sender: Sender) -> None:
    """Make the steps with these numbers, each in a run of its own, and keep what each took and what *sender* saw."""
    for number in range(first, last + 1) if to == "secured" else range(first, last - 1, -1):
        if STEPS[number - 1].name in ("rights-enforced", "listener-closed", "listener-secured"):
            time.sleep(QUIET_S + 1)  # what it asks for: that nobody was there for so long
        began_s = time.monotonic()
        said = secure(to)
        assert f"step {number} of {LAST}" in said
        now_s = time.monotonic()
        kept = {"step": number, "name": STEPS[number - 1].name, "seconds": round(now_s - began_s)}
        kept |= {"longest_pause_ms": sender.tally.lap_ms(now_s), "failed": len(sender.tally.failures)}
        cluster.keep_more("securing", f"to {to}", kept)


def judge(*senders: tuple[str, Sender]) -> None:
    """Keep what became of all that was sent to each topic, and fail unless all of it is there."""
    for topic, sender in senders:
        cluster.keep_more("securing", "sends", {"topic": topic, "clients": [sender.report]})
    for _, sender in senders:
        sender.check()


def refused(config: dict[str, Any]) -> bool:
    try:
        AdminClient(config | {"log_level": 0}).list_topics(timeout=10)
    except Exception:  # noqa: BLE001  whichever way it is refused
        return True
    return False


def make_topics() -> None:
    """Make them by a client that is gone afterwards: it would be one that uses the open listener."""
    admin = AdminClient(is_open())  # a client without a name is gone before the answers come
    new = [NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for topic in TOPICS]
    for made in admin.create_topics(new, operation_timeout=30).values():
        made.result(60)


def test_an_open_cluster_is_secured_without_a_failed_send() -> None:
    make_topics()
    with Sender(is_open(), "there-open") as plain:
        go("secured", 1, 7, plain)
        asked = {"secure_to": "secured", "secure_datacenter": "live"}
        cluster.interrupt("secure", asked, "Give its leaderships back", more=INVENTORY)
        go("secured", 8, PAGES - 1, plain)
        # All brokers have the step then, and what comes after them has it not.
        cluster.interrupt("secure", asked, "PLAY .Hand clients that start", more=INVENTORY)
        go("secured", PAGES, CLOSING - 1, plain)
        done = cluster.playbook("secure", asked, *INVENTORY)
        assert done.returncode != 0
        assert "ANONYMOUS used listener client" in " ".join(done.stdout.split())
    with Sender(secured(), "there-secured") as moved:
        go("secured", CLOSING, LAST, moved)
    judge(("there-open", plain), ("there-secured", moved))
    assert "nothing is left to do" in secure("secured")
    assert refused(is_open())
    assert set(TOPICS) <= AdminClient(secured()).list_topics(timeout=10).topics.keys()


def test_site_changes_nothing_of_a_cluster_that_was_secured_so() -> None:
    starts = cluster.starts()
    done = cluster.playbook("site", None, *INVENTORY)
    assert done.returncode == 0
    assert cluster.starts() == starts


def test_a_secured_cluster_is_opened_again_without_a_failed_send() -> None:
    with Sender(secured(), "back-secured") as moved:
        go("open", LAST, PROGRAMS, moved)
    with Sender(is_open(), "back-open") as back:
        go("open", PROGRAMS - 1, 1, back)
    judge(("back-secured", moved), ("back-open", back))
    assert refused(secured())
    os.environ["SECURITY"] = "none"
    assert cluster.playbook("site", None, *INVENTORY).returncode == 0
