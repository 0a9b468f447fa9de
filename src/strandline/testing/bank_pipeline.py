"""Mutants of pipelines: who commits what, what is planned, what views and handles become."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from strandline.journal import checkpoint, next as step, standing as law
from strandline.journal.handles import Frozen, Handles
from strandline.journal.sealed import Sealed
from strandline.model.engine import Rules
from strandline.pipeline import agree, finish, meaning, planner, replica, rows
from strandline.pipeline.planner import Planner
from strandline.testing import computing
from strandline.testing.computing import ArrowComputer
from strandline.testing.mutants import Mutant, Planting, mutant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from strandline.connectors.reading import Reading
    from strandline.journal.handles import Handle
    from strandline.journal.record import Input, Position
    from strandline.journal.standing import Standing
    from strandline.model.digest import Digest
    from strandline.pipeline.compute import Computed, Work
    from strandline.pipeline.finish import Finishing
    from strandline.pipeline.offer import Offered
    from strandline.pipeline.rig import Rig

BANK: list[Mutant] = []
_CASE = "pipeline"
_replace = msgspec.structs.replace
_differences = agree.differences
_taken = law.taken
_placed = rows._placed  # noqa: SLF001


@mutant("whoever computed something else is told (S30)", _CASE, BANK)
def answers_are_not_compared(planting: Planting) -> None:
    planting.swap(finish.Finishing, "_compare", lambda *_: None)


@mutant("nothing is landed before its answer is on record", _CASE, BANK)
def lands_before_its_answer(planting: Planting) -> None:
    original = finish.Finishing._answered  # noqa: SLF001

    def answered(
        self: Finishing, base: Standing, sealed: Sealed, computed: Computed
    ) -> Standing | None:
        bound = {name: each.shard for name, each in base.bindings.items()}
        self._landing.land(computed, bound, sealed.t, base.epoch, computed.digests())
        return original(self, base, sealed, computed)

    planting.swap(finish.Finishing, "_answered", answered)


@mutant("what is amended is read as it is amended", _CASE, BANK)
def amendments_are_not_read(planting: Planting) -> None:
    planting.swap(Sealed, "reads", Sealed.inputs)


@mutant("an answer is to what is sealed now, amendments included", _CASE, BANK)
def answers_to_what_was_amended(planting: Planting) -> None:
    original = finish._still  # noqa: SLF001

    def still(standing: Standing, sealed: Sealed) -> Sealed | None:
        found = standing.sealed
        if found is None or found.answer is not None:
            return original(standing, sealed)
        return original(standing, _replace(sealed, amends=found.amends))

    planting.swap(finish, "_still", still)


@mutant("rows are in their shards before they are committed", _CASE, BANK)
def commit_before_landing(planting: Planting) -> None:
    def commit(
        self: Finishing,
        standing: Standing,
        sealed: Sealed,
        computed: Computed,
        bound: Mapping[str, str],
    ) -> None:
        assert sealed.answer is not None
        self._compare(sealed.answer, computed)
        self._commit(standing, sealed, sealed.answer)
        self._landing.land(computed, bound, sealed.t, standing.epoch, computed.digests())

    planting.swap(finish.Finishing, "_land_and_commit", commit)


@mutant("the next plan starts where the last commit ended", _CASE, BANK)
def plan_starts_at_the_checkpoint(planting: Planting) -> None:
    original = Planner._offers  # noqa: SLF001

    def offers(self: Planner, standing: Standing) -> dict[str, Offered]:
        return original(self, _replace(standing, positions=standing.acknowledged))

    planting.swap(planner.Planner, "_offers", offers)


@mutant("what a transaction takes is taken once", _CASE, BANK)
def positions_move_twice(planting: Planting) -> None:
    def taken(positions: dict[str, Position], inputs: tuple[Input, ...]) -> dict[str, Position]:
        twice = [
            _replace(each, taken={p: (a, 2 * b - a) for p, (a, b) in each.taken.items()})
            for each in inputs
            if each.taken is not None
        ]
        return _taken(positions, twice)

    planting.swap(law, "taken", taken)


@mutant("a handle is committed by its owner's word only (S59)", _CASE, BANK)
def open_handle_is_committed(planting: Planting) -> None:
    original = Handles.all

    def everyone(self: Handles, standing: Standing | None = None) -> list[Handle]:
        return [
            replace(each, frozen=Frozen(commit=True, at_ms=0))
            if each.chunks and each.frozen is None
            else each
            for each in original(self, standing)
        ]

    planting.swap(Handles, "all", everyone)


@mutant("an aborted handle is not committed (S59)", _CASE, BANK)
def aborted_handle_is_committed(planting: Planting) -> None:
    original = Handles.all

    def everyone(self: Handles, standing: Standing | None = None) -> list[Handle]:
        frozen = Frozen(commit=True, at_ms=0)
        return [
            each if each.frozen is None else replace(each, frozen=frozen)
            for each in original(self, standing)
        ]

    planting.swap(Handles, "all", everyone)


@mutant("chunks count in the order of their numbers", _CASE, BANK)
def chunks_count_as_they_come(planting: Planting) -> None:
    planting.swap(rows, "_placed", lambda some, _chunk: _placed(some, 0))


@mutant("a late old event resurrects nothing", _CASE, BANK)
def tombstones_are_ignored(planting: Planting) -> None:
    def rules(how: Reading, _now_ms: int | None = None) -> Rules:
        return Rules(compare_stored=how.sequence_by, bury=False)

    planting.swap(meaning, "rules_of", rules)


@mutant("a late old event changes nothing", _CASE, BANK)
def sequences_are_ignored(planting: Planting) -> None:
    planting.swap(meaning, "rules_of", lambda *_: Rules())


@mutant("a transaction reads what the one before left", _CASE, BANK)
def state_is_one_time_too_old(planting: Planting) -> None:
    original = ArrowComputer._read  # noqa: SLF001

    def read(self: ArrowComputer, work: Work, name: str) -> pa.Table:
        return original(self, replace(work, time=max(work.time - 1, 0)), name)

    planting.swap(ArrowComputer, "_read", read)


@mutant("a view that is refreshed is compared with what it was at the time before", _CASE, BANK)
def full_view_is_compared_with_itself(planting: Planting) -> None:
    planting.swap(computing, "difference", lambda new, _old: meaning.difference(new, new))


@mutant("an endpoint that was read otherwise does not pass (S68)", _CASE, BANK)
def endpoint_passes_vacuously(planting: Planting) -> None:
    def differences(
        kind: str, recorded: Mapping[str, Digest], computed: Mapping[str, Digest]
    ) -> list[str]:
        return [] if kind == "endpoint" else _differences(kind, recorded, computed)

    planting.swap(agree, "differences", differences)


@mutant("a replica of equal versions with another answer stops itself (S30)", _CASE, BANK)
def other_answer_is_adopted(planting: Planting) -> None:
    planting.swap(agree, "same_versions", lambda _ours, _theirs: False)


@mutant("a checkpoint is taken only between transactions (S64), by replicas too", _CASE, BANK)
def replica_checkpoints_inside(planting: Planting) -> None:
    table = dict(step.TABLE)
    for relation in (step.Relation.UNJOINED, step.Relation.SAME):
        table[step.Phase.SEALED, relation, step.Mode.CHECKPOINT] = step.TakeCheckpoint
    planting.swap(step, "TABLE", table)
    planting.swap(checkpoint, "may_checkpoint", lambda _standing: True)
    planting.swap(law, "nothing_sealed", lambda _standing, _record: None)


@mutant("what is sealed is computed under the program it was sealed under (S74)", _CASE, BANK)
def promoter_finishes_under_its_own_program(planting: Planting) -> None:
    @contextmanager
    def under(rig: Rig, _standing: Standing) -> Iterator[Rig]:
        yield rig

    planting.swap_all((finish, replica), "under", under)


@mutant("a new view is built from what it reads", _CASE, BANK)
def new_view_starts_empty(planting: Planting) -> None:
    planting.swap(planner, "builds", lambda _standing, _time: frozenset())
