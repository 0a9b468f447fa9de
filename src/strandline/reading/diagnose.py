"""Finds out why a part can't be read, so that the error says whose fault it is (S49).

object      reader           then
--------    -------------    ---------------------------------------------------------
there       -                it is damaged: the error stands
missing     of another id    the shard was dropped: `NotFoundError`
missing     gone             its lease was lost: `LeaseLostError`
missing     still listed     its hold did not protect the part: a bug, `CorruptionError`
missing     can't be asked   `CorruptionError` that says so, within ten seconds
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import CorruptionError, LeaseLostError, NotFoundError, StrandlineError
from strandline.parts.part import Part

if TYPE_CHECKING:
    from strandline.reading.descriptor import PartDescriptor
    from strandline.shard.machine import Machine
    from strandline.shard.state import State


def diagnose(
    machine: Machine, reader: str, descriptor: PartDescriptor, error: StrandlineError
) -> StrandlineError:
    """The error to report for a part that could not be read by this reader."""
    piece = descriptor.piece
    if not isinstance(error, CorruptionError) or not isinstance(piece, Part):
        return error
    answers: list[StrandlineError] = []
    done = machine.env.tasks.event()

    def look() -> None:
        try:
            answers.append(_verdict(machine, reader, descriptor, piece) or error)
        except StrandlineError as failure:
            answers.append(_unknown(descriptor, str(failure)))
        done.set()

    machine.env.tasks.start(f"diagnose {machine.name}", look)
    if not done.wait(machine.env.settings.diagnose_ms):
        answers.append(_unknown(descriptor, "the store does not answer"))
    found = answers[0]
    if found is not error:
        found.__cause__ = error
    return found


def _verdict(
    machine: Machine, reader: str, descriptor: PartDescriptor, part: Part
) -> StrandlineError | None:
    env = machine.env
    if env.patient(lambda: env.blob.get_range(part.key, 0, 1), shard=machine.name) is not None:
        return None
    return _missing(machine.refresh(), reader, descriptor)


def _missing(state: State, reader: str, descriptor: PartDescriptor) -> StrandlineError:
    if state.dropped or state.id != descriptor.shard_id:
        return NotFoundError(f"{descriptor} was deleted: the shard was dropped")
    if reader not in state.readers:
        return LeaseLostError(
            f"{descriptor} was deleted: the lease of reader {reader} was lost, its process did "
            "not renew it in time; open a new reader"
        )
    return CorruptionError(
        f"{descriptor} is missing although reader {reader} holds it: the hold did not protect "
        "it, which is a bug, or somebody else deleted it; run `strandline fsck`"
    )


def _unknown(descriptor: PartDescriptor, reason: str) -> StrandlineError:
    return CorruptionError(
        f"{descriptor} can't be read, and whether it is missing or the lease was lost could not "
        f"be found out: {reason}"
    )
