"""Mutants of appends, commits and timelines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from strandline.errors import MaybeAppliedError, NotAppliedError
from strandline.handles import ownership, write
from strandline.model import digest
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.shard import (
    change,
    codec,
    command as c,
    decide,
    decide_append,
    machine,
    state as state_module,
    timeline,
    versions,
)
from strandline.shard.state import Writer
from strandline.testing.mutants import Mutant, Planting, mutant

if TYPE_CHECKING:
    from strandline.model.valuehash import I64, U64
    from strandline.shard.env import Env
    from strandline.shard.state import State
    from strandline.shard.txn import Txn

BANK: list[Mutant] = []
_append = decide_append.append


@mutant("an append of unknown fate is found again by its token", "writes", BANK)
def token_is_forgotten(planting: Planting) -> None:
    def append(state: State, command: c.Append) -> c.Outcome:
        writers = {
            name: msgspec.structs.replace(writer, token="")
            for name, writer in state.writers.items()
        }
        return _append(replace(state, writers=writers), command)

    planting.swap(decide, "append", append)


@mutant("a lost compare-and-set is no commit", "writes", BANK)
def lost_swap_counts(planting: Planting) -> None:
    original = machine.Machine._swap  # noqa: SLF001

    def swap(self: machine.Machine, *arguments: object) -> bool:
        original(self, *arguments)  # type: ignore[arg-type]
        return True

    planting.swap(machine.Machine, "_swap", swap)


@mutant("what may have happened is not reported as what did not", "writes", BANK)
def doubt_is_taken_for_failure(planting: Planting) -> None:
    original = machine.Machine._swap  # noqa: SLF001

    def swap(self: machine.Machine, *arguments: object) -> bool:
        swapped = original(self, *arguments)  # type: ignore[arg-type]
        if getattr(arguments[-1], "doubt", None) is not None:
            raise NotAppliedError("it did not happen, or so we think")
        return swapped

    planting.swap(machine.Machine, "_swap", swap)


@mutant("an append whose writer expired meanwhile is in doubt, not refused", "expiry", BANK)
def lost_writer_is_refused(planting: Planting) -> None:
    planting.swap(machine, "_lost_its_trace", lambda _command, _outcome: False)


@mutant("an expired writer's parts may be gone, so its appends do not count", "expiry", BANK)
def expired_writer_counts(planting: Planting) -> None:
    def append(state: State, command: c.Append) -> c.Outcome:
        writers = {command.writer: Writer("0.0"), **state.writers}
        return _append(replace(state, writers=writers), command)

    planting.swap(decide, "append", append)
    planting.swap(write.Writer, "_alone", _without_lease)


def _without_lease(_writer: write.Writer) -> _Open:
    return _Open()


class _Open:
    def __enter__(self) -> None:
        """Nothing is checked."""

    def __exit__(self, *_: object) -> None:
        """Nothing is given back."""


@mutant("an append starts at the upper (C1)", "writes", BANK)
def lower_is_not_checked(planting: Planting) -> None:
    def starts(state: State, lower: int) -> bool:
        return Frontier(lower) <= state.upper

    planting.swap(decide_append, "_starts_at_upper", starts)


@mutant("a mismatch is looked up before it is reported (C1)", "writes", BANK)
def stale_mismatch_is_reported(planting: Planting) -> None:
    original = machine.Machine._settle  # noqa: SLF001

    def settle(self: machine.Machine, *arguments: object) -> object:
        pursuit = arguments[-1]
        pursuit.fresh = True  # type: ignore[attr-defined]
        return original(self, *arguments)  # type: ignore[arg-type]

    def append_at(
        self: write.Writer, rows: object, lower: int, upper: int, through: object
    ) -> object:
        checked = self._checked(rows, lower, Frontier(upper))
        arguments = (checked, lower, Frontier(upper), through)
        return self._stage_and_commit(*arguments)  # type: ignore[arg-type]

    planting.swap(machine.Machine, "_settle", settle)
    planting.swap(write.Writer, "_append_at", append_at)


@mutant("records are applied without gaps", "reads", BANK)
def gaps_in_records_are_ignored(planting: Planting) -> None:
    def catch_up(env: Env, name: str, state: State | None) -> State | None:
        start = SeqNo(0) if state is None else state.seqno.next()
        key = versions.shard_key(name)
        page = env.patient(lambda: env.consensus.scan(key, start, 10_000))
        for version in page:
            state = change.evolve(state, versions.record_of(name, version).change)
        return state

    planting.swap_all((versions, machine), "catch_up", catch_up)


@mutant("opening a shard that exists changes nothing (S36)", "writes", BANK)
def creating_starts_anew(planting: Planting) -> None:
    def create(_state: State | None, command: c.Create) -> c.Outcome:
        packed = change.pack_schema(command.schema)
        created = change.Created(command.name, command.id, packed, command.now_ms)
        return c.Changed(change.Change(created=created))

    planting.swap(decide, "_create", create)


@mutant("two identical rows are not none: digests are sums (S69)", "replicas", BANK)
def digest_cancels_pairs(planting: Planting) -> None:
    original = digest._weighted  # noqa: SLF001

    def weighted(base_hashes: U64, diffs: I64) -> tuple[U64, U64, U64]:
        weights, a, b = original(base_hashes, diffs)
        # With nothing but the highest bit, sums are exclusive ors.
        shift = np.uint64(63)
        return weights, a << shift, b << shift

    planting.swap(digest, "_weighted", weighted)


@mutant("digests tell rows apart, not only how many there are", "replicas", BANK)
def digest_only_counts(planting: Planting) -> None:
    original = digest._weighted  # noqa: SLF001

    def weighted(base_hashes: U64, diffs: I64) -> tuple[U64, U64, U64]:
        weights, a, b = original(base_hashes, diffs)
        return weights, a * np.uint64(0), b * np.uint64(0)

    planting.swap(digest, "_weighted", weighted)


@mutant("a replica that computed other rows is told so (S30)", "replicas", BANK)
def divergence_is_not_noticed(planting: Planting) -> None:
    planting.swap(write, "check_settled", lambda *_, **rest: rest["upper"])


@mutant("a batch is remembered although the records before it are gone (R24)", "sinks", BANK)
def batches_are_lost_with_truncation(planting: Planting) -> None:
    original = codec.decode_manifest

    def decode(name: str, seqno: SeqNo, data: bytes, key: str) -> State:
        return replace(original(name, seqno, data, key), txns={})

    planting.swap(versions, "decode_manifest", decode)


@mutant("a batch that is older than the newest does not count again (R24)", "sinks", BANK)
def only_the_newest_batch_is_known(planting: Planting) -> None:
    original = decide_append.repeated

    def repeated(state: State, txn: Txn, rows: digest.Digest) -> c.Outcome | None:
        mark = state.txns.get(txn.app)
        older = mark is not None and txn.batch < mark.batch
        return None if older else original(state, txn, rows)

    planting.swap_all((decide_append, write), "repeated", repeated)
    planting.swap(state_module, "check_marks", lambda *_, **__: None)


@mutant("a batch with another content is not taken for the one that counted (R24)", "sinks", BANK)
def content_is_not_compared(planting: Planting) -> None:
    def repeated(state: State, txn: Txn, rows: digest.Digest) -> c.Outcome | None:  # noqa: ARG001
        mark = state.txns.get(txn.app)
        if mark is None or mark.batch < txn.batch:
            return None
        return c.Repeated(txn.app, txn.batch, mark.batch)

    planting.swap_all((decide_append, write), "repeated", repeated)


# Timelines.


@mutant("a new owner has a new epoch", "timeline", BANK)
def two_owners_share_an_epoch(planting: Planting) -> None:
    def raise_epoch(self: timeline.PlainTimeline) -> timeline.Tick:
        _, tick = self.head()
        if tick is None:
            tick = timeline.Tick(0, 0, 1, "")
            self._write(self._key, None, tick)
        return tick

    planting.swap(timeline.PlainTimeline, "raise_epoch", raise_epoch)


@mutant("only the newest owner commits (S81)", "timeline", BANK)
def old_owner_commits(planting: Planting) -> None:
    original = timeline.PlainTimeline.commit

    def commit(
        self: timeline.PlainTimeline, epoch: int, lower: Frontier, upper: Frontier
    ) -> timeline.Tick:
        _, tick = self.head()
        return original(self, epoch if tick is None else tick.epoch, lower, upper)

    planting.swap(timeline.PlainTimeline, "commit", commit)


@mutant("a commit that was visible is not told to be fenced", "takeover", BANK)
def commit_in_doubt_is_fenced(planting: Planting) -> None:
    planting.swap(timeline.PlainTimeline, "_found", lambda *_: None)


@mutant("a new owner fences every member before it stages anything", "timeline", BANK)
def members_are_not_fenced(planting: Planting) -> None:
    def fence(self: ownership.TimelineOwner, name: str) -> None:
        self._fenced.add(name)

    planting.swap(ownership.TimelineOwner, "_fence", fence)


@mutant("what an owner did not commit is gone when the next one comes", "timeline", BANK)
def nothing_is_withdrawn(planting: Planting) -> None:
    def withdraw(state: State, command: c.Withdraw) -> c.Outcome:  # noqa: ARG001
        return c.Unchanged()

    planting.swap(decide, "withdraw", withdraw)


@mutant("an owner that was fenced appends nothing", "timeline", BANK)
def epoch_is_not_checked(planting: Planting) -> None:
    def append(state: State, command: c.Append) -> c.Outcome:
        return _append(state, replace(command, epoch=max(command.epoch, state.epoch)))

    planting.swap(decide, "append", append)


@mutant("an attached shard takes appends only through its timeline", "timeline", BANK)
def foreign_append_is_taken(planting: Planting) -> None:
    def append(state: State, command: c.Append) -> c.Outcome:
        epoch = state.epoch if command.timeline is None else command.epoch
        return _append(state, replace(command, timeline=state.timeline, epoch=epoch))

    planting.swap(decide, "append", append)
    planting.swap(write.Writer, "_living", lambda self, _through: self._machine.refresh())


@mutant("a put of unknown fate is not taken for one that happened", "objects", BANK)
def lost_put_counts(planting: Planting) -> None:
    from strandline.shard import env  # noqa: PLC0415 - patched below only

    original = env.Env.insistent

    def insistent(self: env.Env, call: object, *, shard: str = "") -> object:
        try:
            return original(self, call, shard=shard)  # type: ignore[arg-type]
        except MaybeAppliedError:
            return None

    planting.swap(env.Env, "insistent", insistent)
