"""One task at a time computes for a pipeline in this process, whoever asks.

A replica that runs, requests that carry out their own commits, replays and promotions come from
several tasks and share one computer. What it holds while it computes is that transaction's alone:
a query of another one, begun in between, would be answered from its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from strandline.model.tasks import Condition
    from strandline.pipeline.compute import Computed, Computer, Work
    from strandline.views.program import Program


class InTurn:
    """A computer that several tasks may ask at once."""

    def __init__(self, computer: Computer, turn: Condition) -> None:
        self._computer = computer
        self._turn = turn

    @property
    def versions(self) -> Mapping[str, str]:
        return self._computer.versions

    def view_columns(self, program: Program) -> Mapping[str, pa.Schema]:
        with self._turn:
            return self._computer.view_columns(program)

    def compute(self, work: Work) -> Computed:
        with self._turn:
            return self._computer.compute(work)
