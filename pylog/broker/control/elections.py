"""Who leads and who is in sync: ElectLeaders of clients; ISR changes, hand-overs and recoveries of brokers."""

import logging
from collections.abc import Sequence
from functools import partial

from pylog.broker.clock import steady_ms
from pylog.broker.control.api import ControlContext, ControllerApi, PeerApi, pass_if_allowed
from pylog.broker.control.controller import ActiveController
from pylog.cluster.controller import IsrRequest, IsrResult, StateChange
from pylog.errors import ApiError, ErrorCode
from pylog.model import Key
from pylog.security.acl import Operation
from pylog.wire.api.partitions import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pylog.wire.internal import (
    InternalKey,
    LogEnds,
    encode_count,
    encode_isr_answers,
    encode_isr_wishes,
    encode_process,
    encode_recovery,
    parse_count,
    parse_isr_answers,
    parse_isr_wishes,
    parse_process,
    parse_recovery,
)

_logger = logging.getLogger(__name__)

_PREFERRED = 0
_UNCLEAN = 1

# -- ElectLeaders ------------------------------------------------------------------------------------------------------


async def _execute_elect(context: ControlContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type}; allowed are 0 and 1")
    topics = request.topic_partitions
    partitions = None if topics is None else [(topic.topic, number) for topic in topics for number in topic.partitions]
    operation = partial(elect_leaders, partitions=partitions, unclean=request.election_type == _UNCLEAN)
    rows: dict[str, ReplicaElectionResult] = {}
    for (topic, number), error in (await context.run(operation)).items():
        row = rows.setdefault(topic, ReplicaElectionResult(topic=topic, partition_result=[]))
        row.partition_result.append(PartitionResult(partition_id=number, error_code=error))
    return ElectLeadersResponse(replica_election_results=list(rows.values()))


def elect_leaders(
    controller: ActiveController, partitions: Sequence[Key] | None, *, unclean: bool = False
) -> dict[Key, ErrorCode]:
    """Elect the preferred leaders; with *unclean* any replica of a partition without leader.

    Args:
        controller: writes the new states.
        partitions: None means all.
        unclean: a replica that is not in sync may lead.
    """
    changes, results = controller.state.plan_elections(partitions, unclean=unclean)
    controller.write_states(changes)
    if changes:
        _logger.info("elected_on_request partitions=%d unclean=%s", len(changes), unclean)
    return results


def _is_elected(context: ControlContext, request: ElectLeadersRequest, response: ElectLeadersResponse) -> bool:
    if request.election_type != _PREFERRED:
        return True
    elected = (
        context.image.partition(row.topic, part.partition_id)
        for row in response.replica_election_results
        for part in row.partition_result
        if part.error_code == ErrorCode.NONE
    )
    return all(state is None or state.leader == state.replicas[0] for state in elected)


ELECT = ControllerApi(
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
    handle=pass_if_allowed(Operation.ALTER),
    execute=_execute_elect,
    is_visible=_is_elected,
)

# -- in-sync replicas --------------------------------------------------------------------------------------------------


def alter_isr(
    controller: ActiveController, broker_id: int, broker_epoch: int, requests: Sequence[IsrRequest]
) -> list[IsrResult]:
    """Change in-sync replicas as *broker_id*, their leader, asks; return a result for each, in order."""
    plans = controller.state.plan_isrs(broker_id, broker_epoch, requests)
    controller.write_states([plan for plan in plans if isinstance(plan, StateChange)])
    controller.finish_reassignments()
    return [
        plan
        if isinstance(plan, IsrResult)
        else IsrResult(ErrorCode.NONE, plan.after.isr, plan.after.partition_epoch + 1)
        for plan in plans
    ]


def _encode_isr_requests(question: tuple[int, int, Sequence[IsrRequest]]) -> bytes:
    broker_id, broker_epoch, requests = question
    rows = [(one.topic_id, one.partition, one.leader_epoch, one.partition_epoch, one.isr) for one in requests]
    return encode_isr_wishes(broker_id, broker_epoch, rows)


def _parse_isr_requests(body: bytes) -> tuple[int, int, Sequence[IsrRequest]]:
    broker_id, broker_epoch, rows = parse_isr_wishes(body)
    return broker_id, broker_epoch, [IsrRequest(*row) for row in rows]


def _encode_isr_results(results: list[IsrResult]) -> bytes:
    return encode_isr_answers([(result.error, result.isr, result.partition_epoch) for result in results])


def _parse_isr_results(body: bytes) -> list[IsrResult]:
    return [IsrResult(ErrorCode(error), isr, epoch) for error, isr, epoch in parse_isr_answers(body)]


ALTER_ISR = PeerApi(
    key=InternalKey.ALTER_ISR,
    execute=lambda controller, question: alter_isr(controller, *question),
    encode=_encode_isr_requests,
    parse=_parse_isr_requests,
    encode_result=_encode_isr_results,
    parse_result=_parse_isr_results,
)

# -- hand-over before a stop -------------------------------------------------------------------------------------------


def shut_down(controller: ActiveController, broker_id: int, broker_epoch: int) -> int:
    """Let others take over from *broker_id*, which is about to stop; return the number of partitions they take over."""
    changes = controller.state.plan_shutdown(broker_id, broker_epoch)
    controller.write_states(changes)
    _logger.info("shutdown_prepared broker=%d partitions=%d", broker_id, len(changes))
    return len(changes)


SHUT_DOWN = PeerApi(
    key=InternalKey.SHUT_DOWN,
    execute=lambda controller, question: shut_down(controller, *question),
    encode=lambda question: encode_process(*question),
    parse=parse_process,
    encode_result=encode_count,
    parse_result=parse_count,
)

# -- recovery after an unclean stop ------------------------------------------------------------------------------------


def recover(controller: ActiveController, broker_id: int, broker_epoch: int, ends: LogEnds, now_ms: int) -> None:
    """Elect leaders by what *broker_id* found after its unclean stop, where no clean replica can lead."""
    state = controller.state
    controller.write_states(state.plan_recovery(broker_id, broker_epoch, ends, now_ms))
    if not state.brokers[broker_id].is_clean and state.is_recovered(broker_id):
        controller.tree.acknowledge_recovery(controller.fence, broker_id, broker_epoch)
        state.confirm_recovery(broker_id)
        controller.mark_changed()
        _logger.info("recovery_acknowledged broker=%d epoch=%d", broker_id, broker_epoch)
    controller.finish_reassignments()


def _encode_nothing(result: None) -> bytes:
    return b""


def _parse_nothing(body: bytes) -> None:
    return None


RECOVERED = PeerApi(
    key=InternalKey.RECOVERED,
    execute=lambda controller, question: recover(controller, *question, steady_ms()),
    encode=lambda question: encode_recovery(*question),
    parse=parse_recovery,
    encode_result=_encode_nothing,
    parse_result=_parse_nothing,
)
