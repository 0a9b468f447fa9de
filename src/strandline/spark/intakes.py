"""Takes in what a transaction brings: one job for all of its intakes, two if there are errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from strandline.connectors.shard import NAME
from strandline.model.digest import Digest
from strandline.pipeline.catalog import errors_of
from strandline.pipeline.evolve import joined
from strandline.pipeline.meaning import Undecoded, reading_options
from strandline.spark import slices
from strandline.spark.intake import Order, Piece, decode_took, encode_order, take_in
from strandline.spark.parcels import wrap
from strandline.spark.scanplan import encode_work
from strandline.spark.schedule import pack, task_count
from strandline.spark.upstream import listed

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from strandline.connectors.source import ResolveSecret
    from strandline.pipeline.compute import Intake
    from strandline.spark.instruction import Answer
    from strandline.spark.intake import Took
    from strandline.spark.jobs import Jobs
    from strandline.spark.premises import Premises
    from strandline.views.declared import Table


@dataclass(slots=True)
class Came:
    """What came in, and where it is now."""

    inputs: dict[str, Digest] = field(default_factory=dict)
    """By endpoint."""
    rows: dict[str, list[Answer]] = field(default_factory=dict)
    """By table: good rows to be resolved, or updates if it has no key."""
    errors: dict[str, list[Answer]] = field(default_factory=dict)
    """By table: what happens to its errors; only where there are any."""
    truncations: dict[str, list[pa.Table]] = field(default_factory=dict)
    """By table: the order columns of truncations that came."""
    undecoded: dict[str, Undecoded] = field(default_factory=dict)
    """By table: what could not be decoded."""
    fresh: dict[str, dict[str, str]] = field(default_factory=dict)
    """By table: fields without a column, where it adds them."""


class Intakes:
    """The intakes of one work."""

    def __init__(self, premises: Premises, jobs: Jobs, resolve: ResolveSecret) -> None:
        self._premises = premises
        self._jobs = jobs
        self._resolve = resolve
        self._work = premises.work
        self._tables = {table.name: table for table in self._work.program.tables}

    def take(self) -> Came:
        came = Came({intake.endpoint: Digest.ZERO for intake in self._work.intakes})
        orders = [
            order
            for number, intake in enumerate(self._work.intakes)
            for order in self._orders(number, intake)
        ]
        for took in self._run(orders):
            intake = self._work.intakes[took.intake]
            came.inputs[intake.endpoint] += Digest.unpack(took.digest)
            came.rows.setdefault(intake.table, []).append(took.rows)
            came.errors.setdefault(intake.table, []).append(took.errors)
            self._note(came, intake.table, took)
        self._take_ids(came, orders, came.undecoded.keys())
        return came

    @staticmethod
    def _note(came: Came, table: str, took: Took) -> None:
        """What came beside rows."""
        found = [slices.from_stream(each, "truncations") for each in took.truncations]
        came.truncations.setdefault(table, []).extend(found)
        if took.bad is not None:
            wrong = Undecoded(*took.bad)
            came.undecoded[table] = wrong.with_others(came.undecoded.get(table))
        if took.fresh:
            came.fresh[table] = joined([came.fresh.get(table, {}), took.fresh])

    def _take_ids(self, came: Came, orders: list[Order], bad: Collection[str]) -> None:
        """A second look at tables whose first errors came: which of them were healed at once?"""
        again = [
            replace(order, takes_rows=False, takes_ids=True)
            for order in orders
            if self._work.intakes[order.intake].table in bad and not order.takes_ids
        ]
        for took in self._run(again):
            came.errors.setdefault(self._work.intakes[took.intake].table, []).append(took.errors)

    def _run(self, orders: list[Order]) -> list[Took]:
        if not orders:
            return []
        first = self._work.intakes[orders[0].intake].table
        stand = self._premises.stand(first)
        parcels = wrap([encode_order(each) for each in orders], stand.bench.put_object)
        if parcels.key:
            self._premises.discard_later(first, [parcels.key])
        told = (stand.site, msgspec.msgpack.encode(parcels), self._resolve)
        answers = self._jobs.collect(self._jobs.numbers(len(orders)), take_in, *told)
        tooks = [decode_took(each) for each in answers]
        for took in tooks:
            table = self._work.intakes[took.intake].table
            staged = {table: took.rows.staged, errors_of(table): took.errors.staged}
            for collection, objects in staged.items():
                self._premises.discard_later(collection, [each.key for each in objects])
        return tooks

    def _orders(self, number: int, intake: Intake) -> list[Order]:
        """Not more tasks than make sense, each with about as much to read."""
        pieces, weights = [], []
        for each in intake.splits:
            if each.connector == NAME:
                works = listed(self._premises, each)
                pieces += [Piece(split=each, work=encode_work(work)) for work in works]
                weights += [work.size for work in works]
            else:
                pieces.append(Piece(split=each))
                weights.append(each.stop - each.start)
        pieces += [Piece(staged=each) for each in intake.staged]
        weights += [each.size for each in intake.staged]
        packed = pack(weights, task_count(len(pieces), self._jobs.slots))
        if not packed:
            return []
        whole = self._order(number, self._tables[intake.table])
        return [replace(whole, pieces=tuple(pieces[at] for at in each)) for each in packed]

    def _order(self, number: int, table: Table) -> Order:
        errors = errors_of(table.name)
        return Order(
            number,
            self._work.pipeline,
            self._work.time,
            (),
            table.columns.serialize().to_pybytes(),
            table.key,
            reading_options(table),
            self._premises.stand(table.name).site,
            self._premises.stand(errors).site,
            takes_ids=not self._premises.is_empty(errors),
            declared=self._work.seen.get(table.name, ()),
        )
