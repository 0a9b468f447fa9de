"""From messages back to rows: what a topic holds, as its readers add it up.

`changes` are rows with a sign, which add up in any order. Of `upsert` and `debezium` a key holds
what its last message says; a topic that got more partitions may have a key in two of them, and
then the later timestamp is the last. What other lineages have left is none of it, nor is what
came after the time that is asked for, as far as messages tell.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from strandline.connectors.kafka_form import CHANGES, UPSERT
from strandline.connectors.values import REFUSALS, Notation, column, python_type
from strandline.errors import SinkStoppedError
from strandline.model.ids import printable
from strandline.model.schema import DIFF_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from strandline.connectors.kafka_port import Message

_BATCH_ROWS = 16_384
_NOTATION = Notation()
_OURS = "strandline"


class _Change(msgspec.Struct):
    row: msgspec.Raw
    diff: int
    time: int
    lineage: str


class _Source(msgspec.Struct):
    time: int
    lineage: str


class _Debezium(msgspec.Struct):
    op: str
    source: _Source
    after: msgspec.Raw = msgspec.Raw(b"null")


class _Writer(msgspec.Struct):
    connector: str
    name: str
    table: str = ""
    """Not all of Debezium's connectors have one."""


class _Written(msgspec.Struct):
    op: str
    source: _Writer


def folded(
    envelope: str, lineage: str, upto: int, columns: pa.Schema, messages: Iterable[Message]
) -> Iterator[pa.RecordBatch]:
    """The columns and `_diff`, adding up to what is there as of `upto`."""
    if envelope == CHANGES:
        rows: Iterable[tuple[bytes, int]] = _changes(lineage, upto, messages)
    else:
        held = _Held()
        for each in messages:
            if envelope == UPSERT:
                held.put(each, each.value)
            elif each.value is not None and (found := _debezium(each, lineage, upto)) is not None:
                held.put(each, None if found.op == "d" else bytes(found.after))
        rows = ((value, 1) for value in held.rows())
    yield from _batches(columns, iter(rows))


def keys_held(messages: Iterable[Message], writer: tuple[str, str] | None = None) -> list[bytes]:
    """The keys whose last message is no null, in the order in which they first came.

    `writer`: a pipeline and its sink; a key whose last message names another one is left out.
    Only debezium names any.
    """
    held = _Held()
    for each in messages:
        theirs = writer is not None and each.value is not None and _names_other(each.value, writer)
        # Keys alone are kept: values may be large.
        held.put(each, None if theirs or each.value is None else b"")
    return held.keys()


class _Held:
    """What each key holds."""

    def __init__(self) -> None:
        self._last: dict[bytes | None, tuple[int, int, bytes | None]] = {}

    def put(self, message: Message, value: bytes | None) -> None:
        known = self._last.get(message.key)
        if known is None or known[0] == message.partition or known[1] <= message.timestamp_ms:
            self._last[message.key] = (message.partition, message.timestamp_ms, value)

    def keys(self) -> list[bytes]:
        held = ((key, value) for key, (_, _, value) in self._last.items())
        return [key for key, value in held if key is not None and value is not None]

    def rows(self) -> Iterator[bytes]:
        return (value for _, _, value in self._last.values() if value is not None)


def _changes(lineage: str, upto: int, messages: Iterable[Message]) -> Iterator[tuple[bytes, int]]:
    read = msgspec.json.Decoder(_Change).decode
    for each in messages:
        change = _understood(each, read)
        if change.lineage == lineage and change.time <= upto:
            yield bytes(change.row), change.diff


def _debezium(message: Message, lineage: str, upto: int) -> _Debezium | None:
    found: _Debezium = _understood(message, _DEBEZIUM.decode)
    ours = found.source.lineage == lineage and found.source.time <= upto
    return found if ours else None


_DEBEZIUM = msgspec.json.Decoder(_Debezium)


def _names_other(value: bytes, writer: tuple[str, str]) -> bool:
    try:
        source = _WRITTEN.decode(value).source
    except msgspec.MsgspecError:
        return False
    return (source.connector, source.name, source.table) != (_OURS, *writer)


_WRITTEN = msgspec.json.Decoder(_Written)


def _understood(message: Message, read: Callable[[bytes], Any]) -> Any:  # noqa: ANN401 - what `read` makes
    try:
        return read(message.value or b"null")
    except msgspec.MsgspecError as error:
        raise SinkStoppedError(
            f"partition {message.partition}, offset {message.offset} holds no message of this "
            f"sink: {printable(error, 200)}; a topic that is read back has one writer"
        ) from error


def _batches(columns: pa.Schema, rows: Iterator[tuple[bytes, int]]) -> Iterator[pa.RecordBatch]:
    kinds = [(f"c{at}", python_type(each.type, _NOTATION), None) for at, each in enumerate(columns)]
    rename = {f"c{at}": each.name for at, each in enumerate(columns)}
    decoder = msgspec.json.Decoder(msgspec.defstruct("Row", kinds, rename=rename, gc=False))
    schema = pa.schema([*columns, pa.field(DIFF_COLUMN, pa.int64(), nullable=False)])
    while some := list(islice(rows, _BATCH_ROWS)):
        try:
            read = [msgspec.structs.astuple(decoder.decode(row)) for row, _ in some]
            arrays = [
                column([row[at] for row in read], each.type, _NOTATION)
                for at, each in enumerate(columns)
            ]
        except REFUSALS as error:
            raise SinkStoppedError(
                f"a row of the topic is none of this sink: {printable(error, 200)}"
            ) from error
        diffs = pa.array([diff for _, diff in some], pa.int64())
        yield pa.RecordBatch.from_arrays([*arrays, diffs], schema=schema)
