"""What brokers get from the operating system, replaced by what the world gives them.

Broker code is not changed and not copied: it runs as it is on other clocks, sockets, threads, disks and chance.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from typing import NoReturn

from pylog.broker import broker as broker_module
from pylog.broker.config import BrokerConfig
from pylog.broker.control import agent as agent_module
from pylog.broker.control import membership as membership_module
from pylog.broker.data import replication as replication_module
from pylog.broker.groups import topic as offsets_topic_module
from pylog.broker.groups.topic import OFFSETS_TOPIC_CONFIGS
from pylog.log import checkpoint as checkpoint_module
from pylog.log.log import Log
from pylog.net import listener as listener_module
from pylog.net.connection import Connection
from pylog.store import tree as tree_module
from pylog.store.base import Store
from tests.sim.disk import Disks
from tests.sim.loop import SimLoop
from tests.sim.network import Network
from tests.sim.threads import Threading, Turns
from tests.sim.world import CURRENT, Process, ProcessEnded, World

ISR_TIMEOUT_S = 1.0
"""After which a leader asks again for a change of its in-sync replicas; as short as all that is configured."""

OFFSETS_SEGMENT_BYTES = 2048
"""Of `__consumer_offsets`, so that its logs roll and are compacted."""

STATVFS = os.statvfs_result((4096, 4096, 1 << 30, 1 << 29, 1 << 29, 1 << 20, 1 << 20, 1 << 20, 0, 255))
"""A disk half full, whatever this machine's is."""


class _NoAdmin:
    """The admin socket is the operator's, who is not simulated."""

    def __init__(self, routes: object, loop: object) -> None: ...

    def open_unix(self, path: object) -> None: ...

    def open_metrics(self, host: str, port: int) -> None: ...

    def close(self) -> None: ...


class _NoWatchdog:
    """A simulated loop hangs by being paused."""

    def __init__(self, limit_s: float, metrics: object) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


def install(
    world: World,
    loop: SimLoop,
    turns: Turns,
    network: Network,
    disks: Disks,
    open_store: Callable[[BrokerConfig], Store],
    format_level: int,
    ended: Callable[[Process], None],
) -> None:
    """Let this whole Python process run in *world*; there is no way back."""
    chance = random.Random(world.random.getrandbits(64))

    def urandom(count: int) -> bytes:
        return chance.randbytes(count)

    def end_process(code: int) -> NoReturn:
        process = CURRENT.get()
        assert process is not None, code
        ended(process)
        raise ProcessEnded(code)

    def boot_id() -> str:
        process = CURRENT.get()
        return f"boot-{disks.boots[process.host]}" if process is not None else ""

    def sleep(seconds: float) -> None:
        thread = turns.running
        assert thread is not None, "the loop must not sleep"
        thread.park(seconds)

    real_sendfile = os.sendfile

    def sendfile(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        if network.is_simulated(out_fd):
            return network.sendfile(out_fd, disks.pread(in_fd, count, offset))
        return real_sendfile(out_fd, in_fd, offset, count)

    # Set as attributes of the modules, which is where the code under test looks them up.
    _replace(
        time,
        time_ns=world.wall_ns,
        time=lambda: world.wall_ns() / 1e9,
        monotonic=lambda: world.now_us / 1e6,
        clock_gettime_ns=lambda clock: world.now_us * 1_000,
        sleep=sleep,
    )
    _replace(
        os,
        urandom=urandom,
        open=disks.open,
        close=disks.close,
        pwrite=disks.pwrite,
        pread=disks.pread,
        ftruncate=disks.ftruncate,
        fsync=disks.fsync,
        fdatasync=disks.fsync,
        sendfile=sendfile,
        statvfs=lambda path: STATVFS,
        _exit=end_process,
    )
    _replace(random, _urandom=urandom)
    threads = Threading(turns)
    _replace(agent_module, queue=threads, threading=threads, Future=threads.Future)
    _replace(listener_module, socket=network)
    _replace(broker_module, AdminServer=_NoAdmin, Watchdog=_NoWatchdog)
    _replace(membership_module, open_store=open_store)
    _replace(checkpoint_module, boot_id=boot_id)
    _replace(tree_module, NEWEST_LEVEL=format_level)
    small = {**OFFSETS_TOPIC_CONFIGS, "segment.bytes": str(OFFSETS_SEGMENT_BYTES)}
    _replace(offsets_topic_module, OFFSETS_TOPIC_CONFIGS=small)
    _replace(replication_module, ISR_TIMEOUT_S=ISR_TIMEOUT_S)
    # Sets come in the order of their members' addresses otherwise.
    _replace(Log, __hash__=lambda log: hash(log.topic_partition))
    _replace(Connection, __hash__=lambda connection: connection._fd)
    asyncio._set_running_loop(loop)


def _replace(module: object, **values: object) -> None:
    for name, value in values.items():
        assert hasattr(module, name), f"{module} has no {name}: the simulator must follow the code"
        setattr(module, name, value)
