"""The Consensus port on one SQLite file, for many threads and many processes of one machine.

A compare-and-set is `BEGIN IMMEDIATE`, one look at the head, one insert, `COMMIT`, with a
write-ahead log that every commit syncs. What a failure means follows from where it struck:

    busy, waiting for the write lock      tried again until `busy_ms` is over: not applied, and
                                          who holds it is named (`holder`)
    disk full or read-only, anywhere      not applied
    any error before COMMIT               not applied
    any other error of COMMIT             may have been applied
    the file is damaged, or not ours      CorruptionError

Whoever waits polls, with a short and spread backoff: SQLite's own backs off so far that one of
four racing processes was seen to wait for 3.6 s. This module may read the wall clock because
it is the store, and hold locks because the simulator, which must own all waiting, uses
`memory` instead.
"""

from __future__ import annotations

import os
import sqlite3
import time  # noqa: TID251 - the store's clock, and its waits for the write lock.
from contextlib import closing, suppress
from typing import TYPE_CHECKING, TypeVar

from strandline.errors import CorruptionError, MaybeAppliedError, NewerFormatError, NotAppliedError
from strandline.model.ids import SeqNo, printable, valid_key, valid_prefix
from strandline.store.consensus import CasResult, Versioned
from strandline.store.disk import make_folders, sync, sync_folder
from strandline.store.holder import holder_of
from strandline.store.lane import Lane
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# "StLn"; both numbers also stand in `_CREATE`, which is plain text like every statement here.
APPLICATION_ID = 0x53744C6E
FORMAT = 1
NEW_FILE = ".new-"
"""How the names of files begin that are about to become a consensus file."""

_Answer = TypeVar("_Answer")

_WAIT = Backoff(first_ms=0.2, factor=1.3, cap_ms=3, spread=0.5)
_NUMBER_MAX = 2**63 - 1
_AFTER_ANY_KEY = "\x7f"  # Greater than every character that a key may hold.
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_ADVICE = {
    sqlite3.SQLITE_BUSY: "another process held the write lock all the time: try again",
    sqlite3.SQLITE_LOCKED: "another task held the write lock all the time: try again",
    sqlite3.SQLITE_PROTOCOL: "other processes held the locks all the time: try again",
    sqlite3.SQLITE_FULL: "the disk is full: free some space, then try again",
    sqlite3.SQLITE_READONLY: "the file, its folder or its file system is read-only, or was moved",
    sqlite3.SQLITE_CANTOPEN: "the file can't be opened: its folder must exist, be writable, and "
    "belong to the user who runs this",
    sqlite3.SQLITE_PERM: "permission denied: the file must belong to the user who runs this",
    sqlite3.SQLITE_IOERR: "the disk reported an input/output error: check it",
}

# A table with row ids: measured beside one without, whose 10 KB rows fill the key's own tree,
# heads are read twice as fast, keys 20 times, and commits a fifth faster.
_CREATE = """
    create table versions (
        key text not null, seqno integer not null, data blob not null, primary key (key, seqno)
    );
    pragma application_id = 0x53744C6E;
    pragma user_version = 1;
"""
_HEAD = "select seqno, data from versions where key = ? order by seqno desc limit 1"
_HEAD_NUMBER = "select max(seqno) from versions where key = ?"
_INSERT = "insert into versions (key, seqno, data) values (?, ?, ?)"
_SCAN = "select seqno, data from versions where key = ? and seqno >= ? order by seqno limit ?"
_TRUNCATE = """
    delete from versions where key = ?1 and seqno < min(
        ?2, (select max(seqno) from versions where key = ?1))
"""
# From one key to the next by the index, however many versions each has.
_KEYS = """
    with recursive found (key) as (
        select min(key) from versions where key >= ?1 and key < ?2
        union all
        select (select min(key) from versions where key > found.key and key < ?2)
        from found where found.key is not null)
    select key from found where key is not null
"""

_SIZE = "select page_count * page_size from pragma_page_count, pragma_page_size"
_PROVE = "pragma integrity_check(1)"


