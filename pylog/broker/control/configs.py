"""Settings read and changed by clients: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

Settings of topics are kept by the cluster and hold at once; so are those of brokers that topics inherit, and the few
that come and go with a task, as replication throttles do.  All others of a broker are read once, from its file, which
an operator keeps for many hosts; to change them here is refused.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from pylog.broker.control.api import ControlContext, ControllerApi
from pylog.broker.control.cluster import Cluster
from pylog.broker.control.controller import ActiveController, TopicResult
from pylog.broker.handler import Answer, Caller, topic_denied
from pylog.broker.large import in_steps
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
from pylog.cluster.topics import UNCLEAN_ELECTION, check_topic_name, repeated_names
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.model import NO_LEADER
from pylog.security.acl import Operation
from pylog.wire.api import Message
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

AlterRequest = AlterConfigsRequest | IncrementalAlterConfigsRequest
AlterResponse = AlterConfigsResponse | IncrementalAlterConfigsResponse

Change = Mapping[str, str | None]
"""Configs to set, or with None to unset, by name."""

Changes = dict[tuple[int, str], dict[str, str | None]]
"""Changes by resource type and name."""

Rows = dict[tuple[int, str], AlterConfigsResourceResponse]


def handle_describe(cluster: Cluster, request: DescribeConfigsRequest, caller: Caller) -> Answer:
    """Say every setting of topics and of this broker, where it comes from and what it means."""
    # Each is described once, however often it is named.
    wanted = {(one.resource_type, one.resource_name): one for one in request.resources}
    results: list[DescribeConfigsResult] = []
    steps = _describe_all(cluster, replace(request, resources=list(wanted.values())), caller, results)
    return in_steps(steps, lambda: DescribeConfigsResponse(results=results))


def _describe_all(
    cluster: Cluster, request: DescribeConfigsRequest, caller: Caller, results: list[DescribeConfigsResult]
) -> Iterator[None]:
    """Add a row to *results* for each resource, one a step."""
    for resource in request.resources:
        yield
        row = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        results.append(row)
        try:
            _require(caller, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
            found = _settings_of(cluster, resource.resource_type, resource.resource_name)
        except ApiError as error:
            row.error_code, row.error_message = error.code, str(error)
            continue
        wanted = None if resource.configuration_keys is None else frozenset(resource.configuration_keys)
        is_topic = resource.resource_type == ResourceType.TOPIC
        row.configs = [
            _describe_setting(one, request, cluster, is_topic=is_topic)
            for one in found.values()
            if wanted is None or one.name in wanted
        ]
        if resource.resource_type == ResourceType.BROKER and resource.resource_name:
            row.configs += [
                _describe_identity(name, value, request)
                for name, value in cluster.config.identity().items()
                if wanted is None or name in wanted
            ]


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


def _describe_identity(name: str, value: str | None, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    """Describe what a broker's file says of the broker itself, under Kafka's name."""
    synonym = DescribeConfigsSynonym(name=name, value=value, source=Source.STATIC_BROKER)
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        config_source=Source.STATIC_BROKER,
        synonyms=[synonym] if request.include_synonyms else [],
        config_type=Kind.INT if name == "broker.id" else Kind.STRING,
        documentation="Of this broker; read from its file." if request.include_documentation else None,
    )


def _synonyms(one: Effective, cluster: Cluster) -> list[DescribeConfigsSynonym]:
    """Return every place that has a say, the one that counts first."""
    dynamic = cluster.partitions.image.broker_configs
    places = broker_places(one.setting.name, cluster.settings, dynamic, cluster.broker_id)
    if one.source is Source.TOPIC:
        places.insert(0, one)
    return [DescribeConfigsSynonym(name=place.name, value=place.text, source=place.source) for place in places]


def handle_alter(
    cluster: Cluster, request: AlterConfigsRequest | IncrementalAlterConfigsRequest, caller: Caller
) -> Answer:
    """Let the controller change settings of topics, and those of brokers that may change while they run."""

    async def answer() -> Message:
        rows: Rows = {}
        resources = [(resource.resource_type, resource.resource_name) for resource in request.resources]
        counts = Counter(resources)
        for key in counts:
            if counts[key] > 1:
                rows[key] = _row(*key, ApiError(ErrorCode.INVALID_REQUEST, "duplicate resource in request"))
            elif (error := _refusal(caller, *key)) is not None:
                rows[key] = _row(*key, error)
        accepted = _restrict(request, lambda *key: key not in rows)
        if accepted.resources:
            response = await cluster.ask_controller(accepted)
            assert isinstance(response, AlterConfigsResponse | IncrementalAlterConfigsResponse)
            rows |= {(row.resource_type, row.resource_name): row for row in response.responses}
        return _response(request, [rows[key] for key in resources])

    return answer()


def _restrict(request: AlterRequest, is_kept: Callable[[int, str], bool]) -> AlterRequest:
    """Return *request* with only those of its resources, by type and name, that are kept."""
    if isinstance(request, AlterConfigsRequest):
        kept = [one for one in request.resources if is_kept(one.resource_type, one.resource_name)]
        return replace(request, resources=kept)
    left = [one for one in request.resources if is_kept(one.resource_type, one.resource_name)]
    return replace(request, resources=left)


def _response(request: AlterRequest, rows: list[AlterConfigsResourceResponse]) -> AlterResponse:
    if isinstance(request, AlterConfigsRequest):
        return AlterConfigsResponse(responses=rows)
    return IncrementalAlterConfigsResponse(responses=rows)


def _require(caller: Caller, operation: Operation, resource_type: int, name: str) -> None:
    """Refuse who may not read or change settings.  All but those of topics are the cluster's."""
    if resource_type != ResourceType.TOPIC:
        caller.require_cluster(operation)
    elif not caller.may_topic(operation, name):
        raise topic_denied(operation)


