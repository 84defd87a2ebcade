"""Creating, growing and deleting topics: CreateTopics, CreatePartitions, DeleteTopics."""

import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pylog.broker.clock import steady_ms, wall_ms
from pylog.broker.control.api import ControlContext, ControllerApi
from pylog.broker.control.cluster import Cluster
from pylog.broker.control.controller import ActiveController, TopicResult
from pylog.broker.control.mutations import ask_for_allowed
from pylog.broker.handler import Answer, Caller, topic_denied
from pylog.broker.settings import check_topic_configs
from pylog.cluster.controller import StateChange
from pylog.cluster.image import ClusterImage, TopicImage
from pylog.cluster.topics import BROKER_DEFAULT, NewTopic, repeated_names
from pylog.errors import ApiError, ConfigError, ErrorCode
from pylog.security.acl import CLUSTER_NAME, Operation, ResourceType
from pylog.wire.api import Message
from pylog.wire.api.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from pylog.wire.api.schema import NO_TOPIC_ID
from pylog.wire.api.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

REGISTRATION_WAIT_MS = 5_000
"""Age of a controller up to which it waits for further brokers before it refuses a replication factor: when a cluster
starts, brokers register one after the other."""

# -- CreateTopics ------------------------------------------------------------------------------------------------------


def handle_create(cluster: Cluster, request: CreateTopicsRequest, caller: Caller) -> Answer:
    """Let the controller create topics, as far as the client's rights and quota allow."""
    is_creator = caller.has(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    topics, default_count = cluster.partitions.image.topics, cluster.topic_policy.num_partitions

    def partition_count(topic: CreatableTopic) -> int:
        if topic.name in topics:
            return 0
        count = len(topic.assignments) or topic.num_partitions
        return count if count > 0 else default_count

    def refusal(topic: CreatableTopic) -> ApiError | None:
        # Whether there is one already is told to those alone who may create it.
        is_allowed = is_creator or caller.may_topic(Operation.CREATE, topic.name)
        return None if is_allowed else topic_denied(Operation.CREATE)

    created = ask_for_allowed(cluster, request, caller, refusal, partition_count)
    return created if caller.subject is None else _with_hidden_configs(created, caller)


async def _with_hidden_configs(created: Answer, caller: Caller) -> Message:
    """Return the answer without the settings, and what depends on them, of topics whose settings are hidden."""
    answer = created if isinstance(created, Message) else await created
    assert isinstance(answer, CreateTopicsResponse)
    for row in answer.topics:
        if not caller.sees(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, row.name):
            row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            row.configs, row.num_partitions, row.replication_factor = None, -1, -1
    return answer


async def _execute_create(context: ControlContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    rows: dict[str, CreatableTopicResult] = {}
    accepted: list[NewTopic] = []
    duplicates = repeated_names(topic.name for topic in request.topics)
    for topic in request.topics:
        rows[topic.name] = CreatableTopicResult(name=topic.name)
        try:
            if topic.name in duplicates:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate topic {topic.name} in request")
            accepted.append(_new_topic(topic))
        except ApiError as error:
            rows[topic.name].error_code = error.code
            rows[topic.name].error_message = str(error)
    ids = new_topic_ids(topic.name for topic in accepted)
    operation = partial(create_topics, topics=accepted, topic_ids=ids, validate_only=request.validate_only)
    for result in await _create_when_registered(context, operation, request.timeout_ms):
        rows[result.name] = CreatableTopicResult(
            name=result.name,
            topic_id=result.topic_id or NO_TOPIC_ID,
            error_code=result.error,
            error_message=result.message,
            num_partitions=result.partitions,
            replication_factor=result.replication_factor,
        )
    return CreateTopicsResponse(topics=list(rows.values()))


async def _create_when_registered(
    context: ControlContext, operation: Callable[[ActiveController], list[TopicResult]], timeout_ms: int
) -> list[TopicResult]:
    """Run *operation*; run it again while brokers still register that some of its topics need."""
    results = await context.run(operation)
    while not context.is_alone and any(one.error is ErrorCode.INVALID_REPLICATION_FACTOR for one in results):
        age_ms = await context.run(lambda controller: steady_ms() - controller.elected_ms)
        wait_s = min(REGISTRATION_WAIT_MS - age_ms, timeout_ms) / 1000
        if wait_s <= 0 or not await context.images.wait_until(_has_more_brokers(context.image), wait_s):
            break
        results = await context.run(operation)  # by their ids it recognizes the topics that it has created
    return results


def _has_more_brokers(known: ClusterImage) -> Callable[[ClusterImage], bool]:
    return lambda image: len(image.brokers) > len(known.brokers)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    configs = {config.name: config.value for config in topic.configs}
    try:
        check_topic_configs(configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    assignments = {row.partition_index: row.broker_ids for row in topic.assignments} or None
    if assignments is not None and len(assignments) != len(topic.assignments):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "duplicate partition in the assignments")
    return NewTopic(
        name=topic.name,
        partitions=BROKER_DEFAULT if assignments else topic.num_partitions,
        replication_factor=BROKER_DEFAULT if assignments else topic.replication_factor,
        assignments=assignments,
        configs={name: value for name, value in configs.items() if value is not None},
    )


def new_topic_ids(names: Iterable[str]) -> dict[str, uuid.UUID]:
    """Return a random id for each name; none is written with a leading dash, which command lines take for an option."""
    ids: dict[str, uuid.UUID] = {}
    for name in names:
        raw = os.urandom(16)
        # A dash is the digit 62 of base64url; without its highest bit the first digit stays below 32.
        ids[name] = uuid.UUID(bytes=bytes([raw[0] & 0x7F]) + raw[1:])
    return ids


def create_topics(
    controller: ActiveController,
    topics: Sequence[NewTopic],
    topic_ids: Mapping[str, uuid.UUID],
    *,
    validate_only: bool = False,
) -> list[TopicResult]:
    """Create topics and return a result for each, in order.

    Args:
        controller: writes them.
        topics: the topics to create.
        topic_ids: an id for each name.  After a lost connection the same call with the same ids recognizes by them
            what it had written already.
        validate_only: return the results and write nothing.
    """
    state = controller.state
    results = {
        name: TopicResult(name, ErrorCode.INVALID_REQUEST, f"duplicate topic {name!r} in request")
        for name in repeated_names(topic.name for topic in topics)
    }
    for name, topic_id in topic_ids.items():
        topic = state.topics.get(name)
        if name not in results and topic is not None and topic.topic_id == topic_id:
            results[name] = _created(topic)
    planned, refused = state.plan_topics(
        (topic, topic_ids[topic.name]) for topic in topics if topic.name not in results
    )
    planned = [replace(image, created_ms=wall_ms()) for image in planned]
    results |= {name: TopicResult(name, error.code, str(error)) for name, error in refused.items()}
    is_new = {} if validate_only else controller.tree.create_topics(controller.fence, planned)
    for image in planned:
        if is_new.get(image.name, True):
            results[image.name] = _created(image)
        else:
            message = "another tool created it at the same time"
            results[image.name] = TopicResult(image.name, ErrorCode.TOPIC_ALREADY_EXISTS, message)
        if is_new.get(image.name):
            state.confirm_topic(image)
            controller.mark_changed()
    return [results[topic.name] for topic in topics]


def _created(topic: TopicImage) -> TopicResult:
    return TopicResult(
        topic.name,
        topic_id=topic.topic_id,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=topic.configs,
    )


def _created_ids(response: CreateTopicsResponse) -> set[uuid.UUID]:
    return {row.topic_id for row in response.topics if row.error_code == ErrorCode.NONE}


def _is_created(context: ControlContext, request: CreateTopicsRequest, response: CreateTopicsResponse) -> bool:
    if request.validate_only:
        return True
    return all(context.image.topic_by_id(topic_id) is not None for topic_id in _created_ids(response))


def _mark_created_late(response: CreateTopicsResponse) -> None:
    for row in response.topics:
        if row.error_code == ErrorCode.NONE:
            row.error_code = ErrorCode.REQUEST_TIMED_OUT
            row.error_message = "the topic is created, but not every broker knows it yet"


# -- CreatePartitions --------------------------------------------------------------------------------------------------


class Growth(NamedTuple):
    """The number of partitions that a topic is to have, and where the new ones go; None lets the cluster choose."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


def handle_grow(cluster: Cluster, request: CreatePartitionsRequest, caller: Caller) -> Answer:
    """Let the controller add partitions to topics, as far as the client's rights and quota allow."""
    topics = cluster.partitions.image.topics

    def partition_count(topic: CreatePartitionsTopic) -> int:
        image = topics.get(topic.name)
        return 0 if image is None else max(topic.count - len(image.partitions), 0)

    def refusal(topic: CreatePartitionsTopic) -> ApiError | None:
        return None if caller.may_topic(Operation.ALTER, topic.name) else topic_denied(Operation.ALTER)

    return ask_for_allowed(cluster, request, caller, refusal, partition_count)


async def _execute_grow(context: ControlContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    rows: dict[str, CreatePartitionsTopicResult] = {}
    accepted: list[Growth] = []
    duplicates = repeated_names(topic.name for topic in request.topics)
    for topic in request.topics:
        rows[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        if topic.name in duplicates:
            rows[topic.name].error_code = ErrorCode.INVALID_REQUEST
            rows[topic.name].error_message = f"duplicate topic {topic.name} in request"
            continue
        given = topic.assignments
        assignments = None if given is None else [assignment.broker_ids for assignment in given]
        accepted.append(Growth(topic.name, topic.count, assignments))
    operation = partial(grow_topics, topics=accepted, begun={}, validate_only=request.validate_only)
    for result in await context.run(operation):
        rows[result.name].error_code, rows[result.name].error_message = result.error, result.message or None
    return CreatePartitionsResponse(results=list(rows.values()))


def grow_topics(
    controller: ActiveController, topics: Sequence[Growth], begun: dict[str, int], *, validate_only: bool = False
) -> list[TopicResult]:
    """Add partitions to topics and return a result for each, in order.

    Args:
        controller: writes them.
        topics: the topics, each once.
        begun: partition counts that this call began to write; after a lost connection pass the same dictionary again.
        validate_only: return the results and write nothing.
    """
    state = controller.state
    results: list[TopicResult] = []
    for name, count, assignments in topics:
        topic = state.topics.get(name)
        if topic is not None and begun.get(name) == count == len(topic.partitions):
            results.append(_created(topic))
            continue
        try:
            grown = state.plan_growth(name, count, assignments)
        except ApiError as error:
            results.append(TopicResult(name, error.code, str(error)))
            continue
        if not validate_only:
            begun[name] = count
            _write_growth(controller, grown)
        results.append(_created(grown))
    return results


def _write_growth(controller: ActiveController, grown: TopicImage) -> None:
    present = controller.state.topics[grown.name].partitions
    changes = [
        StateChange(grown.name, number, state, is_new=True)
        for number, state in grown.partitions.items()
        if number not in present
    ]
    # The assignment first: a controller that takes over in between creates the states that are missing.
    controller.tree.write_assignment(controller.fence, grown)
    controller.write_states(changes)
    controller.state.confirm_growth(len(changes))
    controller.mark_changed()


def _is_grown(context: ControlContext, request: CreatePartitionsRequest, response: CreatePartitionsResponse) -> bool:
    if request.validate_only:
        return True
    grown = {row.name for row in response.results if row.error_code == ErrorCode.NONE}
    topics = context.image.topics
    return all(
        topic.name not in topics or len(topics[topic.name].partitions) >= topic.count
        for topic in request.topics
        if topic.name in grown
    )


# -- DeleteTopics ------------------------------------------------------------------------------------------------------


def handle_delete(cluster: Cluster, request: DeleteTopicsRequest, caller: Caller) -> Answer:
    """Let the controller delete topics, as far as the client's rights and quota allow."""
    if not cluster.topic_policy.delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if any(state.name is not None and state.topic_id != NO_TOPIC_ID for state in request.topics):
        # One of the two may mean a topic that was made again since, and what is deleted does not come back.
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic is deleted by name or by topic id, not by both")
    image = cluster.partitions.image

    def partition_count(state: DeleteTopicState) -> int:
        topic = image.topics.get(state.name) if state.name is not None else image.topic_by_id(state.topic_id)
        return 0 if topic is None else len(topic.partitions)

    def refusal(state: DeleteTopicState) -> ApiError | None:
        if state.name is not None:
            return None if caller.may_topic(Operation.DELETE, state.name) else topic_denied(Operation.DELETE)
        topic = image.topic_by_id(state.topic_id)
        if caller.subject is not None and topic is None:
            # The controller may know it already, and asks for no rights; that no topic has an id is no secret.
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        if topic is None or all(caller.may_topic(one, topic.name) for one in (Operation.DESCRIBE, Operation.DELETE)):
            return None
        return topic_denied(Operation.DELETE)

    async def ask(allowed: DeleteTopicsRequest) -> Message:
        return await _ask_to_delete(cluster, image, allowed)

    return ask_for_allowed(cluster, request, caller, refusal, partition_count, ask)


async def _ask_to_delete(cluster: Cluster, image: ClusterImage, request: DeleteTopicsRequest) -> Message:
    """Have topics deleted that a client names, by the ids that this broker knows them by when the request comes.

    On its way to the controller a request may be overtaken by its own repetition, and by the creation of a topic of the
    same name; that one stays.
    """
    names: dict[uuid.UUID, str] = {}
    states: list[DeleteTopicState] = []
    for state in request.topics:
        topic = None if state.name is None else image.topics.get(state.name)
        if topic is None:
            states.append(state)  # the controller may know what was created a moment ago
        else:
            names[topic.topic_id] = topic.name
            states.append(DeleteTopicState(name=None, topic_id=topic.topic_id))
    answer = await cluster.ask_controller(replace(request, topics=states))
    assert isinstance(answer, DeleteTopicsResponse)
    for row in answer.responses:
        if row.error_code == ErrorCode.UNKNOWN_TOPIC_ID and row.topic_id in names:
            row.name, row.topic_id = names[row.topic_id], NO_TOPIC_ID
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.error_message = f"the topic that this broker knew as {row.name!r} is gone"
        elif row.name is None:
            row.name = names.get(row.topic_id)
    return answer


async def _execute_delete(context: ControlContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    rows: list[DeletableTopicResult] = []
    found: list[Topic] = []
    image = context.image
    for state in request.topics:
        topic = image.topics.get(state.name) if state.name is not None else image.topic_by_id(state.topic_id)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if state.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=code))
        else:
            found.append(Topic(topic.name, topic.topic_id))
    results = await context.run(partial(delete_topics, topics=found, begun=set()))
    rows += [
        DeletableTopicResult(
            name=result.name,
            topic_id=result.topic_id or NO_TOPIC_ID,
            error_code=result.error,
            error_message=result.message,
        )
        for result in results
    ]
    return DeleteTopicsResponse(responses=rows)


class Topic(NamedTuple):
    """A topic as a request met it.  Another one may have its name by the time the request is carried out."""

    name: str
    topic_id: uuid.UUID


def delete_topics(controller: ActiveController, topics: Sequence[Topic], begun: set[uuid.UUID]) -> list[TopicResult]:
    """Delete topics and return a result for each, in order.

    A request may wait for the store while its client gives up and asks again: it deletes none that was made since.

    Args:
        controller: writes the deletions.
        topics: the topics to delete.
        begun: ids of topics whose deletion this call ordered; after a lost connection pass the same set again.
    """
    state = controller.state

    def is_there(topic: Topic) -> bool:
        present = state.topics.get(topic.name)
        return present is not None and present.topic_id == topic.topic_id

    existing = list(filter(is_there, dict.fromkeys(topics)))
    begun.update(topic.topic_id for topic in existing)
    controller.tree.order_deletions(controller.fence, [topic.name for topic in existing])
    for topic in existing:
        controller.delete_topic(topic.name)
    return [
        TopicResult(topic.name, topic_id=topic.topic_id)
        if topic.topic_id in begun
        else TopicResult(topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name!r} any more")
        for topic in topics
    ]


def confirm_cleanup(controller: ActiveController, broker_id: int, topic_ids: Collection[uuid.UUID]) -> None:
    """Take note that *broker_id* has deleted its data of these topics; until then images list them as deleted."""
    state = controller.state
    for deleted in state.after_cleanup(broker_id, topic_ids):
        controller.tree.remember_deletion(controller.fence, deleted)
        state.confirm_cleanup(deleted)
        controller.mark_changed()


def _is_deleted(context: ControlContext, request: DeleteTopicsRequest, response: DeleteTopicsResponse) -> bool:
    deleted = (row.topic_id for row in response.responses if row.error_code == ErrorCode.NONE)
    return not any(context.image.topic_by_id(topic_id) for topic_id in deleted)


CREATE = ControllerApi(
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    handle=handle_create,
    execute=_execute_create,
    is_visible=_is_created,
    mark_late=_mark_created_late,
)
GROW = ControllerApi(
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    handle=handle_grow,
    execute=_execute_grow,
    is_visible=_is_grown,
)
DELETE = ControllerApi(
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    handle=handle_delete,
    execute=_execute_delete,
    is_visible=_is_deleted,
)
