"""Errors of tasks on their way through Spark: as text with a mark, and back. Pure.

Spark wraps what a Python worker raises into a text of its own, with tracebacks of both worlds. So
a task raises its error with a mark around class and sentence, and the driver looks for the mark
and raises the same class again. Whoever sees only Spark's text still reads ours in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from strandline import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = re.compile(r"\[strandline:(\w+)\] (.*?) \[/strandline\]", re.DOTALL)


class TaskFailedError(errors.StrandlineError):
    """An error of ours inside a task, on its way to the driver."""


def wrapped(error: errors.StrandlineError) -> TaskFailedError:
    """What a task raises instead of `error`.

    >>> str(wrapped(errors.SchemaError("no column x")))
    '[strandline:SchemaError] no column x [/strandline]'
    """
    return TaskFailedError(f"[strandline:{type(error).__name__}] {error} [/strandline]")


def unwrapped(text: str) -> errors.StrandlineError | None:
    """The error that a task raised, out of what Spark made of it; `None` if it was another's.

    >>> unwrapped("PythonException: … [strandline:SchemaError] no column x [/strandline] …")
    SchemaError('no column x')
    """
    found = _MARK.search(text)
    if found is None:
        return None
    known = {kind.__name__: kind for kind in _kinds(errors.StrandlineError)}
    kind = known.get(found[1])
    if kind is None:
        return errors.StrandlineError(f"{found[1]}: {found[2]}")
    return kind(found[2])


def _kinds(kind: type[errors.StrandlineError]) -> Iterator[type[errors.StrandlineError]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _kinds(inner)
