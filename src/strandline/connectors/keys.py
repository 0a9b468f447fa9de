"""The key of a message: its values, and its text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.connectors.connect_schema import Written, schema_in, written_key
from strandline.connectors.envelopes import notation_in
from strandline.connectors.values import REFUSALS, is_text, python_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.connectors.reading import Reading
    from strandline.connectors.values import Notation

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
    textual = len(kinds) == 1 and is_text(columns[0].type)

    def parse(key: bytes) -> list[Any] | None:
        for kind, single in ((wrapped, False), (alone, True), (whole, False), (kinds[0], True)):
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
