"""A rig brings a program, its store and its journal together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.shop import TEXT, reopened, rig_of, rows, run

from strandline.journal.next import Want
from strandline.pipeline.auditor import Auditor
from strandline.pipeline.replica import Replica
from strandline.testing.lab import Lab, new_store
from strandline.views import options

CSV = """CREATE TABLE orders (id BIGINT, note STRING)
  USING files OPTIONS (path '{}', format 'csv', csv.delimiter ';');"""


def test_a_rig_knows_its_timeline_and_its_collections() -> None:
    lab = Lab()
    with new_store(lab) as store:
        rig = rig_of(store)
        assert rig.timeline == "pipeline.shop"
        assert rig.journal.pipeline == "shop"
        assert {each.name for each in rig.collections} >= {"orders", "large", "totals"}
        assert set(rig.sources) == {"orders"}
    lab.close()


def test_s74_files_are_cut_into_rows_as_the_program_says_that_took_them(tmp_path: Path) -> None:
    """Also by who only looks on: what one program's reader gives is not the other's to decode."""
    (tmp_path / "a.csv").write_text('id;note\n1;"two\nlines"\n')
    lab, old = Lab(), CSV.format(tmp_path)
    new = old.replace("format 'csv', csv.delimiter ';'", "format 'json'")
    with new_store(lab) as store, new_store(lab) as other:
        first = Replica(rig_of(store, old))
        while first.standing.sealed is None:
            first.step()
        first.close()
        looker = Auditor(replace(rig_of(other, new), reopen=reopened))
        looker.step()
        second = Replica(replace(rig_of(store, new), reopen=reopened))
        second.want(Want.PROMOTE)
        while second.wants():
            second.step()
        run(looker)
        assert rows(store, "orders", 0) == [{"id": 1, "note": "two\nlines"}]
        assert store.shard("shop.orders_errors").snapshot().to_arrow().num_rows == 0
        assert looker.audit.verified + looker.audit.inputs == 1
        second.close()
        looker.close()
    lab.close()


def test_a_program_on_record_that_is_refused_by_now_can_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What counts as a secret grows: what is on record from before is finished, and replaced."""
    url = "postgresql://u:hunter2@127.0.0.1:1/shop"
    sink = f"CREATE SINK out FROM large USING postgresql OPTIONS (url '{url}', table 't');"
    lab = Lab()
    with new_store(lab) as store:
        with monkeypatch.context() as older:
            older.setattr(options, "_check_secret", lambda *_: None)
            first = Replica(rig_of(store, TEXT + sink))
        while first.standing.next_t < 3 or first.standing.sealed is None:
            first.step()
        sealed = first.standing.sealed.t
        first.close()
        second = Replica(rig_of(store))
        second.want(Want.PROMOTE)
        while second.wants():
            second.step()
        assert second.standing.committed.settled(sealed)
        assert second.standing.program == rig_of(store).program.hash
        second.close()
    lab.close()
