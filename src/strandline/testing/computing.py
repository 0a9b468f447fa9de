"""A computer of plain Arrow, in one process: slow, obvious, and the same as Spark's.

Tables are resolved by the kernel that executors run, against the whole table; views are answered
row by row. The simulator runs pipelines with it, and Spark's computer is compared with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.incoming import Incoming, decode, out_schema
from strandline.connectors.registry import fetch as fetch_split
from strandline.connectors.shard import NAME as SHARD_NAME, fetch_changes
from strandline.errors import invariant
from strandline.journal.staging import fetch as fetch_staged
from strandline.model.digest import Digest
from strandline.parts.consolidate import as_updates, consolidate
from strandline.parts.emptied import There
from strandline.parts.tombstones import swept
from strandline.pipeline.catalog import (
    VIEW_ERROR_COLUMNS,
    errors_of,
    floor_of,
    has_floor,
    tombs_of,
)
from strandline.pipeline.compute import Computed, Delta
from strandline.pipeline.meaning import (
    DIVISION,
    MISFIT,
    appended,
    declared_only,
    difference,
    emptying_of,
    errors_emptying,
    errors_updated,
    expanded,
    floor_updated,
    fresh_words,
    input_digest,
    reading_of,
    row_text,
    sweep_before,
    undecoded,
    unpacked_rows,
    updates_digest,
    upserted,
)
from strandline.pipeline.upstream import Upstream
from strandline.views.answer import answer, changes_of
from strandline.views.arithmetic import Raised
from strandline.views.rewrite import query_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from strandline.connectors.reading import Reading
    from strandline.connectors.source import Split
    from strandline.handles.store import Store
    from strandline.model.schema import Schema
    from strandline.pipeline.compute import Intake, Work
    from strandline.pipeline.meaning import Undecoded
    from strandline.views.declared import Table, View
    from strandline.views.program import Program

VERSIONS = {"engine": "arrow, for tests"}
_ERROR_UPDATES = VIEW_ERROR_COLUMNS.append(pa.field("_diff", pa.int64()))


class ArrowComputer:
    """Computes transactions of a store's shards in this process."""

    def __init__(
        self,
        store: Store,
        *,
        fetch: Callable[[Split], Iterable[pa.RecordBatch]] = lambda split: fetch_split(split, str),
        versions: Mapping[str, str] = VERSIONS,
    ) -> None:
        self._store = store
        self._fetch = fetch
        self.versions = versions
        self._held: dict[str, pa.Table] = {}
        """What collections held before the transaction that is being computed."""
        self._undecoded: dict[str, Undecoded] = {}
        self._fresh: dict[str, dict[str, str]] = {}

    def view_columns(self, program: Program) -> dict[str, pa.Schema]:
        """The columns of each view: what it answers over empty collections."""
        known = {each.name: each.columns.empty_table() for each in program.tables}
        for view in program.views:
            known[view.name] = answer(_query(view, 0), known)
        return {view.name: known[view.name].schema for view in program.views}

    def compute(self, work: Work) -> Computed:
        self._held = {}
        inputs: dict[str, Digest] = {}
        came: dict[str, list[pa.Table]] = {}
        for intake in work.intakes:
            rows = self._rows(work, intake)
            inputs[intake.endpoint] = sum((input_digest(each) for each in rows), Digest.ZERO)
            came.setdefault(intake.table, []).extend(rows)
        updates: dict[str, pa.Table] = {}
        self._undecoded, self._fresh = {}, {}
        for table in work.program.tables:
            if table.name in came:
                updates |= self._table(work, table, came[table.name])
        for name, gone in self._swept(work).items():
            updates[name] = pa.concat_tables([updates[name], gone]) if name in updates else gone
        for view in work.program.views:
            updates |= self._view(work, view, updates)
        deltas = {name: self._delta(work, name, updates[name]) for name in updates}
        return Computed(inputs, deltas, self._undecoded, self._fresh)

    def _rows(self, work: Work, intake: Intake) -> list[pa.Table]:
        """One table for each layout that came."""
        found = [pa.Table.from_batches([each]) for s in intake.splits for each in self._read_in(s)]
        env = self._store.env
        staged = (fetch_staged(env, work.pipeline, ref) for ref in intake.staged)
        return [*found, *(unpacked_rows(each) for each in staged)]

    def _read_in(self, split: Split) -> Iterable[pa.RecordBatch]:
        if split.connector == SHARD_NAME:
            return fetch_changes(split, Upstream(self._store, split.options["shard"]))
        return self._fetch(split)

    def _table(self, work: Work, table: Table, came: list[pa.Table]) -> dict[str, pa.Table]:
        how = reading_of(table)
        incoming = decode_all(came, how)
        declared = declared_only(how, work.seen.get(table.name, ()))
        again = None if declared is None else lambda: decode_all(came, declared)
        if (bad := undecoded(incoming, again)) is not None:
            self._undecoded[table.name] = bad
        if fresh := fresh_words(incoming.fresh):
            self._fresh[table.name] = fresh
        truncated = [incoming.truncations(how)]
        reload = table.name in work.replaced
        found: dict[str, pa.Table] = {}
        if how.keyed:
            found |= self._keyed(work, table, incoming, truncated)
        else:
            old = self._old(work, table.name) if reload else None
            found[table.name] = appended(incoming, how, self._schema(work, table.name), old)
        errors = errors_of(table.name)
        emptying = errors_emptying(truncated, how, reload=reload)
        found[errors] = errors_updated(incoming, self._old(work, errors), work.time, emptying)
        return found

    def _keyed(
        self, work: Work, table: Table, incoming: Incoming, truncated: list[pa.Table]
    ) -> dict[str, pa.Table]:
        """What changes in a keyed table, its tombstones and its floor."""
        how, schema = reading_of(table), self._schema(work, table.name)
        tombs, floor = tombs_of(table.name), floor_of(table.name)
        buried = self._buried(work, table) if how.sequence_by else None
        lowest = self._old(work, floor) if has_floor(table) else None
        emptying = emptying_of(truncated, how, lowest, reload=table.name in work.replaced)
        held = There(self._old(work, table.name), buried)
        at = (work.time, work.now_ms)
        rows, gone = upserted(incoming.rows(how), how, held, schema, at, emptying)
        found = {table.name: rows}
        if gone is not None:
            found[tombs] = gone
        if lowest is not None:
            found[floor] = floor_updated(emptying, lowest)
        return found

    def _buried(self, work: Work, table: Table) -> pa.Table:
        """The tombstones that count in this transaction."""
        before = sweep_before(reading_of(table), work.time, work.now_ms)
        tombs = self._old(work, tombs_of(table.name))
        return tombs if before is None else swept(tombs, before)[0]

    def _swept(self, work: Work) -> dict[str, pa.Table]:
        """Tombstones that go in this transaction, whether anything came for their table or not."""
        found = {}
        for table in work.program.tables:
            before = sweep_before(reading_of(table), work.time, work.now_ms)
            if before is not None:
                name = tombs_of(table.name)
                _, old = swept(self._old(work, name), before)
                found[name] = difference(old.slice(0, 0), old)
        return found

    def _view(self, work: Work, view: View, updates: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        touched = any(name in updates for name in view.reads)
        if not (touched or view.name in work.builds or view.uses_now):
            return {}
        errors = errors_of(view.name)
        if not work.whole(view):
            changes = {name: self._changes(work, name, updates) for name in view.reads}
            good, bad = linear_changes(view, changes)
            return {view.name: good, errors: bad}
        old = self._old(work, view.name)
        before = self._old(work, errors)
        now = {name: self._seen(work, name, updates) for name in view.reads}
        rows, failed = _whole(view, now, work.now_ms, old)
        return {view.name: difference(rows, old), errors: difference(failed, before)}

    def _delta(self, work: Work, name: str, updates: pa.Table) -> Delta:
        # Digests add up, so they would not see a row that goes and comes back the same.
        invariant(
            work.program.table(name) is None or consolidate(updates).num_rows == updates.num_rows,
            f"{name} at {work.time}: a change that changes nothing",
        )
        return Delta(updates_digest(updates, self._schema(work, name)), updates)

    def _schema(self, work: Work, name: str) -> Schema:
        return self._store.shard(work.shards[name]).state().schema

    def _old(self, work: Work, name: str) -> pa.Table:
        """What a collection held before this transaction."""
        known = self._held.get(name)
        if known is None:
            known = self._held[name] = self._read(work, name)
        return known

    def _read(self, work: Work, name: str) -> pa.Table:
        shard = self._store.shard(work.shards[name])
        if work.time == 0:
            return shard.schema.empty_table()
        with shard.snapshot(as_of=work.time - 1) as snapshot:
            return snapshot.to_arrow()

    def _changes(self, work: Work, name: str, updates: Mapping[str, pa.Table]) -> pa.Table:
        known = updates.get(name)
        return self._schema(work, name).updates().empty_table() if known is None else known

    def _seen(self, work: Work, name: str, updates: Mapping[str, pa.Table]) -> pa.Table:
        """The same without columns that a table was given: programs do not see those."""
        found = self._now(work, name, updates)
        return found.select(list(work.seen.get(name, found.column_names)))

    def _now(self, work: Work, name: str, updates: Mapping[str, pa.Table]) -> pa.Table:
        """What a collection holds after this transaction, which nobody else can read yet."""
        old = self._old(work, name)
        if name not in updates:
            return old
        names = old.schema.names
        before = as_updates(old, names)
        changes = updates[name].select([*names, "_diff"]).cast(before.schema)
        return expanded(consolidate(pa.concat_tables([before, changes])))


def decode_all(came: Sequence[pa.Table], how: Reading) -> Incoming:
    """What rows mean that came in several layouts."""
    parts = [decode(each, how) for each in came]
    fresh = {name: kind for part in parts for name, kind in part.fresh.items()}
    found = [out_schema(how).empty_table(), *(part.table for part in parts)]
    return Incoming(pa.concat_tables(found), fresh)


def linear_changes(view: View, changes: Mapping[str, pa.Table]) -> tuple[pa.Table, pa.Table]:
    """A linear view's changes, and those of its errors: one for each row that its query raises for.

    A row that raises raises again when it is retracted, so its error goes with it.
    """
    try:
        whole = changes_of(view, changes)
    except Raised:
        pass
    else:
        return consolidate(whole), _ERROR_UPDATES.empty_table()
    good, bad = [], []
    nothing = {name: table.slice(0, 0) for name, table in changes.items()}
    for name, table in changes.items():
        for at in range(table.num_rows):
            row = table.slice(at, 1)
            try:
                good.append(changes_of(view, {**nothing, name: row}))
            except Raised as error:
                diff = row["_diff"][0].as_py()
                told = row_text(view, name, row)
                bad.append({"row": told, "reason": reason_of(error), "_diff": diff})
    none = changes_of(view, nothing)
    failed = pa.Table.from_pylist(bad, _ERROR_UPDATES)
    return consolidate(pa.concat_tables([none, *good])), consolidate(failed)


def reason_of(error: Raised) -> str:
    """What was raised, in the words that all computers use."""
    return DIVISION if str(error) == DIVISION else MISFIT


def _whole(
    view: View, now: Mapping[str, pa.Table], now_ms: int, old: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """All that a view holds, and its errors; a query that fails as a whole leaves it as it was."""
    if view.kind == "linear":
        whole = {name: as_updates(table, table.schema.names) for name, table in now.items()}
        good, bad = linear_changes(view, whole)
        return expanded(good), expanded(bad)
    try:
        return answer(_query(view, now_ms), now), VIEW_ERROR_COLUMNS.empty_table()
    except Raised as error:
        failed = [{"row": "", "reason": reason_of(error)}]
        return old, pa.Table.from_pylist(failed, VIEW_ERROR_COLUMNS)


def _query(view: View, now_ms: int) -> str:
    return query_sql(view.sql, {name: name for name in view.reads}, now_ms)
