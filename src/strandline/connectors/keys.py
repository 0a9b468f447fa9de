"""The key of a message: its values, its text, and what it names."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.connectors.connect_schema import Written, schema_in, written_key
from strandline.connectors.envelopes import notation_in
from strandline.connectors.values import REFUSALS, column, is_text, python_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.connectors.reading import Reading
    from strandline.connectors.values import Notation

_SIMPLE = r"^[A-Za-z0-9_.:@/-][A-Za-z0-9_ .:@/-]*$"
"""Text that is written in JSON as it is, and that is no JSON itself but for numbers and words."""
_SCHEMAS_MAX = 64
"""So many schemas of keys are remembered at once."""


KeyValues = tuple[list[Any], list["Notation"]]
"""The values of the key columns, and how each is written."""


def key_parser(reading: Reading) -> Callable[[bytes], KeyValues | None]:
    """What makes of a message's key the values of the key columns, `None` if it can't.

    The key is an object with the key columns, maybe wrapped as Debezium does, or, of a single
    column, the value alone; plain text if that column is text and the key is no JSON for it.
    """
    by_schema: dict[bytes | None, tuple[Callable[[bytes], list[Any] | None], list[Notation]]] = {}

    def parse(key: bytes) -> KeyValues | None:
        schema = schema_in(key)
        if schema not in by_schema:
            if len(by_schema) >= _SCHEMAS_MAX:
                by_schema.clear()
            said = Written()
            if schema is not None:
                said = written_key(schema, reading.key[0], reading.notation_of)
            how = [notation_in(said, name, reading) for name in reading.key]
            by_schema[schema] = (_values_parser(reading, how), how)
        values_of, how = by_schema[schema]
        values = values_of(key)
        return None if values is None else (values, how)

    return parse


def _values_parser(
    reading: Reading, how: Sequence[Notation]
) -> Callable[[bytes], list[Any] | None]:
    columns = [reading.schema.field(name) for name in reading.key]
    kinds = [python_type(each.type, notation) for each, notation in zip(columns, how, strict=True)]
    fields = [(f"c{at}", kind, None) for at, kind in enumerate(kinds)]
    rename = {f"c{at}": name for at, name in enumerate(reading.key)}
    whole = msgspec.defstruct("Key", fields, rename=rename)
    wrapped = msgspec.defstruct("Wrapped", [("payload", whole)])
    alone = msgspec.defstruct("Alone", [("payload", kinds[0])])
    shapes = ((wrapped, False), (alone, True), (whole, False), (kinds[0], True))
    textual = len(kinds) == 1 and is_text(columns[0].type)

    def parse(key: bytes) -> list[Any] | None:
        for kind, single in shapes if key.lstrip().startswith(b"{") else shapes[-1:]:
            if single and len(kinds) > 1:
                continue
            try:
                found = msgspec.json.decode(key, type=kind)
            except REFUSALS:
                continue
            inner = getattr(found, "payload", found)
            return [inner] if single else list(msgspec.structs.astuple(inner))
        try:
            return [key.decode()] if textual else None
        except UnicodeDecodeError:
            return None

    return parse


def key_text(keys: pa.Table) -> pa.ChunkedArray:
    """The key as text, null if a part of it is; no two keys have the same."""
    parts = []
    for each in keys.columns:
        textual = is_text(each.type) or is_.is_binary(each.type) or is_.is_large_binary(each.type)
        text = each.cast(pa.binary()) if textual else each.cast(pa.string()).cast(pa.binary())
        if textual and keys.num_columns > 1:
            text = pc.replace_substring(text, b"\\", b"\\\\")
            text = pc.replace_substring(text, b"|", b"\\|")
        parts.append(text)
    return pc.binary_join_element_wise(*parts, b"|")


def named_by(given: pa.ChunkedArray, rows: pa.Table, reading: Reading) -> pa.ChunkedArray:
    """What the messages of these keys are about: a key that gives all key columns as the text of
    those, however it is written, so that the same key is known again where it came without a
    message; another key as it is; null where there is none.

    `rows` have the key columns as the messages' values give them.
    """
    own = key_text(rows)
    plain = pc.fill_null(_is_plainly(given, rows), False)
    rest = given.filter(pc.invert(plain)).combine_chunks().dictionary_encode()
    texts = pc.coalesce(_texts(rest.dictionary.to_pylist(), reading), rest.dictionary)
    other = texts.take(rest.indices)
    return pc.replace_with_mask(own.combine_chunks(), pc.invert(plain).combine_chunks(), other)


def _texts(keys: Sequence[bytes], reading: Reading) -> pa.Array:
    """Each key as the text of the key columns; null where it does not give them all."""
    parse = key_parser(reading)
    found = [parse(each) for each in keys]
    columns = [
        _columns_of(found, at, reading.schema.field(name).type)
        for at, name in enumerate(reading.key)
    ]
    return key_text(pa.table(columns, names=list(reading.key))).combine_chunks()


def _columns_of(found: Sequence[KeyValues | None], at: int, kind: pa.DataType) -> pa.ChunkedArray:
    """One of the key columns; null where its value does not fit."""
    parts = []
    # Keys that are written alike follow each other; few topics have several kinds of them.
    for how, alike in groupby(found, key=lambda each: None if each is None else each[1][at]):
        values = [None if each is None else each[0][at] for each in alike]
        if how is None:
            parts.append(pa.nulls(len(values), kind))
            continue
        try:
            parts.append(column(values, kind, how))
        except REFUSALS:
            parts += [_one(each, kind, how) for each in values]
    return pa.chunked_array(parts, kind)


def _one(value: Any, kind: pa.DataType, how: Notation) -> pa.Array:  # noqa: ANN401 - what msgspec made
    try:
        return column([value], kind, how)
    except REFUSALS:
        return pa.nulls(1, kind)


def _is_plainly(given: pa.ChunkedArray, rows: pa.Table) -> pa.ChunkedArray:
    """Which keys are the key columns of their row in one of the forms that most have, for sure: a
    look at the others takes a while."""
    values = []
    alike = pa.chunked_array([pa.repeat(False, len(given))])
    for each in rows.columns:
        if is_.is_integer(each.type):
            values.append(each.cast(pa.string()).cast(pa.binary()))
        elif is_.is_string(each.type):
            simple = pc.match_substring_regex(each, _SIMPLE)
            text = pc.if_else(simple, each, pa.scalar(None, pa.string())).cast(pa.binary())
            values.append(pc.binary_join_element_wise(b'"', text, b'"', b""))
            if rows.num_columns == 1:
                alike = pc.or_kleene(alike, pc.equal(given, text))
        else:
            return alike
    if rows.num_columns == 1:
        alike = pc.or_kleene(alike, pc.equal(given, values[0]))
    for colon, comma in ((b":", b","), (b": ", b", ")):
        parts: list[object] = [b"{"]
        for at, name in enumerate(rows.column_names):
            written = msgspec.json.encode(name) + colon
            parts += [b"".join((comma if at else b"", written)), values[at]]
        alike = pc.or_kleene(alike, pc.equal(given, pc.binary_join_element_wise(*parts, b"}", b"")))
    return alike
