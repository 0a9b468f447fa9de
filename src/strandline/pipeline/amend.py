"""Replaces what a sealed transaction reads from an endpoint whose rows are gone, on the record.

A sealed range that can't be read any more stops the pipeline. Whoever runs it decides what is read
in its place: a part of the range, rows given here, or nothing. The record says so and why, for
ever; positions move past all that was sealed. Once the transaction has an answer it is too late:
rows of it may have landed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.raw import OFFSET, PARTITION
from strandline.errors import JournalError, NotFoundError, UsageError
from strandline.journal.log import Lost
from strandline.journal.record import Amend
from strandline.journal.staging import fetch, stage
from strandline.journal.standing import advance
from strandline.pipeline.evolve import evolved
from strandline.pipeline.forgetful import unstage
from strandline.pipeline.meaning import packed_rows, unpacked_rows
from strandline.pipeline.rows import staged_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.journal.log import Journal
    from strandline.journal.record import StagedRef
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Time
    from strandline.pipeline.rows import Rows
    from strandline.views.declared import Table
    from strandline.views.program import Program


@dataclass(frozen=True, slots=True)
class Instead:
    """What is read in place of what was sealed: a part of it, rows, or, without both, nothing."""

    take: Mapping[str, tuple[int, int]] | None = None
    """By partition, the half-open ranges that can still be read; the rest is left out."""
    rows: Rows | None = None


def instead(
    take: Mapping[str, tuple[int, int]] | None, rows: Rows | None, *, empty: bool
) -> Instead:
    """What the caller chose; it has to say which, as nothing at all loses rows for good."""
    if sum((take is not None, rows is not None, empty)) != 1:
        raise UsageError("say what is read instead, by one of: ranges to take, rows, or empty")
    return Instead(take, rows)


def amend(
    journal: Journal, program: Program, at: tuple[Time, str], what: Instead, reason: str
) -> Amend:
    """Amend one endpoint's input of the transaction that is sealed; returns the record.

    `UsageError` if another time is sealed or none, if it has an answer, if it has no such endpoint,
    or if more would be read than was sealed.
    """
    if not reason.strip():
        raise UsageError("an amendment needs a reason: it is on record for ever")
    t, endpoint = at
    taken = None if what.take is None else dict(what.take)
    record = Amend(t, endpoint, taken, (), reason.strip())
    _check(journal.refresh(), record)
    env = journal.env
    while True:
        staged = _staged(journal, program, endpoint, what)
        record = Amend(t, endpoint, taken, staged, record.reason)
        try:
            standing = _check(journal.refresh(), record)
        except UsageError:
            # Nothing refers to it, and nothing will.
            unstage(env, staged)
            raise
        if not isinstance(journal.propose(standing, [record]), Lost):
            return record
        unstage(env, staged)


def _check(standing: Standing, record: Amend) -> Standing:
    """The standing, if the record may follow it."""
    if not standing.epoch:
        raise NotFoundError(f"there is no pipeline {standing.pipeline}: nobody has run it yet")
    try:
        advance(standing, record)
    except JournalError as error:
        raise UsageError(_refusal(standing, record, error)) from error
    return standing


def _refusal(standing: Standing, record: Amend, error: JournalError) -> str:
    sealed, pipeline, t = standing.sealed, standing.pipeline, record.t
    if standing.committed.settled(t):
        return f"transaction {t} of pipeline {pipeline} is committed, and can't be amended any more"
    if sealed is None or sealed.t != t:
        now = "nothing is" if sealed is None else f"{sealed.t} is"
        return f"transaction {t} of pipeline {pipeline} is not sealed: {now}"
    if sealed.answer is not None:
        return (
            f"transaction {t} of pipeline {pipeline} has an answer, and rows of it may have "
            "landed: it can't be amended any more"
        )
    if record.endpoint not in sealed.endpoints:
        known = ", ".join(sealed.endpoints) or "nothing"
        return (
            f"transaction {t} of pipeline {pipeline} takes nothing from {record.endpoint}: {known}"
        )
    return str(error)


def _staged(
    journal: Journal, program: Program, endpoint: str, what: Instead
) -> tuple[StagedRef, ...]:
    if what.rows is not None:
        placed = staged_rows(what.rows, table_of(journal.standing, program, endpoint), 0)
    elif what.take is not None and (refs := _sealed_refs(journal.standing, endpoint)):
        # The source may have lost them, or never had them: what was staged is what there is.
        placed = pa.concat_tables(_part(journal, ref, what.take) for ref in refs)
    else:
        return ()
    payload = packed_rows(placed)
    return (stage(journal.env, journal.pipeline, payload, rows=placed.num_rows),)


def _sealed_refs(standing: Standing, endpoint: str) -> tuple[StagedRef, ...]:
    inputs = () if standing.sealed is None else standing.sealed.inputs
    return next((each.staged for each in inputs if each.endpoint == endpoint), ())


def _part(journal: Journal, ref: StagedRef, take: Mapping[str, tuple[int, int]]) -> pa.Table:
    """The staged rows that lie within the ranges."""
    rows = unpacked_rows(fetch(journal.env, journal.pipeline, ref))
    places = zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True)
    empty = (0, 0)
    return rows.filter(
        pa.array([offset in range(*take.get(name, empty)) for name, offset in places], pa.bool_())
    )


def table_of(standing: Standing, program: Program, endpoint: str) -> Table:
    """The table that an endpoint of the sealed transaction feeds, with all columns it has got."""
    inputs = () if standing.sealed is None else standing.sealed.inputs
    names = [each.table for each in inputs if each.endpoint == endpoint]
    declared = evolved(program, standing.added).table(names[0]) if names else None
    if declared is None:
        raise UsageError(f"no table is fed by {endpoint} in what is sealed")
    return declared
