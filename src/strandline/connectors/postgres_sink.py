"""A table of PostgreSQL that is kept equal to a collection; rows and progress in one transaction.

    option     default  meaning
    ---------  -------  ----------------------------------------------------------------------
    url                 postgresql://user@host:5432/database, without a password
    table               schema.name, or a name in `public`; one for each sink
    password            env:NAME or file:/path
    key        *        columns that tell one row from another, with commas; '' for none: a row
                        is there as often as it occurs. *: those of the collection, if it has some
    create     true     make the table if it is not there
    existing   refuse   what becomes of rows that are there before the first delivery and that no
                        sink wrote, or the sink of this name in another store: `refuse` stops the
                        sink, `replace` removes what the view lacks
    timeoutMs  60000    how long an answer is waited for while nothing moves; statements about many
                        rows get longer

Progress is kept in `strandline_progress`, in the table's schema. A handle that is prepared makes
itself the owner there, and every delivery locks and checks that, so an earlier handle is told that
it is fenced. Whether a commit counted whose answer was lost, the next handle reads there: it
waits for a transaction that is still under way.

The first delivery of another lineage replaces what the older one left, in one transaction and by
its difference; nothing is ever cleared because a sink was opened (S88). The table is made with the
first mark of a lineage and not before, so one that was lost is never taken for one that is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from strandline.connectors.options import refuse_unknown, required, whole
from strandline.connectors.postgres_columns import NAME_BYTES
from strandline.connectors.secret import Secret, is_reference
from strandline.connectors.sink import NOTHING_YET, Progress, ReadBack, filled
from strandline.errors import (
    NotInstalledError,
    SinkFencedError,
    SinkStoppedError,
    UsageError,
    invariant,
)
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from strandline.connectors.postgres_progress import Mark, Marks
    from strandline.connectors.postgres_session import Session
    from strandline.connectors.postgres_table import TargetTable
    from strandline.connectors.sink import Delivered, SinkPorts

NAME = "postgresql"
IDENTITY = ("url", "table")
_OPTIONS = ("url", "table", "password", "key", "create", "existing", "timeoutMs")
_EXISTING = ("refuse", "replace")
_LEAST_TIMEOUT_MS = 100


@dataclass(frozen=True, slots=True)
class Options:
    """What a program says of the target, checked."""

    schema: str
    table: str
    key: tuple[str, ...]
    create: bool = True
    replace: bool = False
    """Whether rows of nobody, or of another store, may go at the first delivery."""


class PostgresSink:
    """The sink. `step` is called before each effect."""

    def __init__(
        self,
        session: Session,
        marks: Marks,
        table: TargetTable,
        options: Options,
        owner: str,
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._session = session
        self._marks = marks
        self._table = table
        self._options = options
        self._owner = owner
        self._step = step
        self._known: Progress | None = None

    def prepare(self) -> None:
        session = self._session
        self._step("connect")
        with session.meaning():
            session.open()
            self._step("prepare")
            with session.connection.transaction():
                self._marks.create(session)
                self._marks.check_others(session)
                self._check_table()
                self._step("stage")
                self._table.stage(session)
                self._step("prepared")
            self._step("own")
            session.taken(self._own)
            self._step("owned")

    def _check_table(self) -> None:
        """Refuse a table that does not fit, is somebody else's, or should be there and is not."""
        session, table = self._session, self._table
        if table.exists(session):
            table.check(session)
            self._check_store()
            return
        mark = self._marks.read(session)
        at = None if mark is None else mark.progress
        if at is not None and at.t != NOTHING_YET:
            raise SinkStoppedError(
                f"table {table.name} is gone, and its progress says that it has everything up to "
                f"{at.t}: bring it back, or publish to a new table"
            )
        if not self._options.create:
            raise SinkStoppedError(f"there is no table {table.name}: make it, or set create 'true'")
        if at is not None:
            self._make()

    def _make(self) -> None:
        self._table.create(self._session)
        self._marks.emptied(self._session)

    def _check_store(self) -> None:
        if not self._options.replace:
            self._marks.check_store(self._session)

    def _own(self) -> None:
        session = self._session
        with session.connection.transaction():
            self._marks.own(session, self._owner)
            # Only now nobody delivers between the one question and the other.
            mark = self._marks.read(session)
            if mark is not None:
                self._check_kept(mark)

    def _check_kept(self, mark: Mark) -> None:
        """Refuse to go on in a table that was emptied since: what it had would be missing."""
        if mark.progress is None or not mark.rows or not self._table.is_empty(self._session):
            return
        raise SinkStoppedError(
            f"table {self._table.name} is empty, and everything up to {mark.progress.t} was "
            "delivered to it: it was emptied or made anew. Bring it back with its rows, or publish "
            "to a new table"
        )

    def progress(self) -> Progress | None:
        with self._session.meaning():
            mark = self._marks.read(self._session)
        self._known = None if mark is None else mark.progress
        return self._known

    def found(self, at: Progress) -> None:
        session = self._session
        self._step("found")
        with session.meaning():
            with session.connection.transaction():
                # Nobody else makes tables meanwhile.
                self._marks.create(session)
                mark = self._marks.read(session)
                if mark is None or mark.progress is None:
                    self._check_founded(at, mark)
                self._marks.found(session, at, self._owner)
            self._step("reply")
        self.progress()

    def _check_founded(self, at: Progress, mark: Mark | None) -> None:
        """The table has what a first mark says: nothing of ours yet, or everything up to then."""
        if at.t == NOTHING_YET:
            self._check_table()
            if not self._table.exists(self._session):
                self._make()
            self._check_strangers(mark)
        else:
            self._check_delivered(at)

    def _check_delivered(self, at: Progress) -> None:
        """Refuse to go on where the rows are not.

        An empty table is no proof that the view was empty: it may have been made anew, by anybody.
        """
        session, table = self._session, self._table
        told = f"and everything up to {at.t} was delivered to it"
        if not table.exists(session):
            wrong = f"is gone, {told}"
        elif table.is_empty(session):
            wrong = f"is empty and has no progress, {told}: it was made anew"
        elif self._marks.held(session):
            wrong = f"has the rows of another lineage, {told} before"
        else:
            return
        raise SinkStoppedError(
            f"table {table.name} {wrong}. Bring it back with its rows, or publish to a new table"
        )

    def _check_strangers(self, mark: Mark | None) -> None:
        """Refuse rows that no sink wrote, unless they may be replaced."""
        held = mark is not None and self._marks.held(self._session)
        if self._options.replace or held or self._table.is_empty(self._session):
            return
        raise SinkStoppedError(
            f"table {self._table.name} has rows that no sink wrote: empty it, name another table, "
            "or say existing 'replace'"
        )

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        known = self._known
        batches = filled(t, changes, first=known is not None and known.t == NOTHING_YET)
        session, table = self._session, self._table
        self._step("begin")
        with session.meaning():
            with session.connection.transaction():
                self._step("lock")
                mark, others = self._marks.locked(session, self._owner, self._known)
                self._check_order(t, epoch, mark)
                if not mark.holds:
                    self._begin(mark, others=others)
                counts = table.copy(session, batches, self._step)
                if mark.rows and table.is_blank(session):
                    self._check_kept(mark)
                if mark.holds or table.is_empty(session):
                    table.apply(session, counts, self._step)
                else:
                    table.replace(session, counts, self._step)
                self._step("progress")
                # If not all were counted, more may go than are known of.
                rows = max(0, mark.rows + counts.came - counts.went)
                self._marks.move(session, Progress(t, epoch), rows, alone=not others)
                self._step("commit")
            self._known = Progress(t, epoch)
            self._step("reply")

    def _check_order(self, t: int, epoch: int, mark: Mark) -> None:
        at = mark.progress
        if at is not None and epoch < at.epoch:
            raise SinkFencedError(f"table {self._table.name} is published to by e{at.epoch}")
        invariant(at is None or t > at.t, f"{t} is delivered already")

    def _begin(self, mark: Mark, *, others: bool) -> None:
        """Before the first delivery of a lineage; a later one without its rows stops it."""
        at = mark.progress
        if at is not None and at.t != NOTHING_YET:
            raise SinkStoppedError(
                f"table {self._table.name} no longer has what was delivered up to {at.t}: another "
                "lineage has replaced it; publish to a new table"
            )
        if others:
            self._check_store()
        else:
            self._check_strangers(mark)

    def read_back(self) -> ReadBack | None:
        session = self._session
        with session.meaning():
            session.open_to_read()
            mark = self._marks.read(session) if self._marks.exist(session) else None
            left = mark is not None and not mark.holds and self._is_held(session)
        if mark is None or mark.progress is None:
            session.close()
            return None
        if left or (mark.progress.t != NOTHING_YET and not mark.holds):
            session.close()
            raise SinkStoppedError(f"table {self._table.name} has the rows of another lineage")
        return ReadBack(mark.progress, self._read(empty=not mark.holds))

    def _is_held(self, session: Session) -> bool:
        """Whether there are rows of any lineage."""
        return self._marks.held(session) and not self._table.is_empty(session)

    def _read(self, *, empty: bool) -> Iterator[pa.RecordBatch]:
        with self._session.meaning():
            if not empty:
                yield from self._table.read(self._session)
        self._session.close()

    def close(self) -> None:
        self._session.close()


