"""How far each sink is, in a table beside its target: `strandline_progress`.

    column    meaning
    --------  ------------------------------------------------------------------------------
    address   one word for store, pipeline, sink and lineage; the key
    store     …pipeline, sink, lineage: the same, readable
    target    the table that it publishes to
    t, epoch  the progress; `t` is null before a first mark was left
    owner     whoever was prepared last; the same for all lineages of a target
    holds     whether the target's rows are of this lineage; true for one of them at most
    rows      how many of them there are, or fewer: what came less what went, since it was counted
    rows_t    the `t` that `rows` is about; versions that do not count leave both behind

A transaction that delivers has locked all rows of its target, so two never deliver at once, and
whoever is prepared waits for one that is under way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from strandline.connectors.postgres_session import LOCK_MS
from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError, invariant
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.connectors.postgres_session import Session
    from strandline.connectors.sink import Address

NAME = "strandline_progress"

_CREATE = sql.SQL("""
CREATE TABLE IF NOT EXISTS {marks} (
    address text PRIMARY KEY, store text NOT NULL, pipeline text NOT NULL, sink text NOT NULL,
    lineage text NOT NULL, target text NOT NULL, t bigint, epoch bigint NOT NULL,
    owner text NOT NULL, holds boolean NOT NULL, changed timestamptz NOT NULL DEFAULT now(),
    rows bigint NOT NULL DEFAULT 0, rows_t bigint)
""")
# Tables that are older have no such columns. They are looked for first: to add them takes the
# table's owner and a lock that waits for every reader, also where they are there.
_COUNTED = """
SELECT EXISTS (SELECT FROM pg_attribute WHERE attname = 'rows_t' AND NOT attisdropped
  AND attrelid = to_regclass(format('%%I.%%I', %s::text, %s::text)))
"""
_OURS = """
SELECT pg_has_role(relowner, 'USAGE') FROM pg_class
WHERE oid = to_regclass(format('%%I.%%I', %s::text, %s::text))
"""
_COUNT = sql.SQL("""
ALTER TABLE {marks} ADD COLUMN rows bigint NOT NULL DEFAULT 0, ADD COLUMN rows_t bigint
""")
_COUNT_MS = 200
"""Everybody else waits behind whoever waits for the lock that this takes."""
# IF NOT EXISTS does not see what is made at the same time: one after the other is safe.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_THERE = "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text)) IS NOT NULL"
_OTHERS = sql.SQL("""
SELECT pipeline, sink FROM {marks}
WHERE target = %s AND (pipeline, sink) <> (%s, %s) ORDER BY changed DESC LIMIT 1
""")
_ELSEWHERE = sql.SQL("""
SELECT store FROM {marks} WHERE target = %s AND store <> %s AND holds LIMIT 1
""")
_HELD = sql.SQL("SELECT EXISTS (SELECT FROM {marks} WHERE target = %s AND holds)")
_LEAVE = sql.SQL("""
INSERT INTO {marks} (address, store, pipeline, sink, lineage, target, epoch, owner, holds)
VALUES (%s, %s, %s, %s, %s, %s, 0, %s, false) ON CONFLICT (address) DO NOTHING
""")
_OWN = sql.SQL("UPDATE {marks} SET owner = %s WHERE target = %s")
_READ = sql.SQL("SELECT t, epoch, owner, holds, {rows} FROM {marks} WHERE address = %s")
_LOCK = sql.SQL("""
SELECT address, t, epoch, owner, holds, {rows} FROM {marks} WHERE target = %s
ORDER BY address FOR UPDATE
""")
_FOUND = sql.SQL("""
UPDATE {marks} SET t = %s, epoch = %s, holds = holds OR %s, changed = now()
WHERE address = %s AND owner = %s AND t IS NULL
""")
_ROWS = sql.SQL("CASE WHEN rows_t = t THEN rows ELSE 0 END")
_MOVE = sql.SQL("""
UPDATE {marks} SET t = %s, epoch = %s, holds = true, changed = now() WHERE address = %s
""")
_MOVE_COUNTED = sql.SQL("""
UPDATE {marks} SET t = %s, epoch = %s, rows = %s, rows_t = %s, holds = true, changed = now()
WHERE address = %s
""")
_DROP = sql.SQL("UPDATE {marks} SET holds = false WHERE target = %s AND address <> %s AND holds")
_EMPTIED = sql.SQL("UPDATE {marks} SET holds = false WHERE target = %s AND holds")


@dataclass(frozen=True, slots=True)
class Mark:
    """What is on record under one address."""

    progress: Progress | None
    owner: str
    holds: bool
    """Whether the target's rows are of this lineage."""
    rows: int = 0
    """How many of them the target has at least; 0 where nobody has counted."""


