"""Whether two computations of one time agree, and what to say if they do not. Pure.

Compared are the digests of every input and of every collection that changed. What one side has
and the other lacks is a difference, too: an endpoint that reports nothing does not pass (S68).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.model.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.journal.sealed import Sealed
    from strandline.model.frontier import Time


def differences(
    kind: str, recorded: Mapping[str, Digest], computed: Mapping[str, Digest]
) -> list[str]:
    """One sentence for each name whose digests differ, in order of the names."""
    found = []
    for name in sorted({*recorded, *computed}):
        if name not in computed:
            found.append(f"{kind} {name} is recorded ({recorded[name]}) but was not computed")
        elif name not in recorded:
            found.append(f"{kind} {name} was computed ({computed[name]}) but is not recorded")
        elif recorded[name] != computed[name]:
            found.append(f"{kind} {name} is {recorded[name]} on record, computed {computed[name]}")
    return found


def packed(digests: Mapping[str, Digest]) -> dict[str, bytes]:
    """As they are recorded, in order of the names."""
    return {name: digests[name].pack() for name in sorted(digests)}


def unpacked(digests: Mapping[str, bytes]) -> dict[str, Digest]:
    return {name: Digest.unpack(packed) for name, packed in digests.items()}


def same_versions(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """Between equal versions a difference is divergence; between unequal ones it is reported."""
    return dict(ours) == dict(theirs)


def divergence(pipeline: str, time: Time, found: list[str]) -> str:
    reasons = "; ".join(found)
    return (
        f"pipeline {pipeline}: transaction {time} was computed again with another answer: "
        f"{reasons}. Stop this replica, keep its log, and compare its versions and sources"
    )


def versions_text(versions: Mapping[str, str]) -> str:
    """Versions in one line.

    >>> versions_text({"spark": "4.3.0", "python": "3.11"})
    'python 3.11, spark 4.3.0'
    """
    return ", ".join(f"{name} {versions[name]}" for name in sorted(versions)) or "no versions"


def unfinished(
    pipeline: str,
    time: Time,
    versions: tuple[Mapping[str, str], Mapping[str, str]],
    missing: list[str],
) -> str:
    """Who answered a transaction has to finish it: nobody else can make its rows."""
    theirs, ours = (versions_text(each) for each in versions)
    reasons = "; ".join(missing)
    return (
        f"pipeline {pipeline}: transaction {time} was answered by {theirs}, and this replica, "
        f"{ours}, can't make all of it: {reasons}. Finish {time} with a replica of those versions"
    )


def unreadable(pipeline: str, sealed: Sealed, endpoint: str, reason: str) -> str:
    """What a transaction takes is gone: what to do about it."""
    begun = f"pipeline {pipeline}: transaction {sealed.t} can't be computed: {reason}"
    if sealed.answer is not None:
        return f"{begun}. It is answered, so it can't be amended: bring those rows back"
    name = endpoint or "ENDPOINT"
    return (
        f"{begun}. Bring those rows back, or go on without them: strandline transaction amend "
        f"STORE {sealed.t} {name} --empty --reason TEXT --name {pipeline}"
    )
