"""Roles of jobs that others run: sinks that try again, planners that exit, and who reads for them.

A sink's source can be read again, and its checkpoint is behind: after a crash it tries batches
that have counted. A planner takes a term and may be dead at once; a reader elsewhere relies on
the term alone, until the store's clock ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import LeaseLostError, ReplicaDivergedError, SinceError
from strandline.shard.command import Repeated
from strandline.testing.checkers import HistoryError
from strandline.testing.history import Term
from strandline.testing.roles import Role, Writing, opened, repeat
from strandline.testing.workload import Client

if TYPE_CHECKING:
    from strandline.handles.shard import Shard
    from strandline.testing.world import Host

_TERM_MS = (300, 1_000, 4_000, 20_000)


def sink(name: str, app: str, *, pause_ms: float = 50.0) -> Role:
    """Appends the batches of an application in order; several processes may be the same one."""

    def run(process: Host) -> None:
        at = Writing(process, name, ())
        batches = process.world.batches.setdefault(app, [])
        following = max(0, len(batches) - process.random.choice((1, 1, 2, 4)))

        def step() -> None:
            nonlocal following
            if following == len(batches):
                batches.append(at.client.fresh(process.random.choice((1, 2, 3))))
            try:
                at.client.append_batch(at.writer(), at.shard, batches[following], (app, following))
                if process.random.random() < 0.2:
                    _tell_a_lie(at, app, following)
            except LeaseLostError:
                at.renew()
                raise
            following += 1

        repeat(process, step, pause_ms=pause_ms)

    return run


def _tell_a_lie(at: Writing, app: str, batch: int) -> None:
    """Another content under the number of a batch that counted must not count."""
    at.process.world.rows += 1
    lie = {"id": at.process.world.rows, "value": "lie", "x": None, "_diff": 1}
    try:
        outcome = at.client.append_batch(at.writer(), at.shard, [lie], (app, batch))
    except ReplicaDivergedError:
        at.process.world.sim.sometimes("another content was refused")
    else:
        if not isinstance(outcome, Repeated) or outcome.newest == batch:
            raise HistoryError(f"batch {batch} of {app} was taken with another content: {outcome}")


def planner(name: str, *, pause_ms: float = 100.0) -> Role:
    """Takes terms for others, and dies after some of them."""

    def run(process: Host) -> None:
        client = Client(process)
        shard = opened(process, name)

        def step() -> None:
            if process.running() and client.look(shard, "upper"):
                _plan(client, shard)
                if process.random.random() < 0.3:
                    process.world.sim.sometimes("a planner exited")
                    process.node.crash()

        repeat(process, step, pause_ms=pause_ms)

    return run


def _plan(client: Client, shard: Shard) -> None:
    process, world = client.process, client.world
    term_ms = process.random.choice(_TERM_MS)
    hold = shard.term_reader(term_ms=term_ms, purpose=process.role)
    state = shard.machine.state
    if hold.id in state.readers:
        # Listed after the term was taken, so all of it is held.
        keys = tuple(world.observer.references(state))
        term = Term(shard.name, hold.id, hold.since, hold.until_ms, keys)
        world.history.terms[hold.id] = term


def executor(name: str, *, pause_ms: float = 50.0) -> Role:
    """Reads what terms hold, in a process that took none of them; gives some back."""

    def run(process: Host) -> None:
        client = Client(process)
        shard = opened(process, name)

        def step() -> None:
            terms = [term for term in process.world.history.terms.values() if _runs(client, term)]
            if terms:
                _execute(client, shard, process.random.choice(terms))

        repeat(process, step, pause_ms=pause_ms)

    return run


def _runs(client: Client, term: Term) -> bool:
    """Whether a term must still hold: nobody can have seen its end, or have given it back."""
    return not term.given_back and client.world.observer.latest_ms() < term.until_ms


def _execute(client: Client, shard: Shard, term: Term) -> None:
    world, random = client.world, client.random
    try:
        client.read(shard, term.since)
    except SinceError as error:
        if _runs(client, term):
            raise HistoryError(f"the term {term.reader} holds {term.since}: {error}") from error
        raise
    missing = [key for key in term.keys if world.observer.objects.get(key) is None]
    if missing and _runs(client, term):
        raise HistoryError(f"the term {term.reader} holds {missing[0]}, which was deleted")
    world.sim.sometimes("a term was relied on")
    if random.random() < 0.1:
        term.given_back = True
        shard.end_term(term.reader)
