"""An explicit transaction as its user holds it.

    with pipeline.transaction() as transaction:
        transaction.insert("orders", [{"id": 1, "amount": 7}])
        transaction.insert("customers", frame)
    transaction.time

Leaving the block commits: all rows of all tables count at one time, and can be read when it
returns. An error aborts: it costs nothing, and no time. What is inserted is durable at once; a
process that dies leaves the transaction open, and whoever knows its id goes on with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

from strandline.errors import (
    ConflictError,
    HandleClosedError,
    NotFoundError,
    NotInstalledError,
    SourceError,
    StalledError,
    UsageError,
)
from strandline.model.ids import printable
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.rows import staged_rows, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.journal.handles import Closed, Handles
    from strandline.journal.record import StagedRef
    from strandline.model.frontier import Time
    from strandline.pipeline.reload import Source, Stager, Told
    from strandline.pipeline.rows import Rows
    from strandline.views.declared import Table
    from strandline.views.program import Program


class Transaction:
    """Rows of several tables that count together, or not at all."""

    def __init__(
        self,
        handles: Handles,
        handle: str,
        program: Program,
        wait: Callable[[str, int | None], Time | None],
        stager: Stager,
    ) -> None:
        self.id = handle
        self.time: Time | None = None
        """The time at which it counts; `None` until it does."""
        self._handles = handles
        self._program = program
        self._wait = wait
        self._stager = stager
        self._over = False

    def insert(self, table: str, rows: Rows, *, chunk: int | None = None) -> int:
        """Stage rows for a table, durably; returns the chunk's number.

        The rows of a keyed table take the place of what their keys hold, and a row with `_delete`
        removes its key; of several rows of a key the last counts. With a `chunk` of the caller's
        the call may be repeated: the same number with the same rows counts once. Without one,
        every call counts.
        """
        declared = self._declared(table)
        given = table_of(rows, declared)

        def packed(number: int) -> bytes:
            return packed_rows(staged_rows(given, declared, number))

        name, count = declared.name, given.num_rows
        if chunk is None:
            return self._handles.append(self.id, name, packed, count).number
        return self._handles.insert(self.id, chunk, name, packed(chunk), count).number

    def replace(self, table: str, source: Source, *, told: Told | None = None) -> int:
        """What a table holds is replaced by these rows; returns how many there are.

        `source` is what `insert` takes, or a DataFrame of Spark, whose tasks stage it, or a path of
        files, or a dict of `path`, `format` and other options of theirs, or a connector and its
        options. It takes the place of all that the table holds at the time of the commit; rows
        can't be inserted into it as well.
        """
        declared = self._declared(table)
        stager = self._stager if told is None else replace(self._stager, told=told)
        return self.adopt(declared.name, stager.staged(declared, source))

    def adopt(self, table: str, refs: Sequence[StagedRef]) -> int:
        """The same with rows that are staged already."""
        for ref in refs:
            self._handles.adopt(self.id, None, table, ref, replace=True)
        return sum(ref.rows for ref in refs)

    def commit(self, *, timeout_ms: int | None = None) -> Time:
        """Commit, and return its time once it can be read everywhere.

        `StalledError` after `timeout_ms`, or where nobody runs and this process can't carry it out:
        it is asked for, durably, and will be carried out by the next replica that runs. Repeating
        the call waits again.
        """
        if self.time is None:
            self._freeze(commit=True)
            time = self._waited(timeout_ms)
            self._over = True
            if time is None:
                closed = self._handles.look(self.id).closed
                # The journal says it first, and the slot a moment later.
                how = "aborted" if closed is None else closed.how
                raise ConflictError(f"transaction {self.id} was {how}")
            self.time = time
        return self.time

    def _waited(self, timeout_ms: int | None) -> Time | None:
        """Whoever was told that it failed would commit the same rows again."""
        try:
            return self._wait(self.id, timeout_ms)
        except (NotFoundError, HandleClosedError):
            raise
        except (SourceError, UsageError, NotInstalledError) as error:
            raise StalledError(
                f"transaction {self.id} is not committed yet, and this process can't carry it out: "
                f"{error}; it is asked for, and comes when a replica runs"
            ) from error

    def abort(self) -> None:
        """Let go of everything; returns at once. Repeating it is harmless, before a replica has
        carried it out and after."""
        if self.time is not None:
            raise UsageError(f"transaction {self.id} was committed as {self.time}")
        if not self._over:
            closed = self._freeze(commit=False)
            if closed is not None and closed.t is not None:
                raise ConflictError(f"transaction {self.id} was {closed.how}")
            self._over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._over:
            return
        if kind is None:
            self.commit()
        elif self._handles.is_here:  # A forked child that fails must not end what its parent does.
            self.abort()

    def __repr__(self) -> str:
        how = "open" if self.time is None else f"committed as {self.time}"
        return f"<Transaction {self.id} {'aborted' if self._over and self.time is None else how}>"

    def _freeze(self, *, commit: bool) -> Closed | None:
        """Say what is to become of it; what did, if a replica was there already."""
        closed = self._handles.look(self.id).closed
        if closed is None:
            try:
                self._handles.freeze(self.id, commit=commit)
            except ConflictError:
                # Carried out since we looked: this may be our own word, said before.
                closed = self._handles.look(self.id).closed
                if closed is None:
                    raise
        return closed

    def _declared(self, table: str) -> Table:
        declared = self._program.table(table)
        if declared is None:
            known = ", ".join(each.name for each in self._program.tables)
            raise UsageError(f"there is no table {printable(table)}: there are {known}")
        return declared
