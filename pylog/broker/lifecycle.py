"""The states of a broker process, from its start to its end."""

from collections.abc import Mapping
from enum import Enum

from pylog.broker.clock import wall_ms


class BrokerState(Enum):
    """What the process is doing; the values are those of /status."""

    STARTING = "starting"
    """It opens its sockets, and waits for the cluster's store."""
    RECOVERING = "recovering"
    """It is registered, opens its logs, and waits until the controller counts on it."""
    RUNNING = "running"
    """It serves clients."""
    STOPPING = "stopping"
    """It has handed over what it led, and ends."""


_NEXT: Mapping[BrokerState, frozenset[BrokerState]] = {
    BrokerState.STARTING: frozenset({BrokerState.RECOVERING, BrokerState.STOPPING}),
    BrokerState.RECOVERING: frozenset({BrokerState.RUNNING, BrokerState.STOPPING}),
    BrokerState.RUNNING: frozenset({BrokerState.STOPPING}),
    BrokerState.STOPPING: frozenset(),
}


class Lifecycle:
    """The state of this process.

    Attributes:
        started_ms: wall-clock time of its start.
    """

    def __init__(self) -> None:
        """Begin in STARTING."""
        self.started_ms = wall_ms()
        self._state = BrokerState.STARTING

    @property
    def state(self) -> BrokerState:
        """The state now."""
        return self._state

    @property
    def is_running(self) -> bool:
        """Whether the broker serves clients."""
        return self._state is BrokerState.RUNNING

    def become(self, state: BrokerState) -> None:
        """Take the next state."""
        assert state in _NEXT[self._state], f"{self._state} -> {state}"
        self._state = state
