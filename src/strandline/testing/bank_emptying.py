"""Mutants of reloads and truncations: what goes, what stays, what comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.journal.handles import Handle
from strandline.parts import emptied
from strandline.pipeline import meaning
from strandline.pipeline.planner import Planner
from strandline.testing.mutants import Mutant, Planting, mutant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.journal.record import Input
    from strandline.model.engine import Rules
    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.parts.emptied import Emptying, There
    from strandline.pipeline.compute import Intake

BANK: list[Mutant] = []
_CASE = "pipeline"
_Found = tuple[pa.Table, pa.Table | None]
_whole = emptied.resolve_emptied
_reloaded = emptied._reloaded  # noqa: SLF001
_later = emptied.later


@mutant("a reload emits only the difference", _CASE, BANK)
def reload_emits_everything(planting: Planting) -> None:
    def summed(updates: Sequence[pa.Table], _schema: Schema) -> pa.Table:
        return pa.concat_tables(updates)

    planting.swap(emptied, "_sum", summed)


@mutant("what a reload does not bring goes", _CASE, BANK)
def reload_adds(planting: Planting) -> None:
    def reloaded(
        incoming: pa.Table, there: There, schema: Schema, rules: Rules, time: Time
    ) -> _Found:
        rows = there.rows.filter(pa.array(emptied.among(there.rows, incoming, schema)))
        return _reloaded(incoming, replace(there, rows=rows), schema, rules, time)

    planting.swap(emptied, "_reloaded", reloaded)


@mutant("rows of a reload are taken as they are", _CASE, BANK)
def reload_compares_sequences(planting: Planting) -> None:
    def resolved(
        incoming: pa.Table,
        there: There,
        schema: Schema,
        rules: Rules,
        emptying: Emptying,
        time: Time,
    ) -> _Found:
        if not emptying.reload or not rules.bury:
            return _whole(incoming, there, schema, rules, emptying, time)
        came, tombs = _whole(incoming, there, schema, rules, emptied.NOTHING, time)
        return came, tombs

    planting.swap(meaning, "resolve_emptied", resolved)


@mutant("an older event after a reload loses against what the reload removed", _CASE, BANK)
def reload_buries_nobody(planting: Planting) -> None:
    def reloaded(
        incoming: pa.Table, there: There, schema: Schema, rules: Rules, time: Time
    ) -> _Found:
        updates, tombs = _reloaded(incoming, there, schema, rules, time)
        return updates, None if tombs is None else tombs.slice(0, 0)

    planting.swap(emptied, "_reloaded", reloaded)


@mutant("what is staged to replace a table replaces it", _CASE, BANK)
def reload_is_sealed_as_an_insert(planting: Planting) -> None:
    planting.swap(Handle, "replaced", lambda _self: frozenset())


@mutant("what was sealed as a reload is computed as one", _CASE, BANK)
def reload_is_computed_as_an_insert(planting: Planting) -> None:
    original = Planner.intake

    def intake(self: Planner, sealed: Input) -> Intake:
        return replace(original(self, sealed), replace=False)

    planting.swap(Planner, "intake", intake)


@mutant("a truncation leaves what comes after it", _CASE, BANK)
def truncation_forgets_later_rows(planting: Planting) -> None:
    def against(rows: pa.Table, _mark: pa.Table) -> np.typing.NDArray[np.int64]:
        return np.full(rows.num_rows, -1, np.int64)

    planting.swap(emptied, "_against", against)


@mutant("a truncation leaves rows that are newer than itself", _CASE, BANK)
def truncation_takes_newer_rows(planting: Planting) -> None:
    def newer(rows: pa.Table, _at: pa.Table, _rules: Rules) -> np.typing.NDArray[np.bool_]:
        return np.zeros(rows.num_rows, np.bool_)

    planting.swap(emptied, "_newer", newer)


@mutant("what came before a truncation goes with it", _CASE, BANK)
def truncation_comes_first(planting: Planting) -> None:
    def resolved(
        incoming: pa.Table,
        there: There,
        schema: Schema,
        rules: Rules,
        emptying: Emptying,
        time: Time,
    ) -> _Found:
        if emptying.at is None or not rules.bury:
            return _whole(incoming, there, schema, rules, emptying, time)
        gone, _ = _whole(incoming.slice(0, 0), there, schema, rules, emptying, time)
        came, tombs = _whole(
            incoming, replace(there, rows=there.rows.slice(0, 0)), schema, rules, emptied.NOTHING,
            time,
        )  # fmt: skip
        return emptied._sum([gone, came], schema), tombs  # noqa: SLF001

    planting.swap(meaning, "resolve_emptied", resolved)


@mutant("a late event brings nothing back that was truncated", _CASE, BANK)
def floor_is_forgotten(planting: Planting) -> None:
    def emptying_of(
        truncations: Sequence[pa.Table], how: object, floor: object, *, reload: bool
    ) -> Emptying:
        del how, floor
        return emptied.Emptying(reload, _later(truncations))

    planting.swap(meaning, "emptying_of", emptying_of)
    from strandline.testing import computing  # noqa: PLC0415 - it imports the name

    planting.swap(computing, "emptying_of", emptying_of)
