"""S57, S61, S67-S70, S72: the same answer from whoever computes it, and none that is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.shop import TEXT, rig_of, rows, run

from strandline.connectors.files_sink import read_published
from strandline.connectors.registry import fetch
from strandline.connectors.source import Split
from strandline.errors import ReplayDivergedError, UsageError
from strandline.handles.store import Store
from strandline.journal.record import Commit
from strandline.model.digest import Digest
from strandline.pipeline.compute import Computed, Work
from strandline.pipeline.meaning import input_digest
from strandline.pipeline.planner import Planner
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replay import recorded, replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig
from strandline.pipeline.runner import Runner
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


@pytest.fixture
def store(lab: Lab) -> Iterator[Store]:
    """With a history of ten transactions."""
    with new_store(lab) as opened:
        replica = Replica(rig_of(opened))
        run(replica)
        replica.close()
        yield opened


def _again(rig: Rig) -> int:
    last = rig.journal.refresh().next_t
    return len(list(replay(rig, Planner(rig), 0, last)))


def _pieces(workers: int, seed: int) -> Callable[[Split], Iterator[pa.RecordBatch]]:
    """A split read in pieces, by several workers, that answer in any order."""

    def read(split: Split) -> list[pa.RecordBatch]:
        chance = random.Random(seed)
        whole = pa.Table.from_batches(list(fetch(split, str))).combine_chunks()
        places = list(range(whole.num_rows))
        chance.shuffle(places)
        parts = [places[worker::workers] for worker in range(workers)]
        return [batch for part in parts for batch in whole.take(part).to_batches()]

    return lambda split: iter(read(split))


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_s57_any_number_of_workers_gives_the_same_digests(
    store: Store, workers: int, seed: int
) -> None:
    computer = ArrowComputer(store, fetch=_pieces(workers, seed))
    assert _again(replace(rig_of(store), computer=computer)) == 10


@pytest.mark.parametrize(("first", "then"), [(1, 4), (4, 1)])
def test_s61_another_number_of_jobs_shifts_no_input(lab: Lab, first: int, then: int) -> None:
    with new_store(lab) as store:
        one = ArrowComputer(store, fetch=_pieces(first, 1))
        other = ArrowComputer(store, fetch=_pieces(then, 2))
        run(Replica(replace(rig_of(store), computer=one)))
        assert _again(replace(rig_of(store), computer=other)) == 10


def test_s67_a_transaction_has_one_number_everywhere(lab: Lab) -> None:
    """In the journal, in status, and in the shards; a restart does not count anew."""
    with new_store(lab) as store:
        for upto in (3, 6, 10):
            rig = rig_of(store)
            status = Runner(Replica(rig), store.env, rig.settings).run(
                transactions=upto - rig.journal.refresh().next_t
            )
            assert status.committed.time == rig.journal.refresh().next_t == upto
        on_record = [each.commit.t for each in recorded(rig.journal, 0, 10)]
        moments = store.machine("shop.orders").refresh().moments
        assert on_record == [each.time for each in moments] == list(range(10))


class Altered(ArrowComputer):
    """Says something else of its endpoints."""

    def __init__(
        self, store: Store, alter: Callable[[Mapping[str, Digest]], Mapping[str, Digest]]
    ) -> None:
        super().__init__(store)
        self._alter = alter

    def compute(self, work: Work) -> Computed:
        found = super().compute(work)
        return Computed(self._alter(found.inputs), found.deltas)


@pytest.mark.parametrize(
    ("alter", "said"),
    [
        (lambda found: {}, "endpoint orders is recorded .* but was not computed"),
        (
            lambda found: {"ordres": found["orders"]},
            "endpoint orders is recorded .* endpoint ordres was computed",
        ),
        (lambda found: {**found, "c": Digest.ZERO}, "endpoint c was computed .* is not recorded"),
        (lambda found: {"orders": Digest.ZERO}, "endpoint orders is .* on record"),
    ],
)
def test_s68_endpoints_that_differ_are_named(store: Store, alter, said: str) -> None:
    with pytest.raises(ReplayDivergedError, match=said):
        _again(replace(rig_of(store), computer=Altered(store, alter)))


def _batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(values, pa.int64())})


def test_s69_a_pair_of_equal_rows_is_not_any_other_pair() -> None:
    """Counts are equal and equal rows cancel in an XOR; in a sum they do not."""
    assert input_digest(_batch(5, 5)) != input_digest(_batch(7, 7))
    assert input_digest(_batch(5, 5, 7)) != input_digest(_batch(5, 7, 7))
    assert input_digest(_batch(5, 7)) != input_digest(_batch(7, 8))


def test_s69_the_order_within_a_transaction_is_allowed_to_differ() -> None:
    assert input_digest(_batch(5, 7, 5)) == input_digest(_batch(7, 5, 5))
    assert input_digest(_batch(5)) + input_digest(_batch(7)) == input_digest(_batch(7, 5))


def test_s69_rows_that_change_places_between_transactions_are_seen(lab: Lab) -> None:
    """The sum of a whole history is the same; each transaction's is not."""
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        run(replica)
        rig = rig_of(store)
        found = [dict(each.commit.inputs) for each in recorded(rig.journal, 0, 10)]
        assert len({each["orders"] for each in found}) == 10
        swapped = replace(rig, computer=_Swapping(store))
        with pytest.raises(ReplayDivergedError, match=r"transaction 0 .* endpoint orders"):
            _again(swapped)
        replica.close()


