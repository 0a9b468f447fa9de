"""Arguments and options that several verbs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from strandline.pipeline.engine import NewEngine

Store = Annotated[str, typer.Argument(help="The store's folder.", metavar="STORE")]
ShardName = Annotated[str, typer.Argument(help="The shard's name.", metavar="SHARD")]
AnyShard = Annotated[
    str | None, typer.Argument(help="The shard's name; without it, all.", metavar="[SHARD]")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="Show control characters in text as they are: unsafe.")
]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", help="A time (17) or an instant (2026-03-01T12:00Z).", metavar="T"),
]
Columns = Annotated[str | None, typer.Option("--columns", help="Only these: a,b,c.")]
Filters = Annotated[
    list[str] | None,
    typer.Option("--filter", help="Only rows with: 'amount > 10'. Repeat it to narrow further."),
]
PipelineName = Annotated[
    str | None,
    typer.Option("--name", help="The pipeline; the only one of the store if left out."),
]
AnyPipeline = Annotated[
    str | None, typer.Argument(help="The pipeline; the only one if left out.", metavar="[NAME]")
]


@dataclass(slots=True)
class Run:
    """What one call of the command was asked for, beside its verb."""

    debug: bool = False
    engine: NewEngine | None = None
    """Who computes and answers; Spark unless a test has another."""


def engine_of(context: typer.Context) -> NewEngine | None:
    """Who computes and answers in this call."""
    return context.obj.engine if isinstance(context.obj, Run) else None
