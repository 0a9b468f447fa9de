"""Changes as messages: what a topic's readers get, column by column.

    envelope  key       value                                                 null
    --------  --------  ----------------------------------------------------  -----------------
    upsert    needed    the row that the key holds from now on                it holds none
    debezium  needed    {"before": …, "after": …, "source": …, "op": "u"}     follows an op d
    changes   if given  {"row": …, "diff": 1, "time": 7, "epoch": 1,          never
                        "lineage": "…"}

A key is a JSON object of the key's columns. Of a row that goes and one that comes with the same
key one message is made. A key may have one row: where a transaction shows two, it is refused by
name, as readers would keep one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.connectors.json_text import objects, texts
from strandline.connectors.kafka_port import Batch
from strandline.connectors.sink import BATCH_ROWS
from strandline.errors import SinkStoppedError
from strandline.model.ids import printable
from strandline.model.schema import DIFF_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.connectors.kafka_port import Headers
    from strandline.connectors.sink import Address

CHANGES, UPSERT, DEBEZIUM = "changes", "upsert", "debezium"
ENVELOPES = (UPSERT, DEBEZIUM, CHANGES)
KEYED = frozenset({UPSERT, DEBEZIUM})
_PIECE_BYTES = 16 * 1024 * 1024
_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


class Form(msgspec.Struct, frozen=True):
    """How a sink's rows become messages."""

    envelope: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    tombstones: bool = True
    ordered: bool = False
    """Whether rows of one key come next to each other, what goes before what comes."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which transaction it is."""

    address: Address
    t: int
    epoch: int

    def json(self, before: str) -> str:
        """Its fields, as the end of an object that begins with `before`."""
        lineage = msgspec.json.encode(self.address.lineage).decode()
        return f'{before}"time":{self.t},"epoch":{self.epoch},"lineage":{lineage}}}'


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some rows, and the JSON of each one's key."""

    rows: pa.Table
    keys: pl.Series

    def slice(self, start: int, length: int | None = None) -> _Piece:
        return _Piece(self.rows.slice(start, length), self.keys.slice(start, length))


def encoded(form: Form, stamp: Stamp, changes: Iterable[pa.RecordBatch]) -> Iterator[Batch]:
    """The messages of one transaction, in order."""
    pieces = (piece for batch in changes for piece in _pieces(pa.Table.from_batches([batch])))
    if form.envelope == CHANGES:
        for rows in pieces:
            yield _changes(form, stamp, rows)
        return
    keyed = (_Piece(rows, _keys(form, rows)) for rows in pieces)
    for piece in _whole_keys(keyed if form.ordered else _sorted(keyed)):
        yield _upserts(form, stamp, piece)


def deletions(form: Form, stamp: Stamp, keys: Sequence[bytes]) -> Iterator[Batch]:
    """Messages after which these keys hold nothing, whatever they held."""
    gone: list[bytes | None] = [None]
    if keys and form.envelope == DEBEZIUM:
        nothing = pl.Series([None], dtype=pl.String)
        gone = _bytes(_debezium(stamp, nothing, nothing, "d")) + (gone if form.tombstones else [])
    for start in range(0, len(keys), BATCH_ROWS):
        some = keys[start : start + BATCH_ROWS]
        yield Batch([key for key in some for _ in gone], gone * len(some))


