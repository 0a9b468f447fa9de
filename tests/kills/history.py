"""What a journal says, read from its records alone, and what is wrong with that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from strandline.journal.log import Journal
from strandline.journal.record import Begin, Commit, Input

Taken = Mapping[str, tuple[int, int]]


@dataclass(slots=True)
class Transaction:
    """One committed transaction."""

    t: int
    taken: dict[str, Taken] = field(default_factory=dict)
    """By endpoint, the range of each partition."""
    inputs: dict[str, bytes] = field(default_factory=dict)
    deltas: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    """By endpoint, the table that it feeds."""
    producers: dict[str, dict[str, int]] = field(default_factory=dict)
    """By endpoint, the last push of each producer that is in it."""


def read(journal: Journal) -> list[Transaction]:
    """Every committed transaction in the order of the journal, and as it stands there."""
    found: list[Transaction] = []
    begun: Transaction | None = None
    for _, record in journal.records():
        match record:
            case Begin():
                begun = Transaction(record.t)
            case Input() if begun is not None:
                begun.taken[record.endpoint] = dict(record.taken or {})
                begun.tables[record.endpoint] = record.table
                begun.producers[record.endpoint] = dict(record.producers)
            case Commit() if begun is not None:
                assert begun.t == record.t, f"{begun.t} was begun and {record.t} is committed"
                begun.inputs, begun.deltas = dict(record.inputs), dict(record.deltas)
                found.append(begun)
            case _:
                pass
    return found


def gaps(history: Sequence[Transaction]) -> Iterator[str]:
    """Numbers that are missing or used twice; rows of a source that are skipped or taken twice."""
    numbers = [each.t for each in history]
    if numbers != list(range(len(history))):
        yield f"transactions are numbered {_differ(numbers)}"
    at: dict[tuple[str, str], int] = {}
    for each in history:
        for endpoint, taken in each.taken.items():
            for partition, (start, stop) in taken.items():
                before = at.get((endpoint, partition), start if partition == "topic" else 0)
                if start != before or stop < start:
                    taking = f"[{start}, {stop}) of {endpoint} {partition}"
                    yield f"{each.t} takes {taking}, and the next is {before}"
                at[endpoint, partition] = stop


def pushed(history: Sequence[Transaction]) -> dict[str, int]:
    """The last push of each producer, after all of it."""
    return {
        producer: last
        for each in history
        for producers in each.producers.values()
        for producer, last in producers.items()
    }


def _differ(numbers: Sequence[int]) -> str:
    place = next((at for at, number in enumerate(numbers) if at != number), len(numbers))
    return f"{list(numbers[max(0, place - 2) : place + 3])} around {place}"


def differences(ours: Sequence[Transaction], other: Sequence[Transaction]) -> Iterator[str]:
    """Where two runs took or computed something else."""
    if len(ours) != len(other):
        yield f"one has {len(ours)} transactions, the other {len(other)}"
    for one, two in zip(ours, other, strict=False):
        for what in ("taken", "inputs", "deltas"):
            mine, theirs = _telling(getattr(one, what)), _telling(getattr(two, what))
            if mine != theirs:
                yield f"{what} of {one.t} are {mine} and {theirs}"


_NOTHING = bytes(1)


def _telling(found: Mapping[str, object]) -> dict[str, object]:
    """A collection that did not change may be left out, and may be there with a digest of nothing.

    Digests of nothing are all zeros after packing.
    """
    return {
        name: value
        for name, value in sorted(found.items())
        if not (isinstance(value, bytes) and value.strip(_NOTHING) == b"")
    }
