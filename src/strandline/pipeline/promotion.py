"""What a promotion would change, and whether it can be: a promotion is for good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import FencedError, NotFoundError, SchemaError, UsageError
from strandline.journal.record import Endpoint
from strandline.pipeline.catalog import TABLE, VIEW
from strandline.pipeline.collected import check_collection
from strandline.pipeline.sources import origin_of
from strandline.shard.command import Attach

if TYPE_CHECKING:
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Time
    from strandline.pipeline.rig import Rig


@dataclass(frozen=True, slots=True)
class Promotion:
    """What becomes of a pipeline when a program is promoted. Nothing has happened yet."""

    pipeline: str
    epoch: int
    """The one that it begins; replicas of earlier ones are fenced."""
    program: str
    before: str
    """The program that runs now, by its hash; it may be the same."""
    sealed: Time | None
    """Is finished first, under the program that it was sealed under."""
    kept: tuple[str, ...]
    """Tables and views that stay as they are."""
    added: tuple[str, ...]
    rebuilt: tuple[str, ...]
    """Views that are computed anew, from what their tables hold."""
    removed: tuple[str, ...]
    begun: tuple[str, ...]
    """Sources that are taken from their start."""
    ended: tuple[str, ...]
    """Sources that nothing more is taken from."""
    versions: dict[str, tuple[str, str]]
    """Of what other versions are on record than ours: theirs, and ours."""


def check(rig: Rig) -> Promotion:
    """What promoting the rig's program would change; what `promote` refuses is refused here."""
    while True:
        standing = rig.journal.refresh()
        if not standing.epoch:
            raise NotFoundError(
                f"there is no pipeline {standing.pipeline}: the first replica that runs makes it"
            )
        if openable(rig, standing):
            return _promotion(rig, standing)


def openable(rig: Rig, standing: Standing) -> bool:
    """Whether the program's shards can be opened once it is promoted: one that nobody can join
    stops the pipeline. Not if the standing is old by now."""
    attach = Attach(rig.timeline, standing.committed, standing.epoch + 1)
    for each in rig.collections:
        try:
            check_collection(rig.store, each, standing.added, attach)
        except (FencedError, SchemaError, UsageError) as error:
            if rig.journal.refresh().lsn != standing.lsn:
                return False
            raise type(error)(
                f"pipeline {standing.pipeline}: this program can't be promoted, and nothing "
                f"was: {each.role} {each.name}: {error}"
            ) from error
    return True


def endpoints(rig: Rig, standing: Standing) -> list[Endpoint]:
    """Those that the program has not any more, and those that it has now; one that is fed by
    another source is both, so that no position outlives what it is a position of."""
    live = {name for name, state in standing.endpoints.items() if state != "removed"}
    origins = {each.name: origin_of(each) for each in rig.program.tables}
    ours = {name: origins.get(name, "") for name in rig.sources}
    stays = {
        name for name in live & set(ours) if standing.origins.get(name, ours[name]) == ours[name]
    }
    return [Endpoint(name, "removed") for name in sorted(live - stays)] + [
        Endpoint(name, "added", ours[name]) for name in sorted(set(ours) - stays)
    ]


def _promotion(rig: Rig, standing: Standing) -> Promotion:
    program = rig.program
    names = [each.name for each in program.tables] + [each.name for each in program.views]
    wanted = {each.name: each.shard for each in rig.collections}
    bound = standing.bindings
    other = [each for each in names if each in bound and bound[each].shard != wanted[each]]
    moves = endpoints(rig, standing)
    removed = [each.name for each in moves if each.action == "removed"]
    ours, theirs = dict(rig.computer.versions), standing.versions
    return Promotion(
        pipeline=standing.pipeline,
        epoch=standing.epoch + 1,
        program=program.hash,
        before=standing.program,
        sealed=None if standing.sealed is None else standing.sealed.t,
        kept=tuple(each for each in names if each in bound and each not in other),
        added=tuple(each for each in names if each not in bound),
        rebuilt=tuple(other),
        removed=tuple(
            name
            for name in sorted(bound.keys() - wanted.keys())
            if bound[name].role in {TABLE, VIEW}
        ),
        begun=tuple(
            each.name
            for each in moves
            if each.action == "added" and standing.origins.get(each.name) != each.source
        ),
        ended=tuple(removed),
        versions={
            name: (theirs.get(name, ""), ours.get(name, ""))
            for name in sorted(theirs.keys() | ours.keys())
            if theirs.get(name) != ours.get(name)
        },
    )
