"""Waits until it is known which silent processes are dead.

A pulse ends only after it was suspected, and after whoever ends it has watched it stand still
himself. Processes that live long do that on the way; a repair that runs for a second would
never get there, so it waits: not longer than it takes the living to show themselves, or the
dead to be declared so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.shard import pulse as p

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.shard.env import Env
    from strandline.shard.pulses import Undertaker

_LEASES = 3
"""Half a lease to suspect, one to let the suspicion stand, and some to spare."""


def wait_for_silent(
    env: Env,
    undertaker: Undertaker,
    pulses: Iterable[str],
    tell: Callable[[int], None] = lambda _: None,
) -> frozenset[str]:
    """Which of these pulses are over, once each of them has beaten or ended; `tell` how many."""
    counters: dict[str, int] = {}
    longest = 0
    for pulse_id in sorted(pulses):
        current = read_pulse(env, pulse_id)
        counters[pulse_id] = -1 if current is None else current.counter
        longest = max(longest, 0 if current is None else current.lease_ms)
    deadline = env.clock.monotonic_ms() + _LEASES * longest
    over: frozenset[str] = frozenset()
    while counters:
        found = undertaker.over(counters)
        over |= found
        for pulse_id in list(counters):
            current = read_pulse(env, pulse_id)
            beaten = current is not None and current.counter != counters[pulse_id]
            if pulse_id in found or beaten:
                del counters[pulse_id]
        if not counters or env.clock.monotonic_ms() >= deadline:
            break
        tell(len(counters))
        env.tasks.sleep(max(1, longest // 16))
    return over


def read_pulse(env: Env, pulse_id: str) -> p.Pulse | None:
    """The slot of a pulse as it is; whoever beats in it now may be somebody else."""
    slot, _ = p.slot_of(pulse_id)
    head = env.patient(lambda: env.consensus.head(f"{p.KEY_PREFIX}{slot}"))
    return None if head is None else p.decode_pulse(slot, head.seqno, head.data)
