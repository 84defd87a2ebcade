"""Every node's JSON, byte for byte as Apache Kafka 3.9 writes it."""

import uuid
from dataclasses import replace

import pytest

from pylog.cluster import znodes
from pylog.cluster.image import BrokerInfo, DeletedTopic, Move, PartitionImage, TopicImage, parse_topic_id
from pylog.errors import ProtocolError
from pylog.model import NodeAddress

REGISTRATION = znodes.BrokerRegistration(1, NodeAddress(1, "127.0.0.1", 9092), NodeAddress(1, "10.0.0.1", 9192), "r1")


def test_a_broker() -> None:
    data = znodes.encode_broker(REGISTRATION, now_ms=1795264456072)
    assert data == (
        b'{"features":{"pylog.formats":{"min_version":2,"max_version":5}},'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","INTERNAL":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://127.0.0.1:9092","INTERNAL://10.0.0.1:9192"],"rack":"r1","jmx_port":-1,'
        b'"port":9092,"host":"127.0.0.1","version":5,"timestamp":"1795264456072"}'
    )
    assert znodes.decode_broker(1, data, czxid=77) == BrokerInfo(
        1, 77, "r1", REGISTRATION.client, REGISTRATION.internal, max_level=5
    )


def test_a_broker_without_rack_has_no_such_key() -> None:
    plain = znodes.BrokerRegistration(1, REGISTRATION.client, REGISTRATION.internal)
    assert b"rack" not in znodes.encode_broker(plain, 0)
    assert znodes.decode_broker(1, znodes.encode_broker(plain, 0), 1).rack is None


def test_rule_3_an_unclean_stop_stands_in_the_registration_until_it_is_settled() -> None:
    data = znodes.encode_broker(replace(REGISTRATION, is_clean=False), now_ms=1)
    assert not znodes.decode_broker(1, data, 7).is_clean
    settled = znodes.without_doubt(data)
    assert settled == znodes.encode_broker(REGISTRATION, now_ms=1)
    assert znodes.decode_broker(1, settled, 7).is_clean


def test_a_killed_process_says_that_its_host_runs_on_until_that_is_settled() -> None:
    data = znodes.encode_broker(replace(REGISTRATION, is_clean=False, has_memory=True), now_ms=1)
    assert znodes.decode_broker(1, data, 7).has_memory
    assert not znodes.decode_broker(1, data, 7).is_clean, "to an older release it is as any unclean stop"
    assert znodes.without_doubt(data) == znodes.encode_broker(REGISTRATION, now_ms=1)


def test_a_broker_with_an_ipv6_address() -> None:
    broker = znodes.BrokerRegistration(1, NodeAddress(1, "::1", 9092), NodeAddress(1, "fe80::1", 9192))
    data = znodes.encode_broker(broker, 0)
    assert b'"PLAINTEXT://[::1]:9092"' in data
    assert znodes.decode_broker(1, data, 1).internal == broker.internal


def test_a_broker_with_two_listeners_for_clients() -> None:
    """Who knows one address only, as release 0.1.0, finds that of the main listener."""
    secured = NodeAddress(1, "log1", 9093)
    broker = replace(REGISTRATION, more={"secured": ("SASL_SSL", secured)}, internal_protocol="SSL")
    data = znodes.encode_broker(broker, 1)
    assert data == (
        b'{"features":{"pylog.formats":{"min_version":2,"max_version":5}},'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","SECURED":"SASL_SSL","INTERNAL":"SSL"},'
        b'"endpoints":["PLAINTEXT://127.0.0.1:9092","SECURED://log1:9093","INTERNAL://10.0.0.1:9192"],"rack":"r1",'
        b'"jmx_port":-1,"port":9092,"host":"127.0.0.1","version":5,"timestamp":"1"}'
    )
    found = znodes.decode_broker(1, data, 7)
    assert found.client == REGISTRATION.client
    assert found.address("client") == REGISTRATION.client
    assert found.address("secured") == secured
    assert found.address("other") is None


def test_a_broker_whose_only_listener_has_another_name_serves_no_clients_of_the_usual_one() -> None:
    broker = replace(REGISTRATION, name="secured", protocol="SASL_SSL")
    found = znodes.decode_broker(1, znodes.encode_broker(broker, 1), 7)
    assert found.address("secured") == found.client == REGISTRATION.client
    assert found.address("client") is None


def test_a_broker_that_kafka_registered() -> None:
    data = (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":'
        b'["PLAINTEXT://127.0.0.1:9092"],"jmx_port":-1,"port":9092,"host":"127.0.0.1","version":5,"timestamp":"1"}'
    )
    address = NodeAddress(2, "127.0.0.1", 9092)
    assert znodes.decode_broker(2, data, 5) == BrokerInfo(2, 5, None, address, address)


def test_a_topic() -> None:
    partitions = {
        0: PartitionImage(1, 0, (1, 2), (1, 2), 0),
        1: PartitionImage(2, 0, (2, 1), (2, 1), 0),
    }
    topic = TopicImage("T", parse_topic_id("vS7img6LTLWcAmLY8OZ6Uw"), partitions)
    data = znodes.encode_assignment(topic)
    assert data == (
        b'{"partitions":{"0":[1,2],"1":[2,1]},"topic_id":"vS7img6LTLWcAmLY8OZ6Uw","adding_replicas":{},'
        b'"removing_replicas":{},"version":3}'
    )
    assert znodes.decode_assignment(data) == znodes.Assignment(topic.topic_id, {0: (1, 2), 1: (2, 1)}, {}, {})


