"""The verb that replaces what a table holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.pipelines import pipeline_of
from strandline.cli.render import counted, shown
from strandline.errors import UsageError

if TYPE_CHECKING:
    from strandline.cli.output import Output
    from strandline.pipeline.engine import NewEngine


def reload_table(
    url: str,
    name: str | None,
    said: tuple[str, str, str],
    how: tuple[str | None, int],
    out: Output,
    engine: NewEngine | None,
) -> None:
    """`said` are the table, the word FROM and the path; `how` is the format of files, and for how
    many ms the commit is waited for."""
    table, word, path = said
    form, timeout_ms = how
    if word.casefold() != "from":
        raise UsageError(f"write: strandline reload STORE {table} FROM PATH")
    if not Path(path).exists():
        raise UsageError(f"there is no file or folder {path}")
    source = {"path": path} if form is None else {"path": path, "format": form}
    staged = 0
    with pipeline_of(url, name, engine) as pipeline, out.progress(f"reloading {table}") as step:

        def told(done: int, total: int | None, what: str) -> None:
            nonlocal staged
            staged = done
            step(done, total, what)

        time = pipeline.reload(table, source, timeout_ms=timeout_ms, told=told)
    document: dict[str, object] = {"table": table, "time": time, "rows": staged}
    text = f"{table} holds {counted(staged, 'row')} as of {time}"
    out.answer(document, shown(text))
