"""S59, S62, S64-S66, S73, S75, S76, S86: what holds between transactions, and around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.pipeline.shop import ROWS, TEXT, rig_of, rows, run

from strandline.connectors.raw import raw_batch
from strandline.errors import CorruptionError, InvariantError, SourceGoneError
from strandline.handles.store import Store
from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.journal.next import Want
from strandline.journal.record import Begin, Checkpoint, Seal
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import rigged
from strandline.pipeline.runner import Runner
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.states import Event, State
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic
from strandline.views.parse import parse


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def _sealed(replica: Replica, t: int = 0) -> Replica:
    while replica.standing.sealed is None or replica.standing.sealed.t < t:
        replica.step()
    return replica


def _payload(*ids: int) -> bytes:
    values = [b'{"id": %d, "customer": 1, "amount": 100}' % each for each in ids]
    return packed_rows(pa.Table.from_batches([raw_batch(values, "0", range(len(values)))]))


def _asked(store: Store, replica: Replica) -> tuple[Handles, str]:
    handles = Handles(store.env, "shop")
    handle = handles.open(lambda: replica.standing)
    handles.insert(handle, 0, "orders", _payload(901), 1)
    handles.freeze(handle, commit=True)
    return handles, handle


def test_s59_a_sealed_input_that_is_damaged_is_reported_and_not_skipped(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        run(replica)
        _asked(store, replica)
        _sealed(replica, 10)
        ref = replica.standing.sealed.inputs[0].staged[0]
        whole = lab.blob.get(ref.key)
        lab.blob.put(ref.key, whole[:-1] + b"x")
        with pytest.raises(CorruptionError, match=ref.key):
            replica.step()
        assert not replica.standing.committed.settled(10)
        lab.blob.put(ref.key, whole)
        run(replica)
        assert 901 in {row["id"] for row in rows(store, "orders", 10)}
        replica.close()


def test_s59_what_comes_after_a_crash_is_never_merged_into_what_was_sealed(lab: Lab) -> None:
    with new_store(lab) as store:
        first = _sealed(Replica(rig_of(store)))
        handles = Handles(store.env, "shop")
        handle = handles.open(lambda: first.standing)
        handles.insert(handle, 0, "orders", _payload(901), 1)
        sealed = first.standing.sealed
        first.close()
        second = Replica(rig_of(store))
        second.step()
        assert second.standing.committed.settled(sealed.t)
        assert 901 not in {row["id"] for row in rows(store, "orders", sealed.t)}
        run(second)
        assert handles.look(handle).closed is None
        assert handle not in second.standing.closed
        second.close()


def test_s62_while_a_time_is_sealed_nothing_is_sealed_or_appended_after_it(lab: Lab) -> None:
    with new_store(lab) as store, new_store(lab) as other:
        replica = _sealed(Replica(rig_of(store)), 2)
        journal, standing = Journal(other.env, "shop"), replica.standing
        journal.refresh()
        begin = Begin(3, standing.epoch, standing.program, standing.instant_ms, {}, None)
        with pytest.raises(InvariantError, match="2 is sealed"):
            journal.propose(standing, [begin, Seal(3)])
        handles, handle = _asked(other, replica)
        handles.insert(handles.open(lambda: standing), 0, "orders", _payload(902), 1)
        replica.step()
        assert replica.standing.next_t == 3, "what was asked for meanwhile did not go into it"
        for bound in replica.standing.bindings.values():
            assert (store.machine(bound.shard).refresh().upper.time or 0) <= 3
        replica.step()
        assert replica.standing.sealed.begin.handle == handle
        replica.close()


def test_s65_a_checkpoint_that_is_asked_for_in_recovery_has_the_positions_of_what_it_finished(
    lab: Lab,
) -> None:
    with new_store(lab) as store:
        _sealed(Replica(rig_of(store)), 2).close()
        second = Replica(rig_of(store))
        second.want(Want.CHECKPOINT)
        second.step()
        assert second.wants(), "what is sealed comes first"
        second.step()
        assert not second.wants()
        assert second.standing.checkpoints[-1].t == 2
        assert second.standing.acknowledged["orders"] == {"0": 30}
        third = Replica(rig_of(store))
        run(third)
        assert third.standing.next_t == 10
        second.close()
        third.close()


def test_s64_open_handles_do_not_keep_a_checkpoint_waiting(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        run(replica)
        handles = Handles(store.env, "shop")
        handles.insert(handles.open(lambda: replica.standing), 0, "orders", _payload(901), 1)
        replica.want(Want.CHECKPOINT)
        replica.step()
        assert replica.standing.checkpoints[-1].t == 9
        replica.close()


def test_s66_numbers_go_on_over_a_checkpoint_and_ten_restarts(lab: Lab) -> None:
    with new_store(lab) as store:
        seen = []
        for life in range(10):
            replica = Replica(rig_of(store))
            if life == 4:
                replica.want(Want.CHECKPOINT)
            before = replica.standing.next_t
            handles = Handles(store.env, "shop")
            if life:
                handle = handles.open(Journal(store.env, "shop").refresh)
                handles.freeze(handle, commit=False)
            while replica.standing.next_t <= max(life, before) or replica.standing.sealed:
                replica.step()
            seen.append(replica.standing.committed.last())
            replica.close()
        assert seen == list(range(10)), "aborted handles consume no number"


def test_s73_a_clean_stop_removes_no_endpoint_and_a_restart_loses_nothing(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        runner = Runner(Replica(rig), store.env, rig.settings)
        assert runner.run(transactions=3).state is State.STOPPED
        assert rig.journal.refresh().endpoints == {"orders": "live"}
        again = rig_of(store)
        Runner(Replica(again), store.env, again.settings).run(until_idle=True)
        standing = again.journal.refresh()
        assert standing.endpoints == {"orders": "live"}
        assert (standing.next_t, standing.positions) == (10, {"orders": {"0": 100}})


@pytest.mark.parametrize(
    "cycles", [20, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_s75_what_is_committed_is_visible_when_status_first_says_running(
    lab: Lab, cycles: int
) -> None:
    """Its peers die with a transaction sealed: `running` is not said before it can be read."""
    text = TEXT.replace(f"rows '{ROWS}'", f"rows '{20 * ROWS * cycles}'")
    with new_store(lab) as store:
        seen, t = {}, -1
        for cycle in range(cycles):
            t += 1 + cycle % 3  # It dies in the first transaction of its life, or in a later one.
            _sealed(Replica(rig_of(store, text)), t).close()
            replica = Replica(rig := rig_of(store, text))
            seen[t] = _Observed(replica, store.env, rig.settings).look(store, t)
            replica.close()
    with closing(Lab()) as other, new_store(other) as undisturbed:
        replica = Replica(rig_of(undisturbed, text))
        while replica.standing.next_t <= t:
            replica.step()
        assert seen == {each: rows(undisturbed, "totals", each) for each in seen}
        replica.close()


class _Observed(Runner):
    """Looks at the very moment at which `running` is said, which is in the middle of a step."""

    def look(self, store: Store, t: int) -> list[dict[str, object]]:
        """What a view holds at `t` when it is said for the first time that it runs."""
        self._store, self._t, self._seen = store, t, None
        states = set()
        while self._seen is None:
            states.add(self.status().state)
            self._guarded(self._step)
        assert states == {State.STARTING}
        return self._seen

    def _move(self, event: Event) -> None:
        super()._move(event)
        if self._seen is None and self._state is State.RUNNING:
            assert self.status().committed.settled(self._t)
            self._seen = rows(self._store, "totals", self._t)


def test_s76_a_stop_is_told_after_its_checkpoint_and_a_failure_with_its_reason(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        status = Runner(Replica(rig), store.env, rig.settings).run(transactions=2)
        newest = list(Journal(store.env, "shop").records())[-1][1]
        assert status.state is State.STOPPED
        assert isinstance(newest, Checkpoint)

        def fetch(_: object) -> Iterator[object]:
            raise SourceGoneError("orders: offsets 20 to 30 are gone")

        broken = replace(rig_of(store), computer=ArrowComputer(store, fetch=fetch))
        ended = Runner(Replica(broken), store.env, broken.settings).run()
        assert ended.state is State.FAILED
        assert "offsets 20 to 30 are gone" in ended.cause


def test_s86_a_source_is_acknowledged_up_to_the_checkpoint_and_no_further(lab: Lab) -> None:
    topic = ScriptedTopic(["0"])
    for each in range(9):
        topic.send("0", b"%d" % each, b'{"id": %d, "customer": 1, "amount": 5}' % each)
    with new_store(lab) as store:
        source = ScriptedSource(topic)
        replica = Replica(replace(_scripted(store, TEXT, topic), sources={"orders": source}))
        while replica.standing.next_t < 2:
            replica.step()
        assert source.acknowledged == {}
        replica.want(Want.CHECKPOINT)
        while replica.wants():
            replica.step()
        assert source.acknowledged == {"0": 6}
        replica.step()
        replica.step()
        assert replica.standing.next_t == 3
        assert source.acknowledged == {"0": 6}, "the source still has what came since"
        replica.close()


def _scripted(store: Store, text: str, topic: ScriptedTopic):
    program = parse(text)
    return rigged(
        store,
        "shop",
        program,
        text,
        sources={"orders": ScriptedSource(topic)},
        computer=ArrowComputer(store, fetch=topic.fetch),
        settings=PipelineSettings(rows_max=3, delay_ms=0, poll_ms=1),
    )
