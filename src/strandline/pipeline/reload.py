"""Reloads a table: what it holds is replaced in one transaction, of which only the difference is
seen.

    rows       staged here, in chunks; a row that does not fit refuses the whole
    files      the same, or by the engine's tasks if they are large
    DataFrame  of Spark: staged by its tasks, never collected here
    a source   all that it has now, see `drawing`; a shard by the engine's tasks if it has some

What is staged belongs to an explicit handle. A crash before its commit leaves the table as it was;
after it, any replica finishes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.connectors.files import Files
from strandline.connectors.source import Limits
from strandline.errors import StoreError, UsageError
from strandline.journal.staging import stage
from strandline.model.ids import printable
from strandline.pipeline.bringing import Bringing, brought, chunks_of, no_rows, options_for
from strandline.pipeline.drawing import drawn, held
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.rows import refuse_unknown, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from strandline.connectors.source import Ports, Split
    from strandline.handles.store import Store
    from strandline.journal.record import StagedRef
    from strandline.pipeline.engine import PipelineEngine
    from strandline.pipeline.rows import Rows
    from strandline.shard.env import Env
    from strandline.views.declared import Table

Source: TypeAlias = "Rows | str | Path | Mapping[str, str] | tuple[str, Mapping[str, str]] | Any"
"""Rows, a DataFrame of Spark, a path, a path with options, or a connector with options."""
Told: TypeAlias = "Callable[[int, int | None, str], None]"
"""Is told how many rows are staged, of how many if that is known, and what happens now."""

HERE_MAX = 64 * 1024 * 1024
"""What has more bytes is read by the engine's tasks."""
_SOURCE = 2
"""Of a connector and its options."""
_SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".avro": "avro"}


@dataclass(frozen=True, slots=True)
class Stager:
    """Stages what a reload brings."""

    store: Store
    pipeline: str
    engine: Callable[[], PipelineEngine]
    ports: Ports
    told: Told = lambda _done, _total, _what: None

    def staged(self, table: Table, source: Source) -> list[StagedRef]:
        """The objects that hold all rows, in their order; at least one."""
        if hasattr(source, "mapInArrow"):
            refuse_unknown(set(getattr(source, "columns", ())), table)
            found = self._by_engine(Bringing(self.pipeline, table, frame=source))
        elif isinstance(source, str | Path):
            found = self._files(table, {"path": str(source)})
        elif isinstance(source, dict):
            found = self._files(table, source)
        elif isinstance(source, tuple) and len(source) == _SOURCE and isinstance(source[0], str):
            found = self._source(table, *source)
        else:
            rows = table_of(source, table)
            found = self._here(chunks_of([rows], table, 0), rows.num_rows)
        return found or self._here(iter([no_rows(table)]), 0)

    def _files(self, table: Table, given: Mapping[str, str]) -> list[StagedRef]:
        options = {"format": _format_of(given), **given}
        splits = tuple(_splits(options))
        how = options_for(table.options, options)
        bringing = Bringing(self.pipeline, table, splits, how)
        return self._pieces(bringing)

    def _source(self, table: Table, connector: str, given: Mapping[str, str]) -> list[StagedRef]:
        if connector == "files":
            return self._files(table, given)
        bringing = drawn(self.store, self.pipeline, table, (connector, given), self.ports)
        if not bringing.shard:
            return self._pieces(bringing)
        if self.engine().stage is not None:
            return self._by_engine(bringing)
        rows = held(self.store, bringing)
        return self._here(chunks_of([rows], table, 0), rows.num_rows)

    def _pieces(self, bringing: Bringing) -> list[StagedRef]:
        if bringing.size > HERE_MAX and self.engine().stage is not None:
            return self._by_engine(bringing)
        table, how, resolve = bringing.table, bringing.options, self.ports.resolve
        chunks = (
            chunk
            for number, split in enumerate(bringing.splits)
            for chunk in brought(split, table, how, resolve, number)
        )
        return self._here(chunks, None)

    def _by_engine(self, bringing: Bringing) -> list[StagedRef]:
        stage_by = self.engine().stage
        if stage_by is None:
            raise UsageError(
                f"rows for {bringing.table.name} are a DataFrame of Spark, and this pipeline's "
                "engine is another one: give an Arrow table"
            )
        self.told(0, None, "staged by tasks")
        refs = stage_by(bringing)
        self.told(sum(ref.rows for ref in refs), None, "staged")
        return refs

    def _here(self, chunks: Iterator[pa.Table], total: int | None) -> list[StagedRef]:
        refs: list[StagedRef] = []
        try:
            for chunk in chunks:
                payload = packed_rows(chunk)
                refs.append(stage(self.store.env, self.pipeline, payload, rows=chunk.num_rows))
                self.told(sum(ref.rows for ref in refs), total, "staged")
        except BaseException:
            discard(self.store.env, refs)
            raise
        return refs


def discard(env: Env, refs: Iterable[StagedRef]) -> None:
    """Delete what no record refers to; what stays is never looked at."""
    with suppress(StoreError):
        for ref in refs:
            env.blob.delete(ref.key)


def _format_of(given: Mapping[str, str]) -> str:
    return _SUFFIXES.get(Path(given.get("path", "")).suffix.casefold(), "json")


def _splits(options: Mapping[str, str]) -> list[Split]:
    """One for each file at a path: a file, or a folder of them."""
    path = Path(options.get("path", ""))
    if path.is_file():
        return [Files({**options, "path": str(path.parent)}).split_of(path.name)]
    files = Files(options)
    taken = files.plan({}, Limits())
    if taken is None:
        raise UsageError(
            f"there are no rows at {printable(str(path))}: to empty a table, reload it with no rows"
        )
    return files.splits(taken)
