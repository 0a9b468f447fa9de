"""What goes into the next transaction, and where the rows of a sealed one are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.connectors.position import Range
from strandline.connectors.source import Limits
from strandline.errors import UsageError
from strandline.journal.record import Begin, Input, Seal
from strandline.pipeline.compute import Intake
from strandline.pipeline.offer import Offered, Wait, closing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.journal.standing import Standing
    from strandline.pipeline.rig import Rig


class Planner:
    """What goes into the next transaction, and how what is sealed is read."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._since_ms: float | None = None

    def plan(self, standing: Standing) -> float:
        """Seal what the sources offer, if it is due; returns how long to rest."""
        rig = self._rig
        offers = self._offers(standing)
        now_ms = rig.store.env.clock.monotonic_ms()
        verdict = closing(offers, self._since_ms, now_ms, rig.settings)
        if isinstance(verdict, Wait):
            self._since_ms = verdict.since_ms
            return verdict.for_ms
        self._since_ms = None
        self._seal(standing, offers)
        return 0

    def intake(self, sealed: Input) -> Intake:
        """Where the rows of an input are, for whoever computes."""
        if sealed.taken is None:
            return Intake(sealed.endpoint, sealed.table, staged=sealed.staged)
        source = self._rig.sources.get(sealed.endpoint)
        if source is None:
            raise UsageError(
                f"transaction {sealed.t} takes rows from {sealed.endpoint}, which this program "
                "does not have: run the program that it was sealed under"
            )
        splits = tuple(source.splits(Range(dict(sealed.taken))))
        return Intake(sealed.endpoint, sealed.table, splits)

    def _offers(self, standing: Standing) -> dict[str, Offered]:
        limits = Limits(self._rig.settings.rows_max, self._rig.settings.bytes_max)
        offers = {}
        for endpoint, source in self._rig.sources.items():
            if standing.endpoints.get(endpoint) != "live":
                continue
            taken = source.plan(standing.positions.get(endpoint, {}), limits)
            if taken is not None:
                offers[endpoint] = Offered(taken, taken.rows)
        return offers

    def _seal(self, standing: Standing, offers: Mapping[str, Offered]) -> None:
        rig = self._rig
        now_ms = standing.not_before(rig.store.env.patient(rig.store.env.consensus.now_ms))
        t = standing.next_t
        begin = Begin(
            t, standing.epoch, standing.program, now_ms, dict(rig.computer.versions), None
        )
        inputs = [
            Input(t, endpoint, endpoint, offer.taken.parts, (), {})
            for endpoint, offer in sorted(offers.items())
        ]
        rig.journal.propose(standing, [begin, *inputs, Seal(t)])
