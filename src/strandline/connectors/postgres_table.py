"""The target table: made or checked before anything is written, changed by sets of rows.

A transaction's changes are copied into a temporary table, whatever their number, and applied from
there by a few statements. With a key each is a row that came, went or changed; without one a row
occurs as often as it says, and is found by a hash of the whole row, for which a table that is made
here has an index. What is to go must be there as it was delivered: if it is not, somebody else
has changed the table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from strandline.connectors import postgres_columns
from strandline.connectors.change_files import with_diff
from strandline.connectors.sink import BATCH_ROWS
from strandline.errors import SinkStoppedError
from strandline.model.ids import printable
from strandline.model.schema import DIFF_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from strandline.connectors.postgres_columns import Column
    from strandline.connectors.postgres_session import Session

ANALYZED_FROM = 1_000
"""Fewer changes than these are applied well by any plan."""
CHANGE_MS = 1
"""How long a server may take for one change at most, with all its indexes and triggers…"""
READ_BYTES_PER_MS = 10_000
"""…and how much of a table it reads at least. Both only tell a slow one from one that hangs."""

_KIND = (
    "SELECT relkind FROM pg_class WHERE oid = to_regclass(format('%%I.%%I', %s::text, %s::text))"
)
_COLUMNS = """
SELECT attname::text, format_type(atttypid, atttypmod), attnotnull,
       atthasdef OR attidentity <> '', attgenerated <> '' OR attidentity = 'a'
FROM pg_attribute
WHERE attrelid = to_regclass(format('%%I.%%I', %s::text, %s::text))
  AND attnum > 0 AND NOT attisdropped
"""
_UNIQUE = """
SELECT count(*) FROM pg_index i
WHERE i.indrelid = to_regclass(format('%%I.%%I', %s::text, %s::text))
  AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
  AND %s::text[] = (
    SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
    WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
"""
_CREATE = sql.SQL("CREATE TABLE {table} ({columns})")
_INDEX = sql.SQL("CREATE INDEX ON {table} (hash_record_extended(ROW({names}), 0))")
_STAGE = sql.SQL("CREATE TEMPORARY TABLE {stage} ({columns}, {diff} bigint) ON COMMIT DELETE ROWS")
_COPY = sql.SQL("COPY {stage} ({names}, {diff}) FROM STDIN")
_ANALYZE = sql.SQL("ANALYZE {stage}")
_ANY = sql.SQL("SELECT EXISTS (SELECT FROM {table})")
_COUNT = sql.SQL("SELECT count(*) FROM {table}")
_SIZE = """
SELECT coalesce((SELECT sum(pg_table_size(relid)) FROM pg_partition_tree(it)), pg_table_size(it))
FROM to_regclass(format('%%I.%%I', %s::text, %s::text)) AS it
"""
_KEEP = sql.SQL("LOCK TABLE ONLY {table} IN ROW EXCLUSIVE MODE")
_BLANK = """
SELECT 0 = coalesce(
  (SELECT sum(pg_relation_size(relid)) FROM pg_partition_tree(it)), pg_relation_size(it))
FROM to_regclass(format('%%I.%%I', %s::text, %s::text)) AS it
"""
_SELECT = sql.SQL("SELECT {names} FROM {table}")

_INSERT = sql.SQL("INSERT INTO {table} ({names}) SELECT {names} FROM {stage}")
_KEYED_DELETE = sql.SQL("""
DELETE FROM {table} t USING {stage} old
WHERE old.{diff} < 0 AND {t_is_old}
  AND NOT EXISTS (SELECT FROM {stage} s WHERE s.{diff} > 0 AND {s_key_of_old})
""")
_KEYED_UPDATE = sql.SQL("""
UPDATE {table} t SET {set} FROM {stage} s, {stage} old
WHERE s.{diff} > 0 AND old.{diff} < 0 AND {s_key_of_old} AND {t_is_old}
""")
_KEYED_INSERT = sql.SQL("""
INSERT INTO {table} ({names}) SELECT {s_names} FROM {stage} s
WHERE s.{diff} > 0
  AND NOT EXISTS (SELECT FROM {stage} old WHERE old.{diff} < 0 AND {s_key_of_old})
""")
_KEYED_DELETE_REST = sql.SQL("""
DELETE FROM {table} t WHERE NOT EXISTS (SELECT FROM {stage} s WHERE {t_key_of_s})
""")
_KEYED_UPDATE_REST = sql.SQL("""
UPDATE {table} t SET {set} FROM {stage} s WHERE {t_key_of_s} AND NOT ({t_is_s})
""")
_KEYED_INSERT_REST = sql.SQL("""
INSERT INTO {table} ({names}) SELECT {s_names} FROM {stage} s
WHERE NOT EXISTS (SELECT FROM {table} t WHERE {t_key_of_s})
""")
_SUBTRACT = sql.SQL("""
INSERT INTO {stage} ({names}, {diff}) SELECT {names}, -count(*) FROM {table} GROUP BY {names}
""")
_NET = sql.SQL("""
(SELECT {names}, sum({diff})::bigint AS {diff} FROM {stage} GROUP BY {names}
 HAVING sum({diff}) <> 0)
""")
# A row is told from its equals by where it lies: nothing else moves it meanwhile, or the count
# of what went is wrong.
_ROWS_DELETE = sql.SQL("""
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
  SELECT place FROM (
    SELECT t.ctid AS place, old.{diff} AS much, row_number() OVER (PARTITION BY old.{nth}) AS i
    FROM {table} t JOIN (
      SELECT {names}, {diff}, row_number() OVER () AS {nth}
      FROM {source} AS changes WHERE {diff} < 0
    ) old ON hash_record_extended(ROW({t_names}), 0) = hash_record_extended(ROW({old_names}), 0)
         AND {t_is_old}
  ) AS found WHERE i <= -much))
