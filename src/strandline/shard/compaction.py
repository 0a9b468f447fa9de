"""What is worth rewriting: which pieces of a shard to merge into which. Pure.

Sums do not care for order, so any pieces may be merged; these rules say which are worth it.

    flush  inline rows beyond a limit move into one part of level 0
    merge  more than `runs_max` parts over one place: the lighter ones become one. With the
           parts over it by weight, w1 <= w2 <= ..., the prefix of length j is merged for which
           (w1 + ... + wj) / 3**(free runs after it) is least; so room is made ahead of need, and
           a row is rewritten O(log(batches)) times, not once for every batch
    fold   what `since` has passed reaches a quarter of the base part it lies on (or there is
           none): both become a new base. Nothing else rewrites a base
    cut    heavy parts lie across many bases, too many for one unit: they are cut where those are

A **range** ends up as one base part of 128 to 256 MB, and is halved when a rewrite would exceed
that or `range_rows`; cutting the output is all there is to a split. A **unit** never reads more
than `unit_bytes`. Units of one plan share no piece, so any number may run at once, in any
process; what another one did first comes out as `Stale`.

Parts that the last fold of their range left over have level `RESIDUE`: their rows at `t_min`
could not be folded then (more retracted than inserted), so they are not tried again for
their own sake.
"""

from __future__ import annotations

