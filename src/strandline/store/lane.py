"""One SQLite connection that many threads share, one at a time, and that survives a fork.

A connection must not cross a fork: the child would neither hold the locks that SQLite believes
it holds, nor take them when it opens the file anew, because SQLite remembers locks by process
and by file. So a fork first waits until every lane is idle (for a moment: no statement here
runs long), and the child closes what it inherited; its next call opens its own.
"""

from __future__ import annotations

import os
import threading  # noqa: TID251 - threads do share a connection here; the simulator never does.
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from strandline.errors import HandleClosedError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

# A statement that runs for longer than this at a fork is a disk that hangs.
_FORK_WAIT_S = 30.0


class Lane:
    """A connection made by `connect` when it is first needed, lent to one thread at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], name: str) -> None:
        self._connect = connect
        self._name = name
        self._lock = threading.Lock()
        self._open: sqlite3.Connection | None = None
        self._closed = False
        _lanes.add(self)

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._closed:
                raise HandleClosedError(f"store {self._name} is closed: open it again")
            if self._open is None:
                self._open = self._connect()
            yield self._open

    def discard(self, connection: sqlite3.Connection) -> None:
        """Close a lent connection whose state is unknown. Called by its borrower."""
        self._open = None
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    # A fork: the three steps run in the forking thread.

    def hold(self) -> bool:
        return self._lock.acquire(timeout=_FORK_WAIT_S)

    def release(self) -> None:
        self._lock.release()

    def start_anew(self, *, idle: bool) -> None:
        """In the child: give up what was inherited. A busy connection is left alone."""
        self._lock = threading.Lock()
        if idle:
            self._disconnect()
        elif self._open is not None:
            _abandoned.append(self._open)
            self._open = None


_lanes: WeakSet[Lane] = WeakSet()
_abandoned: list[sqlite3.Connection] = []
_held: list[Lane] = []
_forking = threading.Lock()


def _before_fork() -> None:
    _forking.acquire()
    _held.extend(lane for lane in list(_lanes) if lane.hold())


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().release()
    _forking.release()


def _after_fork_in_child() -> None:
    for lane in list(_lanes):
        lane.start_anew(idle=lane in _held)
    _held.clear()
    _forking.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