""")
_ROWS_INSERT = sql.SQL("""
INSERT INTO {table} ({names}) SELECT {s_names}
FROM {source} AS s CROSS JOIN LATERAL generate_series(1, s.{diff}) WHERE s.{diff} > 0
""")


@dataclass(slots=True)
class Counts:
    """What a transaction's changes ask for."""

    came: int = 0
    went: int = 0
    repeated: bool = False
    """Whether a row comes or goes more than once."""
    changes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        diffs = batch[DIFF_COLUMN]
        whole, size = pc.sum(diffs).as_py(), pc.sum(pc.abs(diffs)).as_py()
        self.came += (size + whole) // 2
        self.went += (size - whole) // 2
        self.changes += batch.num_rows
        self.repeated = self.repeated or size != batch.num_rows


class TargetTable:
    """One table with these columns. All calls are within somebody's transaction."""

    def __init__(self, place: tuple[str, str], columns: pa.Schema, key: Sequence[str]) -> None:
        """`place` is the table's schema and its name."""
        self.name = ".".join(place)
        self._place = place
        self._columns = postgres_columns.columns_of(columns)
        self._changes = with_diff(columns)
        self._key = key
        names = columns.names
        self._words: dict[str, sql.Composable] = {
            "table": sql.Identifier(*place),
            "stage": sql.Identifier("pg_temp", "strandline_changes"),
            "diff": sql.Identifier(DIFF_COLUMN),
            "nth": sql.Identifier("_strandline_nth"),
            "names": _listed(names),
            "s_names": _listed(names, "s"),
            "t_names": _listed(names, "t"),
            "old_names": _listed(names, "old"),
            "set": sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(each), sql.Identifier("s", each))
                for each in names
                if each not in key
            ),
            "s_key_of_old": _matching(key, "s", "old", _EQUAL),
            "t_key_of_s": _matching(key, "t", "s", _EQUAL),
            "t_is_s": _same(names, key, "t", "s"),
            "t_is_old": _same(names, key, "t", "old"),
        }

    def exists(self, session: Session) -> bool:
        return session.one(_KIND, self._place) is not None

    def create(self, session: Session) -> None:
        columns = [self._typed(each) for each in self._columns]
        if self._key:
            columns.append(sql.SQL("PRIMARY KEY ({})").format(_listed(self._key)))
        session.run(_CREATE.format(columns=sql.SQL(", ").join(columns), **self._words))
        if not self._key:
            session.run(_INDEX.format(**self._words))

    def check(self, session: Session) -> None:
        """Refuse a table that could not be kept equal to the collection, before it is touched."""
        kind = session.one(_KIND, self._place)
        if kind != "r" and not (kind == "p" and self._key):
            what = "is partitioned: name a key" if kind == "p" else "is no plain table"
            raise SinkStoppedError(f"{self.name} {what}")
        found = {str(row[0]): row[1:] for row in session.all(_COLUMNS, self._place)}
        wrong = [*self._wrong(found)]
        known = {each.name for each in self._columns}
        for name, (_, not_null, has_default, _) in found.items():
            if name not in known and not_null and not has_default:
                wrong.append(f"{printable(name)} may not be null, and the view does not have it")
        if self._key and not session.one(_UNIQUE, (*self._place, sorted(self._key))):
            keys = ", ".join(printable(each) for each in self._key)
            wrong.append(f"no primary key and no unique index is on {keys} alone, the key")
        if wrong:
            raise SinkStoppedError(
                f"table {self.name} does not fit what it is to hold: {'; '.join(wrong)}. Alter it, "
                "or name a table that is not there, and it is made"
            )

    def _wrong(self, found: dict[str, tuple[object, ...]]) -> Iterator[str]:
        for each in self._columns:
            have = found.get(each.name)
            if have is None:
                yield f"column {printable(each.name)} ({each.type}) is missing"
            elif have[0] not in (each.type, *each.also):
                yield f"column {printable(each.name)} is {have[0]} and would have to be {each.type}"
            elif have[3]:
                yield f"column {printable(each.name)} is generated"

    def stage(self, session: Session) -> None:
        """Make the temporary table, for as long as the session lasts."""
        columns = sql.SQL(", ").join(self._typed(each) for each in self._columns)
        session.run(_STAGE.format(columns=columns, **self._words))

    def is_empty(self, session: Session) -> bool:
        # Rows that are gone and not yet cleared away are passed over one by one.
        session.expect(self._reading_ms(session))
        return not session.one(_ANY.format(**self._words))

    def is_blank(self, session: Session) -> bool:
        """Whether it looks as if it was cut or made anew: no page is in use.

        That costs the same for any table, so every delivery can ask. Until the end of the
        transaction nobody does so: this is the lock that writing takes. Who may write some columns
        only may not take it, and asks without.
        """
        with suppress(psycopg.errors.InsufficientPrivilege), session.connection.transaction():
            session.run(_KEEP.format(**self._words))
        return bool(session.one(_BLANK, self._place))

    def copy(
        self, session: Session, batches: Iterable[pa.RecordBatch], step: Callable[[str], None]
    ) -> Counts:
        """Bring changes to the server, batch by batch."""
        counts = Counts()
        step("copy")
        cursor = session.connection.cursor()
        with cursor.copy(_COPY.format(**self._words)) as copy:
            for batch in batches:
                step("batch")
                counts.add(batch)
                self._check_key(batch)
                for piece in postgres_columns.copied(batch, self._columns, DIFF_COLUMN):
                    copy.write(piece)
            # What the kernel has taken is on its way, and nobody here sees it move.
            session.expect(counts.changes * CHANGE_MS)
        if self._key and counts.repeated:
            raise self._no_key()
        if counts.changes >= ANALYZED_FROM:
            session.run(_ANALYZE.format(**self._words))
        return counts

    def _expect(self, session: Session, counts: Counts) -> None:
        """Each statement from here on, the commit too, may be about all of it."""
        session.expect(self._reading_ms(session) + counts.changes * CHANGE_MS)

    def _reading_ms(self, session: Session) -> int:
        """How long it may take at most to read the whole table."""
        return int(str(session.one(_SIZE, self._place) or 0)) // READ_BYTES_PER_MS

    def _check_key(self, batch: pa.RecordBatch) -> None:
        for each in self._key:
            if batch[each].null_count:
                raise SinkStoppedError(
                    f"column {printable(each)} is part of the key of table {self.name} and null in "
                    "a row: name another key with option key, or key '' for none"
                )

    def apply(self, session: Session, counts: Counts, step: Callable[[str], None]) -> None:
        """Make the changes that were copied; what they say of the table must be true of it."""
        # A table that somebody else made has no index of hashes.
        if counts.changes >= ANALYZED_FROM or (counts.went and not self._key):
            self._expect(session, counts)
        if self._key:
            deleted, updated, inserted = self._applied_by_key(session, counts, step)
        else:
            deleted, updated, inserted = self._applied_by_rows(session, counts, step)
        if deleted + updated != counts.went:
            missing = counts.went - deleted - updated
            raise SinkStoppedError(
                f"table {self.name} lacks {missing} of {counts.went} rows that are to go or to "
                "change, or has them with other values: somebody else changed it. Bring them "
                "back, or publish to a new table"
            )
        if inserted + updated != counts.came:
            raise self._no_key()

    def _applied_by_key(
        self, session: Session, counts: Counts, step: Callable[[str], None]
    ) -> tuple[int, int, int]:
        if not counts.went:
            step("insert")
            return 0, 0, session.run(_INSERT.format(**self._words))
        step("delete")
        deleted = session.run(_KEYED_DELETE.format(**self._words))
        if not counts.came:
            return deleted, 0, 0
        step("update")
        # Where every column is part of the key, no row changes.
        changing = len(self._key) < len(self._columns)
        updated = session.run(_KEYED_UPDATE.format(**self._words)) if changing else 0
        step("insert")
        return deleted, updated, session.run(_KEYED_INSERT.format(**self._words))

    def _applied_by_rows(
        self, session: Session, counts: Counts, step: Callable[[str], None]
    ) -> tuple[int, int, int]:
        words = {"source": self._words["stage"], **self._words}
        deleted = inserted = 0
        if counts.went:
            step("delete")
            deleted = session.run(_ROWS_DELETE.format(**words))
        if counts.came:
            step("insert")
            plain = not counts.went and not counts.repeated
            inserted = session.run((_INSERT if plain else _ROWS_INSERT).format(**words))
        return deleted, 0, inserted

    def replace(self, session: Session, counts: Counts, step: Callable[[str], None]) -> None:
        """Make what was copied the whole content; only what is different is written."""
        if counts.went:
            raise SinkStoppedError(f"a first delivery to {self.name} takes rows away")
        self._expect(session, counts)
        if self._key:
            statements = [_KEYED_DELETE_REST, _KEYED_UPDATE_REST, _KEYED_INSERT_REST]
            if len(self._key) == len(self._columns):
                statements.remove(_KEYED_UPDATE_REST)
            queries = [each.format(**self._words) for each in statements]
        else:
            net = _NET.format(**self._words)
            queries = [
                _SUBTRACT.format(**self._words),
                _ANALYZE.format(**self._words),
                _ROWS_DELETE.format(source=net, **self._words),
                _ROWS_INSERT.format(source=net, **self._words),
            ]
        for query in queries:
            step("replace")
            session.run(query)
        if session.one(_COUNT.format(**self._words)) != counts.came:
            raise (
                self._no_key()
                if self._key
                else SinkStoppedError(f"table {self.name} was changed by somebody else meanwhile")
            )

    def read(self, session: Session) -> Iterator[pa.RecordBatch]:
        """All rows, each as an insertion, batch by batch, by a cursor of the server."""
        names = sql.SQL(", ").join(
            sql.SQL("{}::text" if each.type == "jsonb" else "{}").format(sql.Identifier(each.name))
            for each in self._columns
        )
        with session.connection.cursor(name="strandline_read_back") as cursor:
            cursor.execute(_SELECT.format(**{**self._words, "names": names}))
            while rows := cursor.fetchmany(BATCH_ROWS):
                found = zip(zip(*rows, strict=True), self._columns, strict=True)
                arrays = [postgres_columns.read(values, each.kind) for values, each in found]
                ones = pa.array([1] * len(rows), pa.int64())
                yield pa.RecordBatch.from_arrays([*arrays, ones], schema=self._changes)

    def _typed(self, column: Column) -> sql.Composable:
        # Types are made of our own words and numbers alone.
        kind = sql.SQL(column.type)
        return sql.SQL("{} {}").format(sql.Identifier(column.name), kind)

    def _no_key(self) -> SinkStoppedError:
        keys = ", ".join(printable(each) for each in self._key)
        return SinkStoppedError(
            f"{keys} is no key of what table {self.name} is to hold: two rows have the same. Name "
            "another with option key, or key '' for none"
        )


_EQUAL = sql.SQL("=")
_SAME = sql.SQL("IS NOT DISTINCT FROM")


def _listed(names: Iterable[str], of: str | None = None) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.Identifier(each) if of is None else sql.Identifier(of, each) for each in names
    )


def _matching(names: Iterable[str], one: str, other: str, how: sql.SQL) -> sql.Composed:
    return sql.SQL(" AND ").join(
        sql.SQL("{} {} {}").format(sql.Identifier(one, each), how, sql.Identifier(other, each))
        for each in names
    )


def _same(names: Sequence[str], key: Sequence[str], one: str, other: str) -> sql.Composed:
    """Rows are equal: by their key first, which has an index and no nulls."""
    rest = [each for each in names if each not in key]
    both = [_matching(key, one, other, _EQUAL), _matching(rest, one, other, _SAME)]
    return sql.SQL(" AND ").join(each for each, of in zip(both, (key, rest), strict=True) if of)
