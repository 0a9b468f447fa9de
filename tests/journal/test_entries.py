"""Entries are found, in whatever is left of a journal."""

from __future__ import annotations

import pytest

from strandline.errors import ConflictError, JournalError, NameRefusedError
from strandline.journal.entries import Entries, valid_pipeline
from strandline.journal.log import Journal
from strandline.model.ids import SeqNo
from strandline.testing.journals import founded, transacted
from strandline.testing.lab import Lab


@pytest.mark.parametrize("name", ["shop", "team.shop", "a-b_c.d.e"])
def test_a_pipeline_name_leaves_room_for_its_timeline(name):
    assert valid_pipeline(name) == name


@pytest.mark.parametrize("name", ["", "../x", "a.b.c.d", "x" * 200, 7, "a b"])
def test_a_bad_pipeline_name_is_refused(name):
    with pytest.raises(NameRefusedError):
        valid_pipeline(name)


def written(lab: Lab, count: int = 20) -> Entries:
    journal = Journal(lab.env(scan_page=3), "shop")
    transacted(journal, founded(journal), count=count)
    return journal.entries


def test_an_empty_journal_has_no_entries(lab: Lab) -> None:
    entries = Entries(lab.env(), "shop")
    assert entries.head() is None
    assert entries.first() is None
    assert list(entries.scan()) == []
    assert entries.earliest(lambda entry: True) is None


@pytest.mark.parametrize("cut", [0, 1, 17, 40])
def test_the_earliest_entry_is_found_in_what_is_left(lab: Lab, cut: int) -> None:
    entries = written(lab)
    entries.truncate(SeqNo(cut))
    left = list(entries.scan())
    assert [seqno.number for seqno, _ in left] == list(range(cut, 41))
    for wanted in range(22):
        expected = next((each for each in left if each[1].committed >= wanted), None)
        assert entries.earliest(lambda entry, t=wanted: entry.committed >= t) == expected


def test_a_search_takes_few_reads(lab: Lab) -> None:
    entries = written(lab, 100)
    reads = []
    inner = entries.at
    entries.at = lambda seqno: reads.append(seqno) or inner(seqno)
    assert entries.earliest(lambda entry: entry.committed > 41)[1].committed == 42
    assert len(reads) <= 8


class Holed:
    """A Consensus that shows some versions no more."""

    def __init__(self, inner, lost):
        self.inner, self.lost = inner, lost

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def scan(self, key, start, limit):
        found = self.inner.scan(key, start, limit + len(self.lost))
        return [each for each in found if each.seqno.number not in self.lost][:limit]


@pytest.mark.parametrize("lost", range(1, 8))
def test_s84_a_missing_entry_is_named_by_its_first_record(lab: Lab, lost: int) -> None:
    entries = written(lab, 5)
    first = entries.at(SeqNo(lost))[1].first
    object.__setattr__(entries.env, "consensus", Holed(entries.env.consensus, {lost}))
    with pytest.raises(JournalError, match=f"record #{first} of pipeline shop is missing"):
        list(entries.scan())


def test_a_cut_while_it_is_read_is_no_damage(lab: Lab) -> None:
    entries = written(lab)
    reading = entries.scan()
    next(reading)
    entries.truncate(SeqNo(30))
    with pytest.raises(ConflictError, match="was cut to v30 while it was read"):
        list(reading)
