"""Stories of a coordinator of transactional ids that carries out what it is asked, and whose answers are lost."""

import asyncio

from pylog.transaction.records import TOPIC as STATE_TOPIC
from pylog.wire.api.coordinator import TRANSACTION
from tests.sim.beginnings import until_answered
from tests.sim.clients import Client, Unanswered
from tests.sim.copier import Copier, read_committed
from tests.sim.stage import KEY, Stage
from tests.sim.world import Violation
from tests.sim.zookeeper import HOST as ZOOKEEPER

DEAF_S = 12.0
"""How long no answer comes; each request of a client is carried out several times meanwhile."""

CUT_S = 60.0
TRANSACTIONS = 12


class _Client(Client):
    """A client that hears nothing of one broker.

    Attributes:
        unheard: that broker, 0 for none.
    """

    unheard = 0

    async def ask(self, broker_id: int, api_key: int, version: int, body: bytes) -> memoryview:
        """As `Client.ask`."""
        answer = await super().ask(broker_id, api_key, version, body)
        if broker_id == self.unheard:
            raise Unanswered("its answer is lost")
        return answer


async def lose_the_answers_of_a_coordinator(stage: Stage) -> None:
    """Whatever a producer asks of its coordinator is carried out, and asked again and again, at each step in turn."""
    copiers = []
    for has_epoch_each in (False, True):
        client = _Client(stage.world, f"client-{has_epoch_each}", stage.client._brokers)
        copiers.append((client, _copier(client, has_epoch_each=has_epoch_each)))

    async def work(client: _Client, copier: Copier) -> None:
        async def lose_answers() -> None:
            client.unheard = await until_answered(
                stage, lambda: copier.coordinator(copier.transactional_id, TRANSACTION)
            )
            asyncio.get_running_loop().call_later(DEAF_S, hear)

        def hear() -> None:
            client.unheard = 0

        async def between(step: int) -> None:
            if step == number % 5:
                await lose_answers()

        for number in range(TRANSACTIONS):
            if number % 5 == 0:  # a producer that starts, and may find an open transaction of its predecessor
                await lose_answers()
                await copier.begin()
            await copier.run(number, is_commit=number % 4 != 3, between=between)

    await asyncio.gather(*(work(client, copier) for client, copier in copiers))
    await _check(stage, [copier for _, copier in copiers])


async def go_on_beside_a_deaf_coordinator(stage: Stage) -> None:
    """Nothing that the coordinator sends reaches clients or brokers, for a minute; it keeps its session."""
    await _cut_what_a_coordinator_sends(stage)


async def go_on_beside_a_coordinator_that_lost_its_session(stage: Stage) -> None:
    """Nothing that the coordinator sends reaches anybody, for a minute; another one takes over and hands back."""
    await _cut_what_a_coordinator_sends(stage, ZOOKEEPER)


async def _cut_what_a_coordinator_sends(stage: Stage, *others: str) -> None:
    copiers = []
    for has_epoch_each in (False, True):
        client = Client(stage.world, f"client-{has_epoch_each}", stage.client._brokers)
        copiers.append(_copier(client, has_epoch_each=has_epoch_each))
        await copiers[-1].begin()
    victim = await until_answered(stage, lambda: copiers[0].coordinator(copiers[0].transactional_id, TRANSACTION))
    name = stage.host(victim).name
    hosts = [host.name for host in stage.cluster.hosts.values() if host.name != name]
    clients = [copier.client.name for copier in copiers]

    async def cut() -> None:
        await asyncio.sleep(1.0)
        for other in (*hosts, *clients, *others):
            stage.cluster.network.cut(name, other)
        await asyncio.sleep(CUT_S)
        stage.cluster.network.heal()

    async def work(copier: Copier) -> None:
        number = 0
        while not cutting.done() or number < TRANSACTIONS:
            await copier.run(number, is_commit=number % 4 != 3, between=_nothing)
            number += 1

    cutting = asyncio.create_task(cut())
    await asyncio.gather(*(work(copier) for copier in copiers))
    await _check(stage, copiers)


def _copier(client: Client, *, has_epoch_each: bool) -> Copier:
    name = client.name
    return Copier(client, f"id of {name}", KEY, f"group of {name}", has_epoch_each=has_epoch_each, patience_s=2 * CUT_S)


async def _check(stage: Stage, copiers: list[Copier]) -> None:
    await stage.until(stage.checks.is_settled, "all replicas agree")
    expected = sorted(value for copier in copiers for value in copier.committed)

    def found() -> list[bytes] | None:
        log = stage.log(stage.leader())
        return None if log is None else read_committed(log)

    await stage.until(lambda: found() is not None, f"all in {KEY} is decided, and {STATE_TOPIC} says how")
    if sorted(found() or []) != expected:
        raise Violation("readers get what was committed", f"{found()} for {expected}")


async def _nothing(_step: int) -> None:
    """Do nothing between two steps."""
