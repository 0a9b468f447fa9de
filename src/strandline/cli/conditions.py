"""What people write after --filter, --columns and --as-of, as values. Pure.

amount > 10        country = NO        name is null        id in 1, 2, 3
17                 2026-03-01T12:00Z   2026-03-01 12:00 (UTC)
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import SchemaError, UsageError
from strandline.model.frontier import Time, valid_time
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

_NULL_TEST = re.compile(r"\s*(\S+)\s+(is\s+null|is\s+not\s+null)\s*", re.IGNORECASE)
_MEMBERSHIP = re.compile(r"\s*(\S+)\s+(in|not\s+in)\s+(.+)", re.IGNORECASE | re.DOTALL)
_COMPARISON = re.compile(r"\s*([^\s=!<>]+)\s*(==|!=|<=|>=|=|<|>)\s*(.*?)\s*", re.DOTALL)

Condition = tuple[str, str, object]


def parse_as_of(text: str) -> Time | datetime:
    """A time, or an instant; an instant without a zone is in UTC."""
    if re.fullmatch(r"-?[0-9]+", text.strip()):
        return valid_time(int(text), "--as-of")
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"--as-of {printable(text)} is neither a time (17) nor an instant "
            "(2026-03-01T12:00:00Z)"
        ) from None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def parse_columns(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def parse_conditions(texts: Sequence[str], schema: pa.Schema) -> list[Condition] | None:
    """Conditions that must all hold, each value in the type of its column."""
    return [_condition(text, schema) for text in texts] or None


def _condition(text: str, schema: pa.Schema) -> Condition:
    if (test := _NULL_TEST.fullmatch(text)) is not None:
        return test[1], " ".join(test[2].lower().split()), None
    if (member := _MEMBERSHIP.fullmatch(text)) is not None:
        op = " ".join(member[2].lower().split())
        pieces = member[3].strip().removeprefix("(").removesuffix(")").split(",")
        return member[1], op, [_value(piece.strip(), member[1], schema) for piece in pieces]
    if (comparison := _COMPARISON.fullmatch(text)) is not None:
        return comparison[1], comparison[2], _value(comparison[3], comparison[1], schema)
    raise UsageError(
        f"--filter {printable(text)} is not understood: write 'amount > 10', 'name is null' "
        "or 'id in 1, 2, 3'"
    )


def _value(text: str, column: str, schema: pa.Schema) -> object:
    """The value that `text` is in the column's type; quotes around it are taken off."""
    place = schema.get_field_index(column)
    if place < 0:
        known = ", ".join(schema.names)
        raise SchemaError(
            f"--filter names the unknown column {printable(column)}: there are {known}"
        )
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    kind = schema.field(place).type
    try:
        return pa.scalar(text).cast(kind).as_py()
    except pa.ArrowException:
        raise SchemaError(
            f"column {column} is a {kind}: it can't be compared with {printable(text)}"
        ) from None
