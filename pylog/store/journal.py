"""The embedded store's file: an append-only journal of node images.

file    => magic: "pylogstore", format: uint16, [transaction]         (big-endian)
transaction => length: uint32, crc: uint32, payload: length bytes     (crc is CRC-32C of the payload)
payload => zxid: int64, [entry]
entry   => kind: uint8 (0 remove, 1 put), path: string16
           put only: version: int32, czxid: int64, mzxid: int64, ephemeral_owner: int64, next_sequence: int32,
                     data: bytes32
string16 => length: uint16, UTF-8 bytes; bytes32 => length: uint32, bytes

Entries are the outcome, not the request, so replaying needs no rule of the store and a compacted journal has the same
format as a long one.  Each transaction is synced before the next is written, so a crash can only tear the last one: it
was never confirmed and is cut off.  A broken transaction with a whole one behind it is damage, and refused.

What a start reads may be in the page cache only: a process that was killed wrote it and did not sync it, or its sync
failed, after which the kernel takes the pages for written.  So each start writes what it read into a new file, and
believes it once that is synced.  Without room for that it writes the same bytes over the old file, and syncs those.
"""

import contextlib
import errno
import fcntl
import logging
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from crc32c import crc32c

from pylog.errors import ConfigError, StorageError
from pylog.store.base import StoreFull
from pylog.store.nodes import Node

_logger = logging.getLogger(__name__)

FORMAT = 1
_MAGIC = b"pylogstore" + struct.pack(">H", FORMAT)
_FRAME = struct.Struct(">II")
_ENTRY = struct.Struct(">BH")
_NODE = struct.Struct(">iqqqiI")
_ZXID = struct.Struct(">q")

MAX_TRANSACTION_BYTES = 64 << 20
"""No multi comes near this; a length above it is garbage and ends the replay."""

_COMPACT_NODES = 50
"""Nodes in one transaction of a compacted journal: below `MAX_TRANSACTION_BYTES` with nodes of 1 MiB."""

_COMPACT_BYTES = 4 << 20
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_COMPACT_GROWTH = 4
"""A journal is compacted once it is 4 MiB and four times what it was after the last time: start-up stays short."""


