"""The pieces that tables are made of, and how numbers read. Pure: values in, renderables out.

All text becomes a `Text` that went through `visible`, so neither a terminal's control sequences
nor rich's own markup in a name or a value is ever obeyed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from strandline.cli.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions

_FOLD_MIN = 8
"""A column that folds is never narrower: below that nobody can read it."""
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: what it is called, how it lies, and how it gives way."""

    title: str
    right: bool = False
    style: str = ""
    fold: bool = False
    """Long text goes on in the next line instead of pushing its neighbours out."""
    spare: int = 0
    """On a narrow screen, columns with the highest number go first; 0 stays."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A plain table without lines: it reads well and greps well.

    On a terminal rich lays it out, so that it fits; everywhere else `lines` is all there is to it.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Text, ...], ...]
    header: bool = True

    def lines(self) -> Iterator[str]:
        """Every column as wide as its widest text, without blanks at the end."""
        titles = tuple(Text(column.title) for column in self.columns)
        every = (titles, *self.rows) if self.header else self.rows
        texts = [[cell.plain for cell in row] for row in every]
        widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
        for row in texts:
            aligned = (
                set_right(text, width) if column.right else text + " " * (width - cell_len(text))
                for text, width, column in zip(row, widths, self.columns, strict=True)
            )
            yield "  ".join(aligned).rstrip()

    def fitted(self, width: int) -> Grid:
        """Without the columns that can be spared, if there is no room for all of them."""
        taken = [
            max(cell_len(text) for text in (column.title, *(row[at].plain for row in self.rows)))
            for at, column in enumerate(self.columns)
        ]
        spare = max(column.spare for column in self.columns)
        if spare == 0 or sum(taken) + 2 * (len(taken) - 1) <= width:
            return self
        kept = [at for at, column in enumerate(self.columns) if column.spare != spare]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return Grid(tuple(self.columns[at] for at in kept), rows, self.header).fitted(width)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Table]:
        yield self.fitted(options.max_width).rich_table()

    def rich_table(self) -> Table:
        made = Table(
            box=None,
            pad_edge=False,
            padding=(0, 2, 0, 0),
            header_style="bold",
            show_header=self.header,
        )
        for column in self.columns:
            made.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                style=column.style,
                no_wrap=not column.fold,
                overflow="fold" if column.fold else "ellipsis",
                min_width=_FOLD_MIN if column.fold else None,
            )
        for row in self.rows:
            made.add_row(*row)
        return made


@dataclass(frozen=True, slots=True)
class Stack:
    """Things below each other that belong together."""

    parts: tuple[Grid | Text, ...]

    def lines(self) -> Iterator[str]:
        for part in self.parts:
            yield from text_lines(part)

    def __rich__(self) -> Group:
        return Group(*self.parts)


Shown: TypeAlias = Grid | Stack | Text
"""What an answer for people is made of."""


def text_lines(part: Shown) -> Iterator[str]:
    """What people see, where there are neither colours nor a width to keep to."""
    if isinstance(part, Text):
        yield from part.plain.split("\n")
    else:
        yield from part.lines()


def set_right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> Grid:
    return Grid(tuple(columns), tuple(tuple(_text(each) for each in row) for row in rows))


def pairs(facts: Iterable[tuple[str, str | Text]]) -> Grid:
    """Names and what they are, one a line."""
    columns = (Column("", style="bold"), Column("", fold=True))
    return Grid(columns, tuple((Text(name), _text(fact)) for name, fact in facts), header=False)


def _text(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else shown(cell)


def shown(text: str, style: str = "", *, raw: bool = False) -> Text:
    return Text(text if raw else visible(text), style=style)


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