def _keys(form: Form, rows: pa.Table) -> pl.Series:
    """Keys that are equal have one text: of the two zeros that floats have, one is written."""
    chosen = rows.select(form.key)
    for at, field in enumerate(chosen.schema):
        if is_.is_floating(field.type):
            values = chosen.column(at)
            wide = values.cast(pa.float32()) if is_.is_float16(field.type) else values
            chosen = chosen.set_column(at, field.name, pc.add(wide, pa.scalar(0.0, wide.type)))
    return objects(chosen, form.key)


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Of bounded size: their messages are in memory at once."""
    count = max(1, min(BATCH_ROWS, rows.num_rows * _PIECE_BYTES // max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)


def _sorted(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """By key, what goes before what comes. Takes the transaction whole, and adds the keys to it."""
    taken = list(pieces)
    if not taken:
        return
    rows, keys = (
        pa.concat_tables([each.rows for each in taken]),
        pl.concat([each.keys for each in taken]),
    )
    diffs = pl.Series(pl.from_arrow(rows[DIFF_COLUMN]))
    order = pl.DataFrame({"k": keys, "d": diffs}).select(pl.arg_sort_by("k", "d")).to_series()
    for start in range(0, len(order), BATCH_ROWS):
        some = order.slice(start, BATCH_ROWS)
        yield _Piece(rows.take(some.to_arrow()), keys.gather(some))


def _whole_keys(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """The same rows, cut where the key changes."""
    rest: _Piece | None = None
    for piece in pieces:
        if rest is not None:
            rows = pa.concat_tables([rest.rows, piece.rows])
            piece = _Piece(rows, pl.concat([rest.keys, piece.keys]))  # noqa: PLW2901 - one more
        last = int(_begins(piece.keys)[-1])
        if last:
            yield piece.slice(0, last)
        rest = piece.slice(last)
    if rest is not None:
        yield rest


def _begins(keys: pl.Series) -> _Ints:
    """Where another key begins than that of the row before."""
    other = (keys != keys.shift(1)).fill_null(True).to_numpy()
    return np.flatnonzero(other)


def _changes(form: Form, stamp: Stamp, rows: pa.Table) -> Batch:
    frame = pl.DataFrame({"row": objects(rows, form.columns), "diff": _diffs(rows)})
    value = pl.concat_str(
        pl.lit('{"row":'), "row", pl.lit(',"diff":'), "diff", pl.lit(stamp.json(","))
    )
    keys = _bytes(_keys(form, rows)) if form.key else [None] * rows.num_rows
    return Batch(keys, _bytes(frame.select(value.alias("v")).to_series()), _headers(form, rows))


def _upserts(form: Form, stamp: Stamp, piece: _Piece) -> Batch:
    """One message for each key; of debezium maybe one more for each that holds no row now."""
    diffs, starts = _diffs(piece.rows).to_numpy(), _begins(piece.keys)
    lasts = np.append(starts[1:], len(diffs)) - 1
    _refuse_two_rows(form, piece.keys, diffs, starts, lasts)
    come = diffs[lasts] > 0
    keys, rows = piece.keys.gather(lasts), piece.rows.take(pa.array(lasts))
    after = _where(objects(rows, form.columns), come)
    if form.envelope == UPSERT:
        return Batch(_bytes(keys), _bytes(after), _headers(form, rows))
    before = _where(objects(piece.rows.take(pa.array(starts)), form.columns), diffs[starts] < 0)
    values = _debezium(stamp, before, after)
    if form.tombstones and not come.all():
        places = np.repeat(np.arange(len(lasts)), np.where(come, 1, 2))
        second = np.append(False, places[1:] == places[:-1])
        keys, rows = keys.gather(places), rows.take(pa.array(places))
        values = _where(values.gather(places), ~second)
    return Batch(_bytes(keys), _bytes(values), _headers(form, rows))


def _debezium(
    stamp: Stamp, before: pl.Series, after: pl.Series, known: str | None = None
) -> pl.Series:
    """The messages; what happened follows from the rows unless it is known."""
    address = stamp.address
    named = {"connector": "strandline", "name": address.pipeline, "table": address.sink}
    source = stamp.json(msgspec.json.encode(named).decode().removesuffix("}") + ",")
    op = (
        pl.lit(known)
        if known
        else (
            pl.when(pl.col("before").is_null())
            .then(pl.lit("c"))
            .when(pl.col("after").is_null())
            .then(pl.lit("d"))
            .otherwise(pl.lit("u"))
        )
    )
    value = pl.concat_str(
        pl.lit('{"before":'),
        pl.col("before").fill_null("null"),
        pl.lit(',"after":'),
        pl.col("after").fill_null("null"),
        pl.lit(f',"source":{source},"op":"'),
        op,
        pl.lit('"}'),
    )
    return pl.DataFrame({"before": before, "after": after}).select(value.alias("v")).to_series()


def _refuse_two_rows(
    form: Form, keys: pl.Series, diffs: _Ints, starts: _Ints, lasts: _Ints
) -> None:
    """A key may lose one row, get one, or both in this order."""
    sizes = lasts - starts + 1
    single = (sizes == 1) & (np.abs(diffs[starts]) == 1)
    double = (sizes == 2) & (diffs[starts] == -1) & (diffs[lasts] == 1)
    wrong = np.flatnonzero(~(single | double))
    if len(wrong):
        raise SinkStoppedError(
            f"key {printable(keys[int(starts[wrong[0]])])} has more than one row: envelope "
            f"{form.envelope} takes one for each key ({', '.join(form.key)}); name the columns "
            "that tell rows apart in option key, or publish with envelope 'changes'"
        )


def _diffs(rows: pa.Table) -> pl.Series:
    return pl.Series(pl.from_arrow(rows[DIFF_COLUMN]))


def _where(values: pl.Series, condition: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pl.Series:
    """The values where it holds, null elsewhere."""
    if condition.all():
        return values
    frame = pl.DataFrame({"v": values, "if": condition})
    return frame.select(pl.when("if").then("v").alias("v")).to_series()


def _bytes(values: pl.Series) -> list[bytes | None]:
    return values.cast(pl.Binary).to_list()


def _headers(form: Form, rows: pa.Table) -> list[Headers] | None:
    """The header columns of each row; what is null is left out."""
    if not form.headers:
        return None
    columns = [(name, _bytes(texts(rows[name]))) for name in form.headers]
    each = zip(*(values for _, values in columns), strict=True)
    return [
        tuple((form.headers[at], value) for at, value in enumerate(row) if value is not None)
        for row in each
    ]
