"""What is wrong with a program, by line, with what to do about it.

Every check adds to one list, so that a person sees all of it at once and not one error a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.errors import ProgramError
from strandline.model.ids import printable

SHOWN_MAX = 50


class Refused(Exception):  # noqa: N818 - it never leaves this package
    """Ends the check of one statement; what was wrong with it becomes a `Trouble`."""

    def __init__(self, what: str, todo: str, *, line: int = 0) -> None:
        super().__init__(what)
        self.what, self.todo, self.line = what, todo, line


@dataclass(frozen=True, slots=True, order=True)
class Trouble:
    """One reason why a program can't run: where, what, and what to do about it.

    Line 0 means that the program came from Python and has no lines.
    """

    line: int
    what: str
    todo: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.what}: {self.todo}"


@dataclass(slots=True)
class Troubles:
    """Collects what is wrong, each once.

    `unread` has names of statements that could not be read: who uses them is not blamed for it.
    """

    found: list[Trouble] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def add(self, line: int, what: str, todo: str) -> None:
        one = Trouble(line, what, todo)
        if one not in self.found:
            self.found.append(one)

    def take(self, refused: Refused, *, line: int) -> None:
        self.add(refused.line or line, refused.what, refused.todo)

    def raise_any(self, what: str = "the program") -> None:
        """Raise them all as one `ProgramError`, in order of lines; return if there are none."""
        if not self.found:
            return
        ordered = sorted(self.found)
        listed = [f"  {each}" for each in ordered[:SHOWN_MAX]]
        if len(ordered) > SHOWN_MAX:
            listed.append(f"  … and {len(ordered) - SHOWN_MAX} more")
        count = "1 error" if len(ordered) == 1 else f"{len(ordered)} errors"
        facts = tuple((each.line, each.what, each.todo) for each in ordered)
        raise ProgramError(f"{what} has {count}:\n" + "\n".join(listed), troubles=facts)


def named(name: object) -> str:
    """A name out of a program, safe to print and of bounded length."""
    return printable(name, limit=60)
