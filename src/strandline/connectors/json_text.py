"""Arrow columns as JSON, a text for each row, column by column.

The text is what a table with `format 'json'` reads exactly (see `values`): strings for decimals,
dates and times (of a zone in UTC), base64 for bytes, "NaN" and the infinities by name. Types that
can't be written column by column are written row by row, many times slower, with the same meaning.
What a row's text is follows from its types and its own values alone: texts are keys, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.connectors.plain import exact, plain
from strandline.connectors.values import is_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LOCAL = "%Y-%m-%dT%H:%M:%S%.f"
_COLUMN_BY_COLUMN = (
    is_.is_boolean,
    is_.is_integer,
    is_.is_null,
    is_text,
    is_.is_decimal128,
    is_.is_date32,
)
_AT_THE_TOP = (
    is_.is_floating,
    is_.is_timestamp,
    is_.is_time,
    is_.is_binary,
    is_.is_large_binary,
)


def objects(rows: pa.Table, names: Sequence[str]) -> pl.Series:
    """One JSON object for each row, with these columns."""
    if not names:
        return pl.repeat("{}", rows.num_rows, dtype=pl.String, eager=True)
    chosen = rows.select(names)
    if not all(_is_easy(column.type) for column in chosen.columns):
        return _row_by_row(chosen)
    frame = pl.DataFrame(
        {name: _written(column) for name, column in zip(names, chosen.columns, strict=True)}
    )
    if all(_is_finite(column) for column in chosen.columns):
        return _encoded(frame)
    # A frame has one type a column: numbers and words go together as text only.
    return frame.select(pl.concat_str(*_members(frame), pl.lit("}")).alias("json")).to_series()


def texts(column: pa.ChunkedArray) -> pl.Series:
    """Each value as bare text: what it is if it is text, else its JSON without quotes."""
    if is_text(column.type):
        return pl.Series(pl.from_arrow(column))
    json = objects(pa.table({"a": column}), ["a"])
    bare = json.str.slice(5).str.strip_suffix("}").str.strip_chars('"')
    there = pl.Series(pl.from_arrow(column.is_valid()))
    frame = pl.DataFrame({"bare": bare, "there": there})
    return frame.select(pl.when("there").then("bare").alias("bare")).to_series()


def _encoded(frame: pl.DataFrame) -> pl.Series:
    return frame.select(pl.struct(pl.all()).struct.json_encode().alias("json")).to_series()


def _members(frame: pl.DataFrame) -> Iterator[pl.Expr | pl.Series]:
    """What is between the braces, piece by piece; written as `_encoded` writes it."""
    for at, each in enumerate(frame):
        label = _encoded(pl.DataFrame({each.name: [None]}))[0].removesuffix("null}")
        yield pl.lit(label if at == 0 else f",{label[1:]}")
        text = _encoded(pl.DataFrame({"a": each})).str.slice(5).str.head(-1)
        yield _named(each, text) if each.dtype.is_float() else text


def _named(values: pl.Series, texts: pl.Series) -> pl.Series:
    """The texts of floats, with names for those that are no numbers."""
    frame = pl.DataFrame({"value": values, "text": texts})
    infinite = (
        pl.when(pl.col("value") > 0).then(pl.lit('"Infinity"')).otherwise(pl.lit('"-Infinity"'))
    )
    named = (
        pl.when(pl.col("value").is_nan())
        .then(pl.lit('"NaN"'))
        .when(pl.col("value").is_infinite())
        .then(infinite)
        .otherwise(pl.col("text"))
    )
    return frame.select(named.alias("named")).to_series()


def _is_finite(column: pa.ChunkedArray) -> bool:
    if not is_.is_floating(column.type):
        return True
    return pc.all(pc.is_finite(column), skip_nulls=True).as_py() is not False


def _is_easy(kind: pa.DataType) -> bool:
    if is_.is_floating(kind):
        return True
    return any(each(kind) for each in _AT_THE_TOP) or _is_easy_inside(kind)


def _is_easy_inside(kind: pa.DataType) -> bool:
    if is_.is_struct(kind):
        return kind.num_fields > 0 and all(_is_easy_inside(each.type) for each in kind)
    if is_.is_list(kind) or is_.is_large_list(kind):
        return _is_easy_inside(kind.value_type)
    return any(each(kind) for each in _COLUMN_BY_COLUMN)


def _written(column: pa.ChunkedArray) -> pl.Series:
    kind = column.type
    if is_.is_float16(kind):
        column = column.cast(pa.float32())
    if is_.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    made = pl.Series(pl.from_arrow(column))
    if is_.is_binary(kind) or is_.is_large_binary(kind):
        return made.bin.encode("base64")
    if is_.is_timestamp(kind) and kind.tz is None:
        return made.dt.strftime(_LOCAL)
    return made


def _row_by_row(rows: pa.Table) -> pl.Series:
    rows = exact(rows)
    kinds = [(each.name, each.type) for each in rows.schema]
    encode = msgspec.json.Encoder().encode
    texts = [
        encode({name: plain(row[name], kind) for name, kind in kinds}).decode()
        for row in rows.to_pylist()
    ]
    return pl.Series(texts, dtype=pl.String)