def open_sink(options: Mapping[str, str], what: Delivered, ports: SinkPorts) -> PostgresSink:
    return opened(options, what, ports)


def opened(
    options: Mapping[str, str],
    what: Delivered,
    ports: SinkPorts,
    step: Callable[[str], None] = lambda _: None,
) -> PostgresSink:
    """The sink for these options; nothing is reached yet."""
    refuse_unknown(NAME, options, _OPTIONS)
    url = required(NAME, options, "url")
    chosen = _chosen(options, what)
    try:
        from strandline.connectors import (  # noqa: PLC0415 - an extra
            postgres_progress,
            postgres_session,
            postgres_table,
        )
    except ImportError as missing:
        raise NotInstalledError(
            "writing to PostgreSQL needs the package psycopg, which is not installed: "
            "pip install 'strandline[postgres]'"
        ) from missing
    address = postgres_session.parsed(ports.resolve(url), given=not is_reference(url))
    password = address.pop("password", None)
    if "password" in options:
        password = ports.resolve(options["password"])
    secret = None if password is None else Secret(password)
    target = f"{chosen.schema}.{chosen.table}"
    name = f"strandline {blake2b(target.encode(), digest_size=12).hexdigest()}"
    place = (chosen.schema, chosen.table)
    timeout_ms = whole(options, "timeoutMs", postgres_session.TIMEOUT_MS, least=_LEAST_TIMEOUT_MS)
    return PostgresSink(
        postgres_session.Session(address, secret, name, timeout_ms),
        postgres_progress.Marks(chosen.schema, target, what.address),
        postgres_table.TargetTable(place, what.columns, chosen.key),
        chosen,
        ports.token(),
        step,
    )


def _chosen(options: Mapping[str, str], what: Delivered) -> Options:
    schema, _, table = required(NAME, options, "table").rpartition(".")
    schema = schema or "public"
    for each in (schema, table):
        if not each or "." in each or "\x00" in each or len(each.encode()) > NAME_BYTES:
            raise UsageError(
                f"option table is {printable(options['table'])}: write schema.name, each of up to "
                f"{NAME_BYTES} bytes"
            )
    key = what.key
    if "key" in options:
        key = tuple(each.strip() for each in options["key"].split(",") if each.strip())
    for each in key:
        if each not in what.columns.names:
            raise UsageError(f"option key has {printable(each)}, and there is no such column")
    create, existing = options.get("create", "true"), options.get("existing", "refuse")
    if create not in {"true", "false"}:
        raise UsageError(f"option create is {printable(create)}: use true or false")
    if existing not in _EXISTING:
        raise UsageError(f"option existing is {printable(existing)}: use {' or '.join(_EXISTING)}")
    return Options(schema, table, key, create == "true", existing == "replace")
