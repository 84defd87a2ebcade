"""Payloads are bytes; what they mean is yours: `python examples/own_serializer.py HOST:PORT ZOOKEEPER`."""

import json
import sys
from dataclasses import asdict, dataclass

from pylog.client import ConsumerConnector, Message, Producer


@dataclass
class Login:
    """What the messages of this topic are."""

    user: str
    at: int


def to_bytes(login: Login) -> bytes:
    """Return the payload of a message."""
    return json.dumps(asdict(login)).encode()


def from_bytes(payload: bytes | None) -> Login:
    """Return what a payload says."""
    return Login(**json.loads(payload or b"{}"))


cluster, zookeeper = sys.argv[1:3]
with Producer(cluster, serializer=to_bytes) as producer:
    producer.send("logins", Message(Login("ada", 1_700_000_000)))
with ConsumerConnector(cluster, zookeeper, "security", start="smallest", deserializer=from_bytes) as consumer:
    for message in consumer.createMessageStreams("logins", 1)[0]:
        print(message.payload())
        break
