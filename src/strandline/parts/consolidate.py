"""What updates add up to: the kernels that sum diffs of equal rows. Pure.

    consolidate(u)      one update for each row (and time), with the sum of its diffs, none zero
    as_of(u, t)         consolidate(updates of u at or before t, all moved to t)
    overlay(base, u)    rows(base) + u, where only rows of the base that u may retract are summed

Rows are equal as `equality` has it: null equals null, NaN equals NaN, and -0.0 equals 0.0; of equal
rows the first one stays. Order is kept: rows come in the order of their first occurrence. A sum
that 64 bits can't hold is an error, and never another number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.errors import UsageError
from strandline.model.equality import frame_of, names_of
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN as DIFF, TIME_COLUMN as TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

I64: TypeAlias = npt.NDArray[np.int64]

_TIME_FIELD = pa.field(TIME, pa.int64(), nullable=False)
_DIFF_FIELD = pa.field(DIFF, pa.int64(), nullable=False)
_LOW_BITS = 32


@dataclass(frozen=True, slots=True)
class Overlay:
    """A collection as rows that nothing touches, and the rest as consolidated updates."""

    clean: tuple[pa.Table, ...]
    """Rows alone: each counts as often as it occurs."""
    rest: pa.Table
    """The columns of `clean` and `_diff`."""


def consolidate(updates: pa.Table) -> pa.Table:
    """Equal rows become one, those that cancel go; with `_time`, rows at equal times only."""
    if updates.num_rows < 2:  # Nothing to add up, which is usual where little changes.
        return updates.filter(pc.not_equal(updates.column(DIFF), 0))
    names = [name for name in updates.column_names if name != DIFF]
    first, sums = _sums(updates.select(names), updates.column(DIFF))
    if len(first) == updates.num_rows:
        return updates
    rows = updates.take(pa.array(first))
    return rows.set_column(rows.column_names.index(DIFF), _diff_field(updates), pa.array(sums))


def as_of(updates: pa.Table, time: int) -> pa.Table:
    """What the updates add up to at `time`, all of them at that time."""
    past = updates.filter(pc.less_equal(updates.column(TIME), time))
    at = past.column_names.index(TIME)
    moved = past.set_column(at, past.schema.field(at), constant(time, past.num_rows))
    return consolidate(moved)


def overlay(base: Sequence[pa.Table], tail: pa.Table, key: Sequence[str]) -> Overlay:
    """Add the updates `tail` (columns and `_diff`, no `_time`) to the rows of `base`.

    Only a retraction can touch a row of the base, and only one with the same key; without a key
    (or without all of its columns) it is the whole row that has to be the same.
    """
    settled = consolidate(_diff_last(tail))
    negative = settled.filter(pc.less(settled.column(DIFF), 0))
    if not negative.num_rows or not base:
        return Overlay(tuple(base), settled)
    columns = [name for name in settled.column_names if name != DIFF]
    clean, touched = [], []
    for table in base:
        rest, hit = divide(table, negative, key)
        clean.append(rest)
        if hit.num_rows:
            touched.append(as_updates(hit, columns).cast(settled.schema))
    if not touched:
        return Overlay(tuple(clean), settled)
    rest = pa.concat_tables([*touched, settled])
    return Overlay(tuple(clean), consolidate(rest))


def divide(rows: pa.Table, retracted: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The rows that none of the retractions can touch, and those that one may (see `overlay`)."""
    columns = [name for name in retracted.column_names if name != DIFF]
    match_by = list(key) if key and set(key) <= set(columns) else columns
    hit = pc.is_in(_fingerprints(rows, match_by), value_set=_fingerprints(retracted, match_by))
    if not pc.any(hit).as_py():
        return rows, rows.slice(0, 0)
    return rows.filter(pc.invert(hit)), rows.filter(hit)


def as_updates(rows: pa.Table, columns: Sequence[str], *, time: int | None = None) -> pa.Table:
    """Rows as insertions, one each, at `time` if there is one."""
    updates = rows.select(list(columns))
    if time is not None:
        updates = updates.append_column(_TIME_FIELD, constant(time, rows.num_rows))
    return updates.append_column(_DIFF_FIELD, constant(1, rows.num_rows))


def expand(found: Overlay, what: str) -> pa.Table:
    """The rows of a collection, each as often as it occurs."""
    diffs: I64 = found.rest.column(DIFF).to_numpy()
    rows = found.rest.drop_columns([DIFF])
    if len(diffs) and diffs.min() < 0:
        raise UsageError(
            f"{what} holds {int((diffs < 0).sum())} rows that were retracted more often than "
            "inserted, so it is no table; updates() shows them"
        )
    if len(diffs) and diffs.max() > 1:
        rows = rows.take(pa.array(np.repeat(np.arange(len(diffs)), diffs)))
    return pa.concat_tables([*found.clean, rows]) if found.clean else rows


def _diff_last(updates: pa.Table) -> pa.Table:
    columns = [name for name in updates.column_names if name != DIFF]
    return updates.select([*columns, DIFF])


def constant(value: int, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), length)


def _diff_field(updates: pa.Table) -> pa.Field:
    return updates.schema.field(DIFF)


def _sums(keys: pa.Table, diffs: pa.ChunkedArray) -> tuple[I64, I64]:
    """For each distinct row whose diffs do not cancel: its first position, and their sum."""
    import polars as pl  # noqa: PLC0415 - as late as in `equality`

    names = names_of(keys)
    halves = _halves(diffs)
    frame = frame_of(keys, diff=diffs, position=np.arange(len(diffs), dtype=np.int64), **halves)
    totals = (pl.col("position").min(), *(pl.col(name).sum() for name in ("diff", *halves)))
    groups = frame.group_by(names).agg(*totals) if names else frame.select(*totals)
    if halves:
        _check_sums(groups["high"].to_numpy(), groups["low"].to_numpy())
    kept = groups.filter(pl.col("diff") != 0).sort("position")
    return kept["position"].to_numpy(), kept["diff"].to_numpy()


def _halves(diffs: pa.ChunkedArray) -> dict[str, I64]:
    """The upper and the lower bits of each diff; none where no sum can be too large anyway."""
    bounds = pc.min_max(diffs).as_py()
    largest = max(-bounds["min"], bounds["max"])
    if largest * len(diffs) < 2**63:
        return {}
    each: I64 = diffs.to_numpy()
    return {"high": each >> _LOW_BITS, "low": each & (2**_LOW_BITS - 1)}


def _check_sums(high: I64, low: I64) -> None:
    """Refuse sums, given as those of their halves, that 64 bits can't hold."""
    high = high + (low >> _LOW_BITS)
    beyond = int(((high < -(2**31)) | (high >= 2**31)).sum())
    if beyond:
        raise UsageError(
            f"the {DIFF} of {beyond} rows add up to more than 64 bits can hold, so nobody can tell "
            "how often they are there: read another time, or leave them out by a filter"
        )


def _fingerprints(table: pa.Table, names: Sequence[str]) -> pa.ChunkedArray | pa.Array:
    """One value a row, equal for rows that are equal in these columns (and rarely for others)."""
    if len(names) == 1 and _is_plain(table.schema.field(names[0]).type):
        return table.column(names[0])
    return pa.array(row_base(table.select(list(names)), range(1, len(names) + 1)))


def _is_plain(kind: pa.DataType) -> bool:
    tests = (is_.is_integer, is_.is_string, is_.is_large_string, is_.is_binary, is_.is_date32)
    return any(test(kind) for test in tests)
