"""Who holds a shard back, and what bounds its since. Pure.

History is merged up to `since`, and `since` can move as far as the slowest of these allows:
the retention rule, every reader, every critical hold, and the newest settled time. Objects are
deleted once no reader may still be fetching them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.cli.facts import instant
from strandline.shard.pulse import is_over
from strandline.shard.retention import since_allowed
from strandline.shard.state import Retention

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.cli.facts import Document, Sight
    from strandline.model.frontier import Time
    from strandline.shard.pulse import Pulse
    from strandline.shard.state import Reader, State


@dataclass(frozen=True, slots=True)
class Bound:
    """What keeps since from moving further than `time`."""

    kind: str
    """`reader`, `hold`, `retention`, or `newest` for the newest settled time itself."""
    name: str
    time: Time


def bounds(sight: Sight) -> list[Bound]:
    """Everything that bounds since, the tightest first."""
    state = sight.state
    free = replace(state, readers={}, holds={})
    nothing_kept = replace(free, retention=Retention(None, 1))
    newest = _allowed(nothing_kept, sight)
    kept = _allowed(free, sight)
    found = [Bound("newest", "the newest settled time", newest)]
    if kept < newest:
        found.append(Bound("retention", "the retention rule", kept))
    found += [
        Bound("reader", name, time) for name, time in state.since_holds() if name in state.readers
    ]
    found += [Bound("hold", name, hold.since) for name, hold in state.holds.items()]
    return sorted(found, key=lambda bound: (bound.time, bound.kind, bound.name))


def _allowed(state: State, sight: Sight) -> Time:
    return since_allowed(state, now_ms=sight.now_ms, committed=sight.upper, aged=sight.aged)


def holds_document(sight: Sight, pulses: Mapping[str, Pulse | None], beats: int) -> Document:
    """Who holds what of one shard: `strandline holds`.

    `pulses` has the heartbeat that each reader and writer refers to, as the store has it now;
    `beats` is how often one beats in the length of a lease.
    """
    state = sight.state
    tightest = bounds(sight)[0]
    oldest = state.seqno_hold()
    return {
        "shard": state.name,
        "since": state.since.time,
        "upper": sight.upper.time,
        "version": state.seqno.number,
        "bounded_by": {"kind": tightest.kind, "name": tightest.name, "time": tightest.time},
        "readers": [
            {
                "id": name,
                "purpose": reader.purpose,
                "since": reader.since,
                "version": reader.seqno,
                "until": instant(reader.until_ms),
                **_keeper(reader, pulses, sight.now_ms, beats),
            }
            for name, reader in sorted(state.readers.items())
        ],
        "writers": [
            {
                "id": name,
                "purpose": writer.purpose,
                "last_append": writer.lower if writer.seqno >= 0 else None,
                **_owner(writer.pulse, pulses, sight.now_ms, beats),
            }
            for name, writer in sorted(state.writers.items())
        ],
        "critical": [
            {"name": name, "since": hold.since, "epoch": hold.epoch, "note": hold.note}
            for name, hold in sorted(state.holds.items())
        ],
        "garbage": {
            "objects": sum(len(each.keys) for each in state.garbage),
            "held": sum(len(each.keys) for each in state.garbage if each.seqno > oldest),
            "held_by": sorted(name for name, r in state.readers.items() if r.seqno == oldest)
            if any(each.seqno > oldest for each in state.garbage)
            else [],
        },
    }


def _keeper(
    reader: Reader, pulses: Mapping[str, Pulse | None], now_ms: int, beats: int
) -> Document:
    """What keeps a reader: its process, or its term."""
    if reader.until_ms is not None:
        return _term(reader.until_ms, now_ms)
    return _owner(reader.pulse, pulses, now_ms, beats)


def _term(until_ms: int, now_ms: int) -> Document:
    """A reader that no process keeps alive: in the place of its process stands its end."""
    status = f"until {instant(until_ms)}" if now_ms < until_ms else "ended"
    return {"pulse": None, "host": "", "pid": None, "status": status, "age_seconds": None}


def _owner(pulse_id: str, pulses: Mapping[str, Pulse | None], now_ms: int, beats: int) -> Document:
    """The process behind a lease, and how it is."""
    pulse = pulses.get(pulse_id)
    if pulse is None or is_over(pulse_id, pulse):
        return {"pulse": pulse_id, "host": "", "pid": None, "status": "gone", "age_seconds": None}
    host, _, pid = pulse.owner.partition(" ")
    silent = pulse.suspected_counter == pulse.counter
    quiet = max(0, now_ms - pulse.suspected_ms) // 1000
    return {
        "pulse": pulse_id,
        "host": host,
        "pid": int(pid) if pid.isdigit() else None,
        "status": f"silent for {quiet} s" if silent else "alive",
        # A pulse has no clock, only a counter; so its age is known to a beat.
        "age_seconds": pulse.counter * pulse.lease_ms // beats // 1000,
    }
