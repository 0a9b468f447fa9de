"""From bytes to messages: JSON, CSV and Avro. What can't be decoded is a `Refused`, never raised.

A parser makes of one value the msgspec type that an envelope asks for (`envelopes`). JSON is
decoded straight into it, the others by way of plain values.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from strandline.errors import NotInstalledError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.connectors.reading import Reading


CSV_COLUMNS = "csv.columns"
"""The header of a row that holds the names in the first line of its file."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a value could not be decoded."""

    reason: str


def reason_of(error: BaseException) -> str:
    """An error about a value as one line that may be shown; values in it are cut short."""
    return printable(str(error) or type(error).__name__, limit=300).strip("'\"")


def parser(reading: Reading, message: Any, names: Sequence[str] = ()) -> Callable[[bytes], Any]:  # noqa: ANN401 - a type
    """What parses values of a table's format into `message`; `names` are a file's CSV columns."""
    if reading.format == "json":
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(message).decode
        return decode
    if reading.format == "csv":
        return _csv_parser(reading, message, tuple(names) or reading.columns)
    if reading.format == "avro":
        return _avro_parser(reading, message)
    raise UsageError(f"format {reading.format} is not a format of single values")


# ---- CSV


def _csv_parser(reading: Reading, message: Any, names: tuple[str, ...]) -> Callable[[bytes], Any]:  # noqa: ANN401 - a type
    columns = names or tuple(reading.schema.names)
    known = {*reading.schema.names, "_delete"}

    def parse(value: bytes) -> Any:  # noqa: ANN401 - of the type `message`
        cells = csv_cells(value.decode(), reading.delimiter)
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells in a row of {len(columns)} columns")
        pairs = zip(columns, cells, strict=True)
        row = {name: cell for name, cell in pairs if cell is not None and name in known}
        return msgspec.convert(row, message, strict=False)

    return parse


_UNQUOTED_AND_QUOTED: dict[str, re.Pattern[str]] = {}


def csv_cells(text: str, delimiter: str) -> list[str | None]:
    """The cells of a record. An empty cell is null unless it is quoted, then it is empty text.

    >>> csv_cells('1,,"",a b,"say ""hi"", please"', ",")
    ['1', None, '', 'a b', 'say "hi", please']
    """
    if '"' not in text:
        return [each or None for each in text.split(delimiter)]
    pattern = _UNQUOTED_AND_QUOTED.get(delimiter)
    if pattern is None:
        apart = re.escape(delimiter)
        pattern = re.compile(rf'(?:"((?:[^"]|"")*+)"|([^"{apart}]*+))(?:{apart}|\Z)')
        _UNQUOTED_AND_QUOTED[delimiter] = pattern
    cells: list[str | None] = []
    at = 0
    while True:
        found = pattern.match(text, at)
        if found is None:
            raise ValueError(f"a quote that is not closed, or in the middle of cell {len(cells)}")
        quoted, plain = found.groups()
        cells.append(plain or None if quoted is None else quoted.replace('""', '"'))
        at = found.end()
        if at == len(text) and not found.group().endswith(delimiter):
            return cells


# ---- Avro


def _avro_parser(reading: Reading, message: Any) -> Callable[[bytes], Any]:  # noqa: ANN401 - a type
    read = _avro_reader(reading)
    return lambda value: msgspec.convert(read(value), message)


def json_of(reading: Reading) -> Callable[[bytes], bytes]:
    """What writes a value of the table's format as JSON, for formats whose values are objects."""
    if reading.format != "avro":
        return bytes
    read = _avro_reader(reading)
    return lambda value: msgspec.json.encode(read(value))


def _avro_reader(reading: Reading) -> Callable[[bytes], Any]:
    """What reads a value into plain values, as JSON would hold them."""
    if not reading.avro_schema:
        raise UsageError("format avro needs the schema of the values: set the option avro.schema")
    avro = load_avro()
    refusals = avro_refusals()
    try:
        schema = avro.parse_schema(json.loads(reading.avro_schema))
    except refusals as error:
        raise UsageError(f"option avro.schema is no Avro schema: {reason_of(error)}") from error
    skipped = 5 if reading.framing == "confluent" else 0

    def read(value: bytes) -> Any:  # noqa: ANN401 - plain values
        stream = io.BytesIO(value)
        stream.seek(skipped)
        try:
            record = avro.schemaless_reader(stream, schema, None)
        except refusals as error:
            raise ValueError(f"no Avro value: {reason_of(error)}") from error
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes follow the Avro value")
        return plain(record)

    return read


def plain(record: Any) -> Any:  # noqa: ANN401 - whatever Avro holds
    """Avro's values as JSON would hold them: text for dates and decimals, base64 for bytes."""
    return msgspec.to_builtins(record)


def avro_refusals() -> tuple[type[Exception], ...]:
    """What the Avro library raises for bytes and schemas that are none."""
    own = load_avro().schema
    plain_errors = (EOFError, LookupError, TypeError, AttributeError, MemoryError, zlib.error)
    named = (ValueError, ArithmeticError, own.SchemaParseException, own.UnknownType)
    return (*plain_errors, *named)


def load_avro() -> Any:  # noqa: ANN401 - a module that may be missing
    """The Avro library, or how to get it."""
    try:
        import fastavro  # noqa: PLC0415 - an extra
        import fastavro.schema  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise NotInstalledError("format avro needs fastavro: install strandline[avro]") from error
    return fastavro
