"""What is wrong with a run, as sentences; nothing, if all is well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tests.kills import history
from tests.kills.inputs import Given, Pushes
from tests.kills.shop import COLUMNS, Content, Event, State, advance, contents


class Place(Protocol):
    """Where collections can be read."""

    def content(self, name: str, t: int) -> Content: ...

    def digest(self, name: str, t: int) -> str: ...

    def collections(self) -> Sequence[str]: ...


def against_oracle(
    place: Place,
    told: Sequence[history.Transaction],
    given: Mapping[str, Given],
    times: Sequence[int],
) -> Iterator[str]:
    """Where a collection is not what plain dictionaries make of the rows that went in."""
    state: State = {table: {} for table in COLUMNS}
    wanted = set(times)
    for each in told:
        advance(state, _came(each, given))
        if each.t not in wanted:
            continue
        expected = contents(state)
        for name in place.collections():
            found = place.content(name, each.t)
            if found != expected[name]:
                lost, extra = expected[name] - found, found - expected[name]
                yield f"{name} at {each.t} lacks {dict(lost)} and has {dict(extra)} too many"


def _came(each: history.Transaction, given: Mapping[str, Given]) -> dict[str, list[Event]]:
    came: dict[str, list[Event]] = {}
    for endpoint, taken in each.taken.items():
        table = each.tables[endpoint]
        for partition, (start, stop) in sorted(taken.items()):
            came.setdefault(table, []).extend(given[endpoint].events(partition, start, stop))
        source = given[endpoint]
        if isinstance(source, Pushes):
            came.setdefault(table, []).extend(source.upto(each.producers[endpoint]))
    return came


def against_other(ours: Place, other: Place, times: Sequence[int]) -> Iterator[str]:
    """Where two runs hold other bytes at a time."""
    names = set(ours.collections())
    if names != set(other.collections()):
        yield f"one has {sorted(names)}, the other {sorted(other.collections())}"
    for t in times:
        for name in sorted(names & set(other.collections())):
            mine, theirs = ours.digest(name, t), other.digest(name, t)
            if mine != theirs:
                yield f"{name} at {t} is {mine} here and {theirs} there"
