"""What records need to be legal: a need per function, which refuses by name what lacks it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from strandline.errors import JournalError
from strandline.journal import record as r

if TYPE_CHECKING:
    from strandline.journal.record import Amend, Answer, Begin, Input, Taken
    from strandline.journal.sealed import Sealed
    from strandline.journal.standing import Standing


def nothing_sealed(standing: Standing, record: r.Record) -> None:
    if standing.sealed is not None:
        refuse(standing, record, f"{standing.sealed.t} is sealed and not committed")


def of_this_epoch(standing: Standing, record: Begin | Answer | r.Commit | r.Checkpoint) -> None:
    if standing.epoch == 0:
        refuse(standing, record, "no program was promoted yet")
    if record.epoch != standing.epoch:
        epochs = r.epoch_text(record.epoch), r.epoch_text(standing.epoch)
        refuse(standing, record, "it is of {}, and this is {}".format(*epochs))


def of_begun(standing: Standing, record: Input | r.Seal) -> Sealed:
    if standing.begun is None:
        refuse(standing, record, "no transaction is begun")
    if record.t != standing.begun.t:
        refuse(standing, record, f"{standing.begun.t} is begun")
    return standing.begun


def of_sealed(standing: Standing, record: Amend | r.Evolve | Answer | r.Commit) -> Sealed:
    if standing.sealed is None:
        refuse(standing, record, "nothing is sealed")
    if record.t != standing.sealed.t:
        refuse(standing, record, f"{standing.sealed.t} is sealed")
    return standing.sealed


def still_open(standing: Standing, record: r.Record, handle: str) -> None:
    if handle in standing.closed:
        t = standing.closed[handle]
        how = "aborted" if t is None else f"committed as {t}"
        refuse(standing, record, f"handle {handle} was {how}")


def clock_forward(standing: Standing, record: r.Record, instant_ms: int) -> None:
    if instant_ms < standing.instant_ms:
        refuse(standing, record, f"its instant {instant_ms} is before {standing.instant_ms}")


def replaces_alone(standing: Standing, record: Input, others: tuple[Input, ...]) -> None:
    """All rows of a table that is replaced are in one input, which is there for good."""
    if record.replace and (record.taken is not None or not record.staged):
        refuse(standing, record, f"what replaces {record.table} is not staged")
    for other in others:
        if other.table == record.table and (other.replace or record.replace):
            refuse(standing, record, f"{record.table} is replaced, and has another input")


def not_taken(standing: Standing, record: Input, ranges: Taken | None) -> None:
    position = standing.positions.get(record.endpoint, {})
    for partition, (start, stop) in (ranges or {}).items():
        if not 0 <= start <= stop:
            refuse(standing, record, f"[{start}, {stop}) of {partition} is no range")
        if start < position.get(partition, 0):
            refuse(
                standing,
                record,
                f"{partition} was taken up to {position[partition]} before, and starts at {start}",
            )


def within_sealed(standing: Standing, record: Amend, sealed: Taken | None) -> None:
    """Rows that nobody sealed are the next transactions' to take."""
    for partition, (start, stop) in (record.taken or {}).items():
        first, last = (sealed or {}).get(partition, (0, -1))
        if not first <= start <= stop <= last:
            was = "nothing" if last < 0 else f"[{first}, {last})"
            refuse(
                standing,
                record,
                f"[{start}, {stop}) of {partition} is not within what was sealed of it, {was}",
            )


def refuse(standing: Standing, record: r.Record, reason: str) -> NoReturn:
    before = f"{r.lsn_text(standing.lsn)} {standing.last}" if standing.last else "the beginning"
    raise JournalError(
        f"pipeline {standing.pipeline}: {r.lsn_text(standing.lsn + 1)} {r.describe(record)} "
        f"can't follow {before}: {reason}"
    )
