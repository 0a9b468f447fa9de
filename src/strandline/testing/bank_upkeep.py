"""Mutants of upkeep: compaction, collection, retention and manifests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.parts import sweep
from strandline.parts.envelope import checksum
from strandline.shard import command as c, decide_upkeep, machine, retention, state, versions
from strandline.shard.codec import encode_manifest
from strandline.testing.mutants import Mutant, Planting, mutant
from strandline.upkeep import (
    collect,
    compact,
    compaction,
    garbage,
    merge,
    outputs,
    rounds,
    units,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from strandline.model.ids import SeqNo
    from strandline.shard.env import Env
    from strandline.store.blob import BlobEntry
    from strandline.upkeep.units import Unit

BANK: list[Mutant] = []


# What is deleted.


@mutant("garbage stays while a reader holds an older version (R14)", "reads", BANK)
def holds_are_ignored(planting: Planting) -> None:
    planting.swap(state.State, "seqno_hold", lambda self: self.seqno.number)


@mutant("garbage stays while a reader holds the version before (R14)", "reads", BANK)
def hold_is_one_too_short(planting: Planting) -> None:
    original = state.State.seqno_hold
    planting.swap(state.State, "seqno_hold", lambda self: original(self) + 1)


@mutant("what lies under a registered writer's id is no orphan (R15)", "objects", BANK)
def orphans_of_the_living(planting: Planting) -> None:
    def can_never_count(found: state.State, key: str) -> bool:
        return key.startswith(f"{found.id}/")

    planting.swap(garbage, "_can_never_count", can_never_count)


@mutant("objects are listed before the state is loaded (R15)", "objects", BANK)
def orphans_are_listed_too_late(planting: Planting) -> None:
    def sweep_late(
        self: collect.Collector, found: machine.Machine, *, delete: bool
    ) -> list[BlobEntry]:
        loaded = found.refresh()
        listed = list(self._env.blob.list(f"{loaded.id}/"))
        lists = {key: self._listed(key, gone=True) for key in garbage.listing_chunks(loaded)}
        orphans = garbage.orphans(loaded, listed, lists)
        for entry in orphans if delete else ():
            self._delete(entry.key, found.name)
        return orphans

    planting.swap(collect.Collector, "sweep", sweep_late)


@mutant("records stay from the newest manifest on (R17)", "objects", BANK)
def records_are_cut_too_far(planting: Planting) -> None:
    def truncate_before(found: state.State) -> SeqNo | None:
        return found.seqno

    planting.swap(collect, "truncate_before", truncate_before)


@mutant("a manifest counts once it is durable", "objects", BANK)
def manifest_counts_too_early(planting: Planting) -> None:
    def write_manifest(self: rounds.Rounds, found: machine.Machine) -> bool:
        env, loaded = self._env, found.state
        if not units.manifest_due(loaded, every=env.settings.manifest_every):
            return False
        encoded = encode_manifest(loaded)
        key = f"{loaded.id}/{loaded.seqno}/{env.random.token()}.manifest"
        made = state.Manifest(loaded.seqno.number, key, len(encoded), checksum(encoded))
        outcome, _ = found.commit(c.AddManifest(made))
        env.patient(lambda: env.blob.put(key, encoded))
        return isinstance(outcome, c.Changed)

    planting.swap(rounds.Rounds, "_write_manifest", write_manifest)


@mutant("a manifest holds the whole state", "objects", BANK)
def manifest_forgets_writers(planting: Planting) -> None:
    def put_manifest(env: object, found: state.State) -> state.Manifest:
        return versions.put_manifest(env, replace(found, writers={}, readers={}))  # type: ignore[arg-type]

    planting.swap(rounds, "put_manifest", put_manifest)


@mutant("a compactor that was overtaken keeps what counts", "reads", BANK)
def compactor_deletes_its_inputs(planting: Planting) -> None:
    original = compact._swap  # noqa: SLF001

    def swap(work: compact.Work, unit: Unit, parts: object) -> bool:
        swapped = original(work, unit, parts)  # type: ignore[arg-type]
        if swapped:
            for part in unit.parts:
                work.env.patient(lambda key=part.key: work.env.blob.delete(key))  # type: ignore[misc]
        return swapped

    planting.swap(compact, "_swap", swap)


@mutant("garbage is listed until it is deleted", "objects", BANK)
def garbage_is_forgotten_and_kept(planting: Planting) -> None:
    planting.swap(collect.Collector, "_delete", lambda _self, _key, _shard: True)


# How far history is merged.


@mutant("since stays below every reader's hold (R3)", "holds", BANK)
def readers_hold_no_time(planting: Planting) -> None:
    def since_holds(self: state.State) -> Iterator[tuple[str, int]]:
        yield from ((name, hold.since) for name, hold in self.holds.items())

    planting.swap(state.State, "since_holds", since_holds)


@mutant("critical holds hold (S54)", "holds", BANK)
def critical_holds_hold_nothing(planting: Planting) -> None:
    def since_holds(self: state.State) -> Iterator[tuple[str, int]]:
        for name, reader in self.readers.items():
            if reader.since is not None:
                yield name, reader.since

    planting.swap(state.State, "since_holds", since_holds)


@mutant("retention by count keeps that many", "holds", BANK)
def retention_keeps_one_less(planting: Planting) -> None:
    original = retention._by_count  # noqa: SLF001

    def by_count(found: state.State, count: int, newest: int) -> int:
        return original(found, max(1, count - 1), newest)

    planting.swap(retention, "_by_count", by_count)


@mutant("retention by age keeps what was current then", "holds", BANK)
def retention_keeps_too_little_history(planting: Planting) -> None:
    original = retention._by_age  # noqa: SLF001

    def by_age(found: state.State, oldest_ms: int) -> int:
        return original(found, oldest_ms + 500)

    planting.swap(retention, "_by_age", by_age)


@mutant("the newest settled time stays readable (R1)", "holds", BANK)
def newest_time_is_merged(planting: Planting) -> None:
    original = retention._newest  # noqa: SLF001

    def newest(found: state.State, committed: object) -> int | None:
        last = original(found, committed)  # type: ignore[arg-type]
        return None if last is None else last + 1

    planting.swap(retention, "_newest", newest)
    planting.swap(retention, "_wanted", lambda _state, _now, last, _aged: last)


# What is merged.


def _without_tripwires(planting: Planting) -> None:
    """Let a compaction through that does not add up, to see whether readers notice."""

    def carry_out(work: compact.Work, found: state.State, unit: Unit) -> bool:
        most = merge.output_bytes(work.policy)
        made = merge.merge(work.env, found, unit, writer=work.writer.id, bytes_max=most)
        return compact._swap(work, unit, made.parts)  # noqa: SLF001

    planting.swap(rounds, "carry_out", carry_out)
    planting.swap(decide_upkeep, "_check_pieces", lambda *_: None)
    planting.swap_all((machine, state), "check_whole", lambda _state: None)


@mutant("compaction loses no row", "reads", BANK)
def compaction_drops_a_row(planting: Planting) -> None:
    original = merge._merged  # noqa: SLF001

    def merged(env: Env, found: state.State, unit: Unit) -> Iterator[pa.Table]:
        for updates in original(env, found, unit):
            yield updates.slice(0, max(1, updates.num_rows - 1))

    _without_tripwires(planting)
    planting.swap(merge, "_merged", merged)


@mutant("what is read is what is written, or nothing is swapped (R5)", "reads", BANK)
def compaction_drops_a_row_and_is_stopped(planting: Planting) -> None:
    original = merge._merged  # noqa: SLF001

    def merged(env: Env, found: state.State, unit: Unit) -> Iterator[pa.Table]:
        for updates in original(env, found, unit):
            yield updates.slice(0, max(1, updates.num_rows - 1))

    planting.swap(merge, "_merged", merged)


@mutant("a flush takes all inline rows along", "shard", BANK)
def flush_loses_a_batch(planting: Planting) -> None:
    original = merge._inline  # noqa: SLF001

    def inline(found: state.State, unit: Unit) -> Iterator[pa.Table]:
        yield from list(original(found, unit))[1:]

    _without_tripwires(planting)
    planting.swap(merge, "_inline", inline)


@mutant("times move up to since, and not past it", "reads", BANK)
def compaction_merges_past_since(planting: Planting) -> None:
    moved, settled = sweep.moved_to, sweep.settle
    planting.swap(merge, "moved_to", lambda updates, since: moved(updates, since + 1))
    planting.swap(merge, "settle", lambda updates, since: settled(updates, since + 1))


@mutant("a base holds what is live at since", "reads", BANK)
def base_holds_the_future(planting: Planting) -> None:
    original = sweep.split_live

    def split_live(updates: pa.Table, since: int) -> tuple[pa.Table, pa.Table]:  # noqa: ARG001
        return original(updates, 2**62)

    planting.swap(outputs, "split_live", split_live)


@mutant("what may be withdrawn is not compacted", "timeline", BANK)
def uncommitted_rows_are_compacted(planting: Planting) -> None:
    planting.swap(compaction, "settled_batches", lambda found, _committed: found.batches)


@mutant("what may be withdrawn stays listed", "timeline", BANK)
def uncommitted_moments_are_indexed(planting: Planting) -> None:
    planting.swap(rounds, "moments_due", lambda found, **_: len(found.moments))
    planting.swap(rounds, "_is_settled", lambda _state, _count, _committed: True)
    planting.swap(decide_upkeep, "_settled", lambda _committed, _time: True)
