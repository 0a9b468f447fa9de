"""What is worth rewriting: which pieces of a shard to merge into which. Pure.

Sums do not care for order, so any pieces may be merged; these rules say which are worth it.

    flush  inline rows beyond a limit move into one part of level 0
    merge  more than `runs_max` parts over one place: the lighter ones become one. With the
           parts over it by weight, w1 <= w2 <= ..., the prefix of length j is merged for which
           (w1 + ... + wj) / 3**(free runs after it) is least; so room is made ahead of need, and
           a row is rewritten O(log(batches)) times, not once for every batch (see `runs`)
    fold   what `since` has passed reaches a quarter of the base part it lies on (or there is
           none): both become a new base. Nothing else rewrites a base
    cut    heavy parts lie across many bases, too many for one unit: they are cut where those are

A **range** ends up as one base part of 128 to 256 MB, and is halved when a rewrite would exceed
that or `range_rows`; cutting the output is all there is to a split. A **unit** never reads more
than `unit_bytes`; where `slots` wait for them there are more units, and a full merge is cut finer
for tasks to share it (see `spans`). Units of one plan share no piece, so any number may run at
once, in any process; what another one did first comes out as `Stale`.

Parts that the last fold of their range left over have level `RESIDUE`: their rows at `t_min`
could not be folded then (more retracted than inserted), so they are not tried again for
their own sake.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from strandline.parts import ranges
from strandline.parts.ranges import Range, overlap
from strandline.upkeep import spans
from strandline.upkeep.runs import are_merged, lightest, most_over_a_place, paired
from strandline.upkeep.terrain import MASKS, Lying, Node, Nodes, Terrain
from strandline.upkeep.units import (
    FULL,
    LEVEL_MAX,
    RESIDUE,
    Policy,
    Unit,
    foldable,
    settled_batches,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.model.frontier import Frontier, Time
    from strandline.model.valuehash import I64, Mask
    from strandline.parts.chunk import PartTable
    from strandline.parts.part import Batch, Part
    from strandline.shard.state import State


def plan(
    state: State,
    lists: Mapping[str, PartTable],
    policy: Policy,
    committed: Frontier | None = None,
    *,
    full: bool = False,
    begun: State | None = None,
) -> list[Unit]:
    """The units worth carrying out now; `lists` has the parts of the chunks that are loaded.

    With `full`, all that can be merged is, down to the bases; repeat it until nothing is left.
    What was not there when the state was `begun` is left alone, and what `since` has passed is
    judged as it was then: else work that is repeated would never end under steady appends.
    """
    planner = _Planner(state, lists, policy, committed, begun or state)
    if full:
        planner.merge_all()
    else:
        planner.fold()
        planner.merge()
        planner.flush()
    return planner.units


class _Planner:
    """One plan in the making: what there is, and what is taken."""

    def __init__(
        self,
        state: State,
        lists: Mapping[str, PartTable],
        policy: Policy,
        committed: Frontier | None,
        begun: State,
    ) -> None:
        self.policy = policy
        self.units_max = spans.units_at_once(policy.slots)
        self.since = min(state.readable_from(), begun.readable_from())
        self.keyed = bool(state.schema.key)
        end = begun.batches[-1].upper if begun.batches else 0
        self.batches = [b for b in settled_batches(state, committed) if b.upper <= end]
        self.units: list[Unit] = []
        sources: list[tuple[int, Sequence[Part] | PartTable]] = []
        for at, batch in enumerate(self.batches):
            sources.append((at, batch.parts))
            sources += [(at, lists[each.key]) for each in batch.chunks if each.key in lists]
        self.terrain = Terrain(sources, row_bytes=policy.row_bytes, range_max=policy.range_max)
        self.free: Mask = np.ones(len(self.terrain), np.bool_)
        """Which parts no unit has taken yet."""
        self.passed = self.terrain.passed(self.since)
        self.taken_inline: set[Time] = set()
        self.ghosts: list[tuple[int, int]] = []
        """Where the outputs of planned units will lie."""

    # Adding a unit.

    def add(self, reason: str, chosen: Sequence[Lying], *, base: bool, halvings: int) -> bool:
        """Plan to merge these, with the inline rows between them; `False` if those are taken."""
        if len(self.units) >= self.units_max:
            return False
        numbers = [each.number for each in chosen]
        homes = self.terrain.home[numbers]
        between = self.batches[int(homes.min()) : int(homes.max()) + 1]
        inline = tuple(b.lower for b in between if b.inline is not None)
        if self.taken_inline.intersection(inline):
            return False
        levels = [each.part.level for each in chosen if each.part.level < RESIDUE]
        self.units.append(
            Unit(
                reason,
                parts=tuple(each.part for each in chosen),
                inline=inline,
                base=base,
                halvings=min(halvings, spans.HALVINGS_MAX),
                level=min(LEVEL_MAX, 1 + max(levels, default=0)),
            )
        )
        self.free[numbers] = False
        self.taken_inline.update(inline)
        self.ghosts.append(ranges.span(each.part for each in chosen))
        return True

    def fitting(self, wanted: Iterable[Lying], already: int = 0) -> list[Lying]:
        """As many as one unit may read, in the order given."""
        chosen: list[Lying] = []
        room = self.policy.unit_bytes - already
        for each in wanted:
            if each.part.size <= room and len(chosen) < self.policy.unit_parts:
                chosen.append(each)
                room -= each.part.size
        return chosen

    def halvings(self, bulk: float) -> int:
        return spans.halvings(bulk, self.policy) if self.keyed else 0

    # Flush.

    def flush(self) -> None:
        for stretch in _inline_stretches(self.batches, self.taken_inline):
            size = sum(len(b.inline.payload) for b in stretch if b.inline is not None)
            if size >= self.policy.flush_bytes or len(stretch) >= self.policy.flush_batches:
                self._flush(stretch)

    def _flush(self, stretch: Sequence[Batch]) -> None:
        lowers = tuple(batch.lower for batch in stretch)
        self.units.append(Unit("flush", inline=lowers))
        self.taken_inline.update(lowers)

    # Merge.

    def merge(self) -> None:
        """Until no place has too many runs over it, or nothing more can be done about it."""
        stuck: set[int] = set()
        counts = self._counts()
        kinds = self._kinds()
        lo, hi = self.terrain.reach(self.policy.part_bytes)
        while len(self.units) < self.units_max:
            counted = counts & self.free
            ghosts = np.array(self.ghosts, np.uint64).reshape(-1, 2)
            depths = [
                ranges.deepest_of(
                    np.concatenate((lo[counted & kind], ghosts[:, 0])),
                    np.concatenate((hi[counted & kind], ghosts[:, 1])),
                )
                for kind in kinds
            ]
            place, depth = max(depths, key=lambda found: found[1])
            if depth <= self.policy.runs_max or place in stuck:
                return
            over = counted & (lo <= np.uint64(place)) & (hi >= np.uint64(place))
            if not self._merge_some(over, depth, counted):
                stuck.add(place)

    def _counts(self) -> Mask:
        """Without a key there are no ranges to split: a part that is large enough is done."""
        if self.keyed:
            return np.ones(len(self.terrain), np.bool_)
        counts: Mask = (self.terrain.bulk < self.policy.part_bytes) & (self.terrain.level != FULL)
        return counts

    def _kinds(self) -> list[Mask]:
        """The parts to count together; of a keyed shard no merge takes a base, so all have it."""
        base, inserts = self.terrain.base, self.terrain.inserts
        if self.keyed:
            return [base | inserts, ~inserts]
        return [base, inserts, ~(base | inserts)]

    def _merge_some(self, over: Mask, depth: int, counted: Mask) -> bool:
        if self.keyed:
            counted = counted & ~self.terrain.base
        lying = self.terrain.lying(np.flatnonzero(over & counted))
        prefix = lightest(paired(lying), depth, self.policy)
        if not prefix:
            return False
        chosen = self._with_neighbours(prefix, counted)
        base = self._covers_bottom(chosen) if self.keyed else any(e.part.base for e in chosen)
        bulk = sum(each.bulk for each in chosen)
        return self.add("merge", chosen, base=base, halvings=self.halvings(bulk))

    def _with_neighbours(self, prefix: list[Lying], mergeable: Mask) -> list[Lying]:
        """Others in the same range that are as light: their places are as crowded."""
        around = min((each.at for each in prefix), key=lambda at: at[0])
        heaviest = max(each.weight for each in prefix)
        others = mergeable & self.terrain.within(around)
        others[[each.number for each in prefix]] = False
        light = sorted(
            (e for e in self.terrain.lying(np.flatnonzero(others)) if e.weight <= heaviest),
            key=lambda each: each.weight,
        )
        room = self.policy.unit_parts - len(prefix)
        return prefix + self.fitting(light, sum(e.part.size for e in prefix))[: max(0, room)]

    def _covers_bottom(self, chosen: Sequence[Lying]) -> bool:
        """Whether all that `since` has passed at these places is among the chosen ones."""
        lo, hi = ranges.span(each.part for each in chosen)
        others = (self.terrain.t_min <= self.since) & self.terrain.touching(lo, hi)
        others[[each.number for each in chosen]] = False
        return not others.any()

    # Fold.

    def fold(self) -> None:
        bases = self.free & self.terrain.base
        passed = np.flatnonzero(self.free & (self.passed >= 0.5))
        homes = Nodes(self.terrain, bases)
        around = homes.around(passed)
        wide = (around < 0) & homes.any_within(passed)
        # What lies on no base at all becomes one by itself.
        depths = np.where(around < 0, self.terrain.depth[passed], around)[~wide]
        places = self.terrain.first[passed[~wide]] & MASKS[depths]
        on_top: dict[Node, list[int]] = {}
        for number, *node in zip(
            passed[~wide].tolist(), depths.tolist(), places.tolist(), strict=True
        ):
            on_top.setdefault((node[0], node[1]), []).append(number)
        crowded = homes.crowded(spans.SMALL_BASES) if self.keyed else set()
        for at in sorted(crowded.union(on_top)):
            self._fold_at(homes.members(at), on_top.get(at, []), rootless=bool(bases.any()))
        if self.keyed:
            self._cut_wide(self.terrain.lying(passed[wide]), np.flatnonzero(bases))

    def _fold_at(self, bases: I64, passed: list[int], *, rootless: bool) -> None:
        if not self.keyed and self.terrain.size[bases].sum() > self.policy.unit_bytes // 2:
            bases = bases[:0]  # Too many to rewrite: what was inserted since joins them.
        below = self.fitting(self.terrain.lying(bases))
        on_top = self.terrain.lying(passed)
        bulk = sum(each.bulk for each in below)
        due = sum(each.bulk * foldable(each.part, self.since) for each in on_top)
        rootless = rootless and not self.keyed and not below
        least = self.policy.part_bytes if rootless else self.policy.fold_min
        crossing = self.keyed and (_crossing(below) or len(below) > spans.SMALL_BASES)
        if not crossing and (not on_top or due < max(least, self.policy.fold_ratio * bulk)):
            return
        lightest = sorted(on_top, key=lambda each: each.weight)
        chosen = [*below, *self.fitting(lightest, sum(e.part.size for e in below))]
        if len(chosen) > len(below) or crossing:
            expected = bulk + sum(each.bulk for each in chosen[len(below) :]) / 2
            self.add("fold", chosen, base=True, halvings=self.halvings(expected))

    def _cut_wide(self, wide: list[Lying], bases: I64) -> None:
        """Cut what lies across several bases, once it matters to one of them."""
        depths = self.terrain.depth[bases]
        weights = self.terrain.bulk[bases] * np.exp2(depths)
        most = sum(float(each.weight) * self.passed[each.number] for each in wide)
        if not wide or most < self.policy.fold_ratio * weights.min():
            return
        inside = {
            at: (depths > at[0]) & self.terrain.within(at)[bases]
            for at in {each.at for each in wide}
        }
        over = {
            each.number: inside[each.at] & (float(each.weight) * 32 >= weights) for each in wide
        }
        done = -1
        while over and len(self.units) < self.units_max:
            due = np.zeros(len(bases))
            for number, covered in over.items():
                [each] = self.terrain.lying([number])
                due[covered] += float(each.weight) * self.passed[number]
            ripe = np.flatnonzero((due > 0) & (due >= self.policy.fold_ratio * weights))
            ripe = ripe[ripe > done]
            if not len(ripe):
                return
            done = int(ripe[0])
            across = self.terrain.lying(n for n, covered in over.items() if covered[done])
            heaviest = max(across, key=lambda each: each.weight)
            # Whether it is cut now or inline rows are in its way, the others are looked at next.
            del over[heaviest.number]
            halvings = int(depths[done]) - heaviest.at[0]
            self.add("cut", [heaviest], base=False, halvings=halvings)

    # All of it.

    def merge_all(self) -> None:
        """Merge range by range; what lies across several bases is cut first."""
        lying = self.terrain.lying(range(len(self.terrain)))
        if not self.keyed:
            groups = _groups(lying, self.policy)
        elif self.terrain.size.sum() <= self.policy.unit_bytes:
            groups = [lying]
        else:
            groups = self._cut_or_group(lying)
        for group in groups:
            self._merge_group(group, final=len(groups) == 1 or self.keyed)
        for stretch in _inline_stretches(self.batches, self.taken_inline):
            self._flush(stretch)

    def _cut_or_group(self, lying: Sequence[Lying]) -> list[list[Lying]]:
        """What lies in the range of one base, or of no base but together; the rest is cut."""
        homes = _Homes(each.at for each in lying if each.part.base)
        grouped = _by_home(lying, homes)
        across = grouped.pop(None, [])
        rest = [each for each in across if not homes.any_within(each.at)]
        for each in across:
            depth = homes.deepest_within(each.at)
            if depth is not None:
                self.add("cut", [each], base=False, halvings=depth - each.at[0])
        alone = _by_home(rest, _Homes(each.at for each in rest))
        return [*grouped.values(), *alone.values()]

    def _merge_group(self, group: list[Lying], *, final: bool) -> None:
        """One range down to its base, unless it is there already."""
        chosen = self.fitting(group)
        if not chosen or self._is_merged(chosen, final=final):
            return
        halvings = self.halvings(sum(each.bulk for each in chosen))
        if self.keyed:
            halvings = max(halvings, spans.halvings_for(_expected(chosen), self.policy))
        self.add("full", chosen, base=True, halvings=halvings)

    def _is_merged(self, chosen: Sequence[Lying], *, final: bool) -> bool:
        """Whether another full merge would only write the same again."""
        if any(foldable(each.part, self.since) > 0 for each in chosen):
            return False
        counts = self._counts()
        counted = [each.part for each in chosen if counts[each.number]]
        if not are_merged([part for part in counted if not part.base]):
            return False
        return not final or most_over_a_place(part for part in counted if part.base) <= 1


class _Homes:
    """Some ranges, and which others lie in them or around them."""

    def __init__(self, homes: Iterable[Range]) -> None:
        self.homes = set(homes)
        self._deepest: dict[Range, int] = {}
        for home in self.homes:
            for depth in range(home[0] + 1):
                around = ranges.above(home, depth)
                self._deepest[around] = max(home[0], self._deepest.get(around, 0))

    def around(self, at: Range) -> Range | None:
        """The widest of the ranges that `at` lies in."""
        depths = range(at[0] + 1)
        return next((r for r in (ranges.above(at, d) for d in depths) if r in self.homes), None)

    def any_within(self, at: Range) -> bool:
        return at in self._deepest

    def deepest_within(self, at: Range) -> int | None:
        return self._deepest.get(at)


def _by_home(lying: Iterable[Lying], homes: _Homes) -> dict[Range | None, list[Lying]]:
    """Parts by the range they lie in; under `None` those that lie in none."""
    found: dict[Range | None, list[Lying]] = {}
    for each in lying:
        found.setdefault(homes.around(each.at), []).append(each)
    return found


def _inline_stretches(batches: Sequence[Batch], taken: set[Time]) -> list[list[Batch]]:
    """Batches of inline rows that nobody took, divided where somebody did.

    Batches of parts between them do not matter: those parts stay, in a fused batch.
    """
    stretches: list[list[Batch]] = [[]]
    for batch in batches:
        if batch.inline is None:
            continue
        if batch.lower in taken:
            stretches.append([])
        else:
            stretches[-1].append(batch)
    return [stretch for stretch in stretches if stretch]


def _expected(chosen: Iterable[Lying]) -> float:
    """About what a full merge leaves: half of what retracts is gone, and with it what it names."""
    return sum(
        each.bulk if each.part.base or each.part.inserts else each.bulk / 2 for each in chosen
    )


def _crossing(bases: Sequence[Lying]) -> bool:
    """Whether two base parts lie over one place, as two units that raced may leave them."""
    ordered = sorted((each.part for each in bases), key=lambda part: part.place_lo)
    return any(overlap(one, other) for one, other in pairwise(ordered))


def _groups(lying: Sequence[Lying], policy: Policy) -> list[list[Lying]]:
    """Parts without places, oldest first, in groups that fit a unit."""
    groups: list[list[Lying]] = [[]]
    room = policy.unit_bytes
    for each in sorted(lying, key=lambda one: (one.part.t_min, one.part.key)):
        if each.part.size > room and groups[-1]:
            groups.append([])
            room = policy.unit_bytes
        groups[-1].append(each)
        room -= each.part.size
    return [group for group in groups if group]
