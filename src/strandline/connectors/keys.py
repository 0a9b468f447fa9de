"""The key of a message: its values, and its text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.connectors.values import REFUSALS, is_text, python_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.connectors.reading import Reading


def key_parser(reading: Reading) -> Callable[[bytes], list[Any] | None]:
    """What makes of a message's key the values of the key columns, `None` if it can't.

    The key is an object with the key columns, maybe wrapped as Debezium does, or, of a single
    column, the value alone; plain text if that column is text and the key is no JSON for it.
    """
    kinds = [python_type(reading.schema.field(name).type, reading.notation) for name in reading.key]
    fields = [(f"c{at}", kind, None) for at, kind in enumerate(kinds)]
    rename = {f"c{at}": name for at, name in enumerate(reading.key)}
    whole = msgspec.defstruct("Key", fields, rename=rename)
    wrapped = msgspec.defstruct("Wrapped", [("payload", whole)])
    alone = msgspec.defstruct("Alone", [("payload", kinds[0])])
    textual = len(kinds) == 1 and is_text(reading.schema.field(reading.key[0]).type)

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
