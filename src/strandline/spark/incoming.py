"""From a user's DataFrame to the columns that tasks take; starts no job.

    columns of the table          as they are; tasks cast them, if that loses nothing
    `_time`                       only where the caller settles an interval of times
    `_delete`                     deleteWhen; null means no
    `_order0`, `_order1` …        sequenceBy

Expressions are Spark SQL's, and may use columns that are not the table's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Column, functions as F  # noqa: N812 - everybody's name for it

from strandline.errors import SchemaError, UsageError
from strandline.model.engine import DELETE_COLUMN, ORDER_COLUMN
from strandline.model.ids import printable
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.spark.columns import check_names, check_types, names_in
from strandline.spark.sparktypes import arrow_schema

_SORTING = re.compile(r"\s(asc|desc)(\s+nulls\s+(first|last))?\s*$", re.IGNORECASE)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from strandline.model.schema import Schema

    Expression: TypeAlias = str | Column


@dataclass(frozen=True, slots=True)
class Meaning:
    """How the rows of an upsert are to be read."""

    sequence_by: tuple[Expression, ...] = ()
    delete_when: Expression | None = None
    compared: tuple[str, ...] | None = None
    """The table's columns that the order is compared with; `None`: found by their names."""

    @classmethod
    def of(
        cls,
        sequence_by: Expression | Sequence[Expression] | None,
        delete_when: Expression | None,
    ) -> Meaning:
        """From what a caller writes: one expression or several."""
        if sequence_by is None:
            orders: tuple[Expression, ...] = ()
        elif isinstance(sequence_by, str | Column):
            orders = (sequence_by,)
        else:
            orders = tuple(sequence_by)
        return cls(orders, delete_when)

    def stored(self, schema: Schema) -> tuple[str, ...]:
        """The table's columns that give the order, if it is given by nothing else."""
        if self.compared is not None:
            return self.compared
        # As Spark resolves them: without regard to case, in backticks or not.
        known = {name.casefold(): name for name in schema.names}
        names = [known.get(_bare(each).casefold()) for each in self.sequence_by]
        return tuple(name for name in names if name is not None) if all(names) else ()

    def used(self) -> set[str]:
        """The names that its expressions may refer to, in lower case."""
        whole = list(self.sequence_by)
        if self.delete_when is not None:
            whole.append(self.delete_when)
        found: set[str] = set()
        for each in whole:
            text = _text(each)
            found |= {text.casefold(), *names_in(text)}
        return found


def to_append(frame: DataFrame, schema: Schema, *, timed: bool) -> DataFrame:
    """The rows of an append, in the order of the table's columns."""
    have = frame.columns
    if TIME_COLUMN in have and not timed:
        raise SchemaError(
            f"append chooses the time itself: leave {TIME_COLUMN} out, or give lower and upper"
        )
    own = [TIME_COLUMN] if timed else []
    check_names(have, [*schema.names, *own], allowed=[DIFF_COLUMN], used=())
    check_types(_arrow(frame), schema, schema.names)
    return _selected(
        frame, [*schema.names, *(name for name in (TIME_COLUMN, DIFF_COLUMN) if name in have)]
    )


def to_upsert(frame: DataFrame, schema: Schema, meaning: Meaning, *, timed: bool) -> DataFrame:
    """The rows of an upsert with what says which are last, and which delete."""
    own = [TIME_COLUMN] if timed else []
    check_names(frame.columns, [*schema.names, *own], used=meaning.used())
    check_types(_arrow(frame), schema, schema.names)
    if not meaning.sequence_by and meaning.delete_when is None:
        return _selected(frame, [*schema.names, *own])
    selected = [_column(name) for name in (*schema.names, *own)]
    if meaning.delete_when is not None:
        gone = _expression(meaning.delete_when, frame.columns)
        selected.append(F.coalesce(gone.cast("boolean"), F.lit(False)).alias(DELETE_COLUMN))
    for at, order in enumerate(meaning.sequence_by):
        _refuse_sorting(order, frame.columns)
        selected.append(_expression(order, frame.columns).alias(f"{ORDER_COLUMN}{at}"))
    try:
        chosen = frame.select(*selected)
        chosen.schema  # noqa: B018 - Spark Connect looks at a plan only when it is asked about it
    except PySparkException as error:
        raise UsageError(
            f"sequenceBy or deleteWhen can't be understood: {printable(error, 400)}"
        ) from error
    return chosen


def _refuse_sorting(order: Expression, columns: Sequence[str]) -> None:
    """Spark refuses `desc()` while the job runs, and takes the word after a column for an alias."""
    text = _text(order)
    if text not in columns and _SORTING.search(text):
        raise UsageError(
            f"sequenceBy {printable(text)} is a sort order: give the value alone; the row with the "
            "largest one is the last of its key, so for descending order write '-lsn', for example"
        )


def to_look_up(frame: DataFrame, schema: Schema) -> DataFrame:
    """The key's columns, out of any frame that has them."""
    have = frame.columns
    if missing := [name for name in schema.key if name not in have]:
        raise SchemaError(
            f"the keys lack {printable(', '.join(missing))} (they have "
            f"{printable(', '.join(have), 300)}): the table's key is {printable(schema.key)}"
        )
    check_types(_arrow(frame), schema, schema.key)
    return _selected(frame, schema.key)


def _text(given: Expression) -> str:
    # A column prints as Column<'…'>, and what stands in quotes is else taken for text.
    return given if isinstance(given, str) else str(given)[len("Column<'") : -len("'>")]


def _bare(given: Expression) -> str:
    """The name that an expression is, if it is nothing but a name."""
    text = _text(given).strip()
    inner = text[1:-1].replace("``", "")
    quoted = text[:1] == text[-1:] == "`" and inner and "`" not in inner
    return text[1:-1].replace("``", "`") if quoted else text


def _arrow(frame: DataFrame) -> pa.Schema:
    return arrow_schema(frame.schema)


def _selected(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """These columns, in this order; each name is a call into the JVM, so not without need."""
    return frame if frame.columns == list(names) else frame.selectExpr(*map(_quoted, names))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _column(name: str) -> Column:
    return F.col(_quoted(name))


def _expression(given: Expression, columns: Sequence[str]) -> Column:
    if isinstance(given, str):
        return _column(given) if given in columns else F.expr(given)
    return given