class Marks:
    """The progress of all lineages of one target. All calls are within somebody's transaction."""

    def __init__(self, schema: str, target: str, address: Address) -> None:
        self._schema = schema
        self._target = target
        self._address = address
        self._counted = False
        """Whether the columns `rows` and `rows_t` are known to be there."""

    @property
    def _names(self) -> dict[str, sql.Composable]:
        rows = _ROWS if self._counted else sql.Literal(0)
        # Statements with values: psycopg takes a single % for a place of one, also in a name.
        return {"marks": sql.Identifier(self._schema.replace("%", "%%"), NAME), "rows": rows}

    def exist(self, session: Session) -> bool:
        return bool(session.one(_THERE, (self._schema, NAME)))

    def create(self, session: Session) -> None:
        """Whoever may not create tables may use one that is there.

        Until the end of the transaction no other sink makes tables in this schema.
        """
        session.run(_ALONE, (f"{self._schema}.{NAME}",))
        if not self.exist(session):
            session.run(_CREATE.format(**self._names), ())
        self._counted = self._count(session)

    def _count(self, session: Session) -> bool:
        """Whether rows are counted. In an older table of another role they are not, nor in one
        that somebody is reading just now: that may take for ever, and counting can begin later."""
        place = (self._schema, NAME)
        if session.one(_COUNTED, place):
            return True
        if not session.one(_OURS, place):
            return False
        session.wait_for_locks(_COUNT_MS)
        try:
            with session.connection.transaction():
                session.run(_COUNT.format(**self._names), ())
        except psycopg.errors.LockNotAvailable:
            return False
        finally:
            session.wait_for_locks(LOCK_MS)
        return True

    def check_others(self, session: Session) -> None:
        """Refuse a table that another sink publishes to."""
        who = self._address.pipeline, self._address.sink
        found = session.all(_OTHERS.format(**self._names), (self._target, *who))
        if found:
            pipeline, sink = (printable(each) for each in found[0])
            raise SinkStoppedError(
                f"table {self._target} is published to by sink {sink} of pipeline {pipeline}: give "
                f"each sink a table of its own (if that one is gone for good, delete its rows in "
                f"{NAME})"
            )

    def check_store(self, session: Session) -> None:
        """Refuse rows that belong to the sink of this name in another store."""
        address = self._address
        told = (self._target, address.store)
        store = session.one(_ELSEWHERE.format(**self._names), told)
        if store is not None:
            raise SinkStoppedError(
                f"table {self._target} has the rows of sink {printable(address.sink)} of pipeline "
                f"{printable(address.pipeline)} in another store, {printable(str(store))}: publish "
                "to a table of its own, or, if that store was cleared, say existing 'replace' to "
                "take them over"
            )

    def own(self, session: Session, owner: str) -> None:
        """Shut out every handle on this target that was prepared before."""
        address = self._address
        names = (address.store, address.pipeline, address.sink, address.lineage)
        session.run(_LEAVE.format(**self._names), (address.digest, *names, self._target, owner))
        session.run(_OWN.format(**self._names), (owner, self._target))

    def read(self, session: Session) -> Mark | None:
        found = session.all(_READ.format(**self._names), (self._address.digest,))
        return _mark(found[0]) if found else None

    def held(self, session: Session) -> bool:
        """Whether the target's rows are of any lineage."""
        return bool(session.one(_HELD.format(**self._names), (self._target,)))

    def emptied(self, session: Session) -> None:
        """The target was made anew: it holds nobody's rows."""
        session.run(_EMPTIED.format(**self._names), (self._target,))

    def found(self, session: Session, at: Progress, owner: str) -> None:
        """Make `at` the progress if there is none. One that was there before has its rows too."""
        told = (at.t, at.epoch, at.t != NOTHING_YET, self._address.digest, owner)
        if not session.run(_FOUND.format(**self._names), told):
            mark = self.read(session)
            if mark is None or mark.owner != owner:
                raise self._fenced()

    def locked(self, session: Session, owner: str, known: Progress | None) -> tuple[Mark, bool]:
        """This lineage's mark, and whether another one holds the rows; checked, and locked.

        `known` is what the handle has read or delivered last: nobody else may have gone on.
        """
        found = session.all(_LOCK.format(**self._names), (self._target,))
        marks = {str(address): _mark(rest) for address, *rest in found}
        mark = marks.pop(self._address.digest, None)
        if mark is None:
            raise SinkError(f"the progress of table {self._target} is gone: it is asked for again")
        if mark.owner != owner or mark.progress != known:
            raise self._fenced()
        invariant(known is not None, "a sink delivers nothing before it is founded")
        return mark, any(each.holds for each in marks.values())

    def move(self, session: Session, to: Progress, rows: int, *, alone: bool) -> None:
        """Past a transaction; the rows are of this lineage from here on, if not before."""
        if not alone:
            session.run(_DROP.format(**self._names), (self._target, self._address.digest))
        move, counted = (_MOVE_COUNTED, (rows, to.t)) if self._counted else (_MOVE, ())
        told = (to.t, to.epoch, *counted, self._address.digest)
        session.run(move.format(**self._names), told)

    def _fenced(self) -> SinkFencedError:
        return SinkFencedError(f"table {self._target} was taken over by another publisher")


def _mark(row: Sequence[object]) -> Mark:
    t, epoch, owner, holds, rows = row
    progress = Progress(t, epoch) if isinstance(t, int) and isinstance(epoch, int) else None
    # What a lineage had before another one replaced it is not there any more.
    return Mark(progress, str(owner), bool(holds), int(str(rows)) if holds else 0)
