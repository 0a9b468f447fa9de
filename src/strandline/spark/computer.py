"""Spark's Computer: what a sealed transaction makes of the collections of a program.

    1  take in   all intakes: fetch, decode, digest, put by place            one job
    2  resolve   keyed tables, their tombstones and errors, by range         one job
    3  linear    views that map changes, all together                        one job, or none
    4  full      views that are computed anew                                one job each

What has nothing to do costs no job. Nothing is appended here, and nothing is remembered that a
restart would lose.
"""

from __future__ import annotations

import platform
import zoneinfo
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from strandline.pipeline.compute import Computed
from strandline.spark.intakes import Intakes
from strandline.spark.jobs import Jobs
from strandline.spark.premises import Desks, Premises
from strandline.spark.queries import own_session, view_columns, yours_stays_active
from strandline.spark.tables import Tables
from strandline.spark.view_full import FullViews
from strandline.spark.view_linear import LinearViews

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from strandline.connectors.source import ResolveSecret
    from strandline.handles.store import Store
    from strandline.pipeline.compute import Delta, Work
    from strandline.views.declared import View
    from strandline.views.program import Program


class SparkComputer:
    """Computes transactions of a store's shards. Close it, or use it with `with`."""

    def __init__(
        self,
        store: Store,
        spark: SparkSession,
        resolve_secret: ResolveSecret,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`resolve_secret` runs where rows are fetched: it must be importable there.

        `settings` are Spark's for the session of its own; none of them changes an answer.
        """
        self._spark = own_session(spark, settings or {})
        self._resolve = resolve_secret
        self._desks = Desks(store)
        self.jobs = 0
        """Of the last transaction: queries that Spark was asked, as jobs or in the driver."""
        self.versions = {
            "strandline": version("strandline"),
            "spark": spark.version,
            "pyarrow": pa.__version__,
            "python": platform.python_version(),
            "tzdata": _zone_version(),
        }

    def view_columns(self, program: Program) -> dict[str, pa.Schema]:
        """The columns of each view, as Spark types them."""
        with yours_stays_active():
            return view_columns(self._spark, program)

    def compute(self, work: Work) -> Computed:
        jobs = Jobs(self._spark, "")
        try:
            with yours_stays_active(), Premises(self._desks, work) as premises:
                came = Intakes(premises, jobs, self._resolve).take()
                deltas = Tables(premises, self._spark, jobs).deltas(came)
                _views(premises, jobs, self._spark, deltas)
                return Computed(came.inputs, deltas, came.undecoded, came.fresh)
        finally:
            self.jobs = jobs.count

    def close(self) -> None:
        """Give back what it holds of shards. Repeating it is harmless."""
        self._desks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _views(premises: Premises, jobs: Jobs, spark: SparkSession, deltas: dict[str, Delta]) -> None:
    """Adds what changes in views, in their order: later ones may read earlier ones."""
    work = premises.work
    for is_linear, some in groupby(_touched(work), lambda view: not work.whole(view)):
        views = list(some)
        if is_linear:
            changed = [view for view in views if _reaches(view, views, deltas)]
            if changed:
                deltas |= LinearViews(premises, spark, jobs).deltas(changed, deltas)
            continue
        for view in views:
            deltas |= FullViews(premises, spark, jobs).deltas(view, deltas)


def _touched(work: Work) -> Iterator[View]:
    """The views that a transaction may change."""
    touched = {intake.table for intake in work.intakes}
    for view in work.program.views:
        anew = view.uses_now or view.name in work.builds
        if anew or not touched.isdisjoint(view.reads):
            touched.add(view.name)
            yield view


def _reaches(view: View, views: list[View], deltas: dict[str, Delta]) -> bool:
    """Whether a change reaches a linear view, itself or through another of `views`."""
    inner = {each.name: each for each in views}
    return any(
        name in deltas or (name in inner and _reaches(inner[name], views, deltas))
        for name in view.reads
    )


def _zone_version() -> str:
    """Of the time zone data that Python finds, where it says so."""
    for folder in zoneinfo.TZPATH:
        listing = Path(folder, "tzdata.zi")
        if listing.is_file():
            with listing.open() as text:
                return text.readline().removeprefix("# version ").strip()
    try:
        return version("tzdata")
    except PackageNotFoundError:
        return "unknown"
