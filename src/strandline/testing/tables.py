"""Test data written as a table: what a person would draw on paper, as values. Pure.

    rows(Upsert, '''
        key  value  time
        a    green   5    # late: the peer wrote this one
        b    -      12    # a dash is null
    ''')

The first line names the fields. Cells are separated by blanks; one that holds blanks, a `#` or
nothing but a dash is put in double quotes. A line `CRASH` in a `script` is a crash (rule 20 of
the house style: a crash is one more row of test data).
"""

from __future__ import annotations

import re
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

_Row = TypeVar("_Row")
_CELL = re.compile(r'"(?P<quoted>[^"]*)"|(?P<comment>#.*)|(?P<plain>[^\s"]+)')
_WORDS = {"true": True, "false": False}


class Crash:
    """Stands in a script where the process dies."""

    def __repr__(self) -> str:
        return "CRASH"


CRASH: Final = Crash()


def rows(kind: type[_Row], text: str) -> list[_Row]:
    """One value of `kind` (a dataclass, a named tuple, a struct) for each line.

    >>> rows(complex, "real imag\\n 1 2 # a comment")
    [(1+2j)]
    """
    found = []
    for row in script(kind, text):
        if isinstance(row, Crash):
            raise ValueError("CRASH is a step of a script, not a row")  # noqa: TRY004
        found.append(row)
    return found


def script(kind: type[_Row], text: str) -> list[_Row | Crash]:
    """As `rows`, with `CRASH` where a line says so."""
    lines = _cells(text)
    header = _header(lines)
    hints = _types(kind)
    found: list[_Row | Crash] = []
    for number, cells in lines:
        if cells == ["CRASH"]:
            found.append(CRASH)
            continue
        _check_width(number, cells, header)
        named = zip(header, cells, strict=True)
        found.append(kind(**{name: _value(cell, hints.get(name)) for name, cell in named}))
    return found


def arrow(schema: pa.Schema, text: str) -> pa.Table:
    """An Arrow table; `_time` and `_diff` may stand beside the schema's columns.

    >>> arrow(pa.schema([("id", pa.int64())]), "id _time\\n 7 3").to_pylist()
    [{'id': 7, '_time': 3}]
    """
    lines = _cells(text)
    header = _header(lines)
    columns: dict[str, list[str | None]] = {name: [] for name in header}
    for number, cells in lines:
        _check_width(number, cells, header)
        for name, cell in zip(header, cells, strict=True):
            columns[name].append(None if cell is None else str(cell))
    own = pa.schema([("_time", pa.int64()), ("_diff", pa.int64())])
    fields = [(schema if name in schema.names else own).field(name) for name in header]
    arrays = [pa.array(columns[f.name], pa.string()).cast(f.type) for f in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


class _Quoted(str):
    """A cell that was put in quotes, and so is text whatever it looks like."""

    __slots__ = ()


def _cells(text: str) -> Iterator[tuple[int, list[str | None]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        cells: list[str | None] = []
        for match in _CELL.finditer(line):
            quoted, plain = match["quoted"], match["plain"]
            if quoted is not None:
                cells.append(_Quoted(quoted))
            elif plain is not None:
                cells.append(None if plain == "-" else plain)
        if cells:
            yield number, cells


def _header(lines: Iterator[tuple[int, list[str | None]]]) -> list[str]:
    _, cells = next(lines, (0, []))
    names = [cell for cell in cells if cell is not None]
    if not names or len(names) != len(cells) or len(set(names)) != len(names):
        raise ValueError(f"the first line must name each field once, not {cells}")
    return [str(name) for name in names]


def _check_width(number: int, cells: list[str | None], header: list[str]) -> None:
    if len(cells) != len(header):
        raise ValueError(f"line {number} has {len(cells)} cells, and {header} has {len(header)}")


def _types(kind: type[object]) -> dict[str, object]:
    try:
        return get_type_hints(kind)
    except TypeError:
        return {}


def _value(cell: str | None, hint: object) -> object:
    """A cell as its field's type says; without a type, as it looks."""
    if cell is None:
        return None
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    wanted = [option for option in options if option not in (NoneType, None)]
    if isinstance(cell, _Quoted) or wanted == [str]:
        return str(cell)
    if wanted == [bool]:
        return _WORDS[cell]
    if len(wanted) == 1 and callable(wanted[0]) and wanted[0] is not int:
        return wanted[0](cell)
    return _as_it_looks(cell)


def _as_it_looks(cell: str) -> object:
    for read in (int, float):
        try:
            return read(cell)
        except ValueError:
            continue
    return _WORDS.get(cell, cell)
