"""Consumers that name topics by their ids (Fetch from version 13 on)."""

import asyncio
import datetime
import importlib
import io
import logging
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_reader, entity_writer

from pylog.broker.data import reading
from pylog.cluster.image import ClusterImage, TopicImage
from pylog.errors import ErrorCode
from pylog.security.principal import Session
from pylog.wire.api import parse_request_header
from tests.unit.broker.data.test_identity import HERE, UNHEARD, Leading

VERSION = 17


class Consumer:
    """Asks broker 1 by version 17, in one fetch session."""

    def __init__(self, leading: Leading) -> None:
        self.handler = leading.handler
        self.session = (0, 0)

    def ask(
        self, *topic_ids: UUID, forgotten: tuple[UUID, ...] = (), partition: int = 0, replica_id: int = -1
    ) -> list[tuple[UUID, int, int]]:
        """Return topic id, error and bytes of records of each row."""
        schema: Any = importlib.import_module(f"kio.schema.fetch.v{VERSION}.request")
        request = schema.FetchRequest(
            replica_state=schema.ReplicaState(replica_id=replica_id, replica_epoch=-1),
            max_wait=datetime.timedelta(0),
            min_bytes=0,
            session_id=self.session[0],
            session_epoch=self.session[1],
            topics=tuple(
                schema.FetchTopic(
                    topic_id=one,
                    partitions=(
                        schema.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20),
                    ),
                )
                for one in topic_ids
            ),
            forgotten_topics_data=tuple(
                schema.ForgottenTopic(topic_id=one, partitions=(partition,)) for one in forgotten
            ),
            rack_id="",
        )
        out = io.BytesIO()
        entity_writer(type(request))(out, request)
        frame = memoryview(struct.pack(">hhihB", 1, VERSION, 9, -1, 0) + out.getvalue())
        session = Session(client_host="h", listener_name="client")
        connection: Any = SimpleNamespace(answered=[], peer="10.0.0.9:1", read_ns=0, session=session)
        parts = self.handler.handle(connection, parse_request_header(frame), frame)
        assert parts is not None
        whole = b"".join(one if isinstance(one, bytes) else bytes(one.size_bytes) for one in parts)
        theirs: Any = importlib.import_module(f"kio.schema.fetch.v{VERSION}.response").FetchResponse
        answer: Any = entity_reader(theirs)(whole[9:], 0)[0]
        assert answer.error_code.value == 0
        self.session = (answer.session_id, self.session[1] + 1)
        return [
            (topic.topic_id, part.error_code.value, len(part.records or b""))
            for topic in answer.responses
            for part in topic.partitions
        ]


def remake(leading: Leading, topic_id: UUID | None) -> None:
    """Let topic t be deleted, or made again under another id."""
    old = leading.partitions.image
    topics = {name: one for name, one in old.topics.items() if name != "t"}
    if topic_id is not None:
        topics["t"] = TopicImage("t", topic_id, old.topics["other"].partitions)
    image = ClusterImage(1, old.version + 1, "c", 1, old.brokers, topics)
    gone = leading.partitions.retire(image)
    leading.partitions.switch(image, leading.partitions.prepare(image), gone)


def test_records_are_read_by_the_id_of_their_topic(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        leading.log.high_watermark = 3
        [(topic_id, error, size)] = Consumer(leading).ask(HERE)
        assert (topic_id, error) == (HERE, 0)
        assert size > 0

    asyncio.run(story())


def test_an_unknown_id_is_refused_logged_once_and_read_when_it_is_heard_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        consumer = Consumer(leading)
        with caplog.at_level(logging.WARNING):
            assert consumer.ask(UNHEARD) == [(UNHEARD, ErrorCode.UNKNOWN_TOPIC_ID, 0)]
            assert consumer.ask() == [(UNHEARD, ErrorCode.UNKNOWN_TOPIC_ID, 0)]
        assert len(caplog.records) == 1
        assert leading.handler._fetches.value == 2
        assert leading.handler._bytes.value == 0
        remake(leading, UNHEARD)
        assert consumer.ask() == [(UNHEARD, 0, 0)]

    asyncio.run(story())


def test_a_session_ends_with_the_topic_it_meant_not_with_the_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        consumer, late = Consumer(leading), Consumer(leading)
        consumer.ask(HERE)
        late.ask(HERE)
        remake(leading, UNHEARD)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert late.ask() == [(HERE, ErrorCode.UNKNOWN_TOPIC_ID, 0)]
                consumer.ask(UNHEARD, forgotten=(HERE,))
        assert len(caplog.records) == 1, "whatever others ask meanwhile"
        assert consumer.ask() == [], "the old one is forgotten, and of the new one nothing is new"

    asyncio.run(story())


def test_a_deleted_topic_and_a_partition_that_is_not_there_differ(tmp_path: Path) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        assert Consumer(leading).ask(HERE, partition=7) == [(HERE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]
        remake(leading, None)
        assert Consumer(leading).ask(HERE) == [(HERE, ErrorCode.UNKNOWN_TOPIC_ID, 0)]

    asyncio.run(story())


def test_a_client_that_claims_to_be_a_replica_is_refused_by_id_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        leading = Leading(tmp_path, records=3)
        for _ in range(3):
            refused = Consumer(leading).ask(HERE, replica_id=2)
            assert refused == [(HERE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0)]
        [line] = caplog.messages
        assert "it calls itself broker 2" in line
        assert Consumer(leading).ask(HERE, replica_id=-2)[0][1] == 0, "a debugging consumer"
        assert leading.known_end() == -1

    asyncio.run(story())


def test_ids_asked_for_in_vain_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_UNKNOWN_IDS", 5)

    async def story() -> None:
        leading = Leading(tmp_path, records=1)
        Consumer(leading).ask(*(UUID(int=number) for number in range(100, 120)))
        assert len(leading.handler.reader._unknown_ids) <= 5

    asyncio.run(story())
