"""Everything a shard may do: one command against one state gives one outcome. Pure.

A dropped shard (a tombstone) takes nothing but the goodbye of its readers, the collector's
reports and `Create`. Whoever is not registered any more is *lost*, never re-registered on the
way: an expired writer's parts may be gone, an expired reader's times may be merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from strandline.errors import invariant
from strandline.shard import command as c
from strandline.shard.change import Change, Created, pack_schema
from strandline.shard.decide_append import append, withdraw
from strandline.shard.decide_upkeep import Upkeep, maintain
from strandline.shard.state import Critical, Reader, State, Writer
from strandline.shard.term import TERMS_MAX, term_pulse

if TYPE_CHECKING:
    from strandline.model.schema import Schema

_Register = c.RegisterWriter | c.RegisterReader | c.RegisterTerm
_Lease = _Register | c.Downgrade | c.Release | c.Expire
_Own = c.Attach | c.Fence | c.Hold | c.Unhold
_Settings = c.Retain | c.Evolve | c.ForgetTxn
_Living = c.Append | c.Withdraw | _Lease | _Own | _Settings | Upkeep

_ON_TOMBSTONES = (c.Create, c.Release, c.Expire, c.Forget, c.AddManifest, c.Downgrade, c.Drop)


def decide(state: State | None, command: c.Command) -> c.Outcome:
    """What comes of `command` in `state`; `None` is a shard that was never created."""
    if isinstance(command, c.Create):
        return _create(state, command)
    if state is None:
        return c.Refused("it does not exist")
    if state.dropped and not isinstance(command, _ON_TOMBSTONES):
        return c.Refused("it was dropped")
    return _decide(state, command)


def _decide(state: State, command: _Living) -> c.Outcome:
    match command:
        case c.Append():
            return append(state, command)
        case c.Withdraw():
            return withdraw(state, command)
        case (
            c.RegisterWriter()
            | c.RegisterReader()
            | c.RegisterTerm()
            | c.Downgrade()
            | c.Release()
            | c.Expire()
        ):
            return _lease(state, command)
        case c.Attach() | c.Fence() | c.Hold() | c.Unhold():
            return _own(state, command)
        case c.Retain() | c.Evolve() | c.ForgetTxn():
            return _settings(state, command)
        case _:
            return maintain(state, command)


def _create(state: State | None, command: c.Create) -> c.Outcome:
    """The same id again is an attempt of unknown fate: it must not undo a drop."""
    if state is not None and (not state.dropped or state.id == command.id):
        return c.Unchanged()
    created = Created(command.name, command.id, pack_schema(command.schema), command.now_ms)
    return c.Changed(Change(created=created))


def _register(state: State, command: _Register) -> c.Outcome:
    match command:
        case c.RegisterWriter(writer, pulse, purpose):
            if writer in state.writers:
                return c.Unchanged()
            return c.Changed(Change(writers={writer: Writer(pulse, purpose=purpose)}))
        case c.RegisterReader():
            return _register_reader(state, command)
        case c.RegisterTerm():
            return _register_term(state, command)
        case _:
            assert_never(command)


def _lease(state: State, command: _Lease) -> c.Outcome:
    match command:
        case c.RegisterWriter() | c.RegisterReader() | c.RegisterTerm():
            return _register(state, command)
        case c.Downgrade(holds):
            return _downgrade(state, holds)
        case c.Release(readers, writers):
            return _removed(
                [r for r in readers if r in state.readers],
                [w for w in writers if w in state.writers],
            )
        case c.Expire(pulses, now_ms):
            ended = {name for name, until_ms in state.terms().items() if until_ms <= now_ms}
            return _removed(
                [name for name, r in state.readers.items() if name in ended or r.pulse in pulses],
                [name for name, writer in state.writers.items() if writer.pulse in pulses],
            )
        case _:
            assert_never(command)


def _register_reader(state: State, command: c.RegisterReader) -> c.Outcome:
    if command.reader in state.readers:
        return c.Unchanged()
    if command.since is not None and command.since < state.readable_from():
        return c.SincePassed(state.since)
    seqno = state.seqno.next().number
    reader = Reader(command.pulse, command.since, seqno, command.purpose)
    return c.Changed(Change(readers={command.reader: reader}))


def _register_term(state: State, command: c.RegisterTerm) -> c.Outcome:
    """Not before the last instant: a clock that was set back would make the term too short."""
    if command.reader not in state.readers and len(state.terms()) >= TERMS_MAX:
        return c.Refused(
            f"{TERMS_MAX} terms are out, and no more may be: give back those that are not needed "
            "any more with shard.end_term(id), or take shorter ones"
        )
    pulse = term_pulse(max(command.now_ms, state.instant_ms) + command.term_ms)
    since = state.readable_from() if command.since is None else command.since
    return _register_reader(state, c.RegisterReader(command.reader, pulse, since, command.purpose))


def _downgrade(state: State, holds: dict[str, tuple[int | None, int]]) -> c.Outcome:
    """Holds only move forward, and who never held a time does not begin to.

    If one is lost nothing moves: ask again for the others.
    """
    lost = tuple(name for name in holds if name not in state.readers)
    if lost:
        return c.Lost(lost)
    edits: dict[str, Reader | None] = {}
    for name, (wanted, seqno) in holds.items():
        invariant(seqno <= state.seqno.number, "a hold on a version to come would hold nothing")
        old = state.readers[name]
        since = None if old.since is None or wanted is None else max(old.since, wanted)
        new = Reader(old.pulse, since, max(old.seqno, seqno), old.purpose)
        if new != old:
            edits[name] = new
    return c.Changed(Change(readers=edits)) if edits else c.Unchanged()


def _removed(readers: list[str], writers: list[str]) -> c.Outcome:
    if not readers and not writers:
        return c.Unchanged()
    return c.Changed(Change(readers=dict.fromkeys(readers), writers=dict.fromkeys(writers)))


def _own(state: State, command: _Own) -> c.Outcome:
    match command:
        case c.Attach():
            return _attach(state, command)
        case c.Fence(epoch):
            return _fence(state, epoch)
        case c.Hold():
            return _hold(state, command)
        case c.Unhold(name, epoch):
            return _unhold(state, name, epoch)
        case _:
            assert_never(command)


def _attach(state: State, command: c.Attach) -> c.Outcome:
    """Readers must not see the upper move back, so the timeline has to be at least as far."""
    if command.id not in {"", state.id}:
        return c.Refused("another shard has that name since")
    if state.timeline == command.timeline:
        return _fence(state, command.epoch)
    if state.timeline is not None:
        return c.Refused(f"it is attached to timeline {state.timeline} already")
    if command.committed < state.upper:
        return c.Refused(
            f"its upper {state.upper} is past timeline {command.timeline}'s "
            f"{command.committed}: advance the timeline first"
        )
    if command.epoch < state.epoch:
        return c.Fenced(state.epoch)
    return c.Changed(Change(timeline=command.timeline, epoch=command.epoch))


def _fence(state: State, epoch: int) -> c.Outcome:
    if epoch < state.epoch:
        return c.Fenced(state.epoch)
    return c.Unchanged() if epoch == state.epoch else c.Changed(Change(epoch=epoch))


def _hold(state: State, command: c.Hold) -> c.Outcome:
    old = state.holds.get(command.name)
    if old is not None and command.epoch < old.epoch:
        return c.Fenced(old.epoch)
    if old is None and command.since < state.readable_from():
        return c.SincePassed(state.since)
    since = command.since if old is None else max(old.since, command.since)
    new = Critical(since, command.epoch, command.note)
    return c.Unchanged() if new == old else c.Changed(Change(holds={command.name: new}))


def _unhold(state: State, name: str, epoch: int) -> c.Outcome:
    hold = state.holds.get(name)
    if hold is None:
        return c.Unchanged()
    if epoch < hold.epoch:
        return c.Fenced(hold.epoch)
    return c.Changed(Change(holds={name: None}))


def _settings(state: State, command: _Settings) -> c.Outcome:
    match command:
        case c.Retain(retention):
            if retention == state.retention:
                return c.Unchanged()
            if retention.count == 0 or min(retention.count or 0, retention.duration_ms or 0) < 0:
                return c.Refused("retention can't be less than nothing")
            return c.Changed(Change(retention=retention))
        case c.Evolve(expected, schema):
            return _evolve(state, expected, schema)
        case c.ForgetTxn(app, seqno):
            return _forget_txn(state, app, seqno)
        case _:
            assert_never(command)


def _evolve(state: State, expected: int, schema: Schema) -> c.Outcome:
    if schema.version == state.schema.version:
        return c.Unchanged() if schema == state.schema else c.Stale()
    if state.schema.version != expected:
        return c.Stale()
    invariant(schema.version == expected + 1, "schemas are numbered without gaps")
    return c.Changed(Change(schema=pack_schema(schema)))


def _forget_txn(state: State, app: str, seqno: int) -> c.Outcome:
    """An attempt of unknown fate must not forget what was appended since."""
    mark = state.txns.get(app)
    if mark is None:
        return c.Unchanged()
    return c.Changed(Change(txns={app: None})) if mark.seqno == seqno else c.Stale()
