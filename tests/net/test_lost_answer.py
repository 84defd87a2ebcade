"""A connection that ends between a write and its answer: what a producer then sends again."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import yaml
from confluent_kafka import KafkaError, Message, Producer

from pylog.client.admin.cluster import Admin
from pylog.client.consumer import Consumer
from pylog.testing import BrokerProcess
from pylog.wire.api.table import ApiKey
from tests.servers.ports import free_ports


class Link:
    """What clients take for the broker: passes everything on, but may lose the answer to a Produce.

    Attributes:
        port: where it listens.
        broker_port: where the broker listens; set before the first client comes.
        lost: answers lost so far.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.broker_port = 0
        self.lost = 0
        self._to_lose = 0
        self._deciding = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def lose_next_answer(self) -> None:
        """End the connection instead of passing on the answer to a Produce, once."""
        self._to_lose, self.lost = 1, 0

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
                produced: set[int] = set()
                for pump in (self._there, self._back):
                    threading.Thread(target=pump, args=(client, broker, produced), daemon=True).start()

    def _there(self, client: socket.socket, broker: socket.socket, produced: set[int]) -> None:
        with suppress(OSError):
            for frame in frames(client):
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
                if api_key == ApiKey.PRODUCE:
                    produced.add(correlation_id)
                broker.sendall(frame)
        end(client, broker)

    def _back(self, client: socket.socket, broker: socket.socket, produced: set[int]) -> None:
        with suppress(OSError):
            for frame in frames(broker):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                if correlation_id in produced and self._is_lost():
                    break
                client.sendall(frame)
        end(client, broker)

    def _is_lost(self) -> bool:
        with self._deciding:
            if not self._to_lose:
                return False
            self._to_lose -= 1
            self.lost += 1
            return True


def frames(source: socket.socket) -> Iterator[bytes]:
    """Yield whole frames, their sizes included, until the connection ends."""
    with source.makefile("rb") as file:
        while len(size := file.read(4)) == 4:
            yield size + file.read(struct.unpack(">i", size)[0])


def end(*connections: socket.socket) -> None:
    """End connections for whoever still reads from them."""
    for one in connections:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    """A link, and a broker behind it that calls the link its address."""
    directory: Path = tmp_path_factory.mktemp("behind")
    with closing(Link()) as found:
        [found.broker_port] = free_ports(1)
        config = {
            "version": 1,
            "broker_id": 1,
            "listeners": {"client": {"host": "127.0.0.1", "port": found.broker_port, "advertised_port": found.port}},
            "data_dir": str(directory / "data"),
            "admin_socket": str(directory / "data" / "admin.sock"),
            "store": {"kind": "embedded"},
            "config": {"offsets.topic.replication.factor": 1},
        }
        path = directory / "broker.yml"
        path.write_text(yaml.safe_dump(config))
        with BrokerProcess(directory, config_file=path):
            yield found


@pytest.mark.parametrize(("is_idempotent", "copies"), [(False, 2), (True, 1)], ids=["plain", "idempotent"])
def test_a_lost_answer_doubles_a_record_of_a_producer_that_is_not_idempotent(
    link: Link, is_idempotent: bool, copies: int
) -> None:
    topic = f"copies-{copies}"
    Admin(link.bootstrap).create_topic(topic, partitions=1)
    link.lose_next_answer()
    producer = Producer({"bootstrap.servers": link.bootstrap, "enable.idempotence": is_idempotent})
    told: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        told.append(error)

    producer.produce(topic, b"once", on_delivery=delivered)
    assert producer.flush(60) == 0
    assert (told, link.lost) == ([None], 1)  # it knows of one, and of no fault
    with Consumer(link.bootstrap) as consumer:
        consumer.assign_topic(topic)
        assert [record.value for record in consumer.records_to_end()] == [b"once"] * copies
