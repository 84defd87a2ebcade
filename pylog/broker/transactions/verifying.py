"""Asking the coordinator whether a partition belongs to a producer's open transaction, before its first batch is taken.

A batch that comes late, after the end of its transaction, would else be open for ever: nobody would end it again.  For
clients whose transactions have an epoch each, the coordinator is asked to add the partition.

Source: KIP-890.
"""

from collections.abc import Sequence

from pylog.broker.data.partitions import Partition, Partitions
from pylog.broker.data.peer_keys import PeerKeys
from pylog.broker.data.peers import PeerClient
from pylog.broker.transactions.coordinator import TransactionCoordinator
from pylog.errors import ApiError, ErrorCode, ProtocolError
from pylog.wire import internal
from pylog.wire.internal import InternalKey, Verification

TIMEOUT_S = 5.0
"""How long a coordinator may take to answer."""


class Verifier:
    """See the module."""

    def __init__(
        self, broker_id: int, keys: PeerKeys, partitions: Partitions, coordinator: TransactionCoordinator
    ) -> None:
        """Make it; *coordinator* is asked about the ids that this broker coordinates itself."""
        self._broker_id = broker_id
        self._keys = keys
        self._partitions = partitions
        self._coordinator = coordinator
        self._clients: dict[int, PeerClient] = {}

    @property
    def is_on(self) -> bool:
        """Whether the cluster's formats allow transactions."""
        return self._coordinator.is_on

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Partition],
        *,
        is_adding: bool = False,
    ) -> Sequence[ErrorCode]:
        """Return for each of *partitions* NONE if it belongs to the open transaction, or why that is not so or certain.

        With *is_adding* they are added to it, or begin it.  NOT_ENOUGH_REPLICAS stands for all that may be over soon:
        clients of every release try again at it.
        """
        asked = Verification(
            transactional_id,
            producer_id,
            producer_epoch,
            [(one.key.topic, one.key.partition, one.topic_id) for one in partitions],
        )
        try:
            broker = self._coordinator.topic.leader_of(transactional_id)
            if broker.broker_id == self._broker_id:
                codes: Sequence[ErrorCode] = await self.answer(asked, is_adding=is_adding)
            else:
                client = self._clients.get(broker.broker_id)
                if client is None:
                    client = PeerClient(self._broker_id, self._keys, self._partitions.format_version)
                    self._clients[broker.broker_id] = client
                body = internal.encode_verification(asked)
                key = InternalKey.ADD_TO_TRANSACTION if is_adding else InternalKey.VERIFY_TRANSACTION
                answer = await client.call(broker.internal, key, body, TIMEOUT_S)
                codes = internal.parse_codes(answer, len(partitions))
        except (ApiError, ProtocolError):
            codes = [ErrorCode.NOT_ENOUGH_REPLICAS] * len(partitions)
        return [_TOLD.get(code, ErrorCode.NOT_ENOUGH_REPLICAS) for code in codes]

    async def answer(self, asked: Verification, *, is_adding: bool) -> list[ErrorCode]:
        """Return the answer for each partition that is asked about, as the coordinator of its transactional id.

        Raises:
            ApiError: this broker does not coordinate it.
        """
        if is_adding:
            return [await self._coordinator.add_for_leader(asked)] * len(asked.partitions)
        head = (asked.transactional_id, asked.producer_id, asked.producer_epoch)
        return [
            self._coordinator.verify(*head, (topic, number), topic_id) for topic, number, topic_id in asked.partitions
        ]


_TOLD = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a producer is told for what the coordinator said; all else may be over soon."""
