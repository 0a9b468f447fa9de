"""Pipelines are found by name, each opened once."""

from __future__ import annotations

import pytest

import strandline
from strandline.console.serving import Serving
from strandline.errors import NameRefusedError, NotFoundError
from strandline.testing.engines import arrow_engine

TEXT = "CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING http;"


def test_the_one_that_runs_here_and_those_on_record_are_found():
    with strandline.open("memory://") as store:
        with store.pipeline("other", TEXT, engine=arrow_engine) as other:
            other.run(until_idle=True)
        here = store.pipeline("here", TEXT, engine=arrow_engine)
        serving = Serving(store, here, arrow_engine)
        assert serving.names() == ["here", "other"]
        assert serving.pipeline("here") is here
        assert serving.pipeline("other") is serving.pipeline("other")
        reach = serving.pipeline("other")._means.ports(store).reach
        assert reach.only, "X12: what is served reaches only hosts that are listed"
        with pytest.raises(NotFoundError, match="nope"):
            serving.pipeline("nope")
        with pytest.raises(NameRefusedError):
            serving.pipeline("../x")
