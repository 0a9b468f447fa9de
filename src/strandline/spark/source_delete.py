"""Which incoming rows are deletions: the option `deleteWhen`. Pure.

    deleteWhen         deletes
    -----------------  ----------------------------------------------
    gone               where the boolean column `gone` is true
    op = 'D'           where the column `op` is that text
    op = 3             where it is that number

A writer of Spark has no session in which SQL could be evaluated, so this is all there is; for
anything else add a boolean column to the rows, or call `table.upsert`, which takes any condition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import SchemaError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from strandline.model.valuehash import Mask

_CONDITION = re.compile(
    r"\s*(?P<column>\w+|`[^`]+`)\s*"
    r"(?:={1,2}\s*(?:'(?P<text>(?:[^']|'')*)'|(?P<number>-?\d+)|(?P<truth>true|false))\s*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class DeleteWhen:
    """A column, and the value that makes a row a deletion."""

    column: str
    value: str | int | bool = True

    def marks(self, rows: pa.Table) -> Mask:
        """Which rows are deletions; a null is none."""
        column = rows.column(self.column)
        if isinstance(self.value, bool) and not pa.types.is_boolean(column.type):
            # Cast to it, a truth would be one of its values, and every other none.
            name = printable(self.column)
            raise SchemaError(
                f"deleteWhen names column {name}, which is a {column.type} and not boolean: write "
                "which value deletes (column = 'text', or column = number)"
            )
        try:
            found = pc.equal(column, pa.scalar(self.value).cast(column.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
            raise SchemaError(
                f"deleteWhen compares column {printable(self.column)}, which is a {column.type}, "
                f"with {printable(self.value)}: {error}"
            ) from error
        marked: Mask = pc.fill_null(found, False).to_numpy()
        return marked


def parse_delete_when(text: str) -> DeleteWhen:
    """The condition that people write.

    >>> parse_delete_when("op = 'D'")
    DeleteWhen(column='op', value='D')
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UsageError(
            f"deleteWhen is {printable(text)}: write a boolean column, or column = 'text', or "
            "column = number; for any other condition use table.upsert"
        )
    column = found["column"].strip("`")
    if found["text"] is not None:
        return DeleteWhen(column, found["text"].replace("''", "'"))
    if found["number"] is not None:
        return DeleteWhen(column, int(found["number"]))
    return DeleteWhen(column, (found["truth"] or "true").lower() == "true")