class Journal:
    """The file behind an embedded store; one process at a time holds it.

    A transaction that is refused is cut off again, so that the next start does not read it.  Where there was no room
    the next one may succeed.  After any other failure nothing more is written until the journal is opened anew: the
    page cache may have dropped what the disk refused, so a second attempt could confirm a hole.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "store.journal"
        self._fresh_path = directory / "store.new"
        directory.mkdir(parents=True, exist_ok=True)
        # The journal itself is replaced by compaction, so the lock needs a file of its own.
        self._lock = os.open(directory / "store.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConfigError(f"{directory}: the store is in use by another process") from None
        self._fd = -1
        self._size_bytes = 0
        self._compacted_bytes = 0
        self._refused_bytes = 0
        self._failed = False

    def replay(self) -> tuple[dict[str, Node], int]:
        """Read everything, write it anew without a torn tail, sync that; return the nodes by path and the last zxid.

        Raises:
            StoreFull: there is no room for the new file, nor to write the old one over itself; the old one stays.
            StorageError: the file is damaged, or the disk refuses the new one; the old one stays.
        """
        nodes: dict[str, Node] = {}
        zxid = 0
        with self._guard():
            is_new = not self._path.exists()
            content = b"" if is_new else self._path.read_bytes()
        if len(content) < len(_MAGIC):
            content = _MAGIC
        if content[: len(_MAGIC)] != _MAGIC:
            raise StorageError(f"{self._path}: not a store journal of format {FORMAT}: starts with {content[:12]!r}")
        end = len(_MAGIC)
        for zxid, entries, end in _transactions(content):  # noqa: B007  (both are wanted after the loop)
            for path, node in entries:
                if node is None:
                    nodes.pop(path, None)
                else:
                    nodes[path] = node
        if end < len(content):
            self._check_tail(content, end)
        with self._guard():
            try:
                fresh = self._write_fresh(_encode_all(zxid, nodes))
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._write_over(content[:end], error)
            else:
                self._replace(fresh)
            if is_new:
                _sync_directory(self._path.parent.parent)
        return nodes, zxid

    def append(self, zxid: int, changes: Mapping[str, Node | None]) -> None:
        """Write one transaction and sync it; when this returns it survives a power cut.

        Raises:
            StoreFull: there is no room; nothing was written.
            StorageError: the next start of a process does not find it, and the journal refuses everything from now on.
                If the disk refuses to cut it off too, it may be there after a power cut.
        """
        frame = _encode(zxid, changes.items())
        with self._guard():
            # Until it is synced nothing may be written behind it, whatever ends this call.
            self._failed = True
            try:
                _write_all(self._fd, frame)
            except OSError as error:
                if not self._cut_off() or error.errno not in _NO_ROOM:
                    raise
                self._failed = False
                raise StoreFull(message=f"{self._path}: {error.strerror}") from error
            try:
                os.fdatasync(self._fd)
            except OSError:
                self._cut_off()
                with contextlib.suppress(OSError):
                    os.fsync(self._fd)
                raise
            self._failed = False
        self._size_bytes += len(frame)

    def wants_compaction(self) -> bool:
        """Whether the journal has grown enough over its content to be written anew."""
        return self._size_bytes > max(_COMPACT_BYTES, _COMPACT_GROWTH * self._compacted_bytes, self._refused_bytes)

    def compact(self, zxid: int, nodes: Mapping[str, Node]) -> None:
        """Replace the journal by one that holds only *nodes*; a crash leaves the old one or the new one, whole.

        If the disk refuses the new one the old one stays, and is compacted once it has grown further.  If it refuses to
        put the new one in the place of the old one, the journal refuses every further transaction.
        """
        try:
            fresh = self._write_fresh(_encode_all(zxid, nodes))
        except OSError as error:
            self._refused_bytes = self._size_bytes + _COMPACT_BYTES
            _logger.warning("journal_not_compacted file=%s reason=%s", self._path, error.strerror)
            return
        # Both files have all that was confirmed, so nobody is refused anything.  But a power cut may bring back the old
        # one, without what would be written to the new one.
        try:
            with self._guard():
                self._replace(fresh)
        except StorageError as error:
            _logger.error("journal_failed reason=%s", error)

    def close(self) -> None:
        """Give the file and its lock back.  May be called twice."""
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def _write_fresh(self, content: bytes) -> int:
        """Write a new file and sync it; return its descriptor, which is at its end.

        Raises:
            OSError: the disk refuses; there is no new file then.
        """
        fd = os.open(self._fresh_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if self._path.exists():
                # A command of root may open the store of a broker that runs as another user.
                owner = self._path.stat()
                if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
                    os.fchown(fd, owner.st_uid, owner.st_gid)
            _write_all(fd, content)
            os.fsync(fd)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                self._fresh_path.unlink()
            raise
        return fd

    def _write_over(self, content: bytes, no_room: OSError) -> None:
        """Write over the journal the *content* that it has, and sync that; *no_room* is why there is no new file.

        A crash on the way leaves the same: each byte takes the place of its like.

        Raises:
            StoreFull: there is no journal yet, or the file system has no room for that either.
            OSError: the disk refuses.
        """
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            _write_all(self._fd, content)
            os.ftruncate(self._fd, len(content))
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in {*_NO_ROOM, errno.ENOENT}:
                raise
            raise StoreFull(message=f"{self._fresh_path}: {no_room.strerror}") from error
        self._size_bytes = len(content)
        _logger.warning("journal_not_compacted file=%s reason=%s", self._path, no_room.strerror)

    def _cut_off(self) -> bool:
        """Take back what follows the last transaction that was synced; return False if the file could not be cut."""
        try:
            os.ftruncate(self._fd, self._size_bytes)
        except OSError as error:
            _logger.error("journal_not_cut file=%s position=%d reason=%s", self._path, self._size_bytes, error.strerror)
            with contextlib.suppress(OSError):
                # Without its length it is no transaction, and the next start drops it.
                os.pwrite(self._fd, bytes(_FRAME.size), self._size_bytes)
            return False
        os.lseek(self._fd, self._size_bytes, os.SEEK_SET)
        return True

    def _replace(self, fresh: int) -> None:
        """Put the new file, open at its end as *fresh*, in the place of the journal."""
        try:
            self._fresh_path.rename(self._path)
            _sync_directory(self._path.parent)
        except OSError:
            os.close(fresh)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fresh
        self._size_bytes = self._compacted_bytes = os.lseek(fresh, 0, os.SEEK_CUR)

    def _check_tail(self, content: bytes, end: int) -> None:
        # Byte by byte, because the length of the broken one may be what is broken; a tail is one multi long.
        for position in range(end + 1, len(content) - _FRAME.size):
            if any(True for _ in _transactions(content, position)):
                raise StorageError(
                    f"{self._path}: damaged at byte {end}: a whole transaction follows at byte {position}; "
                    "restore the file from a backup, or cut it there and lose what follows"
                )

    @contextmanager
    def _guard(self) -> Iterator[None]:
        if self._failed or self._lock < 0:
            raise StorageError(f"{self._path}: closed, or an earlier write failed")
        try:
            yield
        except OSError as error:
            self._failed = True
            raise StorageError(f"{self._path}: {error}") from error


def _encode(zxid: int, entries: Iterable[tuple[str, Node | None]]) -> bytes:
    parts = [_ZXID.pack(zxid)]
    for path, node in entries:
        name = path.encode()
        parts += [_ENTRY.pack(node is not None, len(name)), name]
        if node is not None:
            parts.append(
                _NODE.pack(
                    node.version, node.czxid, node.mzxid, node.ephemeral_owner, node.next_sequence, len(node.data)
                )
            )
            parts.append(node.data)
    payload = b"".join(parts)
    return _FRAME.pack(len(payload), crc32c(payload)) + payload


def _encode_all(zxid: int, nodes: Mapping[str, Node]) -> bytes:
    """Return a whole file; also without nodes it has a transaction, because no zxid may be given twice."""
    paths = list(nodes)
    return _MAGIC + b"".join(
        _encode(zxid, [(path, nodes[path]) for path in paths[first : first + _COMPACT_NODES]])
        for first in range(0, max(len(paths), 1), _COMPACT_NODES)
    )


def _transactions(
    content: bytes, position: int = len(_MAGIC)
) -> Iterator[tuple[int, list[tuple[str, Node | None]], int]]:
    """Yield zxid, entries and end position of every whole transaction; stop at the first that is not."""
    while position + _FRAME.size <= len(content):
        length, crc = _FRAME.unpack_from(content, position)
        start = position + _FRAME.size
        if not _ZXID.size <= length <= min(MAX_TRANSACTION_BYTES, len(content) - start):
            return
        payload = content[start : start + length]
        if crc32c(payload) != crc:
            return
        position += _FRAME.size + length
        yield _ZXID.unpack_from(payload)[0], list(_entries(payload)), position


def _entries(payload: bytes) -> Iterator[tuple[str, Node | None]]:
    position = _ZXID.size
    while position < len(payload):
        is_put, path_bytes = _ENTRY.unpack_from(payload, position)
        position += _ENTRY.size + path_bytes
        path = payload[position - path_bytes : position].decode()
        if not is_put:
            yield path, None
            continue
        version, czxid, mzxid, owner, next_sequence, data_bytes = _NODE.unpack_from(payload, position)
        position += _NODE.size + data_bytes
        yield path, Node(payload[position - data_bytes : position], version, czxid, mzxid, owner, next_sequence)


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
