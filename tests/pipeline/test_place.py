"""A lineage is one history that a target can go on with."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.pipeline.shop import TEXT, rig_of, run, topic_of, topic_rig

from strandline.connectors.sink import Address
from strandline.errors import SinkStoppedError, StoreError
from strandline.journal.next import Want
from strandline.pipeline.place import Target, history_word, lineage_of, placed
from strandline.pipeline.replica import Replica
from strandline.testing.lab import Lab, new_store

FILES = {"connector": "files", "path": "/x"}


def target(source: str) -> Target:
    return Target("out", source, FILES, open=None)  # type: ignore[arg-type]  # nobody opens it


def test_another_shard_or_another_target_is_another_lineage() -> None:
    base = lineage_of("s1", FILES)
    assert lineage_of("s1", dict(reversed(FILES.items()))) == base
    assert len({base, lineage_of("s2", FILES), lineage_of("s1", {**FILES, "path": "/y"})}) == 3


def test_a_view_that_is_rolled_back_is_another_lineage_of_the_same_shard() -> None:
    lab = Lab()
    found = []
    with new_store(lab) as store:
        for text in (TEXT, TEXT.replace("* 2", "* 3"), TEXT):
            rig = rig_of(store, text)
            replica = Replica(rig)
            if found:
                replica.want(Want.PROMOTE)
            run(replica)
            found.append([placed(store, replica.standing, target(n)) for n in ("large", "orders")])
            replica.close()
    lab.close()
    views, tables = zip(*found, strict=True)
    assert views[0].shard.name == views[2].shard.name != views[1].shard.name
    assert len({each.lineage for each in views}) == 3
    assert len({each.lineage for each in tables}) == 1, "it was never given up"


def test_a_table_that_declares_another_column_is_another_lineage() -> None:
    """Rows that were delivered without it have it, too, from then on."""
    assert history_word("s1", 0, None) == "s1@0", "views are what they were"
    words = [history_word("s1", 0, each) for each in (None, ("a",), ("a", "b"), ("b", "a"))]
    assert len(set(words)) == 4
    lab = Lab()
    with new_store(lab) as store:
        rig = topic_rig(store, topic_of({"id": 1, "n": 2}))
        replica = Replica(rig)
        run(replica)
        declared = [("id", "n"), ("id", "n", "note")]
        found = [
            placed(store, replica.standing, replace(target("t"), columns=each)) for each in declared
        ]
        replica.close()
    lab.close()
    assert None not in found
    narrow, wide = found
    assert narrow.shard.id == wide.shard.id
    assert narrow.hold == wide.hold
    assert narrow.lineage != wide.lineage


def test_before_a_program_is_promoted_there_is_no_place() -> None:
    lab = Lab()
    with new_store(lab) as store:
        rig = rig_of(store)
        assert placed(store, rig.journal.refresh(), target("orders")) is None
    lab.close()


def test_a_column_that_is_declared_and_not_added_yet_is_waited_for() -> None:
    """A program is on record a moment before its columns are there."""
    wider = replace(target("orders"), columns=("id", "note"))
    address = Address("l0", "shop", "out", "first")
    now = pa.schema([("id", pa.int64())])
    with pytest.raises(StoreError, match="orders does not have 'note' yet") as told:
        wider.delivered(address, now)
    assert not isinstance(told.value, SinkStoppedError)
    assert wider.delivered(address, now.append(pa.field("note", pa.string()))).columns.names == [
        "id",
        "note",
    ]


def test_a_view_has_an_error_collection_to_wait_for_and_a_table_has_none() -> None:
    lab = Lab()
    with new_store(lab) as store:
        rig = rig_of(store)
        replica = Replica(rig)
        run(replica)
        table = placed(store, rig.journal.standing, target("orders"))
        view = placed(store, rig.journal.standing, target("large"))
        assert table is not None
        assert view is not None
        assert (table.shard.name, table.errors, table.hold) == (
            "shop.orders",
            None,
            "sink.shop.out",
        )
        assert view.errors is not None
        assert view.errors.name == f"{view.shard.name}_errors"
        assert table.lineage != view.lineage
        replica.close()
    lab.close()


def test_a_store_that_was_cleared_has_other_lineages() -> None:
    found = set()
    for _ in range(2):
        lab = Lab()
        with new_store(lab) as store:
            rig = rig_of(store)
            replica = Replica(rig)
            run(replica)
            place = placed(store, rig.journal.standing, target("orders"))
            assert place is not None
            found.add(place.lineage)
            replica.close()
        lab.close()
    assert len(found) == 2
