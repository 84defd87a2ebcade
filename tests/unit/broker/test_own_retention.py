"""Who deletes expired segments: cron in a cluster, the broker itself where it is alone."""

import asyncio
import json
from pathlib import Path

import pytest

from pylog.broker import maintenance
from pylog.broker.broker import Broker
from pylog.config import load_broker_config
from pylog.log.directory import LogDirectory
from pylog.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.unit.broker.test_large import Cluster
from tests.unit.log.batches import append

WAIT_S = 60


def test_a_single_broker_with_a_file_deletes_what_has_expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "RETENTION_S", 0.02)
    document = {
        "version": 1,
        "broker_id": 0,
        "data_dir": str(tmp_path / "data"),
        "admin_socket": str(tmp_path / "admin.sock"),
        "listeners": {"client": {"host": "127.0.0.1", "port": 0}},
        "store": {"kind": "embedded"},
        "config": {"offsets.topic.replication.factor": 1, "auto.create.topics.enable": True},
    }
    file = tmp_path / "broker.yml"
    file.write_text(json.dumps(document))

    async def story() -> None:
        config = load_broker_config(file)
        broker = Broker(config, LogDirectory.open(config.data_dir, broker_id=0), asyncio.Event())
        await broker.start()
        try:
            address = broker.partitions.image.brokers[0].address(config.client_name)
            assert address is not None
            async with asyncio.timeout(WAIT_S), Cluster(address.port, broker).connected() as client:
                asked = MetadataRequest(topics=[MetadataRequestTopic(name="clicks")], allow_auto_topic_creation=True)
                while not (logs := [one.log for one in broker.partitions if one.log is not None]):
                    client.send(asked)
                    await client.receive(MetadataResponse)
                append(logs[0], timestamp=1_000)  # of 1970
                while logs[0].log_start_offset == 0:
                    await asyncio.sleep(0)
        finally:
            await broker.stop()

    asyncio.run(story())
