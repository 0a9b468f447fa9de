"""A connector's options, read by name: what is missing, wrong or unknown is said at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.connectors.reading import is_about_rows
from strandline.errors import UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


def refuse_unknown(connector: str, options: Iterable[str], known: Collection[str]) -> None:
    """Refuse options that neither the connector nor the reading of rows has."""
    for name in options:
        if name not in known and not is_about_rows(name):
            raise UsageError(
                f"{connector} has no option {printable(name)}: there are {', '.join(sorted(known))}"
            )


def required(connector: str, options: Mapping[str, str], name: str) -> str:
    value = options.get(name, "")
    if not value:
        raise UsageError(f"{connector} needs the option {name}")
    return value


def whole(options: Mapping[str, str], name: str, default: int | None, *, least: int = 0) -> int:
    """A whole number; without a default it must be there."""
    text = options.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UsageError(f"option {name} is {printable(text)}: set it to a number >= {least}")
    return int(text)


def fraction(options: Mapping[str, str], name: str, default: float, *, most: float = 1.0) -> float:
    """A number from 0 to `most`."""
    text = options.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise UsageError(f"option {name} is {printable(text)}: set it to a number from 0 to {most}")
    return number
