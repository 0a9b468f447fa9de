"""What went into the sources, as whoever fed them remembers it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tests.kills.shop import COLUMNS, GENERATED, Event

from strandline.connectors.generator import recipe


class Given(Protocol):
    """The rows of one table's source, by the offsets that the journal speaks of."""

    def events(self, partition: str, start: int, stop: int) -> Iterable[Event]: ...


class Generated:
    """Rows that are made up."""

    def __init__(self, table: str) -> None:
        self._recipe = recipe({**GENERATED[table], "columns": COLUMNS[table].lower()})
        self._known: list[Event] = []

    def events(self, partition: str, start: int, stop: int) -> list[Event]:
        assert partition == "0"
        while len(self._known) < stop:
            first = len(self._known)
            batch = self._recipe.rows(first, first + 10_000).to_pylist()
            self._known += [_event(row) for row in batch]
        return self._known[start:stop]


def _event(row: dict[str, object]) -> Event:
    values = tuple(value for name, value in row.items() if not name.startswith("_"))
    return Event(values[0], None if row["_delete"] else values)


class Written:
    """Rows that were written to a topic, one list for each partition; offsets count them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Event]] = {}

    def note(self, partition: str, events: Iterable[Event]) -> None:
        self.rows.setdefault(partition, []).extend(events)

    def events(self, partition: str, start: int, stop: int) -> list[Event]:
        if partition == "topic":
            return []
        found = self.rows[partition][start:stop]
        assert len(found) == stop - start, f"partition {partition} has no [{start}, {stop})"
        return found


def file_of(partition: str) -> str:
    """The name of a file: its partition has a hash of its content besides."""
    return partition.partition("@")[0]


class Files:
    """Rows of files, by name; each is taken whole."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Event]] = {}

    def events(self, partition: str, start: int, stop: int) -> list[Event]:
        assert start == 0
        return self.rows[file_of(partition)] if stop else []


class Pushes:
    """Rows that were pushed, by producer; each has keys of its own, and counts its pushes."""

    def __init__(self) -> None:
        self.rows: dict[str, list[list[Event]]] = {}
        self._taken: dict[str, int] = {}

    def events(self, partition: str, start: int, stop: int) -> list[Event]:
        """The journal names producers, and not places, of what was pushed."""
        return []

    def upto(self, producers: Mapping[str, int]) -> list[Event]:
        """The rows of all pushes that came since the last call."""
        found = []
        for producer, last in producers.items():
            first = self._taken.get(producer, 0)
            found += [event for each in self.rows[producer][first : last + 1] for event in each]
            self._taken[producer] = last + 1
        return found


def generated() -> Mapping[str, Given]:
    return {table: Generated(table) for table in GENERATED}
