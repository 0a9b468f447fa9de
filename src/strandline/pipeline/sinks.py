"""The sinks of a program, as their publishers open them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from strandline.connectors.registry import open_sink, sink_identity
from strandline.pipeline.place import Target

if TYPE_CHECKING:
    from strandline.connectors.sink import Delivered, Sink, SinkPorts
    from strandline.views.declared import Sink as Declared
    from strandline.views.program import Program


def targets(program: Program, ports: SinkPorts) -> list[Target]:
    """One target for each sink; options that its connector refuses are refused here, by name."""
    return [
        Target(
            each.name,
            each.source,
            sink_identity(each.connector, each.options),
            partial(_opened, each, ports),
            _columns(program, each.source),
        )
        for each in program.sinks
    ]


def _columns(program: Program, source: str) -> tuple[str, ...] | None:
    table = program.table(source)
    return None if table is None else tuple(table.columns.names)


def _opened(declared: Declared, ports: SinkPorts, what: Delivered) -> Sink:
    return open_sink(declared.connector, declared.options, what, ports)
