"""The admin clients of four projects behind the same five verbs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import ConfigResourceType as PythonConfigResourceType
from kafka.admin import NewTopic as PythonNewTopic

from tests.servers.kafka import TOPIC_COMMAND, java_tool

Answer = TypeVar("Answer")


class Admin(Protocol):
    """What an admin client under test can do."""

    name: str

    def create(self, bootstrap: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with one replica.

        Raises:
            Exception: the client's own, if the broker refuses.
        """

    def topics(self, bootstrap: str) -> set[str]:
        """Return the names of all topics."""

    def partitions(self, bootstrap: str, topic: str) -> int:
        """Return how many partitions *topic* has."""

    def config(self, bootstrap: str, topic: str) -> dict[str, str]:
        """Return the topic's settings, at least those that were set for it."""

    def delete(self, bootstrap: str, topic: str) -> None:
        """Delete a topic.

        Raises:
            Exception: the client's own, if the broker refuses.
        """


class ConfluentAdmin:
    """confluent-kafka's AdminClient (librdkafka)."""

    name = "confluent"

    def create(self, bootstrap: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """See `Admin.create`."""
        client, new_topic = self._client(bootstrap), NewTopic(topic, partitions, 1, config=dict(config))
        client.create_topics([new_topic])[topic].result(30)

    def topics(self, bootstrap: str) -> set[str]:
        """See `Admin.topics`."""
        return set(self._client(bootstrap).list_topics(timeout=30).topics)

    def partitions(self, bootstrap: str, topic: str) -> int:
        """See `Admin.partitions`."""
        return len(self._client(bootstrap).list_topics(topic, timeout=30).topics[topic].partitions)

    def config(self, bootstrap: str, topic: str) -> dict[str, str]:
        """See `Admin.config`."""
        client, resource = self._client(bootstrap), ConfigResource(ResourceType.TOPIC, topic)
        entries = client.describe_configs([resource])[resource].result(30)
        return {name: entry.value for name, entry in entries.items()}

    def delete(self, bootstrap: str, topic: str) -> None:
        """See `Admin.delete`."""
        client = self._client(bootstrap)
        client.delete_topics([topic])[topic].result(30)

    # Callers keep it in a variable: an answer on its way dies with its client.
    @staticmethod
    def _client(bootstrap: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": bootstrap})


class PythonAdmin:
    """kafka-python's KafkaAdminClient."""

    name = "kafka-python"

    def create(self, bootstrap: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """See `Admin.create`."""
        new_topic = PythonNewTopic(topic, partitions, 1, topic_configs=dict(config))
        self._call(bootstrap, lambda client: client.create_topics([new_topic]))

    def topics(self, bootstrap: str) -> set[str]:
        """See `Admin.topics`."""
        return set(self._call(bootstrap, lambda client: client.list_topics()))

    def partitions(self, bootstrap: str, topic: str) -> int:
        """See `Admin.partitions`."""
        return len(self._call(bootstrap, lambda client: client.describe_topics([topic]))[0]["partitions"])

    def config(self, bootstrap: str, topic: str) -> dict[str, str]:
        """See `Admin.config`."""
        resource = PythonConfigResource(PythonConfigResourceType.TOPIC, topic)
        found = self._call(bootstrap, lambda client: client.describe_configs([resource], config_filter="all"))
        return {name: str(entry["value"]) for name, entry in found["topic"][topic].items()}

    def delete(self, bootstrap: str, topic: str) -> None:
        """See `Admin.delete`."""
        self._call(bootstrap, lambda client: client.delete_topics([topic]))

    @staticmethod
    def _call(bootstrap: str, verb: Callable[[KafkaAdminClient], Any]) -> Any:
        client = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            return verb(client)
        finally:
            client.close()


class AioAdmin:
    """aiokafka's AIOKafkaAdminClient, which hands the error codes to its caller."""

    name = "aiokafka"

    def create(self, bootstrap: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """See `Admin.create`."""
        new_topic = AioNewTopic(topic, partitions, 1, topic_configs=dict(config))
        answer = self._call(bootstrap, lambda client: client.create_topics([new_topic]))
        _raise_for(answer.topic_errors)

    def topics(self, bootstrap: str) -> set[str]:
        """See `Admin.topics`."""
        return set(self._call(bootstrap, lambda client: client.list_topics()))

    def partitions(self, bootstrap: str, topic: str) -> int:
        """See `Admin.partitions`."""
        return len(self._call(bootstrap, lambda client: client.describe_topics([topic]))[0]["partitions"])

    def config(self, bootstrap: str, topic: str) -> dict[str, str]:
        """See `Admin.config`."""
        resource = AioConfigResource(AioConfigResourceType.TOPIC, topic)
        answers = self._call(bootstrap, lambda client: client.describe_configs([resource]))
        return {entry[0]: entry[1] for answer in answers for entry in answer.resources[0][4]}

    def delete(self, bootstrap: str, topic: str) -> None:
        """See `Admin.delete`."""
        answer = self._call(bootstrap, lambda client: client.delete_topics([topic]))
        _raise_for(answer.topic_error_codes)

    @staticmethod
    def _call(bootstrap: str, verb: Callable[[AIOKafkaAdminClient], Awaitable[Answer]]) -> Answer:
        async def run() -> Answer:
            client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await client.start()
            try:
                return await verb(client)
            finally:
                await client.close()

        return asyncio.run(run())


def _raise_for(errors: list[tuple[Any, ...]]) -> None:
    refused = {error[0]: error[1] for error in errors if error[1]}
    if refused:
        raise RuntimeError(f"refused: {json.dumps(refused)}")


class JavaAdmin:
    """``kafka-topics`` of Apache Kafka."""

    name = "java"

    def create(self, bootstrap: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """See `Admin.create`."""
        settings = [argument for name, value in config.items() for argument in ("--config", f"{name}={value}")]
        java_tool(
            TOPIC_COMMAND,
            "--bootstrap-server",
            bootstrap,
            "--create",
            "--topic",
            topic,
            "--partitions",
            str(partitions),
            "--replication-factor",
            "1",
            *settings,
        )

    def topics(self, bootstrap: str) -> set[str]:
        """See `Admin.topics`."""
        return set(java_tool(TOPIC_COMMAND, "--bootstrap-server", bootstrap, "--list").decode().split())

    def partitions(self, bootstrap: str, topic: str) -> int:
        """See `Admin.partitions`."""
        return self._describe(bootstrap, topic).count("\tPartition: ")

    def config(self, bootstrap: str, topic: str) -> dict[str, str]:
        """See `Admin.config`."""
        head = self._describe(bootstrap, topic).splitlines()[0]
        settings = head.partition("Configs: ")[2].strip()
        return dict(setting.split("=", 1) for setting in settings.split(",") if setting)

    def delete(self, bootstrap: str, topic: str) -> None:
        """See `Admin.delete`."""
        java_tool(TOPIC_COMMAND, "--bootstrap-server", bootstrap, "--delete", "--topic", topic)

    @staticmethod
    def _describe(bootstrap: str, topic: str) -> str:
        return java_tool(TOPIC_COMMAND, "--bootstrap-server", bootstrap, "--describe", "--topic", topic).decode()


ADMINS: tuple[Admin, ...] = (ConfluentAdmin(), PythonAdmin(), AioAdmin(), JavaAdmin())
