"""The program that is run and killed, and what it means in plain Python.

`state_at` and `VIEWS` know nothing of Strandline: dictionaries, and the rows that went in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

Row = tuple[object, ...]
State = dict[str, dict[object, Row]]
Content = Counter[Row]


class Event(NamedTuple):
    """One row that came in; `row` is `None` if its key was deleted."""

    key: object
    row: Row | None


COLUMNS = {
    "orders": "id BIGINT, customer INT, amount BIGINT, paid BOOLEAN",
    "customers": "id BIGINT, name STRING",
}
GENERATED = {
    "orders": {"seed": "7", "keys": "60", "deletes": "0.1", "rowsPerSecond": "0"},
    "customers": {"seed": "8", "keys": "30", "deletes": "0.2", "rowsPerSecond": "0"},
}
_VIEWS = """
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 300000;
CREATE MATERIALIZED VIEW everybody AS
  SELECT id FROM customers UNION ALL SELECT id FROM orders WHERE paid;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT paid, COUNT(*) AS orders, SUM(amount) AS amount FROM orders GROUP BY paid;
"""


def program(using: Mapping[str, tuple[str, Mapping[str, str]]] | None = None) -> str:
    """The text, with a connector and its options for each table; by default, generators."""
    chosen = {name: ("generator", options) for name, options in GENERATED.items()}
    chosen |= using or {}
    tables = "".join(
        f"CREATE TABLE {name} ({COLUMNS[name]}, PRIMARY KEY (id))\n"
        f"  USING {connector} OPTIONS ({_options(options)});\n"
        for name, (connector, options) in chosen.items()
    )
    return tables + _VIEWS


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name} '{value}'" for name, value in options.items())


def _large(state: State) -> Iterable[Row]:
    return [(row[0], row[2]) for row in state["orders"].values() if row[2] > 300_000]


def _everybody(state: State) -> Iterable[Row]:
    paid = [(row[0],) for row in state["orders"].values() if row[3]]
    return [(row[0],) for row in state["customers"].values()] + paid


def _totals(state: State) -> Iterable[Row]:
    by: dict[object, list[int]] = {}
    for row in state["orders"].values():
        by.setdefault(row[3], []).append(int(row[2]))
    return [(paid, len(amounts), sum(amounts)) for paid, amounts in by.items()]


VIEWS: dict[str, Callable[[State], Iterable[Row]]] = {
    "large": _large,
    "everybody": _everybody,
    "totals": _totals,
}
EMPTY = ("orders_errors", "customers_errors", "large_errors", "everybody_errors", "totals_errors")
"""Collections that hold nothing, if all goes well."""


def advance(state: State, came: Mapping[str, Iterable[Event]]) -> None:
    """What the tables are after a transaction, given the rows that came, in order."""
    for table, events in came.items():
        for key, row in events:
            if row is None:
                state[table].pop(key, None)
            else:
                state[table][key] = row


def contents(state: State) -> dict[str, Content]:
    """Every collection, as it must be."""
    tables = {name: Counter(rows.values()) for name, rows in state.items()}
    views = {name: Counter(view(state)) for name, view in VIEWS.items()}
    return {**tables, **views, **{name: Counter() for name in EMPTY}}
