"""Producer ids come in blocks from the controller, and a producer asks again while there is none."""

import asyncio

import pytest

from pylog.broker.control.producer_ids import ProducerIds
from pylog.errors import ApiError, ErrorCode


class Controller:
    """Gives blocks of two ids, after the refusals it was told to give."""

    def __init__(self, *refusals: ErrorCode) -> None:
        self._refusals = list(refusals)
        self._next = 1000

    async def take_block(self) -> tuple[int, int]:
        if self._refusals:
            raise ApiError(self._refusals.pop(0), "not now")
        self._next += 2
        return self._next - 2, 2


def test_ids_of_a_block_are_handed_out_before_the_next_block_is_taken() -> None:
    async def three() -> list[int]:
        ids = ProducerIds(Controller().take_block)
        return [await ids.next() for _ in range(3)]

    assert asyncio.run(three()) == [1000, 1001, 1002]


@pytest.mark.parametrize(
    "refusal", [ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER]
)
def test_without_a_controller_a_producer_is_told_to_ask_again(refusal: ErrorCode) -> None:
    async def ask() -> int:
        ids = ProducerIds(Controller(refusal).take_block)
        with pytest.raises(ApiError) as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return await ids.next()

    assert asyncio.run(ask()) == 1000
