"""Reaching the controller: this broker's own agent, or the broker that is it.

A client may ask any broker for a change.  A broker that is not the controller passes the request on as it is and the
answer back, so clients need not follow the controller around.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from uuid import UUID

from pylog.broker.agent import ClusterAgent
from pylog.broker.config_handlers import AlterRequest, alter_response, broker_entity, only_resources, plan_changes
from pylog.broker.duties import Growth
from pylog.broker.handlers import check_new_topic
from pylog.broker.images import Images, has_topics
from pylog.broker.peers import PeerClient
from pylog.broker.quota_handlers import Changes, planned_change
from pylog.broker.reassignment_handlers import carry_out_moves, list_moves
from pylog.broker.settings import Value
from pylog.cluster.controller import IsrRequest, IsrResult
from pylog.cluster.image import ClusterImage
from pylog.cluster.quotas import QuotaEntity
from pylog.cluster.topics import BROKER_DEFAULT, NewTopic, repeated_names
from pylog.errors import ApiError, ErrorCode
from pylog.model import NodeAddress
from pylog.wire.api import Message, encode_response, parse_request_header
from pylog.wire.api.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ResourceType,
)
from pylog.wire.api.message import Request
from pylog.wire.api.partitions import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pylog.wire.api.quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, QuotaResult
from pylog.wire.api.schema import NO_TOPIC_ID
from pylog.wire.api.table import SERVED
from pylog.wire.api.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from pylog.wire.internal import (
    InternalKey,
    LogEnds,
    encode_broker_id,
    encode_count,
    encode_isr_answers,
    encode_isr_wishes,
    encode_process,
    encode_recovery,
    parse_count,
    parse_id_block,
    parse_isr_answers,
    parse_isr_wishes,
    parse_process,
    parse_recovery,
)

_PREFERRED = 0
_UNCLEAN = 1

MAX_WAIT_S = 60.0
"""Longest a request waits for its effect, whatever time-out the client names."""

CONFIG_WAIT_S = 5.0
"""Longest a change of settings, whose request names no time-out, waits until this broker goes by it."""

_RESPONSES: dict[type[Request], type[Message]] = {
    CreateTopicsRequest: CreateTopicsResponse,
    DeleteTopicsRequest: DeleteTopicsResponse,
    CreatePartitionsRequest: CreatePartitionsResponse,
    ElectLeadersRequest: ElectLeadersResponse,
    AlterConfigsRequest: AlterConfigsResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
    AlterClientQuotasRequest: AlterClientQuotasResponse,
    AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
}


class ControllerLink:
    """The way to the controller, wherever it is."""

    def __init__(
        self,
        broker_id: int,
        agent: ClusterAgent,
        images: Images,
        peer: PeerClient | None,
        settings: Mapping[str, Value],
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._agent = agent
        self._images = images
        self._peer = peer
        self._address: NodeAddress | None = None
        self._is_self = False
        self._producer_ids: deque[int] = deque()
        self._producer_id_lock = asyncio.Lock()

    def moved(self, address: NodeAddress | None, is_self: bool) -> None:
        """Take note of where the controller is now; None when there is none.

        Whoever still waits for another one's answer hears at once that it will not come: behind a cut link it would
        keep everybody else waiting too.
        """
        if address != self._address and self._peer is not None:
            self._peer.close()
        self._address = address
        self._is_self = is_self

    async def ask(self, request: Request) -> Message:
        """Return the controller's answer to *request*, once its effect is visible on this broker.

        Raises:
            ApiError: there is no controller, or it cannot be reached.
        """
        answer = await (self._execute(request) if self._is_self else self._forward(request))
        await self._wait_for_effect(request, answer)
        return answer

    async def execute_forwarded(self, frame: bytes) -> bytes:
        """Return the reply to a client's request that another broker passed on.

        Raises:
            ApiError: NOT_CONTROLLER, or the request is none that is passed on.
        """
        header = parse_request_header(memoryview(frame))
        request_class = next((one for one in _RESPONSES if one.api_key == header.api_key), None)
        if request_class is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"API {header.api_key} is not passed on")
        request = request_class.decode(header.api_version, memoryview(frame)[header.body_offset :])
        try:
            answer = await self._execute(request)
        except ApiError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            answer = request.error_response(error.code, str(error))
        return encode_response(answer, header.correlation_id, header.api_version)

    async def new_producer_id(self) -> int:
        """Return a producer id nobody ever had; ids come from the store in blocks."""
        async with self._producer_id_lock:
            if not self._producer_ids:
                first, count = await self._take_ids()
                self._producer_ids.extend(range(first, first + count))
            return self._producer_ids.popleft()

    async def give_ids(self, broker_id: int) -> tuple[int, int]:
        """Return a block of producer ids for *broker_id*: the first, and how many.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await asyncio.wrap_future(self._agent.allocate_producer_ids(broker_id))

    async def alter_isr(self, wanted: list[IsrRequest]) -> list[IsrResult]:
        """Return what the controller makes of ISR changes that this broker, the leader, wishes.

        Raises:
            ApiError: it cannot be reached; nobody knows what became of them.
        """
        epoch = self._agent.broker_epoch
        if self._is_self:
            return await asyncio.wrap_future(self._agent.alter_isr(self._broker_id, epoch, wanted))
        wishes = [(one.topic_id, one.partition, one.leader_epoch, one.partition_epoch, one.isr) for one in wanted]
        body = encode_isr_wishes(self._broker_id, epoch, wishes)
        answers = parse_isr_answers(await self._call(InternalKey.ALTER_ISR, body))
        return [IsrResult(ErrorCode(error), isr, partition_epoch) for error, isr, partition_epoch in answers]

    async def answer_isr_wishes(self, body: bytes) -> bytes:
        """Return the answer to another broker's ALTER_ISR.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        broker_id, broker_epoch, wishes = parse_isr_wishes(body)
        wanted = [IsrRequest(*wish) for wish in wishes]
        results = await asyncio.wrap_future(self._agent.alter_isr(broker_id, broker_epoch, wanted))
        return encode_isr_answers([(one.error, one.isr, one.partition_epoch) for one in results])

    async def report_recovery(self, ends: LogEnds) -> None:
        """Tell the controller what this broker found on its disk after an unclean stop.

        Raises:
            ApiError: it cannot be reached, or does not know this process.
        """
        epoch = self._agent.broker_epoch
        if self._is_self:
            await asyncio.wrap_future(self._agent.recover(self._broker_id, epoch, ends))
        else:
            await self._call(InternalKey.RECOVERED, encode_recovery(self._broker_id, epoch, ends))

    async def take_recovery(self, body: bytes) -> bytes:
        """Answer another broker's RECOVERED.

        Raises:
            ApiError: NOT_CONTROLLER, or another process of that broker registered.
        """
        await asyncio.wrap_future(self._agent.recover(*parse_recovery(body)))
        return b""

    async def shut_down(self) -> int:
        """Have others take over from this broker; return for how many partitions they did.

        Raises:
            ApiError: the controller cannot be reached; ask again.
        """
        epoch = self._agent.broker_epoch
        if self._is_self:
            return await asyncio.wrap_future(self._agent.shut_down(self._broker_id, epoch))
        return parse_count(await self._call(InternalKey.SHUT_DOWN, encode_process(self._broker_id, epoch)))

    async def take_shutdown(self, body: bytes) -> bytes:
        """Answer another broker's SHUT_DOWN.

        Raises:
            ApiError: NOT_CONTROLLER, or another process of that broker registered.
        """
        return encode_count(await asyncio.wrap_future(self._agent.shut_down(*parse_process(body))))

    async def finalize(self) -> int:
        """Let this release's formats be written by the whole cluster from now on; return their level.

        Raises:
            ApiError: a broker runs an older release, or the controller cannot be reached.
        """
        if self._is_self:
            return await asyncio.wrap_future(self._agent.finalize())
        return parse_count(await self._call(InternalKey.FINALIZE, b""))

    async def take_finalize(self) -> bytes:
        """Answer another broker's FINALIZE.

        Raises:
            ApiError: NOT_CONTROLLER, or a broker runs an older release.
        """
        return encode_count(await asyncio.wrap_future(self._agent.finalize()))

    async def _take_ids(self) -> tuple[int, int]:
        if self._is_self:
            return await self.give_ids(self._broker_id)
        body = encode_broker_id(self._broker_id)
        return parse_id_block(await self._call(InternalKey.TAKE_IDS, body))

    async def _call(self, key: InternalKey, body: bytes) -> bytes:
        if self._address is None or self._peer is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "no controller is elected at the moment")
        return await self._peer.call(self._address, key, body, MAX_WAIT_S)

    async def _forward(self, request: Request) -> Message:
        key = request.api_key
        version = SERVED[key].max_advertised
        head = bytes((*key.to_bytes(2, "big"), *version.to_bytes(2, "big"), 0, 0, 0, 0, 0xFF, 0xFF))
        if version >= SERVED[key].flexible_from:
            head += b"\x00"
        frame = request.encode(version, head)
        reply = await self._call(InternalKey.FORWARD, frame)
        body = memoryview(reply)[5 if version >= SERVED[key].flexible_from else 4 :]
        return _RESPONSES[type(request)].decode(version, body)

    async def _wait_for_effect(self, request: Request, answer: Message) -> None:
        timeout_s = min(max(getattr(request, "timeout_ms", 0), 0) / 1000, MAX_WAIT_S)
        if isinstance(answer, CreateTopicsResponse) and not getattr(request, "validate_only", False):
            made = {row.topic_id for row in answer.topics if row.error_code == ErrorCode.NONE}
            if not await self._images.wait_until(has_topics(made), timeout_s):
                _mark_late(answer.topics, made)
        elif isinstance(answer, DeleteTopicsResponse):
            gone = {row.topic_id for row in answer.responses if row.error_code == ErrorCode.NONE}
            await self._images.wait_until(
                lambda image: not any(image.topic_by_id(topic_id) for topic_id in gone), timeout_s
            )
        elif isinstance(request, CreatePartitionsRequest) and not request.validate_only:
            assert isinstance(answer, CreatePartitionsResponse)
            grown = {row.name for row in answer.results if row.error_code == ErrorCode.NONE}
            counts = {topic.name: topic.count for topic in request.topics if topic.name in grown}
            await self._images.wait_until(lambda image: _has_partitions(image, counts), timeout_s)
        elif isinstance(request, ElectLeadersRequest) and request.election_type == _PREFERRED:
            assert isinstance(answer, ElectLeadersResponse)
            elected = [
                (row.topic, part.partition_id)
                for row in answer.replica_election_results
                for part in row.partition_result
                if part.error_code == ErrorCode.NONE
            ]
            await self._images.wait_until(lambda image: all(_is_preferred(image, *one) for one in elected), timeout_s)
        elif isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest) and not request.validate_only:
            assert isinstance(answer, AlterConfigsResponse | IncrementalAlterConfigsResponse)
            done = {
                (row.resource_type, row.resource_name) for row in answer.responses if row.error_code == ErrorCode.NONE
            }
            wanted = only_resources(request, lambda *key: key in done)
            await self._images.wait_until(lambda image: self._holds(wanted, image), CONFIG_WAIT_S)
        elif isinstance(request, AlterClientQuotasRequest) and not request.validate_only:
            quotas, _ = _quota_changes(request)
            await self._images.wait_until(lambda image: _has_quotas(image, quotas), CONFIG_WAIT_S)

    async def _alter_quotas(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        changes, rows = _quota_changes(request)
        if changes and not request.validate_only:
            await asyncio.wrap_future(self._agent.alter_client_quotas(changes))
        return AlterClientQuotasResponse(entries=rows)

    def _holds(self, request: AlterRequest, image: ClusterImage) -> bool:
        # Planned again it changes nothing: then the image shows it.
        changes, _ = plan_changes(request, image, self._settings)
        return all(
            (
                image.topics[name].configs
                if kind == ResourceType.TOPIC
                else image.broker_configs.get(broker_entity(name), {})
            ).get(key)
            == value
            for (kind, name), change in changes.items()
            for key, value in change.items()
        )

    async def _execute(self, request: Request) -> Message:
        if isinstance(request, CreateTopicsRequest):
            return await self._create(request)
        if isinstance(request, DeleteTopicsRequest):
            return await self._delete(request)
        if isinstance(request, CreatePartitionsRequest):
            return await self._grow(request)
        if isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest):
            return await self._alter_configs(request)
        if isinstance(request, ElectLeadersRequest):
            return await self._elect(request)
        if isinstance(request, AlterClientQuotasRequest):
            return await self._alter_quotas(request)
        if isinstance(request, AlterPartitionReassignmentsRequest):
            return await carry_out_moves(self._agent, request)
        if isinstance(request, ListPartitionReassignmentsRequest):
            return await list_moves(self._agent, request)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{type(request).__name__} is not the controller's")

    async def _create(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        rows: dict[str, CreatableTopicResult] = {}
        wanted: list[NewTopic] = []
        doubled = repeated_names(topic.name for topic in request.topics)
        for topic in request.topics:
            rows[topic.name] = CreatableTopicResult(name=topic.name)
            try:
                if topic.name in doubled:
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} stands twice in one request")
                wanted.append(_new_topic(topic))
            except ApiError as error:
                rows[topic.name].error_code = error.code
                rows[topic.name].error_message = str(error)
        results = await asyncio.wrap_future(self._agent.create_topics(wanted, validate_only=request.validate_only))
        for result in results:
            rows[result.name] = CreatableTopicResult(
                name=result.name,
                topic_id=result.topic_id or NO_TOPIC_ID,
                error_code=result.error,
                error_message=result.message,
                num_partitions=result.partitions,
                replication_factor=result.replication_factor,
            )
        return CreateTopicsResponse(topics=list(rows.values()))

    async def _grow(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        rows: dict[str, CreatePartitionsTopicResult] = {}
        wanted: list[Growth] = []
        doubled = repeated_names(topic.name for topic in request.topics)
        for topic in request.topics:
            rows[topic.name] = CreatePartitionsTopicResult(name=topic.name)
            if topic.name in doubled:
                rows[topic.name].error_code = ErrorCode.INVALID_REQUEST
                rows[topic.name].error_message = f"topic {topic.name} stands twice in one request"
                continue
            given = topic.assignments
            assignments = None if given is None else [assignment.broker_ids for assignment in given]
            wanted.append(Growth(topic.name, topic.count, assignments))
        for result in await asyncio.wrap_future(self._agent.grow_topics(wanted, validate_only=request.validate_only)):
            rows[result.name].error_code, rows[result.name].error_message = result.error, result.message or None
        return CreatePartitionsResponse(results=list(rows.values()))

    async def _elect(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        if request.election_type not in (_PREFERRED, _UNCLEAN):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type}")
        named = request.topic_partitions
        wanted = None if named is None else [(topic.topic, number) for topic in named for number in topic.partitions]
        unclean = request.election_type == _UNCLEAN
        results = await asyncio.wrap_future(self._agent.elect_leaders(wanted, unclean=unclean))
        rows: dict[str, ReplicaElectionResult] = {}
        for (topic, number), error in results.items():
            row = rows.setdefault(topic, ReplicaElectionResult(topic=topic, partition_result=[]))
            row.partition_result.append(PartitionResult(partition_id=number, error_code=error))
        return ElectLeadersResponse(replica_election_results=list(rows.values()))

    async def _alter_configs(self, request: AlterRequest) -> Message:
        changes, rows = plan_changes(request, self._images.current, self._settings)
        topics = {name: change for (kind, name), change in changes.items() if kind == ResourceType.TOPIC}
        brokers = {name: change for (kind, name), change in changes.items() if kind == ResourceType.BROKER}
        if brokers:
            entities = {broker_entity(name): change for name, change in brokers.items()}
            await asyncio.wrap_future(self._agent.alter_broker_configs(entities, validate_only=request.validate_only))
            rows |= {
                (ResourceType.BROKER, name): AlterConfigsResourceResponse(
                    resource_type=ResourceType.BROKER, resource_name=name
                )
                for name in brokers
            }
        results = await asyncio.wrap_future(
            self._agent.alter_topic_configs(topics, validate_only=request.validate_only)
        )
        for result in results:
            rows[ResourceType.TOPIC, result.name] = AlterConfigsResourceResponse(
                error_code=result.error,
                error_message=result.message or None,
                resource_type=ResourceType.TOPIC,
                resource_name=result.name,
            )
        return alter_response(request, [rows[one.resource_type, one.resource_name] for one in request.resources])

    async def _delete(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        rows: list[DeletableTopicResult] = []
        names: list[str] = []
        image = self._images.current
        for state in request.topics:
            found = image.topics.get(state.name) if state.name is not None else image.topic_by_id(state.topic_id)
            if found is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if state.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                rows.append(DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=code))
            else:
                names.append(found.name)
        results = await asyncio.wrap_future(self._agent.delete_topics(names))
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


def _new_topic(topic: CreatableTopic) -> NewTopic:
    configs = check_new_topic(topic)
    assignments = {row.partition_index: row.broker_ids for row in topic.assignments} or None
    if assignments is not None and len(assignments) != len(topic.assignments):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    return NewTopic(
        name=topic.name,
        partitions=BROKER_DEFAULT if assignments else topic.num_partitions,
        replication_factor=BROKER_DEFAULT if assignments else topic.replication_factor,
        assignments=assignments,
        configs=configs,
    )


def _quota_changes(request: AlterClientQuotasRequest) -> tuple[dict[QuotaEntity, Changes], list[QuotaResult]]:
    """Return the changes that can be made, and a result for each combination."""
    changes: dict[QuotaEntity, Changes] = {}
    rows: list[QuotaResult] = []
    for entry in request.entries:
        row = QuotaResult(entity=entry.entity)
        rows.append(row)
        try:
            entity, change = planned_change(entry)
            if entity in changes:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the same entity stands twice in one request")
            changes[entity] = change
        except ApiError as error:
            row.error_code, row.error_message = error.code, str(error)
    return changes, rows


def _has_quotas(image: ClusterImage, changes: Mapping[QuotaEntity, Changes]) -> bool:
    return all(
        image.client_quotas.get(entity, {}).get(key) == (None if value is None else float(value))
        for entity, change in changes.items()
        for key, value in change.items()
    )


def _has_partitions(image: ClusterImage, counts: Mapping[str, int]) -> bool:
    return all(name not in image.topics or len(image.topics[name].partitions) >= counts[name] for name in counts)


def _is_preferred(image: ClusterImage, topic: str, partition: int) -> bool:
    state = image.partition(topic, partition)
    return state is None or state.leader == state.replicas[0]


def _mark_late(rows: list[CreatableTopicResult], made: set[UUID]) -> None:
    for row in rows:
        if row.topic_id in made:
            row.error_code = ErrorCode.REQUEST_TIMED_OUT
            row.error_message = "the topic is made, but not every broker has it yet"
