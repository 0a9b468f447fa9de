"""What verbs share: the engine of one call."""

from __future__ import annotations

from types import SimpleNamespace

from strandline.cli.options import Run, engine_of
from strandline.testing.engines import arrow_engine


def test_a_call_has_the_engine_that_it_was_given():
    assert engine_of(SimpleNamespace(obj=Run(engine=arrow_engine))) is arrow_engine
    assert engine_of(SimpleNamespace(obj=Run())) is None
    assert engine_of(SimpleNamespace(obj=None)) is None
