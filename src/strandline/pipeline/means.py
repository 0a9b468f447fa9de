"""What a pipeline is given by whoever opens it: the engine, the ports of sources, the numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.connectors.source import Ports
    from strandline.handles.store import Store
    from strandline.pipeline.engine import NewEngine


@dataclass(frozen=True, slots=True)
class Means:
    """One process's means for one pipeline."""

    engine: NewEngine
    ports: Callable[[Store], Ports]
    host: str
    pid: int
    settings: PipelineSettings = field(default_factory=PipelineSettings)
    replica: str | None = None
    """The name of the replica in this process; the first free one if there is none."""
    read_only: bool = False