class _Swapping(ArrowComputer):
    """Reads the rows of transaction 1 in 0, and those of 0 in 1."""

    def compute(self, work: Work) -> Computed:
        other = {0: 10, 1: -10}.get(work.time, 0)
        intakes = tuple(
            replace(
                each,
                splits=tuple(
                    replace_split(split, split.start + other, split.stop + other)
                    for split in each.splits
                ),
            )
            for each in work.intakes
        )
        return super().compute(replace(work, intakes=intakes))


def replace_split(split: Split, start: int, stop: int) -> Split:
    return Split(split.connector, split.options, split.partition, start, stop)


def test_s70_a_transaction_without_a_change_touches_no_shard(lab: Lab) -> None:
    with new_store(lab) as store:
        text = TEXT.replace("WHERE amount > 10", "WHERE amount > 1000000000")
        rig = rig_of(store, text)
        replica = Replica(rig)
        run(replica)
        large = replica.standing.bindings["large"].shard
        batches = store.machine(large).refresh().batches
        assert batches == ()
        commits = [record for _, record in rig.journal.records() if isinstance(record, Commit)]
        assert all("large" not in each.deltas for each in commits)
        with store.shard(large).snapshot(as_of=9) as snapshot:
            assert snapshot.to_arrow().num_rows == 0
        assert [each.t for each in commits] == list(range(10))
        replica.close()


def test_s70_a_transaction_without_output_opens_no_output_and_takes_no_slot(
    lab: Lab, tmp_path: Path
) -> None:
    text = TEXT.replace("WHERE amount > 10", "WHERE id = 3")
    text += f"CREATE SINK out FROM large USING files OPTIONS (path '{tmp_path}');"
    with new_store(lab) as store:
        rig = rig_of(store, text)
        Runner(Replica(rig), store.env, rig.settings, Publishing(rig)).run(until_idle=True)
        commits = [record for _, record in rig.journal.records() if isinstance(record, Commit)]
        changed = [each.t for each in commits if "large" in each.deltas]
        assert 0 < len(changed) < len(commits), "some change it, and some do not"
        assert [each.t for each in read_published(tmp_path)] == changed
        (home,) = [each for each in tmp_path.iterdir() if each.is_dir()]
        opened = sorted(int(each.name.partition("-")[0]) for each in home.glob("0*-*"))
        assert opened == changed, "nothing was opened for the others, not even to be given up"


def test_s72_any_host_finishes_what_is_sealed_with_equal_numbers_and_digests(lab: Lab) -> None:
    with new_store(Lab()) as alone:
        run(Replica(rig_of(alone)))
        expected = [dict(each.commit.deltas) for each in recorded(rig_of(alone).journal, 0, 10)]
    stores = [new_store(lab) for _ in range(3)]
    hosts = [Replica(rig_of(each)) for each in stores]
    turn = 0
    while hosts[turn % 3].step() == 0 or hosts[(turn + 1) % 3].step() == 0:
        # Whoever sealed one never finishes it: the next host does.
        turn += 1
    found = [dict(each.commit.deltas) for each in recorded(rig_of(stores[0]).journal, 0, 10)]
    assert found == expected
    for host, store in zip(hosts, stores, strict=True):
        host.close()
        store.close()


def test_s72_nothing_comes_into_a_table_outside_of_a_transaction(store: Store) -> None:
    shard = store.shard("shop.orders")
    before = rows(store, "orders", 9)
    row = pa.table({"id": [1], "customer": [1], "amount": [1]}, schema=shard.schema)
    with shard.writer() as writer, pytest.raises(UsageError, match="attached to timeline"):
        writer.append(row)
    assert rows(store, "orders", 9) == before
    assert np.all([row["id"] >= 0 for row in before])
