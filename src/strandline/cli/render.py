"""The pieces that tables are made of, and how numbers read. Pure: values in, renderables out.

All text becomes a `Text` that went through `visible`, so neither a terminal's control sequences
nor rich's own markup in a name or a value is ever obeyed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from strandline.cli.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: what it is called, how it lies, and how it gives way."""

    title: str
    right: bool = False
    style: str = ""
    fold: bool = False
    """Long text goes on in the next line instead of pushing its neighbours out."""


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], title: str = ""
) -> Table:
    """A plain table without lines: it reads well and greps well."""
    made = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
        title=Text(title, style="bold") if title else None,
        title_justify="left",
    )
    for column in columns:
        made.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            style=column.style,
            no_wrap=not column.fold,
            overflow="fold" if column.fold else "ellipsis",
        )
    for row in rows:
        made.add_row(*(each if isinstance(each, Text) else shown(each) for each in row))
    return made


def shown(text: str, style: str = "", *, raw: bool = False) -> Text:
    return Text(text if raw else visible(text), style=style)


def pairs(facts: Iterable[tuple[str, str | Text]]) -> Table:
    """Names and what they are, one a line."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, fact in facts:
        made.add_row(Text(name), fact if isinstance(fact, Text) else shown(fact))
    return made


def size(count: object) -> str:
    """Bytes in a unit that leaves up to four digits.

    >>> size(999), size(12_345), size(None)
    ('999 B', '12.3 kB', '')
    """
    if not isinstance(count, int):
        return ""
    amount = float(count)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            digits = 0 if unit == "B" or amount >= 100 else 1
            return f"{amount:.{digits}f} {unit}"
        amount /= 1000
    return ""


def number(count: object) -> str:
    """A whole number in groups of three.

    >>> number(1234567), number(None)
    ('1,234,567', '')
    """
    return f"{count:,}" if isinstance(count, int) else ""


def signed(count: object) -> str:
    """A net change: `+3`, `-2`, `0`."""
    return f"{count:+,}" if isinstance(count, int) and count else "0"


def frontier(time: object) -> str:
    """As frontiers print everywhere: `{7}`, and `{}` once closed."""
    return "{}" if time is None else f"{{{time}}}"


def span(seconds: object) -> str:
    """A length of time that a person can take in.

    >>> span(0.25), span(75), span(7_300), span(200_000), span(None)
    ('0.2 s', '75 s', '2.0 h', '2.3 d', '-')
    """
    if not isinstance(seconds, int | float):
        return "-"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def counted(count: object, one: str, many: str = "") -> str:
    """`1 part`, `2 parts`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"
