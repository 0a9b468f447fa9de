"""The pipelines of a store that are served: the one that runs here, and those on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import NotFoundError
from strandline.model.ids import printable, valid_name

if TYPE_CHECKING:
    from strandline.handles.store import Store
    from strandline.pipeline.engine import NewEngine
    from strandline.pipeline.pipeline import Pipeline


class Serving:
    """Finds pipelines by name; each is opened once."""

    def __init__(
        self, store: Store, here: Pipeline | None = None, engine: NewEngine | None = None
    ) -> None:
        self.store = store
        self._engine = engine
        self._opened = {} if here is None else {here.name: here}
        self._turn = store.env.tasks.condition()

    def names(self) -> list[str]:
        return sorted({*self.store.pipelines(), *self._opened})

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name; `NotFoundError` if there is none."""
        valid_name(name, "pipeline")
        with self._turn:
            known = self._opened.get(name)
            if known is None:
                if name not in self.store.pipelines():
                    raise NotFoundError(f"there is no pipeline {printable(name)}")
                known = self._opened[name] = self.store.pipeline(
                    name, engine=self._engine, confined=True
                )
            return known
