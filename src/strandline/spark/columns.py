"""Whether the columns of a DataFrame are those that a table takes, by name and type. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from strandline.errors import SchemaError, UsageError
from strandline.model.columntype import castable
from strandline.model.engine import DELETE_COLUMN, ORDER_COLUMN
from strandline.model.ids import printable
from strandline.model.schema import TIME_COLUMN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pyarrow as pa

    from strandline.model.schema import Schema

_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"")
_NAMES = re.compile(r"`((?:[^`]|``)+)`|([^\W\d]\w*)")


def names_in(expression: str) -> set[str]:
    """The names that an SQL expression may refer to, in lower case; functions are among them.

    >>> sorted(names_in("lower(op) = 'delete' and `my col` > 1"))
    ['and', 'lower', 'my col', 'op']
    """
    bare = _TEXT.sub(" ", expression)
    found = _NAMES.findall(bare)
    return {(quoted.replace("``", "`") or plain).casefold() for quoted, plain in found}


def check_names(
    have: Sequence[str], need: Iterable[str], *, allowed: Iterable[str] = (), used: Collection[str]
) -> None:
    """Refuse what is missing, and what is there without anybody asking for it.

    `allowed` may be there; `used` are the names in expressions, in lower case.
    """
    if twice := sorted({name for name in have if have.count(name) > 1}):
        raise SchemaError(f"the rows have several columns {_listed(twice)}: keep one")
    needed = list(need)
    if missing := [name for name in needed if name not in have]:
        raise SchemaError(
            f"the rows lack {_listed(missing)} (they have {_listed(have)}): add what is missing, "
            "as nulls if it has no value"
        )
    known = {*needed, *allowed}
    extra = [name for name in have if name not in known and name.casefold() not in used]
    if extra:
        raise SchemaError(
            f"the table has no column {_listed(extra)}: drop it from the rows, or add it to the "
            "table's schema first"
        )


def check_types(have: pa.Schema, schema: Schema, names: Iterable[str]) -> None:
    """Refuse types of which some value has no equal in the table's, before anything runs."""
    for name in names:
        given, want = have.field(name).type, schema.field(name).type
        if not castable(given, want):
            raise SchemaError(
                f"column {printable(name)} of the rows is {given} and can't be taken for {want}: "
                "cast it first"
            )


def check_key(schema: Schema, keys: Sequence[str] | None, table: str) -> None:
    """An upsert needs a key, and it is the table's."""
    if not schema.key:
        raise UsageError(f"table {table} has no key, so nothing can be upserted: append instead")
    wanted = schema.key if keys is None else ((keys,) if isinstance(keys, str) else tuple(keys))
    if set(wanted) != set(schema.key):
        raise UsageError(
            f"table {table} has the key {_listed(schema.key)}, not {_listed(wanted)}: leave keys "
            "out, or create a table with that key"
        )
    own = {TIME_COLUMN, DELETE_COLUMN}
    for name in schema.names:
        if name in own or name.startswith(ORDER_COLUMN):
            raise SchemaError(
                f"table {table} has a column {printable(name)}, a name that upserts use themselves"
            )


def _listed(names: Iterable[str]) -> str:
    return printable(", ".join(names), limit=300)