def _refusal(caller: Caller, resource_type: int, name: str) -> ApiError | None:
    try:
        _require(caller, Operation.ALTER_CONFIGS, resource_type, name)
    except ApiError as error:
        return error
    if resource_type == ResourceType.TOPIC or (resource_type == ResourceType.BROKER and (not name or name.isdigit())):
        return None
    return ApiError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no settings here")


def _row(resource_type: int, name: str, error: ApiError | None = None) -> AlterConfigsResourceResponse:
    row = AlterConfigsResourceResponse(resource_type=resource_type, resource_name=name)
    if error is not None:
        row.error_code, row.error_message = error.code, str(error)
    return row


async def _execute_alter(context: ControlContext, request: AlterRequest) -> AlterResponse:
    changes, rows = _plan_changes(request, context.image, context.settings)
    topics = {name: change for (kind, name), change in changes.items() if kind == ResourceType.TOPIC}
    brokers = {name: change for (kind, name), change in changes.items() if kind == ResourceType.BROKER}
    validate_only = request.validate_only
    if brokers:
        entities = {_broker_entity(name): change for name, change in brokers.items()}
        await context.run(partial(alter_broker_configs, changes=entities, validate_only=validate_only))
        rows |= {(ResourceType.BROKER, name): _row(ResourceType.BROKER, name) for name in brokers}
    for result in await context.run(partial(alter_topic_configs, changes=topics, validate_only=validate_only)):
        rows[ResourceType.TOPIC, result.name] = AlterConfigsResourceResponse(
            error_code=result.error,
            error_message=result.message or None,
            resource_type=ResourceType.TOPIC,
            resource_name=result.name,
        )
    return _response(request, [rows[one.resource_type, one.resource_name] for one in request.resources])


def _is_altered(context: ControlContext, request: AlterRequest, response: AlterResponse) -> bool:
    """Return whether the image shows the change: planned again, the change alters nothing."""
    if request.validate_only:
        return True
    image = context.image
    accepted = {(row.resource_type, row.resource_name) for row in response.responses if row.error_code == 0}
    changes, _ = _plan_changes(_restrict(request, lambda *key: key in accepted), image, context.settings)
    return all(
        (
            image.topics[name].configs
            if kind == ResourceType.TOPIC
            else image.broker_configs.get(_broker_entity(name), {})
        ).get(key)
        == value
        for (kind, name), change in changes.items()
        for key, value in change.items()
    )


