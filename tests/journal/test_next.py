"""Every combination of the table of next steps, and no other (S93)."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from strandline.journal import next as n, record as r
from strandline.journal.standing import Sealed, Standing
from strandline.model.frontier import Frontier

T, EPOCH = 7, 3
SEALED = Sealed(r.Begin(T, EPOCH, "p1", 0, {}, None), ())
MINE = {"unjoined": None, "older": 2, "same": 3, "newer": 4}
LASTS = ("", *r.KINDS)
WRITERS = (
    # wants             program   between            sealed
    (n.Want.NOTHING, "p1", n.Plan(T, EPOCH), n.Compute(SEALED, EPOCH)),
    (n.Want.NOTHING, "p2", n.WrongProgram("p1"), n.WrongProgram("p1")),
    (n.Want.PROMOTE, "p1", n.Promote(EPOCH + 1), n.Compute(SEALED, EPOCH)),
    (n.Want.PROMOTE, "p2", n.Promote(EPOCH + 1), n.Compute(SEALED, EPOCH)),
    (n.Want.CHECKPOINT, "p1", n.TakeCheckpoint(T - 1), n.Compute(SEALED, EPOCH)),
    (n.Want.CHECKPOINT, "p2", n.WrongProgram("p1"), n.WrongProgram("p1")),
)


def standing_after(last, *, sealed):
    """A standing whose last record is of this kind; `None` where that can't be."""
    empty = Standing.empty("shop")
    if last == "":
        return None if sealed else empty
    if sealed and last in {"BIND", "PROMOTE", "COMMIT", "CHECKPOINT", "BEGIN", "INPUT"}:
        return None
    if not sealed and last in {"SEAL", "AMEND"}:
        return None
    return msgspec.structs.replace(
        empty,
        lsn=20,
        last=f"{last} of something",
        epoch=EPOCH,
        program="p1",
        committed=Frontier(T),
        begun=SEALED if last in {"BEGIN", "INPUT"} else None,
        sealed=SEALED if sealed else None,
    )


def expected(last, relation, *, sealed, between_step, sealed_step):
    """What somebody who writes does, told without the table."""
    if last == "":
        return n.Found() if relation == "unjoined" else n.Regressed(0)
    if last in {"BEGIN", "INPUT"}:
        return n.Torn()
    if relation == "older":
        return n.Fenced(EPOCH)
    if relation == "newer":
        return n.Regressed(EPOCH)
    return sealed_step if sealed else between_step


@pytest.mark.parametrize("last", LASTS)
@pytest.mark.parametrize("relation", MINE)
@pytest.mark.parametrize("sealed", [False, True])
def test_who_writes_does_what_the_table_says(last, relation, sealed):
    standing = standing_after(last, sealed=sealed)
    for want, program, between_step, sealed_step in WRITERS:
        me = n.Me(program, MINE[relation], want=want)
        if standing is not None:
            assert n.next_step(standing, me) == expected(
                last,
                relation,
                sealed=sealed,
                between_step=between_step,
                sealed_step=sealed_step,
            )


@pytest.mark.parametrize("last", LASTS)
@pytest.mark.parametrize("relation", MINE)
@pytest.mark.parametrize("want", n.Want)
def test_who_only_reads_is_never_fenced_and_looks_at_what_is_committed(last, relation, want):
    for sealed, program in itertools.product([False, True], ["p1", "p2"]):
        standing = standing_after(last, sealed=sealed)
        if standing is None:
            continue
        look = n.Verify if program == "p1" else n.Shadow
        for at, step in ((0, look(0)), (T - 1, look(T - 1)), (T, n.Wait()), (T + 5, n.Wait())):
            me = n.Me(program, MINE[relation], read_only=True, want=want, at=at)
            found = n.next_step(standing, me)
            if last == "":
                assert found == (n.Wait() if relation == "unjoined" else n.Regressed(0))
            elif last in {"BEGIN", "INPUT"}:
                assert found == n.Torn()
            elif relation == "newer":
                assert found == n.Regressed(EPOCH)
            else:
                assert found == step


def test_the_table_has_a_step_for_every_combination_and_uses_every_step():
    keys = set(itertools.product(n.Phase, n.Relation, n.Mode))
    assert set(n.TABLE) == keys
    # `Wait` comes of a look at nothing, too.
    assert set(n.TABLE.values()) == set(n.Step.__args__)


def test_the_phase_follows_from_what_is_open_and_not_from_the_last_record_alone():
    aborted = standing_after("ABORT", sealed=True)
    assert n.phase_of(aborted) is n.Phase.SEALED
    assert n.phase_of(standing_after("ABORT", sealed=False)) is n.Phase.BETWEEN
