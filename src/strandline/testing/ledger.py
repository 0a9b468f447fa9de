"""What a table with a sequence must hold, computed as plainly as it can be said. Pure.

Rows are dicts with `id`, `amount` and `seq`; `_delete` deletes, `_truncate` empties. A reload is
all that there is. Keys that went keep their order; the last truncation is every key's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, int | None]
_NONE = -1
"""The order of a row without a sequence: lower than all."""


@dataclass
class Ledger:
    """One table, moved on one transaction after the other."""

    rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By key: its order, and the amount."""
    gone: dict[int, int] = field(default_factory=dict)
    """By key that was deleted: the order of that."""
    floor: int = _NONE

    def reload(self, rows: Sequence[Row]) -> None:
        """These are all; of several of a key the last counts."""
        new = {}
        for row in sorted(rows, key=_order):
            new[row["id"] or 0] = (_order(row), row["amount"] or 0)
        self.gone |= {key: order for key, (order, _) in self.rows.items() if key not in new}
        self.gone = {key: order for key, order in self.gone.items() if key not in new}
        self.rows = new

    def apply(self, rows: Sequence[Row]) -> None:
        """The last row of each key counts, unless what the key has, or had when it went, is
        newer."""
        events = sorted(rows, key=_order)
        truncations = [_order(row) for row in events if row.get("_truncate")]
        if truncations:
            last = truncations[-1]
            self.floor = max(self.floor, last)
            self.rows = {key: held for key, held in self.rows.items() if held[0] > last}
            events = [row for row in events if _order(row) > last]
        for row in {row["id"]: row for row in events}.values():
            self._put(row["id"] or 0, row)

    def _put(self, key: int, row: Row) -> None:
        order = _order(row)
        held = self.rows[key][0] if key in self.rows else None
        if order < (max(self.gone.get(key, _NONE), self.floor) if held is None else held):
            return
        self.rows.pop(key, None)
        self.gone.pop(key, None)
        if row.get("_delete"):
            self.gone[key] = order
        else:
            self.rows[key] = (order, row["amount"] or 0)

    def held(self) -> list[Row]:
        """The rows, as a reader sees them."""
        return [
            {"id": key, "amount": amount, "seq": None if order == _NONE else order}
            for key, (order, amount) in self.rows.items()
        ]


def _order(row: Row) -> int:
    seq = row.get("seq")
    return _NONE if seq is None else seq
