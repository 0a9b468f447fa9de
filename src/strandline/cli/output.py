"""What a verb prints: one document as JSON for programs, or tables for people.

Standard output carries the answer and nothing else; progress goes to standard error, and only
to a terminal. Into a pipe, tables take the width they need and have no colours.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from strandline.cli.escape import plain, visible
from strandline.cli.render import text_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.cli.facts import Document
    from strandline.cli.render import Shown


class SeenEnoughError(Exception):
    """Whoever read our output has closed it; there is nobody left to tell."""


@contextmanager
def _enough() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise SeenEnoughError from error


class Output:
    """Where one verb's answer goes."""

    def __init__(self, *, as_json: bool = False, raw: bool = False) -> None:
        self.as_json = as_json
        self.raw = raw
        self.console = Console(highlight=False, markup=False, emoji=False)

    def answer(self, document: Document, *tables: Shown) -> None:
        """The whole answer of a verb, in the one form that was asked for."""
        if self.as_json:
            self.line(json.dumps(plain(document), indent=2))
            return
        for place, each in enumerate(tables):
            if place:
                self.line("")
            self.show(each)

    def event(self, document: Document, shown: Shown) -> None:
        """One piece of an answer that never ends, shown at once: one line of JSON each."""
        if self.as_json:
            self.line(json.dumps(plain(document)))
        else:
            self.show(shown)
        with _enough():
            sys.stdout.flush()

    def show(self, shown: Shown) -> None:
        """Print what people see; into a pipe as plain lines, as wide as they are."""
        if self.console.is_terminal:
            self.console.print(shown)
            return
        for line in text_lines(shown):
            self.line(line)

    def line(self, text: str) -> None:
        with _enough():
            sys.stdout.write(f"{text}\n")

    @property
    def watched(self) -> bool:
        """Whether somebody sees a bar."""
        return sys.stderr.isatty()

    @contextmanager
    def progress(self, what: str) -> Iterator[Step]:
        """A bar on standard error while long work runs."""
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=not self.watched,
        ) as bar:
            yield Step(bar, what)


class Step:
    """Says how far long work has come."""

    def __init__(self, bar: Progress, what: str) -> None:
        self._bar = bar
        self._what = what
        self._task = bar.add_task(visible(what), total=None)

    def __call__(self, done: int, total: int | None = None, what: str = "") -> None:
        text = visible(f"{self._what} {what}" if what else self._what)
        self._bar.update(self._task, completed=done, total=total, description=text)


def complain(text: str) -> None:
    """One line on standard error, whatever the text holds."""
    one_line = visible(" ".join(text.split("\n")))
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    label, _, rest = one_line.partition(":")
    console.print(label, style="bold red", end="")
    console.print(f":{rest}", style=None)