def _plan_changes(request: AlterRequest, image: ClusterImage, broker: Mapping[str, Value]) -> tuple[Changes, Rows]:
    """Return what to set in topics and brokers, and the refusals of the others.

    Args:
        request: for topics and brokers, each once.
        image: the cluster as it is.
        broker: values that lists are changed from where a topic has none of its own.
    """
    changes: Changes = {}
    refused: Rows = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            duplicates = repeated_names(config.name for config in resource.configs)
            if duplicates:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{', '.join(sorted(duplicates))}: duplicate in request")
            if resource.resource_type == ResourceType.TOPIC:
                changes[key] = _plan_topic(resource, image, broker)
            else:
                changes[key] = _plan_broker(resource, image)
        except ApiError as error:
            refused[key] = _row(*key, error)
    return changes, refused


def _broker_entity(name: str) -> str:
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
    current = image.broker_configs.get(_broker_entity(resource.resource_name), {})
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
    before = [part for part in current.text.split(",") if part]
    given = [part.strip() for part in value.split(",") if part.strip()]
    if operation == ConfigOperation.APPEND:
        return ",".join([*before, *(part for part in given if part not in before)])
    if operation == ConfigOperation.SUBTRACT:
        return ",".join(part for part in before if part not in given)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"{config.name}: operation {operation} is unknown")


# -- operations of the controller --------------------------------------------------------------------------------------


def alter_topic_configs(
    controller: ActiveController, changes: Mapping[str, Change], *, validate_only: bool = False
) -> list[TopicResult]:
    """Set (or, with None, unset) configs of topics; return a result for each topic, in order."""
    state = controller.state
    results: list[TopicResult] = []
    merged: dict[str, dict[str, str]] = {}
    for name, change in changes.items():
        topic = state.topics.get(name)
        if topic is None or name in state.deletions:
            message = f"there is no topic {name!r}"
            results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
            continue
        configs = {key: value for key, value in {**topic.configs, **change}.items() if value is not None}
        try:
            state.config.check_configs(configs)
        except ConfigError as error:
            results.append(TopicResult(name, ErrorCode.INVALID_CONFIG, str(error)))
            continue
        merged[name] = configs
        results.append(TopicResult(name, topic_id=topic.topic_id, configs=configs))
    if merged and not validate_only:
        controller.tree.write_topic_configs(controller.fence, merged)
        for name, configs in merged.items():
            state.confirm_configs(name, configs)
        controller.mark_changed()
        if any(UNCLEAN_ELECTION in changes[name] for name in merged):
            controller.elect_leaders()
    return results


def alter_broker_configs(
    controller: ActiveController, changes: Mapping[str, Change], *, validate_only: bool = False
) -> None:
    """Set (or, with None, unset) dynamic configs of brokers, by id as text or ``<default>``; checked before."""
    state = controller.state
    for name, change in changes.items():
        merged = {**state.broker_configs.get(name, {}), **change}
        configs = {key: value for key, value in merged.items() if value is not None}
        if configs != state.broker_configs.get(name, {}) and not validate_only:
            controller.tree.write_broker_configs(controller.fence, name, configs)
            state.confirm_broker_configs(name, configs)
            controller.mark_changed()


ALTER: ControllerApi[AlterRequest, AlterResponse] = ControllerApi(
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    handle=handle_alter,
    execute=_execute_alter,
    is_visible=_is_altered,
    is_repeatable=True,
)
INCREMENTAL_ALTER: ControllerApi[AlterRequest, AlterResponse] = ControllerApi(
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    handle=handle_alter,
    execute=_execute_alter,
    is_visible=_is_altered,
    is_repeatable=True,
)
