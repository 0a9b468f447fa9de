"""What goes into the next transaction, and where the rows of a sealed one are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.position import Range
from strandline.connectors.source import Holding, Initiating, Limits
from strandline.errors import SourceError, SourceGoneError, UsageError
from strandline.journal.handles import Handles
from strandline.journal.log import Lost
from strandline.journal.record import Abort, Begin, Input, Seal
from strandline.journal.staging import stage
from strandline.pipeline.catalog import builds
from strandline.pipeline.compute import Intake, Work
from strandline.pipeline.evolve import evolved
from strandline.pipeline.forgetful import is_forgetful, stage_range, unstage
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.offer import Offered, Wait, closing, handles_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.connectors.push import Staging
    from strandline.handles.write import Writer
    from strandline.journal.handles import Handle
    from strandline.journal.record import StagedRef
    from strandline.journal.sealed import Sealed
    from strandline.journal.standing import Standing
    from strandline.pipeline.rig import Rig

TRANSACTION = "transaction"
"""What explicit transactions bring in comes from the endpoint of this name and the table's."""

IDLE = "idle for too long"
"""Why a handle is aborted that its user did not close."""

NO_WRITERS: Mapping[str, Writer] = {}
"""Of whoever computes and never appends."""


class Planner:
    """What goes into the next transaction, and how what is sealed is read."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._handles = Handles(rig.store.env, rig.journal.pipeline)
        self._since_ms: float | None = None
        self._stagings: dict[str, Staging] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing was offered; rows that wait for `delay_ms` to pass are something."""
        return self._since_ms is None

    def plan(self, standing: Standing) -> float:
        """Seal what a handle's owner asked for, or what the sources offer, if it is due.

        Whose turn it is is on record (`handles_first`). Returns for how many ms there is nothing
        to do.
        """
        if handles_first(standing):
            if self._explicit(standing):
                return 0
            return self._automatic(standing) or 0
        try:
            rest_ms = self._automatic(standing)
        except SourceError:
            # Handles need no source; but that one is in trouble is told all the same.
            self._explicit(standing)
            raise
        return 0 if rest_ms is None or self._explicit(standing) else rest_ms

    def _automatic(self, standing: Standing) -> float | None:
        """Seal what the sources offer; else for how many ms there is nothing to seal of them."""
        rig = self._rig
        offers = self._offers(standing)
        now_ms = rig.store.env.clock.monotonic_ms()
        verdict = closing(offers, self._since_ms, now_ms, rig.settings)
        # A view that is new is there for its readers soon, whether anything comes or not.
        fresh = standing.next_t > 0 and builds(standing, standing.next_t)
        if isinstance(verdict, Wait) and not fresh:
            self._since_ms = verdict.since_ms
            return verdict.for_ms
        self._since_ms = None
        self._secure(offers)
        inputs = self._offered(standing, offers)
        if isinstance(self._seal(standing, inputs), Lost):
            self._unstage(inputs)
        else:
            self._acknowledge()
        return None

    def work(
        self,
        standing: Standing,
        sealed: Sealed,
        shards: Mapping[str, str],
        writers: Mapping[str, Writer] = NO_WRITERS,
    ) -> Work:
        """What is computed for a sealed transaction: the same for everybody, at any time."""
        return Work(
            pipeline=self._rig.journal.pipeline,
            time=sealed.t,
            now_ms=sealed.begin.now_ms,
            program=evolved(self._rig.program, standing.added),
            intakes=tuple(self.intake(each) for each in sealed.reads),
            shards=shards,
            builds=builds(standing, sealed.t),
            writers=writers,
            # Always: what is computed again now may have come before a table got more columns.
            seen={each.name: tuple(each.columns.names) for each in self._rig.program.tables},
        )

    def intake(self, sealed: Input) -> Intake:
        """Where the rows of an input are, for whoever computes."""
        if sealed.taken is None or sealed.staged:
            # A reload that was amended away is none: it must not empty its table.
            replaces = sealed.replace and bool(sealed.staged)
            return Intake(sealed.endpoint, sealed.table, staged=sealed.staged, replace=replaces)
        source = self._rig.sources.get(sealed.endpoint)
        if source is None:
            raise UsageError(
                f"transaction {sealed.t} takes rows from {sealed.endpoint}, which this program "
                "does not have: run the program that it was sealed under"
            )
        splits = tuple(source.splits(Range(dict(sealed.taken))))
        return Intake(sealed.endpoint, sealed.table, splits)

    def lost(self, sealed: Sealed) -> str:
        """The endpoint whose sealed rows can't be read any more, by its own word; else empty."""
        env = self._rig.store.env
        for each in sealed.reads:
            for ref in each.staged:
                if env.patient(lambda key=ref.key: env.blob.get(key)) is None:  # type: ignore[misc]
                    return each.endpoint
            source = self._rig.sources.get(each.endpoint)
            if source is None or each.taken is None or each.staged:
                continue
            try:
                source.check(Range(dict(each.taken)))
            except SourceGoneError:
                return each.endpoint
            except SourceError:
                continue
        return ""

    def _explicit(self, standing: Standing) -> bool:
        """Carry out what the user of one handle said, who asked first; open ones are left alone.

        The standing is older than what the slots say, as it has to be (see `journal.handles`).
        """
        now_ms = self._rig.store.env.patient(self._rig.store.env.consensus.now_ms)
        for handle in sorted(self._handles.all(standing), key=_asked):
            if handle.closed is not None:
                continue
            if handle.id in standing.closed:
                t = standing.closed[handle.id]
                self._handles.settle(handle.id, t, "" if t is not None else self._why_not(handle))
            elif handle.frozen is not None and (reason := self._why_not(handle)):
                self._abort(standing, handle.id, reason)
                return True
            elif handle.frozen is not None:
                self._seal(standing, self._staged(standing, handle), handle.id)
                return True
            elif now_ms - handle.touched_ms > self._rig.settings.handle_ttl_ms:
                self._expire(standing, handle)
                return True
        return False

    def _why_not(self, handle: Handle) -> str:
        """Why a handle that is frozen is aborted; empty if it is committed."""
        if handle.frozen is not None and not handle.frozen.commit:
            return handle.frozen.reason or "its user aborted it"
        return self._unknown(handle)

    def _unknown(self, handle: Handle) -> str:
        """Rows for a table that is not there would be sealed and belong nowhere."""
        known = {each.name for each in self._rig.program.tables}
        names = sorted(handle.tables().keys() - known)
        return f"there is no table {names[0]}" if names else ""

    def _expire(self, standing: Standing, handle: Handle) -> None:
        """Frozen first: its user may have come back this moment, and then nothing happens."""
        if self._handles.expire(handle, IDLE):
            self._abort(standing, handle.id, IDLE)

    def _abort(self, standing: Standing, handle: str, reason: str) -> None:
        if not isinstance(self._rig.journal.propose(standing, [Abort(handle, reason)]), Lost):
            self._handles.settle(handle, None, reason)

    def _staged(self, standing: Standing, handle: Handle) -> list[Input]:
        t, replaced = standing.next_t, handle.replaced()
        return [
            Input(t, f"{TRANSACTION}.{table}", table, None, refs, {}, table in replaced)
            for table, refs in sorted(handle.tables().items())
        ]

    def _offers(self, standing: Standing) -> dict[str, Offered]:
        limits = Limits(self._rig.settings.rows_max, self._rig.settings.bytes_max)
        offers: dict[str, Offered] = {}
        self._stagings.clear()
        for endpoint, source in self._rig.sources.items():
            if standing.endpoints.get(endpoint) != "live":
                continue
            if endpoint in self._rig.desks:
                offers |= self._pushed(standing, endpoint, limits)
                continue
            start = standing.positions.get(endpoint, {})
            taken = source.plan(start, limits)
            if taken is not None:
                begins = not taken.parts.keys() <= start.keys()
                closes = isinstance(source, Initiating) and source.initiates
                offers[endpoint] = Offered(taken, taken.rows, begins=begins, closes=closes)
        return offers

    def _secure(self, offers: Mapping[str, Offered]) -> None:
        """What is sealed has to stay until it is acknowledged, where that is for us to say."""
        for endpoint, offer in sorted(offers.items()):
            source = self._rig.sources[endpoint]
            if isinstance(source, Holding):
                source.secure(offer.taken)

    def _pushed(self, standing: Standing, endpoint: str, limits: Limits) -> dict[str, Offered]:
        """What was pushed here, without what the journal has already."""
        position = standing.positions.get(endpoint, {})
        sealed = standing.producers.get(endpoint, {})
        staging = self._rig.desks[endpoint].staged(position, limits, sealed)
        if staging is None:
            return {}
        self._stagings[endpoint] = staging
        return {endpoint: Offered(staging.taken, staging.taken.rows, staging.rows.nbytes)}

    def _offered(self, standing: Standing, offers: Mapping[str, Offered]) -> list[Input]:
        inputs: list[Input] = []
        try:
            for endpoint, offer in sorted(offers.items()):
                inputs.append(self._input(standing, endpoint, offer))
        except BaseException:
            self._unstage(inputs)
            raise
        return inputs

    def _input(self, standing: Standing, endpoint: str, offer: Offered) -> Input:
        """Rows that may not be there a second time are staged before they are sealed."""
        staging = self._stagings.get(endpoint)
        source, env, name = self._rig.sources[endpoint], self._rig.store.env, standing.pipeline
        refs: tuple[StagedRef, ...] = ()
        producers: dict[str, int] = {}
        if staging is not None:
            payload = packed_rows(pa.Table.from_batches([staging.rows]))
            refs = (stage(env, name, payload, rows=staging.rows.num_rows),)
            producers = staging.producers
        elif is_forgetful(source) and not offer.taken.empty:
            refs = stage_range(env, name, source.splits(offer.taken), self._rig.fetch)
        return Input(standing.next_t, endpoint, endpoint, offer.taken.parts, refs, producers)

    def _unstage(self, inputs: Sequence[Input]) -> None:
        """Another entry came first: no record will ever refer to what was staged for this one."""
        unstage(self._rig.store.env, [ref for each in inputs for ref in each.staged])

    def _acknowledge(self) -> None:
        """The journal has what was pushed: whoever pushed it may know."""
        for endpoint, staging in self._stagings.items():
            self._rig.desks[endpoint].sealed(staging)
        self._stagings.clear()

    def _seal(
        self, standing: Standing, inputs: Sequence[Input], handle: str | None = None
    ) -> Standing | Lost:
        """One entry: all of it is sealed, or somebody else was faster and none of it is."""
        rig = self._rig
        now_ms = standing.not_before(rig.store.env.patient(rig.store.env.consensus.now_ms))
        t, versions = standing.next_t, dict(rig.computer.versions)
        begin = Begin(t, standing.epoch, standing.program, now_ms, versions, handle)
        return rig.journal.propose(standing, [begin, *inputs, Seal(t)])


def _asked(handle: Handle) -> tuple[bool, int, str]:
    """Who asked first comes first, whatever slot it has; those that nobody closed come last."""
    frozen = handle.frozen
    return frozen is None, handle.touched_ms if frozen is None else frozen.at_ms, handle.id
