"""A collection as an Iceberg table: one snapshot for each transaction, in one commit.

    option     default  meaning
    ---------  -------  -----------------------------------------------------------------------
    table               `namespace.name`; made if it is not there, one for each sink
    catalog.*           what pyiceberg's `load_catalog` is told: `catalog.type`, `catalog.uri`,
                        `catalog.warehouse`, …; secrets by reference

The progress of a lineage is a property of the table, set by the commit that adds the snapshot, so
it outlives snapshots that others expire; `strandline.t` and `strandline.lineage` are in the
snapshot's summary too, for people. A commit asks that the table's newest snapshot is the one that
the work began with: of two publishers the second is fenced. Rows that go are taken out of the data
files that hold them, which are written anew; a transaction that only inserts adds files.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from strandline.connectors.iceberg_files import Writing
from strandline.connectors.iceberg_rows import stored_schema
from strandline.connectors.options import refuse_unknown, required, whole
from strandline.connectors.secret import HIDDEN, is_reference
from strandline.connectors.sink import NOTHING_YET, Progress, ReadBack, filled
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError, UsageError
from strandline.model.ids import printable
from strandline.model.schema import DIFF_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from strandline.connectors.sink import Delivered, SinkPorts

NAME = "iceberg"
IDENTITY = ("table", "catalog.name", "catalog.type", "catalog.uri", "catalog.warehouse")
_CATALOG = "catalog."
_WAREHOUSE = "warehouse"
_OURS = "strandline."
_OWNER, _CONTENT, _PROGRESS = f"{_OURS}sink", f"{_OURS}content", f"{_OURS}progress."
_RETRIES = "commit.retry.num-retries"
"""A commit that is tried again by the library would be laid over another publisher's."""
_GLUE_RETRIES = "glue.max-retries"
"""The client's own, 10 unless set; a commit that is sent again is refused for the first, and the
library takes that for a conflict. Publishers try again themselves, and look first."""


