"""What a transaction takes is within its limits, and what is sealed can be found again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.shop import rig_of, run

from strandline.errors import UsageError
from strandline.journal.record import Endpoint, Input
from strandline.pipeline.planner import Planner
from strandline.pipeline.replica import Replica
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def test_a_transaction_takes_no_more_than_its_limit(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store, rows_max=7))
        while replica.standing.sealed is None:
            replica.step()
        assert replica.standing.sealed.inputs[0].taken == {"0": (0, 7)}
        replica.close()


def test_a_young_offer_waits_for_its_delay(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, rows_max=1_000, delay_ms=60_000)
        replica = Replica(rig)
        replica.step()
        assert Planner(rig).plan(replica.standing) > 0
        assert rig.journal.refresh().sealed is None
        replica.close()


def test_a_paused_endpoint_offers_nothing(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        replica = Replica(rig)
        replica.step()
        rig.journal.propose(replica.standing, [Endpoint("orders", "paused")])
        run(replica)
        assert replica.standing.next_t == 0
        rig.journal.propose(replica.standing, [Endpoint("orders", "resumed")])
        run(replica)
        assert replica.standing.next_t == 10
        replica.close()


def test_where_partitions_begin_is_sealed_before_the_first_row(lab: Lab) -> None:
    """S87: what comes after is not missed, though nobody has taken anything yet."""
    topic = ScriptedTopic(["0"])
    topic.send("0", b"1", b"{}")

    class AtItsEnd(ScriptedSource):
        def plan(self, start, limits):
            found = super().plan(start or {"0": 1}, limits)
            return found or (None if start else type(self)._begin())

        @staticmethod
        def _begin():
            from strandline.connectors.position import Range

            return Range({"0": (1, 1)})

    with new_store(lab) as store:
        rig = replace(rig_of(store), sources={"orders": AtItsEnd(topic)})
        replica = Replica(rig)
        while replica.standing.sealed is None:
            replica.step()
        assert replica.standing.pending == {"orders": {"0": 1}}
        replica.close()


def test_an_input_of_an_endpoint_that_is_not_here_is_refused_by_name(lab: Lab) -> None:
    with new_store(lab) as store:
        planner = Planner(rig_of(store))
        with pytest.raises(UsageError, match="takes rows from elsewhere"):
            planner.intake(Input(3, "elsewhere", "orders", {"0": (0, 1)}, (), {}))


def test_a_source_may_say_where_a_transaction_ends(lab: Lab, tmp_path: Path) -> None:
    """A file per transaction: no two in one, none cut, none waits for the delay."""
    for name, count in (("a", 1), ("b", 25), ("c", 2)):
        lines = [f'{{"id": {at}}}\n' for at in range(count)]
        (tmp_path / f"{name}.json").write_text("".join(lines))
    text = f"""CREATE TABLE t (id BIGINT) USING files
        OPTIONS (path '{tmp_path}', format 'json', transaction 'file');"""
    with new_store(lab) as store:
        replica = Replica(rig_of(store, text, rows_max=1_000_000, delay_ms=600_000))
        run(replica)
        taken = [
            {path.partition("@")[0] for path in record.taken}
            for _, record in replica._journal.records()
            if isinstance(record, Input)
        ]
        assert taken == [{"a.json"}, {"b.json"}, {"c.json"}]
        counts = [store.shard("shop.t").snapshot(as_of=at).to_arrow().num_rows for at in range(3)]
        assert counts == [1, 26, 28]
        replica.close()
