"""A connection that ends between a request and its answer: what a producer and an admin then send again."""

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
from pylog.client.admin.groups import GroupAdmin
from pylog.client.connection import Connection
from pylog.client.consumer import Consumer
from pylog.errors import ApiError, ErrorCode, Unreachable
from pylog.model import TopicPartition
from pylog.testing import BrokerProcess
from pylog.wire.api.table import ApiKey
from tests.command import Command
from tests.servers.ports import free_ports


class Link:
    """What clients take for the broker: passes everything on, but may lose an answer.

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
        self._lossy = ApiKey.PRODUCE
        self._deciding = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def lose_next_answers(self, api_key: ApiKey = ApiKey.PRODUCE, count: int = 1) -> None:
        """End the connection instead of passing on the next *count* answers to requests of this kind."""
        self._lossy, self._to_lose, self.lost = api_key, count, 0

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
                lossy: set[int] = set()
                for pump in (self._there, self._back):
                    threading.Thread(target=pump, args=(client, broker, lossy), daemon=True).start()

    def _there(self, client: socket.socket, broker: socket.socket, lossy: set[int]) -> None:
        with suppress(OSError):
            for frame in frames(client):
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
                if api_key == self._lossy:
                    lossy.add(correlation_id)
                broker.sendall(frame)
        end(client, broker)

    def _back(self, client: socket.socket, broker: socket.socket, lossy: set[int]) -> None:
        with suppress(OSError):
            for frame in frames(broker):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                if correlation_id in lossy and self._is_lost():
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
    link.lose_next_answers()
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


@pytest.fixture(scope="module")
def committed(link: Link) -> dict[TopicPartition, int]:
    """What the group "readers" has committed."""
    Admin(link.bootstrap).create_topic("read", partitions=2)
    offsets = {TopicPartition("read", 0): 0, TopicPartition("read", 1): 0}
    GroupAdmin(link.bootstrap).commit("readers", offsets)
    return offsets


def test_an_admin_asks_a_coordinator_again_whose_connection_breaks(
    link: Link, committed: dict[TopicPartition, int]
) -> None:
    admin = GroupAdmin(link.bootstrap)
    link.lose_next_answers(ApiKey.DESCRIBE_GROUPS)
    found = admin.group("readers")
    assert (found.state, found.members, link.lost) == ("Empty", (), 1)
    assert found.coordinator is not None
    assert found.coordinator.port == link.port
    link.lose_next_answers(ApiKey.OFFSET_FETCH, 2)
    assert (admin.committed("readers"), link.lost) == (committed, 2)
    link.lose_next_answers(ApiKey.OFFSET_COMMIT)
    admin.commit("movers", committed)
    assert (admin.committed("movers"), link.lost) == (committed, 1)
    link.lose_next_answers(ApiKey.FIND_COORDINATOR)
    assert (admin.group("nobody").state, link.lost) == ("Dead", 1)


def test_a_group_whose_deletion_was_not_answered_counts_as_deleted(
    link: Link, committed: dict[TopicPartition, int]
) -> None:
    admin = GroupAdmin(link.bootstrap)
    admin.commit("leavers", committed)
    link.lose_next_answers(ApiKey.DELETE_GROUPS)
    admin.delete_group("leavers")
    assert (admin.committed("leavers"), link.lost) == ({}, 1)
    with pytest.raises(ApiError, match="group 'leavers' does not exist") as raised:
        admin.delete_group("leavers")
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_coordinator_whose_connection_always_breaks_is_unreachable(
    link: Link, committed: dict[TopicPartition, int]
) -> None:
    admin = GroupAdmin(Connection(bootstrap=link.bootstrap, timeout_s=1))
    link.lose_next_answers(ApiKey.OFFSET_FETCH, 1_000)
    with pytest.raises(Unreachable, match="the broker closed the connection"):
        admin.committed("readers")
    link.lose_next_answers(ApiKey.OFFSET_FETCH, 0)
    assert admin.committed("readers") == committed


@pytest.mark.parametrize(
    ("arguments", "api_key"),
    [
        (("top", "--once", "--interval", "0.1"), ApiKey.OFFSET_FETCH),
        (("group", "describe", "readers"), ApiKey.DESCRIBE_GROUPS),
        (("group", "reset-offsets", "readers", "--to", "latest", "--execute"), ApiKey.OFFSET_COMMIT),
    ],
    ids=["top", "describe", "reset-offsets"],
)
def test_commands_about_groups_outlive_a_connection_that_breaks(
    link: Link, committed: dict[TopicPartition, int], arguments: tuple[str, ...], api_key: ApiKey
) -> None:
    link.lose_next_answers(api_key)
    assert "read" in Command(link.bootstrap)(*arguments).text
    assert link.lost == 1
