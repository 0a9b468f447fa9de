"""Every combination of the table of next steps, and no other (S93)."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from strandline.journal import next as n, record as r
from strandline.journal.sealed import Sealed
from strandline.journal.standing import Standing
from strandline.model.frontier import Frontier

T, EPOCH = 7, 3
VERSIONS = {"python": "3.11"}
OTHERS = {"python": "3.14"}
SEALED = Sealed(r.Begin(T, EPOCH, "p1", 0, VERSIONS, None), ())
ANSWERED = msgspec.structs.replace(SEALED, answer=r.Answer(T, EPOCH, {}, {}, VERSIONS))
OPEN = {"between": None, "sealed": SEALED, "answered": ANSWERED}
MINE = {"unjoined": None, "older": 2, "same": 3, "newer": 4}
LASTS = ("", *r.KINDS)
PLAN, PROMOTE, CHECKPOINT = n.Plan(T, EPOCH), n.Promote(EPOCH + 1), n.TakeCheckpoint(T - 1)
THEIRS, OLD = n.WrongProgram("p1"), n.WrongVersions((("python", "3.11"),))
COMPUTE = "compute"
WRITERS = (
    # wants            program  versions  between     sealed or answered
    (n.Want.NOTHING, "p1", VERSIONS, PLAN, COMPUTE),
    (n.Want.NOTHING, "p1", OTHERS, OLD, OLD),
    (n.Want.NOTHING, "p2", VERSIONS, THEIRS, THEIRS),
    (n.Want.NOTHING, "p2", OTHERS, THEIRS, THEIRS),
    (n.Want.PROMOTE, "p1", VERSIONS, PROMOTE, COMPUTE),
    (n.Want.PROMOTE, "p1", OTHERS, PROMOTE, COMPUTE),
    (n.Want.PROMOTE, "p2", VERSIONS, PROMOTE, COMPUTE),
    (n.Want.PROMOTE, "p2", OTHERS, PROMOTE, COMPUTE),
    (n.Want.CHECKPOINT, "p1", VERSIONS, CHECKPOINT, COMPUTE),
    (n.Want.CHECKPOINT, "p1", OTHERS, OLD, OLD),
    (n.Want.CHECKPOINT, "p2", VERSIONS, THEIRS, THEIRS),
    (n.Want.CHECKPOINT, "p2", OTHERS, THEIRS, THEIRS),
)


def standing_after(last, *, phase):
    """A standing whose last record is of this kind; `None` where that can't be."""
    empty = Standing.empty("shop")
    if last == "":
        return empty if phase == "between" else None
    never = {
        "between": {"SEAL", "AMEND", "ANSWER"},
        "sealed": {"BIND", "PROMOTE", "COMMIT", "CHECKPOINT", "BEGIN", "INPUT", "ANSWER"},
        "answered": {
            *("BIND", "PROMOTE", "COMMIT", "CHECKPOINT", "BEGIN", "INPUT", "SEAL", "AMEND")
        },
    }
    if last in never[phase]:
        return None
    return msgspec.structs.replace(
        empty,
        lsn=20,
        last=f"{last} of something",
        epoch=EPOCH,
        program="p1",
        versions=VERSIONS,
        committed=Frontier(T),
        begun=SEALED if last in {"BEGIN", "INPUT"} else None,
        sealed=OPEN[phase],
    )


def expected(last, relation, *, phase, between_step, sealed_step):
    """What somebody who writes does, told without the table."""
    if last == "":
        return n.Found() if relation == "unjoined" else n.Regressed(0)
    if last in {"BEGIN", "INPUT"}:
        return n.Torn()
    if relation == "older":
        return n.Fenced(EPOCH)
    if relation == "newer":
        return n.Regressed(EPOCH)
    if phase == "between":
        return between_step
    return n.Compute(OPEN[phase], EPOCH) if sealed_step == COMPUTE else sealed_step


@pytest.mark.parametrize("last", LASTS)
@pytest.mark.parametrize("relation", MINE)
@pytest.mark.parametrize("phase", OPEN)
def test_who_writes_does_what_the_table_says(last, relation, phase):
    standing = standing_after(last, phase=phase)
    for want, program, versions, between_step, sealed_step in WRITERS:
        me = n.Me(program, MINE[relation], want=want, versions=versions)
        if standing is not None:
            assert n.next_step(standing, me) == expected(
                last,
                relation,
                phase=phase,
                between_step=between_step,
                sealed_step=sealed_step,
            )


@pytest.mark.parametrize("last", LASTS)
@pytest.mark.parametrize("relation", MINE)
@pytest.mark.parametrize("want", n.Want)
def test_who_only_reads_is_never_fenced_and_looks_at_what_is_committed(last, relation, want):
    many = itertools.product(OPEN, ["p1", "p2"], [VERSIONS, OTHERS])
    for phase, program, versions in many:
        standing = standing_after(last, phase=phase)
        if standing is None:
            continue
        look = n.Verify if program == "p1" else n.Shadow
        for at, step in ((0, look(0)), (T - 1, look(T - 1)), (T, n.Wait()), (T + 5, n.Wait())):
            me = n.Me(program, MINE[relation], read_only=True, want=want, at=at, versions=versions)
            found = n.next_step(standing, me)
            if last == "":
                assert found == (n.Wait() if relation == "unjoined" else n.Regressed(0))
            elif last in {"BEGIN", "INPUT"}:
                assert found == n.Torn()
            elif relation == "newer":
                assert found == n.Regressed(EPOCH)
            else:
                assert found == step


def test_s93_the_table_has_a_step_for_every_combination_and_uses_every_step():
    keys = set(itertools.product(n.Phase, n.Relation, n.Mode))
    assert set(n.TABLE) == keys
    # `Wait` comes of a look at nothing, too.
    assert set(n.TABLE.values()) == set(n.Step.__args__)


def test_the_phase_follows_from_what_is_open_and_not_from_the_last_record_alone():
    for phase, found in zip(OPEN, (n.Phase.BETWEEN, n.Phase.SEALED, n.Phase.ANSWERED), strict=True):
        assert n.phase_of(standing_after("ABORT", phase=phase)) is found