from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from strandline.shard import ranges
from strandline.shard.ranges import Lying, Range, lie, overlap, within
from strandline.shard.units import (
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
    from strandline.shard.part import Batch, Part
    from strandline.shard.state import State

_ROOM = 3
"""What a free run is worth; measured with 100 to 100,000 batches: 2 and 4 are worse."""
_HALVINGS_MAX = 8
_SMALL_BASES = 4
"""So many base parts may share a range, left over from when there was more in it."""
_UNITS = 8
"""So many units are planned at a time; then the state has changed anyway."""


def plan(
    state: State,
    lists: Mapping[str, Sequence[Part]],
    policy: Policy,
    committed: Frontier | None = None,
    *,
    full: bool = False,
) -> list[Unit]:
    """The units worth carrying out now; `lists` has the parts of the chunks that are loaded.

    With `full`, all that can be merged is, down to the bases; repeat it until nothing is left.
    """
    planner = _Planner(state, lists, policy, committed)
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
        lists: Mapping[str, Sequence[Part]],
        policy: Policy,
        committed: Frontier | None,
    ) -> None:
        self.policy = policy
        self.since = state.readable_from()
        self.keyed = bool(state.schema.key)
        self.batches = settled_batches(state, committed)
        self.units: list[Unit] = []
        self.home = {
            part.key: at for at, batch in enumerate(self.batches) for part in _parts(batch, lists)
        }
        parts = [part for batch in self.batches for part in _parts(batch, lists)]
        self.lying = lie(parts, row_bytes=policy.row_bytes, range_max=policy.range_max)
        self.taken: set[str] = set()
        self.taken_inline: set[Time] = set()
        self.ghosts: list[tuple[int, int]] = []
        """Where the outputs of planned units will lie."""

    # Adding a unit.

    def add(self, reason: str, chosen: Sequence[Lying], *, base: bool, halvings: int) -> bool:
        """Plan to merge these, with the inline rows between them; `False` if those are taken."""
        if len(self.units) >= _UNITS:
            return False
        homes = [self.home[each.part.key] for each in chosen]
        between = self.batches[min(homes) : max(homes) + 1]
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
                halvings=min(halvings, _HALVINGS_MAX),
                level=min(LEVEL_MAX, 1 + max(levels, default=0)),
            )
        )
        self.taken.update(each.part.key for each in chosen)
        self.taken_inline.update(inline)
        self.ghosts.append(ranges.span(each.part for each in chosen))
        return True

    def free(self) -> list[Lying]:
        return [each for each in self.lying if each.part.key not in self.taken]

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
        """How often a range must be halved for its pieces to be small enough."""
        count = 0
        while self.keyed and bulk > self.policy.range_max << count and count < _HALVINGS_MAX:
            count += 1
        return count

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
        while len(self.units) < _UNITS:
            counted = [each for each in self.free() if self._counts(each)]
            places = [each.reach(self.policy.part_bytes) for each in counted]
            place, depth = ranges.deepest([*places, *self.ghosts])
            if depth <= self.policy.runs_max or place in stuck:
                return
            if not self._merge_at(place, depth, counted):
                stuck.add(place)

    def _counts(self, each: Lying) -> bool:
        """Without a key there are no ranges to split: a part that is large enough is done."""
        return self.keyed or (each.bulk < self.policy.part_bytes and each.part.level != FULL)

    def _merge_at(self, place: int, depth: int, counted: Sequence[Lying]) -> bool:
        over = [e for e in counted if self._covers(e, place) and self._may_merge(e)]
        prefix = self._prefix(sorted(over, key=lambda e: e.weight), depth)
        if len(prefix) < 2:
            return False
        chosen = self._with_neighbours(prefix, counted)
        base = self._covers_bottom(chosen) if self.keyed else any(e.part.base for e in chosen)
        bulk = sum(each.bulk for each in chosen)
        return self.add("merge", chosen, base=base, halvings=self.halvings(bulk))

    def _covers(self, each: Lying, place: int) -> bool:
        first, last = each.reach(self.policy.part_bytes)
        return first <= place <= last

    def _may_merge(self, each: Lying) -> bool:
        return not each.part.base or not self.keyed

    def _prefix(self, by_weight: Sequence[Lying], depth: int) -> list[Lying]:
        """The lightest ones whose merge costs least for the room it makes."""
        by_weight = self.fitting(by_weight)
        fixed = depth - len(by_weight)
        best: tuple[float, int] | None = None
        cost = 0
        for count, each in enumerate(by_weight, start=1):
            cost += max(1, each.weight)
            free = self.policy.runs_max - (fixed + len(by_weight) - count + 1)
            if count < 2:
                continue
            score = log(cost) - free * log(_ROOM)
            if best is None or score < best[0]:
                best = (score, count)
        return list(by_weight[: best[1]]) if best is not None else []

    def _with_neighbours(self, prefix: list[Lying], counted: Sequence[Lying]) -> list[Lying]:
        """Others in the same range that are as light: their places are as crowded."""
        around = min((each.at for each in prefix), key=lambda at: at[0])
        heaviest = max(each.weight for each in prefix)
        own = {each.part.key for each in prefix}
        others = sorted(
            (
                each
                for each in counted
                if each.part.key not in own
                and self._may_merge(each)
                and each.weight <= heaviest
                and within(each.at, around)
            ),
            key=lambda each: each.weight,
        )
        room = self.policy.unit_parts - len(prefix)
        return prefix + self.fitting(others, sum(e.part.size for e in prefix))[: max(0, room)]

    def _covers_bottom(self, chosen: Sequence[Lying]) -> bool:
        """Whether all that `since` has passed at these places is among the chosen ones."""
        keys = {each.part.key for each in chosen}
        lo, hi = ranges.span(each.part for each in chosen)
        return not any(
            each.part.t_min <= self.since and each.part.place_lo <= hi and each.part.place_hi >= lo
            for each in self.lying
            if each.part.key not in keys
        )

    # Fold.

    def fold(self) -> None:
        free = self.free()
        bases = [each for each in free if each.part.base]
        passed = [each for each in free if foldable(each.part, self.since) >= 0.5]
        homes = _Homes(each.at for each in bases)
        below = _by_home(bases, homes)
        on_top = _by_home(passed, homes)
        across = on_top.pop(None, [])
        wide = [each for each in across if homes.any_within(each.at)]
        for each in across:
            if not homes.any_within(each.at):  # On no base at all: it becomes one by itself.
                on_top.setdefault(each.at, []).append(each)
        for at in sorted({at for at in (*below, *on_top) if at is not None}):
            self._fold_at(below.get(at, []), on_top.get(at, []), rootless=bool(bases))
        if self.keyed:
            self._cut_wide(wide, bases)

    def _fold_at(self, below: list[Lying], on_top: list[Lying], *, rootless: bool) -> None:
        if not self.keyed and sum(e.part.size for e in below) > self.policy.unit_bytes // 2:
            below = []  # Too many to rewrite: what was inserted since becomes bases beside them.
        below = self.fitting(below)
        bulk = sum(each.bulk for each in below)
        due = sum(each.bulk * foldable(each.part, self.since) for each in on_top)
        rootless = rootless and not self.keyed and not below
        least = self.policy.part_bytes if rootless else self.policy.fold_min
        crossing = self.keyed and (_crossing(below) or len(below) > _SMALL_BASES)
        if not crossing and (not on_top or due < max(least, self.policy.fold_ratio * bulk)):
            return
        lightest = sorted(on_top, key=lambda each: each.weight)
        chosen = [*below, *self.fitting(lightest, sum(e.part.size for e in below))]
        if len(chosen) > len(below) or crossing:
            expected = bulk + sum(each.bulk for each in chosen[len(below) :]) / 2
            self.add("fold", chosen, base=True, halvings=self.halvings(expected))

    def _cut_wide(self, wide: Sequence[Lying], bases: Sequence[Lying]) -> None:
        """Cut what lies across several bases, once it matters to one of them."""
        by_range: dict[Range, list[Lying]] = {}
        for each in wide:
            by_range.setdefault(each.at, []).append(each)
        for base in bases if wide else ():
            across = [
                each
                for depth in range(base.at[0])
                for each in by_range.get(ranges.above(base.at, depth), ())
                if each.part.key not in self.taken and each.weight * 32 >= base.weight
            ]
            due = sum(each.weight * foldable(each.part, self.since) for each in across)
            if across and due >= self.policy.fold_ratio * base.weight:
                heaviest = max(across, key=lambda each: each.weight)
                self.add("cut", [heaviest], base=False, halvings=base.at[0] - heaviest.at[0])

    # All of it.

    def merge_all(self) -> None:
        """Merge range by range; what lies across several bases is cut first."""
        total = sum(each.part.size for each in self.lying)
        if not self.keyed:
            groups = _groups(self.lying, self.policy)
        elif total <= self.policy.unit_bytes:
            groups = [list(self.lying)]
        else:
            groups = self._cut_or_group()
        for group in groups:
            self._merge_group(group, final=len(groups) == 1 or self.keyed)
        for stretch in _inline_stretches(self.batches, self.taken_inline):
            self._flush(stretch)

    def _cut_or_group(self) -> list[list[Lying]]:
        """What lies in the range of one base, or of no base but together; the rest is cut."""
        homes = _Homes(each.at for each in self.lying if each.part.base)
        grouped = _by_home(self.lying, homes, widest=True)
        across = grouped.pop(None, [])
        rest = [each for each in across if not homes.any_within(each.at)]
        for each in across:
            depth = homes.deepest_within(each.at)
            if depth is not None:
                self.add("cut", [each], base=False, halvings=depth - each.at[0])
        alone = _by_home(rest, _Homes(each.at for each in rest), widest=True)
        return [*grouped.values(), *alone.values()]

    def _merge_group(self, group: list[Lying], *, final: bool) -> None:
        """One range down to its base, unless it is there already."""
        chosen = self.fitting(group)
        if not chosen or self._is_merged(chosen, final=final):
            return
        bulk = sum(each.bulk for each in chosen)
        self.add("full", chosen, base=True, halvings=self.halvings(bulk))

    def _is_merged(self, chosen: Sequence[Lying], *, final: bool) -> bool:
        """Whether another full merge would only write the same again."""
        if any(foldable(each.part, self.since) > 0 for each in chosen):
            return False
        counted = [each.part for each in chosen if self._counts(each)]
        deltas = _runs(part for part in counted if not part.base)
        return deltas <= 1 and (not final or _runs(part for part in counted if part.base) <= 1)


