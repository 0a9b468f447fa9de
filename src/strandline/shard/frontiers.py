"""How far a shard is settled, as its readers may see it.

For an attached shard the order is everything: the timeline first, *then* the shard's newest
state. The other way round, a commit between the two would show a frontier whose rows the
older state does not have yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import CancelledError, NotAppliedError, NotFoundError
from strandline.shard.retention import Aged

if TYPE_CHECKING:
    from strandline.model.frontier import Frontier, Time
    from strandline.shard.cancel import Cancel
    from strandline.shard.env import Env
    from strandline.shard.machine import Machine
    from strandline.shard.state import State


def visible(machine: Machine, shard_id: str | None = None) -> tuple[Frontier, State]:
    """The upper that readers see, and a state that has every row before it.

    `shard_id` is the shard that the caller began with: one of its name that was created since
    is another one, and an error.
    """
    state = machine.state
    if state.timeline is None:
        state = machine.refresh()
    if state.timeline is None:
        return state.upper, _living(machine, state, shard_id)
    committed = machine.env.timelines(state.timeline).committed()
    return committed, _living(machine, machine.refresh(), shard_id)


def aged_of(env: Env, state: State, now_ms: int) -> Aged | None:
    """By what an attached shard may merge its history, if it keeps that by age."""
    lasting_ms = state.retention.duration_ms
    if state.timeline is None or lasting_ms is None:
        return None
    return Aged(lasting_ms, env.timelines(state.timeline).time_at(now_ms - lasting_ms))


def wait_past(
    machine: Machine,
    time: Time,
    *,
    cancel: Cancel | None = None,
    timeout_ms: int | None = None,
    shard_id: str | None = None,
) -> tuple[Frontier, State]:
    """Wait until `time` is settled.

    Looks again after 5 ms, then ever less often, every 200 ms at most; a commit of this
    process wakes it at once. Without `timeout_ms` it waits for ever.
    """
    settings = machine.env.settings
    clock = machine.env.clock
    start = clock.monotonic_ms()
    pause_ms = float(settings.poll_first_ms)
    while True:
        upper, state = visible(machine, shard_id)
        if upper.settled(time):
            return upper, state
        if cancel is not None and cancel.cancelled:
            raise CancelledError(f"waiting for shard {machine.name} to pass {time} was cancelled")
        if timeout_ms is not None and clock.monotonic_ms() - start >= timeout_ms:
            raise NotAppliedError(
                f"shard {machine.name} was not settled past {time} within {timeout_ms} ms: "
                f"its upper is {upper}"
            )
        machine.pause(state, pause_ms)
        pause_ms = min(pause_ms * 1.5, settings.poll_cap_ms)


def _living(machine: Machine, state: State, shard_id: str | None) -> State:
    if shard_id is not None and state.id != shard_id:
        raise NotFoundError(f"shard {machine.name} was dropped and created anew: open it again")
    if state.dropped:
        raise NotFoundError(f"shard {machine.name} was dropped")
    return state
