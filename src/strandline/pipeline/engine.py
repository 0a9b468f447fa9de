"""The Engine port: who computes transactions, and who answers queries.

Spark is one (`strandline.spark`), plain Arrow another (`strandline.testing`). A pipeline makes one
when it first needs it: whoever only looks needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from strandline.handles.store import Store
    from strandline.journal.record import StagedRef
    from strandline.model.frontier import Time
    from strandline.pipeline.bringing import Bringing
    from strandline.pipeline.compute import Computer


@dataclass(frozen=True, slots=True)
class Question:
    """A query that passed the allow-list, over shards at one committed time."""

    sql: str
    shards: Mapping[str, str]
    """The shard of each collection that it reads."""
    at: Time
    now_ms: int
    """What `now()` is in it: the instant of that time."""


@dataclass(frozen=True, slots=True)
class PipelineEngine:
    """Computes and answers for one pipeline."""

    computer: Computer
    answer: Callable[[Question], pa.Table]
    close: Callable[[], None] = lambda: None
    stage: Callable[[Bringing], list[StagedRef]] | None = None
    """Stages rows by tasks, wherever they are; `None` if there are none."""
    frame: Callable[[pa.Table], object] = lambda rows: rows
    """Rows as a user's function gets them: a DataFrame of the engine's own."""


NewEngine = Callable[["Store"], PipelineEngine]
