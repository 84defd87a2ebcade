"""Settings of topics and brokers as an operator sees and changes them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from pylog.client.admin.cluster import Admin


class Holder(StrEnum):
    """What has settings."""

    TOPIC = "topic"
    BROKER = "broker"


_TYPES = {Holder.TOPIC: ResourceType.TOPIC, Holder.BROKER: ResourceType.BROKER}
_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker, changed",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, changed",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's file",
    ConfigSource.DEFAULT_CONFIG: "default",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: Kafka's.
        value: as text; None where it is secret.
        source: who says so: topic, broker's file, default.
        is_read_only: whether requests cannot change it.
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool


class ConfigAdmin(Admin):
    """Asks for settings and changes them; raises as `Admin` does."""

    def settings(self, holder: Holder, name: str) -> list[Setting]:
        """Return all settings of a topic, or of a broker by its id, by name."""
        resource = ConfigResource(_TYPES[holder], name)
        with self._translated():
            answers = self._client.describe_configs([resource], request_timeout=self._cluster.timeout_s)
            entries = answers[resource].result(self._cluster.timeout_s + 1)
        return sorted(
            (
                Setting(
                    one.name,
                    None if one.is_sensitive else one.value,
                    _SOURCES.get(ConfigSource(one.source), "unknown"),
                    bool(one.is_read_only),
                )
                for one in entries.values()
            ),
            key=lambda one: one.name,
        )

    def alter(
        self,
        holder: Holder,
        name: str,
        set_: Mapping[str, str],
        delete: Iterable[str] = (),
        *,
        is_dry_run: bool = False,
    ) -> None:
        """Change settings, all or none; what is deleted falls back to the broker's."""
        changes = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in set_.items()]
        changes += [ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in delete]
        resource = ConfigResource(_TYPES[holder], name, incremental_configs=changes)
        with self._translated():
            self._client.incremental_alter_configs(
                [resource],
                validate_only=is_dry_run,
                request_timeout=self._cluster.timeout_s,
            )[resource].result(self._cluster.timeout_s + 1)
