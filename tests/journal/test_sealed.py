"""What is read of a sealed transaction is what was sealed, as it is amended."""

from __future__ import annotations

import msgspec

from strandline.journal import record as r
from strandline.journal.sealed import Sealed

REF = r.StagedRef("journal/shop/x", b"d" * 16, 3, 90)
INPUTS = tuple(r.Input(4, name, "orders", {"0": (0, 6)}, (), {"p": 1}) for name in ("a", "b"))
SEALED = Sealed(r.Begin(4, 1, "p1", 0, {}, None), INPUTS)


def amended(*amends: r.Amend) -> Sealed:
    return msgspec.structs.replace(SEALED, amends=amends)


def test_without_amendments_all_is_read_that_was_sealed() -> None:
    assert SEALED.reads == SEALED.inputs
    assert (SEALED.t, SEALED.endpoints, SEALED.answer) == (4, ("a", "b"), None)


def test_an_amendment_changes_what_one_endpoint_reads() -> None:
    found = amended(r.Amend(4, "b", {"0": (2, 3)}, (), "gone"))
    assert found.reads == (INPUTS[0], msgspec.structs.replace(INPUTS[1], taken={"0": (2, 3)}))
    assert found.inputs == INPUTS


def test_the_last_amendment_of_an_endpoint_counts() -> None:
    rows = r.Amend(4, "a", None, (REF,), "again")
    found = amended(r.Amend(4, "a", {"0": (2, 3)}, (), "gone"), rows)
    assert (found.reads[0].taken, found.reads[0].staged) == (None, (REF,))
    assert found.reads[1] == INPUTS[1]
