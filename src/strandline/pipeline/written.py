"""The program of a pipeline: the one that a process was given, else the one on record.

What was given stays. What is on record may become another one by a promotion, whoever makes it, so
it is looked for each time, and read again where it is another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import NotFoundError
from strandline.journal.staging import program_text
from strandline.views.parse import parse
from strandline.views.render import render

if TYPE_CHECKING:
    from strandline.handles.store import Store
    from strandline.journal.log import Journal
    from strandline.journal.standing import Standing
    from strandline.views.program import Program


@dataclass(frozen=True, slots=True)
class Written:
    """A program, and how its user wrote it."""

    text: str
    program: Program
    hash: str
    """As it is on record, whatever this version of Strandline reads it as."""


class Writing:
    """Knows the program of one pipeline, for one process."""

    def __init__(
        self, store: Store, journal: Journal, text: str | None, program: Program | None
    ) -> None:
        self._store = store
        self._journal = journal
        self._text = text
        self._program = program
        self._written: Written | None = None

    @property
    def given(self) -> bool:
        return self._text is not None or self._program is not None

    def standing(self) -> Standing:
        """The newest standing; a pipeline that nobody has run yet has none."""
        standing = self._journal.refresh()
        if not standing.epoch and not self.given:
            raise NotFoundError(
                f"there is no pipeline {self._journal.pipeline} in store {self._store.url}"
            )
        return standing

    def now(self) -> Written:
        known = self._written
        if self.given:
            found = known or self._given()
        else:
            standing = self.standing()
            same = known is not None and known.hash == standing.program
            found = known if known and same else self._recorded(standing)
        self._written = found
        return found

    def _given(self) -> Written:
        program = parse(self._text or "") if self._program is None else self._program
        text = render(program) if self._text is None else self._text
        return Written(text, program, program.hash)

    def _recorded(self, standing: Standing) -> Written:
        record = standing.programs[standing.program]
        text = program_text(self._store.env, self._journal.pipeline, record)
        return Written(text, parse(text, recorded=True), standing.program)
