"""Settings read and changed by clients: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

Settings of topics are kept by the cluster and hold at once; so are those of brokers that topics inherit, and the few
that come and go with a task, as replication throttles do.  All others of a broker are read once, from its file, which
an operator keeps for many hosts; to change them here is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pylog.broker.handler import Answer, Caller, Cluster, Handler
from pylog.broker.settings import (
    DEFAULT_BROKER,
    Effective,
    Kind,
    Source,
    Value,
    broker_places,
    broker_settings,
    check_broker_configs,
    topic_settings,
)
from pylog.cluster.image import ClusterImage
from pylog.cluster.topics import check_topic_name, repeated_names
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.model import NO_LEADER
from pylog.wire.api import ApiKey, Message
from pylog.wire.api.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigOperation,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
    ResourceType,
)
from pylog.wire.api.message import Request

AlterRequest = AlterConfigsRequest | IncrementalAlterConfigsRequest


def describe_configs(cluster: Cluster, request: DescribeConfigsRequest, caller: Caller) -> Answer:
    """Say every setting of topics and of this broker, where it comes from and what it means."""
    results: list[DescribeConfigsResult] = []
    for resource in request.resources:
        row = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        results.append(row)
        try:
            found = _settings_of(cluster, resource.resource_type, resource.resource_name)
        except ApiError as error:
            row.error_code, row.error_message = error.code, str(error)
            continue
        wanted = resource.configuration_keys
        is_topic = resource.resource_type == ResourceType.TOPIC
        row.configs = [
            _describe_setting(one, request, cluster, is_topic=is_topic)
            for one in found.values()
            if wanted is None or one.name in wanted
        ]
    return DescribeConfigsResponse(results=results)


def _settings_of(cluster: Cluster, resource_type: int, name: str) -> dict[str, Effective]:
    if resource_type == ResourceType.TOPIC:
        topic = cluster.partitions.image.topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic_settings(_broker(cluster), topic.configs)
    if resource_type == ResourceType.BROKER:
        if name not in ("", str(cluster.broker_id)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {cluster.broker_id}; ask broker {name} itself")
        if name:
            return _broker(cluster)
        # What all brokers have in common is only what was set for all.
        common = cluster.partitions.image.broker_configs.get(DEFAULT_BROKER, {})
        found = broker_settings(cluster.settings, {DEFAULT_BROKER: common}, NO_LEADER)
        return {key: found[key] for key in common if key in found}
    raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no settings here")


def _broker(cluster: Cluster) -> dict[str, Effective]:
    return broker_settings(cluster.settings, cluster.partitions.image.broker_configs, cluster.broker_id)


def _describe_setting(
    one: Effective, request: DescribeConfigsRequest, cluster: Cluster, *, is_topic: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=one.name,
        value=one.text,
        read_only=not is_topic and not one.setting.is_dynamic,
        config_source=one.source,
        synonyms=_synonyms(one, cluster) if request.include_synonyms else [],
        config_type=one.setting.kind,
        documentation=one.setting.doc if request.include_documentation else None,
    )


def _synonyms(one: Effective, cluster: Cluster) -> list[DescribeConfigsSynonym]:
    """Return every place that has a say, the one that counts first."""
    dynamic = cluster.partitions.image.broker_configs
    places = broker_places(one.setting.name, cluster.settings, dynamic, cluster.broker_id)
    if one.source is Source.TOPIC:
        places.insert(0, one)
    return [DescribeConfigsSynonym(name=place.name, value=place.text, source=place.source) for place in places]


def alter_configs(
    cluster: Cluster, request: AlterConfigsRequest | IncrementalAlterConfigsRequest, caller: Caller
) -> Answer:
    """Let the controller change settings of topics, and those of brokers that may change while they run."""

    async def answer() -> Message:
        rows: dict[tuple[int, str], AlterConfigsResourceResponse] = {}
        resources = [(one.resource_type, one.resource_name) for one in request.resources]
        for key in resources:
            error = ApiError(ErrorCode.INVALID_REQUEST, "named twice") if resources.count(key) > 1 else _refusal(*key)
            if error is not None:
                rows[key] = _row(*key, error)
        wanted = only_resources(request, lambda *key: key not in rows)
        if wanted.resources:
            done = await cluster.ask_controller(wanted)
            assert isinstance(done, AlterConfigsResponse | IncrementalAlterConfigsResponse)
            rows |= {(row.resource_type, row.resource_name): row for row in done.responses}
        return alter_response(request, [rows[key] for key in resources])

    return answer()


def only_resources(request: AlterRequest, is_wanted: Callable[[int, str], bool]) -> AlterRequest:
    """Return *request* with those of its resources, by type and name, that are wanted."""
    if isinstance(request, AlterConfigsRequest):
        kept = [one for one in request.resources if is_wanted(one.resource_type, one.resource_name)]
        return replace(request, resources=kept)
    left = [one for one in request.resources if is_wanted(one.resource_type, one.resource_name)]
    return replace(request, resources=left)


def alter_response(request: AlterRequest, rows: list[AlterConfigsResourceResponse]) -> Message:
    """Return the answer to either kind of request."""
    if isinstance(request, AlterConfigsRequest):
        return AlterConfigsResponse(responses=rows)
    return IncrementalAlterConfigsResponse(responses=rows)


def _refusal(resource_type: int, name: str) -> ApiError | None:
    if resource_type == ResourceType.TOPIC or (resource_type == ResourceType.BROKER and (not name or name.isdigit())):
        return None
    return ApiError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no settings here")


def _row(resource_type: int, name: str, error: ApiError | None = None) -> AlterConfigsResourceResponse:
    row = AlterConfigsResourceResponse(resource_type=resource_type, resource_name=name)
    if error is not None:
        row.error_code, row.error_message = error.code, str(error)
    return row


Changes = dict[tuple[int, str], dict[str, str | None]]
"""What to set, or with None unset, by resource type and name; of brokers the name of their entity in the store."""

Rows = dict[tuple[int, str], AlterConfigsResourceResponse]


def plan_changes(request: AlterRequest, image: ClusterImage, broker: Mapping[str, Value]) -> tuple[Changes, Rows]:
    """Return what to set in topics and brokers, and the refusals of the others.

    Args:
        request: for topics and brokers, each once.
        image: what holds now.
        broker: values that lists are changed from where a topic has none of its own.
    """
    changes: Changes = {}
    refused: Rows = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            doubled = repeated_names(config.name for config in resource.configs)
            if doubled:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{', '.join(sorted(doubled))}: stands twice in one request")
            if resource.resource_type == ResourceType.TOPIC:
                changes[key] = _plan_topic(resource, image, broker)
            else:
                changes[key] = _plan_broker(resource, image)
        except ApiError as error:
            refused[key] = _row(*key, error)
    return changes, refused


def broker_entity(name: str) -> str:
    """Return the entity under which settings of the broker called *name* are kept; "" stands for all."""
    return name or DEFAULT_BROKER


def _plan_topic(
    resource: AlterConfigsResource | IncrementalAlterConfigsResource, image: ClusterImage, broker: Mapping[str, Value]
) -> dict[str, str | None]:
    topic = image.topics.get(resource.resource_name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {resource.resource_name} does not exist")
    if isinstance(resource, AlterConfigsResource):
        return _replacement(resource, topic.configs)
    # As on a broker without settings of its own: the controller speaks for all.
    inherited = broker_settings(broker, image.broker_configs, NO_LEADER)
    return _increments(resource, topic_settings(inherited, topic.configs))


def _plan_broker(
    resource: AlterConfigsResource | IncrementalAlterConfigsResource, image: ClusterImage
) -> dict[str, str | None]:
    current = image.broker_configs.get(broker_entity(resource.resource_name), {})
    if isinstance(resource, AlterConfigsResource):
        change = _replacement(resource, current)
    else:
        # A list is replaced as a whole: what one broker would add to, another may not have.
        change = {
            config.name: None if config.config_operation == ConfigOperation.DELETE else _increment(config, None)
            for config in resource.configs
        }
    try:
        check_broker_configs(change)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return change


def _replacement(resource: AlterConfigsResource, current: Mapping[str, str]) -> dict[str, str | None]:
    for config in resource.configs:
        if config.value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name}: has no value")
    # What is not named goes back to its default.
    return {**dict.fromkeys(current), **{config.name: config.value for config in resource.configs}}


def _increments(resource: IncrementalAlterConfigsResource, current: Mapping[str, Effective]) -> dict[str, str | None]:
    return {config.name: _increment(config, current.get(config.name)) for config in resource.configs}


def _increment(config: IncrementallyAlterableConfig, current: Effective | None) -> str | None:
    operation, value = config.config_operation, config.value
    if operation == ConfigOperation.DELETE:
        if current is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{config.name}: no such topic setting")
        return None
    if value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name}: has no value")
    if operation == ConfigOperation.SET:
        return value
    if current is None or current.setting.kind is not Kind.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{config.name}: is no list to add to or take from")
    before, given = [part for part in current.text.split(",") if part], value.split(",")
    if operation == ConfigOperation.APPEND:
        return ",".join([*before, *(part for part in given if part not in before)])
    if operation == ConfigOperation.SUBTRACT:
        return ",".join(part for part in before if part not in given)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name}: operation {operation} is unknown")


CONFIG_APIS: Mapping[ApiKey, tuple[type[Request], Handler]] = {
    ApiKey.DESCRIBE_CONFIGS: (DescribeConfigsRequest, describe_configs),
    ApiKey.ALTER_CONFIGS: (AlterConfigsRequest, alter_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (IncrementalAlterConfigsRequest, alter_configs),
}
"""The APIs of this module."""
