"""What other brokers ask about transactions, on the brokers' own listener."""

from pylog.broker.transactions.ends import TransactionEnds
from pylog.broker.transactions.verifying import Verifier
from pylog.wire import internal
from pylog.wire.internal import InternalKey, InternalRequest


class TransactionPeers:
    """See the module."""

    def __init__(self, ends: TransactionEnds, verifier: Verifier) -> None:
        self._ends = ends
        self._verifier = verifier

    async def answer(self, request: InternalRequest) -> bytes:
        """Return the body of the answer to WRITE_MARKERS, VERIFY_TRANSACTION or ADD_TO_TRANSACTION.

        Raises:
            ApiError: this broker does not coordinate the transactional id.
            ProtocolError: the body is not one of its kind.
        """
        if request.key is InternalKey.WRITE_MARKERS:
            return internal.encode_codes(await self._ends.write(internal.parse_marker_wishes(request.body)))
        is_adding = request.key is InternalKey.ADD_TO_TRANSACTION
        asked = internal.parse_verification(request.body)
        return internal.encode_codes(await self._verifier.answer(asked, is_adding=is_adding))