class SqliteConsensus:
    """Versions in the SQLite file at `path`, created if there is none."""

    def __init__(self, path: Path, busy_ms: int = 10_000) -> None:
        self._path = path
        self._busy_ms = busy_ms
        self._create_if_missing()
        self._place = self._find_place()
        # Readers never wait for a writer's commit: each kind of work has its own connection.
        self._reading = Lane(self._connect, str(path))
        self._writing = Lane(self._connect, str(path))
        self._read(lambda connection: connection.execute(_HEAD, ("",)).fetchone())

    def head(self, key: str) -> Versioned | None:
        valid_key(key)
        row = self._read(lambda connection: connection.execute(_HEAD, (key,)).fetchone())
        return None if row is None else Versioned(SeqNo(row[0]), row[1])

    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        valid_key(key)
        number = new.seqno.number
        if not 0 <= number <= _NUMBER_MAX:
            return CasResult.MISMATCH

        def append(connection: sqlite3.Connection) -> bool:
            (head,) = connection.execute(_HEAD_NUMBER, (key,)).fetchone()
            if number != (0 if head is None else head + 1):
                return False
            connection.execute(_INSERT, (key, number, new.data))
            return True

        return CasResult.COMMITTED if self._write(append) else CasResult.MISMATCH

    def scan(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
        valid_key(key)
        bounds = (key, max(0, min(start.number, _NUMBER_MAX)), max(0, min(limit, _NUMBER_MAX)))
        rows = self._read(lambda connection: connection.execute(_SCAN, bounds).fetchall())
        return [Versioned(SeqNo(number), data) for number, data in rows]

    def truncate(self, key: str, before: SeqNo) -> None:
        valid_key(key)
        bounds = (key, max(0, min(before.number, _NUMBER_MAX)))
        self._write(lambda connection: connection.execute(_TRUNCATE, bounds).rowcount > 0)

    def keys(self, prefix: str) -> Sequence[str]:
        bounds = (valid_prefix(prefix), prefix + _AFTER_ANY_KEY)
        rows = self._read(lambda connection: connection.execute(_KEYS, bounds).fetchall())
        return [key for (key,) in rows]

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def prove(self, size_max: int | None = None) -> None:
        """Read the whole file, if it is not larger than that; `CorruptionError` if it is damaged.

        Records carry checksums of their own. The pages around them have none, and one flipped
        bit in the index can hide a version or a key from every query. Takes 2 ms for each MB.
        """
        (size,) = self._read(lambda connection: connection.execute(_SIZE).fetchone())
        if size_max is not None and size > size_max:
            return
        answer = self._read(lambda connection: connection.execute(_PROVE).fetchone())
        if answer != ("ok",):
            found = printable(answer[0] if answer else "nothing", 200)
            raise CorruptionError(f"{self._named()} is damaged: {found}; keep a copy of it")

    def close(self) -> None:
        self._reading.close()
        self._writing.close()

    # Transactions.

    def _read(self, ask: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        """Ask once, in a transaction of its own, so that no reader keeps the log from ending."""
        return self._patiently(self._reading, ask)

    def _write(self, change: Callable[[sqlite3.Connection], bool]) -> bool:
        """Run `change` alone among all writers; commit if it says so, else leave no trace."""

        def transact(connection: sqlite3.Connection) -> bool:
            connection.execute("begin immediate")
            try:
                if not change(connection):
                    return False
                self._commit(connection)
                return True
            finally:
                with suppress(sqlite3.Error):  # A discarded connection is closed by now.
                    if connection.in_transaction:
                        connection.rollback()

        return self._patiently(self._writing, transact)

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("commit")
        except sqlite3.Error as error:
            code = _code(error)
            # The frame that ends a transaction is written last: a full disk never has it.
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY):
                raise
            self._writing.discard(connection)
            raise MaybeAppliedError(f"{self._named()} may have committed: {_why(error)}") from error

    def _patiently(self, lane: Lane, run: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        """Run, and run again while the file is busy, for `busy_ms` at most.

        Between two attempts the lane is free, for other threads and for a fork.
        """
        attempt = 0
        deadline = time.monotonic() + self._busy_ms / 1000
        while True:
            try:
                with lane.connection() as connection:
                    self._check_place()
                    return run(connection)
            except sqlite3.Error as error:
                if _code(error) not in _BUSY or time.monotonic() >= deadline:
                    raise self._failed(error) from error
            time.sleep(_WAIT.delay(attempt, _uniform) / 1000)
            attempt += 1

    def _failed(self, error: sqlite3.Error) -> NotAppliedError | CorruptionError:
        if _code(error) in _DAMAGED:
            return CorruptionError(f"{self._named()} is damaged, or is no SQLite file: {error}")
        held = holder_of(self._path) if _code(error) in _BUSY else None
        why = _why(error) if held is None else f"it waited for {self._busy_ms} ms, and {held}"
        return NotAppliedError(f"{self._named()} failed: {why}")

    # The file.

    def _connect(self) -> sqlite3.Connection:
        if self._path.is_symlink():
            raise NotAppliedError(f"{self._named()} is a symbolic link: links are never followed")
        # `mode=rw`: a file that has gone must not come back empty. Python may pass a
        # connection from thread to thread because its lane lets one thread in at a time.
        url = f"{self._path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(
            url, uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            self._check_format(connection)
            connection.execute("pragma synchronous = full")
            connection.execute("pragma fullfsync = on")
            connection.execute("pragma trusted_schema = off")
            # After a checkpoint a log that grew (behind a stopped reader) is cut back to 16 MB.
            connection.execute("pragma journal_size_limit = 16777216")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_format(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("pragma application_id").fetchone()
        (version,) = connection.execute("pragma user_version").fetchone()
        if application != APPLICATION_ID:
            raise CorruptionError(f"{self._named()} was not written by Strandline")
        if version > FORMAT:
            raise NewerFormatError(
                f"{self._named()} has format {version}, this version reads up to {FORMAT}: "
                "upgrade Strandline"
            )

    def _find_place(self) -> tuple[int, int]:
        try:
            status = self._path.stat(follow_symlinks=False)
        except OSError as error:
            reason = f"has gone: {error.strerror}; look for it, then open the store again"
            raise NotAppliedError(f"{self._named()} {reason}") from error
        return status.st_dev, status.st_ino

    def _check_place(self) -> None:
        """SQLite would go on for ever in a file that has been deleted, and lose every word."""
        if self._find_place() != self._place:
            raise NotAppliedError(f"{self._named()} was replaced: open the store again")

    def _create_if_missing(self) -> None:
        """Build the file under another name and link it, so that it appears whole or not.

        Nobody may open and close the file itself but through SQLite: closing any descriptor
        of a file drops all locks that the process has on it.
        """
        try:
            make_folders(self._path.parent)
            if os.path.lexists(self._path):
                return
            self._create()
        except OSError as error:
            reason = error.strerror or error
            raise NotAppliedError(f"{self._named()} could not be created: {reason}") from error
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _create(self) -> None:
        fresh = self._path.with_name(NEW_FILE + os.urandom(12).hex())
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(fresh, flags, 0o600)
        try:
            try:
                os.fchmod(file, 0o600)  # Whatever the umask; the log files follow the main file.
                with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
                    connection.executescript(_CREATE)
                    connection.execute("pragma journal_mode = wal")
                sync(file)
            finally:
                os.close(file)
            with suppress(FileExistsError):  # Another process was faster, and made the same.
                os.link(fresh, self._path)
        finally:
            fresh.unlink()
        sync_folder(self._path.parent)

    def _named(self) -> str:
        return f"consensus store {self._path}"


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code: what kind of failure, without its details."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def _why(error: sqlite3.Error) -> str:
    return _ADVICE.get(_code(error), str(error))


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * int.from_bytes(os.urandom(2)) / 0xFFFF