class _Homes:
    """Some ranges, and which others lie in them or around them."""

    def __init__(self, homes: Iterable[Range]) -> None:
        self.homes = set(homes)
        self._deepest: dict[Range, int] = {}
        for home in self.homes:
            for depth in range(home[0] + 1):
                around = ranges.above(home, depth)
                self._deepest[around] = max(home[0], self._deepest.get(around, 0))

    def around(self, at: Range, *, widest: bool = False) -> Range | None:
        """The narrowest (or widest) of the ranges that `at` lies in."""
        depths = range(at[0] + 1) if widest else range(at[0], -1, -1)
        return next((r for r in (ranges.above(at, d) for d in depths) if r in self.homes), None)

    def any_within(self, at: Range) -> bool:
        return at in self._deepest

    def deepest_within(self, at: Range) -> int | None:
        return self._deepest.get(at)


def _by_home(
    lying: Iterable[Lying], homes: _Homes, *, widest: bool = False
) -> dict[Range | None, list[Lying]]:
    """Parts by the range they lie in; under `None` those that lie in none."""
    found: dict[Range | None, list[Lying]] = {}
    for each in lying:
        found.setdefault(homes.around(each.at, widest=widest), []).append(each)
    return found


def _parts(batch: Batch, lists: Mapping[str, Sequence[Part]]) -> Iterable[Part]:
    yield from batch.parts
    for chunk in batch.chunks:
        yield from lists.get(chunk.key, ())


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


def _runs(parts: Iterable[Part]) -> int:
    """How many of these lie over one place, at most."""
    return ranges.deepest([(part.place_lo, part.place_hi) for part in parts])[1]


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
