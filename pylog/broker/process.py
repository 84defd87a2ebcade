"""The process of one broker: its event loop, its signals, its exit code."""

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import Callable

from pylog.broker import logs
from pylog.broker.broker import Broker
from pylog.broker.config import BrokerConfig
from pylog.broker.security import wait_for_certificates
from pylog.broker.tasks import end_process, end_process_of_thread
from pylog.errors import PylogError
from pylog.faults import FILE_UNREADABLE, code_of
from pylog.log.directory import LogDirectory
from pylog.process_metrics import measure_process

_logger = logging.getLogger(__name__)


def run(config: BrokerConfig) -> int:
    """Run a broker until SIGTERM or SIGINT; return the process's exit code."""
    logs.configure()
    try:
        import uvloop

        new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    except ImportError:
        new_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.get_loop().set_exception_handler(end_process)
        threading.excepthook = end_process_of_thread
        return runner.run(serve(config))


async def serve(config: BrokerConfig) -> int:
    """Run a broker on the running loop until it is told to stop; return the process's exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        directory = LogDirectory.open(config.data_dir, broker_id=config.broker_id)
    except PylogError as error:
        return _cannot_run(error)
    try:
        await wait_for_certificates(config, stop)
        if stop.is_set():
            directory.close()
            return 0
        broker = Broker(config, directory, stop)
    except PylogError as error:
        directory.close()
        return _cannot_run(error)
    loop.add_signal_handler(signal.SIGHUP, broker.reload)
    measure_process(broker.metrics)
    try:
        starting = loop.create_task(broker.start())
        stopping = loop.create_task(stop.wait())
        # A broker that waits for ZooKeeper, or reads a long log, must still obey SIGTERM.
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            gc.freeze()  # modules and partitions stay: a collection that visits them too takes 30 ms
        else:
            starting.cancel()
        await stopping
    except (PylogError, OSError) as error:
        broker.exit_code = _cannot_run(error)
    finally:
        try:
            await broker.stop()
        except (PylogError, OSError) as error:  # the disk fails at the end: the next start checks the logs
            broker.exit_code = _cannot_run(error)
    return broker.exit_code


def _cannot_run(error: PylogError | OSError) -> int:
    code = code_of(error) if isinstance(error, PylogError) else FILE_UNREADABLE.code
    _logger.critical("cannot run code=%s reason=%s", code, error)
    return 1
