"""The verb that replaces the program of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.cli.opening import opened
from strandline.cli.pipelines import chosen
from strandline.cli.render import pairs, shown

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.cli.facts import Document
    from strandline.cli.output import Output
    from strandline.cli.render import Grid
    from strandline.pipeline.engine import NewEngine
    from strandline.pipeline.promotion import Promotion

_WORDS = {
    "kept": "stay as they are",
    "added": "new",
    "rebuilt": "computed anew",
    "removed": "removed",
    "begun": "sources from their start",
    "ended": "sources that end",
}


def promote_program(
    url: str, name: str, file: Path, out: Output, engine: NewEngine | None, *, check: bool
) -> None:
    """Say what changes, and promote unless it is only to be checked."""
    with opened(url, listing="status") as store:
        text = file.read_text("utf-8")
        with store.pipeline(chosen(store, name), text, engine=engine) as pipeline:
            found = pipeline.check_promotion()
            epoch = None if check else pipeline.promote()
    document = promotion_document(found, epoch)
    if epoch is None:
        last = f"nothing was promoted: it would be e{found.epoch}"
    else:
        run = f"strandline run {file} --store {url} --name {name}"
        last = f"{name} is at e{epoch}: replicas of earlier epochs end; next: {run}"
    out.answer(document, promotion_table(document), shown(last, "yellow" if check else "green"))


def promotion_document(found: Promotion, epoch: int | None) -> Document:
    """What a promotion changes, with stable names; `epoch` is the one that began, if one did."""
    return {
        "pipeline": found.pipeline,
        "promoted": epoch is not None,
        "epoch": found.epoch if epoch is None else epoch,
        "program": found.program,
        "before": found.before,
        "same": found.program == found.before,
        "sealed": found.sealed,
        **{word: list(getattr(found, word)) for word in _WORDS},
        "versions": {name: {"before": old, "after": new} for name, (old, new) in _sorted(found)},
    }


def _sorted(found: Promotion) -> list[tuple[str, tuple[str, str]]]:
    return sorted(found.versions.items())


def promotion_table(document: Document) -> Grid:
    """The same for people; what is empty is left out."""
    before, after = str(document["before"])[:12], str(document["program"])[:12]
    facts = [("program", f"{after}, the same" if document["same"] else f"{before} → {after}")]
    if document["sealed"] is not None:
        facts.append(("finished first", f"{document['sealed']}, under its own program"))
    for word, told in _WORDS.items():
        names = document[word]
        if isinstance(names, list) and names:
            facts.append((told, ", ".join(map(str, names))))
    versions = document["versions"]
    if isinstance(versions, dict) and versions:
        changed = [f"{name} {each['before']} → {each['after']}" for name, each in versions.items()]
        facts.append(("versions", ", ".join(changed)))
    return pairs([(word, told) for word, told in facts])