def test_a_topic_on_the_move_as_kafka_writes_it() -> None:
    partitions = {0: PartitionImage(1, 0, (1, 2), (3, 2, 1), 0), 1: PartitionImage(2, 0, (2, 1), (2, 1), 0)}
    moves = {0: Move((3,), (1,)), 1: Move((), (1,))}
    topic = TopicImage("T", parse_topic_id("vS7img6LTLWcAmLY8OZ6Uw"), partitions, {}, moves, {1: (4,)})
    data = znodes.encode_assignment(topic)
    assert data == (
        b'{"partitions":{"0":[3,2,1],"1":[2,1]},"topic_id":"vS7img6LTLWcAmLY8OZ6Uw","adding_replicas":{"0":[3]},'
        b'"removing_replicas":{"0":[1],"1":[1]},"version":3,"pylog_leaving_replicas":{"1":[4]}}'
    )
    assert znodes.decode_assignment(data) == znodes.Assignment(
        topic.topic_id, {0: (3, 2, 1), 1: (2, 1)}, topic.moves, topic.leaving
    )


def test_a_topic_knows_when_it_was_created() -> None:
    topic = TopicImage("T", uuid.UUID(int=1), {0: PartitionImage(1, 0, (1,), (1,), 0)}, created_ms=5)
    data = znodes.encode_assignment(topic)
    assert data.endswith(b'"version":3,"pylog_created_ms":5}')
    assert znodes.decode_assignment(data).created_ms == 5


def test_rule_15_a_topic_of_the_release_before_says_nothing_of_moves_and_its_creation() -> None:
    data = b'{"partitions":{"0":[1]},"topic_id":"vS7img6LTLWcAmLY8OZ6Uw","version":3}'
    found = znodes.decode_assignment(data)
    assert (found.moves, found.created_ms) == ({}, 0)


def test_rule_15_a_broker_of_the_release_before_reads_formats_of_the_first_level() -> None:
    data = znodes.encode_broker(REGISTRATION, 1).replace(b'{"pylog.formats":{"min_version":2,"max_version":5}}', b"{}")
    assert znodes.decode_broker(1, data, 7).max_level == 1


def test_the_format_level() -> None:
    assert znodes.encode_level(2) == b'{"version":1,"level":2}'
    assert znodes.decode_level(b'{"version":1,"level":2}') == 2


def test_more_than_ten_partitions_come_back_by_number() -> None:
    partitions = {number: PartitionImage(1, 0, (1,), (1,), 0) for number in range(12)}
    topic = TopicImage("T", uuid.UUID(int=1), partitions)
    assert list(znodes.decode_assignment(znodes.encode_assignment(topic)).replicas) == list(range(12))


def test_a_partitions_state() -> None:
    partition = PartitionImage(1, 0, (1,), (1, 2), partition_epoch=4)
    data = znodes.encode_state(partition, controller_epoch=1)
    assert data == b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    assert znodes.decode_state(data, version=4, replicas=(1, 2)) == partition


def test_the_controller() -> None:
    data = znodes.encode_controller(3, now_ms=12)
    assert data == b'{"version":2,"brokerid":3,"timestamp":"12","kraftControllerEpoch":-1}'
    assert znodes.decode_controller(data) == 3


def test_the_controller_epoch_is_a_bare_number() -> None:
    assert znodes.encode_controller_epoch(1) == b"1"
    assert znodes.decode_controller_epoch(b"17") == 17


def test_the_cluster_id() -> None:
    data = znodes.encode_cluster_id("nawkdl34Qkqp5URD7XzJJA")
    assert data == b'{"version":"1","id":"nawkdl34Qkqp5URD7XzJJA"}'
    assert znodes.decode_cluster_id(data) == "nawkdl34Qkqp5URD7XzJJA"


def test_configs() -> None:
    data = znodes.encode_configs({"retention.ms": "3600000"})
    assert data == b'{"version":1,"config":{"retention.ms":"3600000"}}'
    assert znodes.decode_configs(data) == {"retention.ms": "3600000"}
    assert znodes.encode_configs({}) == b'{"version":1,"config":{}}'


def test_a_block_of_producer_ids() -> None:
    data = znodes.encode_producer_id_block(1, 0)
    assert data == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    assert znodes.next_producer_id(data) == 1000
    assert znodes.next_producer_id(b"") == 0


def test_a_deleted_topic() -> None:
    deleted = DeletedTopic("T", uuid.UUID(int=3), (1, 2))
    data = znodes.encode_deleted_topic(deleted)
    assert data == b'{"version":1,"topic":"T","replicas":[1,2]}'
    name = znodes.deleted_topic_path(deleted.topic_id).rpartition("/")[2]
    assert znodes.decode_deleted_topic(name, data) == deleted


def test_paths() -> None:
    assert znodes.broker_path(1) == "/brokers/ids/1"
    assert znodes.state_path("T", 3) == "/brokers/topics/T/partitions/3/state"
    assert znodes.topic_config_path("T") == "/config/topics/T"
    assert znodes.delete_topic_path("T") == "/admin/delete_topics/T"
    assert set(znodes.BASE_PATHS) >= {
        "/consumers",
        "/brokers/ids",
        "/brokers/topics",
        "/config/changes",
        "/admin/delete_topics",
        "/brokers/seqid",
        "/isr_change_notification",
        "/latest_producer_id_block",
        "/log_dir_event_notification",
        "/config/topics",
        "/config/clients",
        "/config/users",
        "/config/brokers",
        "/config/ips",
    }


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"3", b"{", b"\xff", b'{"partitions":{"x":[1]}}'])
def test_what_something_else_wrote_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="store node"):
        znodes.decode_assignment(data)
    with pytest.raises(ProtocolError, match="store node"):
        znodes.decode_state(data, 0, (1,))
    with pytest.raises(ProtocolError, match="store node"):
        znodes.decode_broker(1, data, 1)
