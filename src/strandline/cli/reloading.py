"""The verb that replaces what a table holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.pipelines import pipeline_of
from strandline.cli.render import counted, shown
from strandline.errors import UsageError
from strandline.model.ids import printable
from strandline.pipeline.drawing import FROM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.cli.output import Output
    from strandline.pipeline.engine import NewEngine


def reload_table(
    url: str,
    name: str | None,
    said: tuple[str, str, str],
    how: tuple[str | None, Sequence[str], int],
    out: Output,
    engine: NewEngine | None,
) -> None:
    """`said` are the table, the word FROM and the path or connector; `how` is the format of rows,
    the options as they are written, and for how many ms the commit is waited for."""
    table, word, place = said
    form, written, timeout_ms = how
    if word.casefold() != "from":
        raise UsageError(f"write: strandline reload STORE {table} FROM PATH")
    options = _options(written) | ({} if form is None else {"format": form})
    source = _source(place, options)
    staged = 0
    with pipeline_of(url, name, engine) as pipeline, out.progress(f"reloading {table}") as step:

        def told(done: int, total: int | None, what: str) -> None:
            nonlocal staged
            staged = done
            step(done, total, what)

        time = pipeline.reload(table, source, timeout_ms=timeout_ms, told=told)
    document: dict[str, object] = {"table": table, "time": time, "rows": staged}
    # Of a source several rows may be of one key, and some may delete it.
    verb = "is reloaded from" if isinstance(source, tuple) else "holds"
    text = f"{table} {verb} {counted(staged, 'row')} as of {time}"
    out.answer(document, shown(text))


def _source(place: str, options: dict[str, str]) -> dict[str, str] | tuple[str, dict[str, str]]:
    """A path wins over a connector of the same name."""
    if Path(place).exists():
        return {**options, "path": place}
    if place in FROM:
        return place, options
    raise UsageError(
        f"there is no file or folder {printable(place)}, and that is no connector: "
        f"{', '.join(FROM)} are"
    )


def _options(written: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE`, each; only the first sign of equality divides."""
    found = {}
    for each in written:
        name, sign, value = each.partition("=")
        if not name or not sign:
            raise UsageError(f"--option {printable(name)} has no value: write --option NAME=VALUE")
        found[name] = value
    return found
