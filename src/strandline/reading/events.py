"""What a subscription gives out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.errors import StrandlineError
    from strandline.model.frontier import Frontier
    from strandline.model.valuehash import I64


@dataclass(frozen=True, slots=True)
class Updates:
    """Some rows, each with its own time and diff; in no particular order."""

    rows: pa.Table
    """The shard's columns, `_time` and `_diff`."""

    @property
    def times(self) -> I64:
        times: I64 = self.rows.column(TIME_COLUMN).to_numpy()
        return times

    @property
    def diffs(self) -> I64:
        diffs: I64 = self.rows.column(DIFF_COLUMN).to_numpy()
        return diffs


@dataclass(frozen=True, slots=True)
class Progress:
    """All updates at times before the frontier have been given out."""

    frontier: Frontier


@dataclass(frozen=True, slots=True)
class Failure:
    """The frontier will stay where it is; given out once, if errors are to be signalled."""

    frontier: Frontier
    error: StrandlineError


Event: TypeAlias = Updates | Progress | Failure
