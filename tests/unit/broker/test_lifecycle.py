"""The states of a broker process."""

import pytest

from pylog.broker.lifecycle import BrokerState, Lifecycle


def at(*states: BrokerState) -> Lifecycle:
    lifecycle = Lifecycle()
    for state in states:
        lifecycle.become(state)
    return lifecycle


def test_a_broker_runs_once_it_has_recovered() -> None:
    lifecycle = at(BrokerState.RECOVERING)
    assert not lifecycle.is_running
    lifecycle.become(BrokerState.RUNNING)
    assert lifecycle.is_running


@pytest.mark.parametrize("before", [(), (BrokerState.RECOVERING,), (BrokerState.RECOVERING, BrokerState.RUNNING)])
def test_a_broker_may_stop_at_any_time_and_does_nothing_after_that(before: tuple[BrokerState, ...]) -> None:
    lifecycle = at(*before, BrokerState.STOPPING)
    for state in BrokerState:
        with pytest.raises(AssertionError, match=f"BrokerState.STOPPING -> {state}"):
            lifecycle.become(state)


def test_clients_are_not_served_before_recovery() -> None:
    with pytest.raises(AssertionError, match=r"STARTING -> BrokerState.RUNNING"):
        at().become(BrokerState.RUNNING)
