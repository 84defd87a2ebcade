"""The store of a cluster, opened by commands that work without any broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pylog import faults
from pylog.cli.failure import Failure
from pylog.errors import StorageError

if TYPE_CHECKING:
    from pylog.broker.config import BrokerConfig
    from pylog.store.base import Store


@contextmanager
def connected_store(config: "BrokerConfig") -> "Iterator[Store]":
    """Connect to the store that the broker of *config* uses, and end the session at the end.

    Raises:
        Failure: the files of a standalone broker cannot be read, or a broker works with them.
        NotConnected: ZooKeeper does not answer.
    """
    from pylog.broker.control.membership import open_store

    try:
        store = open_store(config)
    except StorageError as error:
        raise Failure(faults.FILE_UNREADABLE, where=str(config.data_dir), found=str(error)) from error
    try:
        store.connect()
        yield store
    finally:
        store.close()