class _Mark(msgspec.Struct, frozen=True):
    t: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where the table is."""

    name: str
    catalog: Mapping[str, str]
    """What the catalog is told, with references in place of secrets."""


class IcebergSink:
    """The sink."""

    def __init__(
        self,
        place: Place,
        what: Delivered,
        resolve: Callable[[str], str],
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._place = place
        self._columns = what.columns
        self._stored = stored_schema(what.columns)
        self._address = what.address
        self._home = what.address.digest
        self._owner = f"{what.address.pipeline}/{what.address.sink}"
        self._told = {
            # A warehouse is a folder or a bucket, and may look like a reference: `file:///data`.
            name: value if name == _WAREHOUSE else resolve(value)
            for name, value in place.catalog.items()
        }
        self._glue_retries = whole(self._told, _GLUE_RETRIES, 0)
        self._step = step
        self._opened: Catalog | None = None
        self._at: Progress | None = None

    def prepare(self) -> None:
        """Make the table, or see that it takes our columns; whoever commits second is fenced."""
        with self._reached():
            table = self._load()
            if table is None:
                self._step("create")
                table = self._create()
            self._check_owner(table)
            self._check_columns(table)
            if table.metadata.properties.get(_RETRIES) != "0":
                self._step("configure")
                with table.transaction() as change:
                    change.set_properties({_RETRIES: "0"})

    def progress(self) -> Progress | None:
        with self._reached():
            table = self._load()
            self._at = None if table is None else self._mark(table)
            return self._at

    def found(self, at: Progress) -> None:
        with self._reached():
            table = self._needed()
            mark = self._mark(table)
            if mark is None:
                self._check_content(table, at)
                self._step("found")
                self._leave(table, at)
            self._at = mark or at

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        batches = filled(t, changes, first=self._at is not None and self._at.t == NOTHING_YET)
        with self._reached():
            table = self._needed()
            self._check_progress(table, epoch)
            begun = Writing(table, self._stored, self._step)
            try:
                gone = begun.insert(batches, self._columns)
                if table.metadata.properties.get(_CONTENT) == self._home:
                    begun.remove(gone, self._columns)
                else:
                    begun.replace(gone)
            except SinkStoppedError:
                begun.undo()
                raise
            self._commit(table, begun, Progress(t, epoch))
            self._at = Progress(t, epoch)

    def read_back(self) -> ReadBack | None:
        with self._reached():
            table = self._load()
            mark = None if table is None else self._mark(table)
            if table is None or mark is None:
                return None
            if table.metadata.properties.get(_CONTENT) == self._home:
                return ReadBack(mark, self._rows(table))
            if any(table.scan().plan_files()):
                raise SinkStoppedError(f"{self._place.name} has the rows of another lineage")
            return ReadBack(mark, iter(()))

    def close(self) -> None:
        self._opened = None

    def _rows(self, table: Table) -> Iterator[pa.RecordBatch]:
        with self._reached():
            for batch in table.scan().to_arrow_batch_reader():
                rows = pa.Table.from_batches([batch]).select(self._columns.names)
                diffs = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
                field = pa.field(DIFF_COLUMN, pa.int64(), nullable=False)
                yield from rows.cast(self._columns).append_column(field, diffs).to_batches()

    def _leave(self, table: Table, at: Progress) -> None:
        """A first mark; only on the table as it was seen, or it would take back what came since."""
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415
        from pyiceberg.table.update import AssertRefSnapshotId  # noqa: PLC0415

        newest = table.current_snapshot()
        at_snapshot = None if newest is None else newest.snapshot_id
        seen = AssertRefSnapshotId(ref="main", snapshot_id=at_snapshot)  # type: ignore[call-arg]
        try:
            with table.transaction() as change:
                change.set_properties(self._properties(at))
                change._apply((), (seen,))  # noqa: SLF001 - no public call adds a requirement
        except CommitFailedException as error:
            raise SinkFencedError(f"{self._place.name} has changed: another was faster") from error

    def _commit(self, table: Table, begun: Writing, at: Progress) -> None:
        """Files out, files in and progress, in one commit on the snapshot that the work began with.

        What is not known to have failed may have happened: the progress tells.
        """
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415

        summary = {
            f"{_OURS}t": str(at.t),
            f"{_OURS}epoch": str(at.epoch),
            f"{_OURS}lineage": self._address.lineage,
            f"{_OURS}pipeline": self._address.pipeline,
            f"{_OURS}sink": self._address.sink,
        }
        try:
            with table.transaction() as change:
                change.set_properties({**self._properties(at), _CONTENT: self._home})
                begun.into(change.update_snapshot(snapshot_properties=summary))
                self._step("commit")
        except CommitFailedException as error:
            if not self._counts(begun, at):
                raise SinkFencedError(
                    f"{self._place.name} has changed since transaction {at.t} was begun: another "
                    "publisher was faster, or somebody else writes to it"
                ) from error
        self._step("reply")

    def _counts(self, begun: Writing, at: Progress) -> bool:
        """Whether a commit that was refused is there: a client that was not answered may have sent
        it twice, and the second was refused for the first. What was written is deleted only if it
        can't be: what nobody refers to costs space, and what is missing costs the table."""
        table = self._needed()
        if begun.is_in(table):
            return True
        mark = self._mark(table)
        if mark is not None and mark.t < at.t:
            begun.undo()
        return False

    def _properties(self, at: Progress) -> dict[str, str]:
        mark = msgspec.json.encode(_Mark(at.t, at.epoch)).decode()
        return {f"{_PROGRESS}{self._home}": mark}

    def _mark(self, table: Table) -> Progress | None:
        text = table.metadata.properties.get(f"{_PROGRESS}{self._home}")
        if text is None:
            return None
        try:
            found = msgspec.json.decode(text, type=_Mark)
        except msgspec.MsgspecError as error:
            raise SinkStoppedError(
                f"the property {_PROGRESS}{self._home} of {self._place.name} is no progress: "
                "put it right, or publish to a new table"
            ) from error
        return Progress(found.t, found.epoch)

    def _check_progress(self, table: Table, epoch: int) -> None:
        """Nothing is delivered but what comes after what this handle has seen."""
        mark = self._mark(table)
        if mark != self._at:
            raise SinkFencedError(
                f"{self._place.name} is at {mark}, and this publisher has seen {self._at}"
            )
        if mark is None or epoch < mark.epoch:
            raise SinkFencedError(f"{self._place.name} is published to by {mark}, not by e{epoch}")
        self._check_content(table, mark)

    def _check_content(self, table: Table, mark: Progress) -> None:
        """The rows are of this lineage once something of it was delivered, and not before."""
        content = table.metadata.properties.get(_CONTENT)
        if content == self._home and mark.t == NOTHING_YET:
            raise SinkStoppedError(
                f"{self._place.name} holds rows of this lineage, and its progress says that it has "
                "none: bring the progress back, or publish to a new table"
            )
        if content != self._home and mark.t != NOTHING_YET:
            raise SinkStoppedError(
                f"the rows of {self._place.name} are of another lineage ({content}) that replaced "
                "this one's: publish to a new table"
            )

    def _check_owner(self, table: Table) -> None:
        owner = table.metadata.properties.get(_OWNER)
        if owner is None:
            raise SinkStoppedError(
                f"{self._place.name} was not made by a sink: publish to a new table, whose name "
                "nobody has"
            )
        if owner != self._owner:
            raise SinkStoppedError(
                f"{self._place.name} is published to by {printable(owner)}: give each sink a table "
                "of its own"
            )

    def _check_columns(self, table: Table) -> None:
        """Columns that are missing are added; one of another type is refused."""
        have = {each.name: each.type for each in table.schema().as_arrow()}
        for field in self._stored:
            if field.name in have and not _alike(have[field.name], field.type):
                raise SinkStoppedError(
                    f"column {printable(field.name)} of {self._place.name} is "
                    f"{have[field.name]}, and {field.type} is published: publish to a new table"
                )
        needed = [each for each in table.schema().fields if each.required]
        extra = [each.name for each in needed if each.name not in self._stored.names]
        if extra:
            raise SinkStoppedError(
                f"column {printable(extra[0])} of {self._place.name} must not be null, and nothing "
                "of that name is published: let it be null, or publish to a new table"
            )
        if set(self._stored.names) - set(have):
            self._step("widen")
            with table.update_schema() as change:
                change.union_by_name(self._stored)

    def _load(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

        try:
            return self._catalog().load_table(self._place.name)
        except NoSuchTableError:
            return None

    def _needed(self) -> Table:
        table = self._load()
        if table is None:
            raise SinkError(f"{self._place.name} is gone")
        return table

    def _create(self) -> Table:
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self._place.name.rpartition(".")[0])
        made: Table = catalog.create_table_if_not_exists(
            self._place.name, self._stored, properties={_OWNER: self._owner, _RETRIES: "0"}
        )
        return made

    def _catalog(self) -> Catalog:
        if self._opened is None:
            from pyiceberg.catalog import load_catalog  # noqa: PLC0415

            name = self._told.get("name", "strandline")
            told: dict[str, Any] = {k: v for k, v in self._told.items() if k != "name"}
            told[_GLUE_RETRIES] = self._glue_retries  # Its client takes no text for it.
            self._opened = load_catalog(name, **told)
        return self._opened

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Errors as publishers know them, without any secret."""
        from pyiceberg import exceptions as refused  # noqa: PLC0415
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException  # noqa: PLC0415

        stopping = (refused.AuthorizationExpiredError, refused.ForbiddenError,
                    refused.UnauthorizedError, refused.NotInstalledError,
                    UnsupportedPyArrowTypeException, pa.ArrowInvalid)  # fmt: skip
        try:
            yield
        except (SinkError, SinkFencedError):
            raise
        except stopping as error:
            raise SinkStoppedError(self._hidden(error)) from None
        except Exception as error:  # noqa: BLE001 - catalogs raise what their clients do
            raise SinkError(self._hidden(error)) from None

    def _hidden(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}"
        for name, value in self._place.catalog.items():
            if is_reference(value) and name != _WAREHOUSE and self._told[name]:
                text = text.replace(self._told[name], HIDDEN)
        return f"{self._place.name}: {printable(text, limit=300)}"


def _alike(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a column of the table holds every value of a type that we store."""
    wider = {(pa.int64(), pa.int32()), (pa.float64(), pa.float32())}
    plain = _plain(have)
    return plain == _plain(want) or (have, want) in wider


def _plain(kind: pa.DataType) -> object:
    """A type without what does not matter: how it is laid out, what its elements are called."""
    if pa.types.is_struct(kind):
        return [(each.name, _plain(each.type)) for each in kind]
    if pa.types.is_map(kind):
        return ("map", _plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_nested(kind):
        return ("list", _plain(kind.value_type))
    same = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return same.get(kind, kind)


def open_sink(options: Mapping[str, str], what: Delivered, ports: SinkPorts) -> IcebergSink:
    catalog = {
        name.removeprefix(_CATALOG): value
        for name, value in options.items()
        if name.startswith(_CATALOG)
    }
    others = {name: value for name, value in options.items() if not name.startswith(_CATALOG)}
    refuse_unknown(NAME, others, ("table", "key"))
    name = required(NAME, options, "table")
    if not all(name.split(".")) or "." not in name:
        raise UsageError(f"option table is {printable(name)}: write 'namespace.name'")
    if find_spec("pyiceberg") is None:
        raise UsageError("Iceberg needs the extra `iceberg`: pip install 'strandline[iceberg]'")
    return IcebergSink(Place(name, catalog), what, ports.resolve)
