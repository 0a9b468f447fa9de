"""The verb that compares a sink's target with its view."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from strandline.assembly import open_store
from strandline.connectors.files_sink import read_published
from strandline.testing.engines import arrow_engine


def published(shop):
    shop.publish()
    assert shop.run("--until-idle").code == 0
    return list(read_published(shop.target))


def test_a_target_that_is_as_it_should_be(shop):
    published(shop)
    told = shop.ask("verify-sink", shop.lake, "out", "--json").json()
    assert (told["pipeline"], told["sink"], told["time"], told["equal"]) == ("shop", "out", 3, True)
    assert told["target"] == told["view"]
    assert told["target"]["rows"] > 0
    said = shop.ask("verify-sink", shop.lake, "shop", "out")
    assert said.code == 0
    assert f"sink out holds what large held as of 3: {told['view']['rows']} rows" in said.out


def test_what_differs_is_told_with_digests_and_rows(shop):
    path = Path(published(shop)[0].files[0])
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    lost = table.slice(0, 1).to_pylist()[0]
    said = shop.ask("verify-sink", shop.lake, "out", "--json")
    told = said.json()
    assert (said.code, told["equal"]) == (1, False)
    assert told["view"]["rows"] - told["target"]["rows"] == 1
    assert told["view"]["digest"] != told["target"]["digest"]
    assert told["differences"] == [
        {"more": -1, "row": {"id": lost["id"], "amount": lost["amount"]}}
    ]
    shown = shop.ask("verify-sink", shop.lake, "out")
    assert shown.code == 1
    for words in ("does not hold what large holds", told["view"]["digest"], "-1", str(lost["id"])):
        assert words in shown.out


def test_a_file_that_is_missing_is_named(shop):
    path = Path(published(shop)[1].files[0])
    path.unlink()
    said = shop.ask("verify-sink", shop.lake, "out")
    assert said.code == 1
    assert f"sink out: {path} of transaction 1 is missing" in said.out


def test_nothing_delivered_is_nothing_wrong(shop):
    shop.publish()
    with open_store(shop.lake) as store:
        pipeline = store.pipeline("shop", Path(shop.file).read_text(), engine=arrow_engine)
        while pipeline.committed.last() is None:
            pipeline.step()
    said = shop.ask("verify-sink", shop.lake, "out")
    assert (said.code, said.out) == (0, "sink out has delivered nothing yet\n")


def test_the_verb_is_written_with_or_without_the_pipeline(shop):
    published(shop)
    assert shop.ask("verify-sink", shop.lake).code == 2
    assert shop.ask("verify-sink", shop.lake, "nope", "out").code == 2
    said = shop.ask("verify-sink", shop.lake, "shop", "nope")
    assert said.code == 2
    assert "no sink 'nope': it has out" in said.err
