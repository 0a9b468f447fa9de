"""Values that may be used and never shown.

An option's value of the form `env:NAME` or `file:/path` is a reference: it is what programs,
splits, the journal, logs and errors hold (S90). It becomes its value where it is used, by a
resolver that `config` makes, and nowhere else. An option whose name says that it is secret must
be a reference, so that no program holds a password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from strandline.errors import UsageError
from strandline.model.ids import printable
from strandline.model.sensitive import is_sensitive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.connectors.source import ResolveSecret

_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\x00-\x1f]*")

HIDDEN = "***"


def is_reference(value: str) -> bool:
    """Whether a value stands for another one.

    >>> is_reference("env:KAFKA_PASSWORD"), is_reference("file:/run/secret"), is_reference("x")
    (True, True, False)
    """
    return _REFERENCE.fullmatch(value) is not None


def without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """The options if secrets are references in them; refused by name, never by value, if not."""
    for name, value in options.items():
        if is_sensitive(name) and not is_reference(value):
            raise UsageError(
                f"option {printable(name)} holds a secret, which would be kept with the program: "
                "write env:NAME or file:/path and put the value there"
            )
    return dict(options)


def shown(options: Mapping[str, str]) -> dict[str, str]:
    """The options for people: references as they are, what may be secret hidden."""
    return {
        name: HIDDEN if is_sensitive(name) and not is_reference(value) else value
        for name, value in options.items()
    }


class Secret:
    """A value in hand. It shows itself to nobody; `reveal` where it is used."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    __str__ = __repr__


def resolver(
    variable: Callable[[str], str | None], content: Callable[[str], str | None]
) -> ResolveSecret:
    """What turns references into values: `variable` knows the environment, `content` files.

    A value that is no reference is its own; one line end at a file's end is not part of it.
    """

    def resolve(value: str) -> str:
        if not is_reference(value):
            return value
        kind, _, name = value.partition(":")
        found = variable(name) if kind == "env" else content(name)
        if found is None:
            where = "variable" if kind == "env" else "file"
            raise UsageError(
                f"the {where} {printable(name)}, which holds a secret, is not there or can't be "
                "read: set it, or change the option that refers to it"
            )
        return found if kind == "env" else found.removesuffix("\n").removesuffix("\r")

    return resolve
