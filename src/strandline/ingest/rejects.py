"""Commands that are no rows, and what the error collection makes of them. Pure.

A command whose key has a null, or that says in `_error` why it could not be decoded, is rejected:
the table never sees it and keeps the row that the key has. It becomes a row of the error
collection instead, under its key as text:

    key                       the error row stays until
    ------------------------  ----------------------------------------------------------------
    without nulls             the key's next good value or deletion, or the next error
    with a null               for ever, under the command's own order: nothing else has that key

So the error collection is itself upserted, by commands that follow from the same commands: a
rejected one says what is wrong, a good one deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.model.engine import DELETE_COLUMN, ORDER_COLUMN
from strandline.model.schema import TIME_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.schema import Schema
    from strandline.model.valuehash import Mask

ERROR_COLUMN = "_error"
ERRORS = pa.schema([("key", pa.string()), ("error", pa.string()), ("at", pa.string())])
"""The error collection: whose key it is, what is wrong, and which command it was."""
ERRORS_KEY = ("key",)

_NULL_KEY = "a column of the key is null"


def rejected(commands: pa.Table, schema: Schema) -> Mask:
    """Which commands are no rows."""
    wrong: Mask = np.zeros(commands.num_rows, np.bool_)
    if ERROR_COLUMN in commands.schema.names:
        wrong |= pc.is_valid(commands.column(ERROR_COLUMN)).to_numpy()
    return wrong | _null_key(commands, schema)


def good(commands: pa.Table, schema: Schema) -> pa.Table:
    """The commands of the table itself."""
    wrong = rejected(commands, schema)
    kept = commands.filter(pa.array(~wrong)) if wrong.any() else commands
    return kept.drop_columns([ERROR_COLUMN]) if ERROR_COLUMN in kept.schema.names else kept


def reasons(commands: pa.Table, schema: Schema) -> list[str]:
    """What is wrong with each command that is no row, for people."""
    wrong = rejected(commands, schema)
    found: list[str] = _errors(commands, schema).filter(pa.array(wrong)).to_pylist()
    return found


def errors(commands: pa.Table, schema: Schema) -> pa.Table:
    """The commands of the error collection."""
    orders = [name for name in commands.schema.names if name.startswith(ORDER_COLUMN)]
    wrong = rejected(commands, schema)
    at = _texts(commands, orders)
    keys = pc.if_else(
        pa.array(_null_key(commands, schema)),
        pc.binary_join_element_wise("null key at ", at, ""),
        _texts(commands, schema.key),
    )
    columns = {
        "key": keys,
        "error": pc.if_else(
            pa.array(wrong), _errors(commands, schema), pa.scalar(None, pa.string())
        ),
        "at": pc.if_else(pa.array(wrong), at, pa.scalar(None, pa.string())),
        TIME_COLUMN: commands.column(TIME_COLUMN),
        DELETE_COLUMN: pa.array(~wrong),
        **{name: commands.column(name) for name in orders},
    }
    return pa.table(columns)


def _errors(commands: pa.Table, schema: Schema) -> pa.ChunkedArray:
    nothing = pa.nulls(commands.num_rows, pa.string())
    told = commands.column(ERROR_COLUMN) if ERROR_COLUMN in commands.schema.names else nothing
    null_key = pc.if_else(pa.array(_null_key(commands, schema)), _NULL_KEY, nothing)
    return pc.coalesce(told, null_key)


def _null_key(commands: pa.Table, schema: Schema) -> Mask:
    wrong: Mask = np.zeros(commands.num_rows, np.bool_)
    for name in schema.key:
        wrong |= pc.is_null(commands.column(name)).to_numpy()
    return wrong


def _texts(commands: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    """The values of some columns as one text, different for different values."""
    texts = [_text(commands.column(name)) for name in names]
    if not texts:
        return pa.chunked_array([pa.array([""] * commands.num_rows, pa.string())])
    if len(texts) == 1:
        return texts[0]
    escaped = [
        pc.replace_substring(pc.replace_substring(each, "\\", "\\\\"), ",", "\\,") for each in texts
    ]
    return pc.binary_join_element_wise(*escaped, ",", null_handling="replace", null_replacement="")


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """By type and never by value: a key has one text, whichever batch it comes in."""
    kind = column.type
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        texts = [None if each is None else each.hex() for each in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if is_.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    elif is_.is_duration(kind):
        column = column.cast(pa.int64())
    return column.cast(pa.string())
