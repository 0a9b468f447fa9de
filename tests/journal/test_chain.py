"""Bytes of form 2 mean what they always meant, and no change of them goes unseen (S71, S84)."""

from __future__ import annotations

import importlib.util
import json
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import CorruptionError, JournalError, NewerFormatError
from strandline.journal import record as r
from strandline.journal.chain import (
    ORIGIN,
    Link,
    chain_hash,
    check_links,
    decode_entry,
    encode_entry,
    link,
    pack_links,
    records_of,
    with_links,
)
from strandline.journal.staging import decode_snapshot, snapshot_bytes
from strandline.journal.standing import Standing, advance_all, settle
from strandline.model.ids import SeqNo
from strandline.parts.envelope import seal

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = [path.read_bytes() for path in sorted((GOLDEN / "journal2").glob("entry-*.bin"))]
LACKING = {path.name: path.read_bytes() for path in sorted((GOLDEN / "lacking").glob("*.bin"))}
FACTS = json.loads((GOLDEN / "journal2" / "facts.json").read_text())
SNAPSHOT = (GOLDEN / "journal2" / "snapshot.bin").read_bytes()
NUMBERS = range(len(FILES))
CHECKPOINT = 14


def _maker():
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make_journal.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


facts_of = _maker().facts_of


def entry_of(number, data=None):
    return decode_entry("shop", SeqNo(number), FILES[number] if data is None else data)


def linked(number, links):
    """The bytes of an entry whose links were tampered with by somebody who knows the envelope."""
    entry = msgspec.structs.replace(entry_of(number), links=tuple(links))
    return entry_of(number, encode_entry("shop", SeqNo(number), entry))


def before(number):
    """The last record before an entry, and its hash."""
    if number == 0:
        return -1, ORIGIN
    last = entry_of(number - 1).links[-1]
    return last.lsn, last.hash


def check(number, entry):
    check_links("shop", entry, *before(number))


@pytest.mark.parametrize("number", NUMBERS)
def test_a_golden_entry_means_what_it_meant_and_is_written_byte_for_byte(number):
    entry = entry_of(number)
    records = records_of("shop", entry)
    assert json.loads(json.dumps(facts_of(records))) == FACTS[f"entry-{number:02}.bin"]["records"]
    assert link(records, *before(number)) == entry.links
    assert encode_entry("shop", SeqNo(number), entry) == FILES[number]
    check(number, entry)


def test_the_golden_entries_have_every_kind_of_record_and_add_up():
    standing = Standing.empty("shop")
    seen = set()
    for number in NUMBERS:
        records = records_of("shop", entry_of(number))
        seen |= {r.kind_of(record) for record in records}
        if isinstance(records[0], r.Checkpoint):
            assert decode_snapshot("shop", CHECKPOINT, SNAPSHOT) == standing
            assert snapshot_bytes(standing) == SNAPSHOT
        standing = settle(advance_all(standing, records), number, entry_of(number).digest)
        facts = FACTS[f"entry-{number:02}.bin"]["standing"]
        assert json.loads(json.dumps(facts_of(standing))) == facts
    assert seen == set(r.KINDS) - {"RETAIN"}


@pytest.mark.parametrize("form", [3, 4])
def test_the_golden_entries_of_newer_forms_have_the_rest_and_add_up(form):
    standing = Standing.empty("shop")
    folder = GOLDEN / f"journal{form}"
    facts = json.loads((folder / "facts.json").read_text())
    retained, added = [], {}
    for number, path in enumerate(sorted(folder.glob("entry-*.bin"))):
        entry = decode_entry("shop", SeqNo(number), path.read_bytes())
        records = records_of("shop", entry)
        assert entry.form == form
        assert link(records, standing.lsn, standing.digest) == entry.links
        assert encode_entry("shop", SeqNo(number), entry) == path.read_bytes()
        standing = settle(advance_all(standing, records), number, entry.digest)
        assert json.loads(json.dumps(facts_of(standing))) == facts[path.name]
        retained += [each.transactions for each in records if isinstance(each, r.Retain)]
        added |= {
            k: v for each in records if isinstance(each, r.Evolve) for k, v in each.columns.items()
        }
    assert retained == ([7, None, 100] if form == 3 else [])
    kept = (folder / "snapshot.bin").read_bytes()
    assert decode_snapshot("shop", standing.lsn + 1, kept) == standing
    assert standing.retain == (100 if form == 3 else None)
    assert sorted(added.values()) == (
        [] if form == 3 else ["DATE", "DECIMAL(10, 2)", "TIMESTAMP", "TIMESTAMP_NTZ"]
    )


@pytest.mark.parametrize("number", NUMBERS)
def test_s84_a_flipped_byte_anywhere_is_damage_and_named(number):
    data = FILES[number]
    for position in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :]
            with pytest.raises(CorruptionError, match=rf"entry v{number} .* pipeline shop"):
                entry_of(number, damaged)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_cut_off_entry_is_damage(number):
    for length in range(len(FILES[number])):
        with pytest.raises(CorruptionError):
            entry_of(number, FILES[number][:length])


@pytest.mark.parametrize("number", NUMBERS)
def test_s84_a_changed_record_is_named_even_if_its_envelope_is_whole(number):
    for at, each in enumerate(entry_of(number).links):
        for position in range(len(each.body)):
            body = bytearray(each.body)
            body[position] ^= 0x01
            links = list(entry_of(number).links)
            links[at] = msgspec.structs.replace(each, body=bytes(body))
            with pytest.raises(JournalError, match=f"record #{each.lsn} of pipeline shop"):
                check(number, linked(number, links))


def test_a_changed_record_whose_hash_was_made_to_fit_breaks_the_one_after():
    links = list(entry_of(1).links)
    body = links[0].body.replace(b"p1", b"p9")
    links[0] = Link(5, links[0].prev, chain_hash(links[0].prev, 5, body), body)
    with pytest.raises(JournalError, match="record #6 of pipeline shop does not follow #5"):
        check(1, linked(1, links))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda links: links[:1] + links[2:], "record #6 of pipeline shop is missing: #7"),
        (lambda links: [links[0], links[0], *links[1:]], "record #5 .* twice or out of order"),
        (lambda links: [links[0], links[2], links[1], links[3]], "record #6 .* missing: #7"),
        (lambda links: links[1:], "record #5 of pipeline shop is missing: #6"),
    ],
    ids=["missing", "duplicated", "reordered", "first missing"],
)
def test_s84_records_out_of_their_places_are_named(change, message):
    with pytest.raises(JournalError, match=message):
        check(1, linked(1, change(list(entry_of(1).links))))


def test_s84_an_entry_in_the_place_of_another_is_refused():
    for number in NUMBERS:
        with pytest.raises(CorruptionError, match="not what it should be"):
            decode_entry("shop", SeqNo(99), FILES[number])
        with pytest.raises(CorruptionError, match="not what it should be"):
            decode_entry("other", SeqNo(number), FILES[number])
    with pytest.raises(JournalError, match="record #5 of pipeline shop is missing"):
        check_links("shop", entry_of(2), *before(1))


def test_an_entry_is_named_with_the_record_that_it_starts_with():
    with pytest.raises(CorruptionError, match=r"entry v1 .* pipeline shop, from record #5 on,"):
        decode_entry("shop", SeqNo(1), FILES[1][:-1], 4)


@pytest.mark.parametrize("number", NUMBERS)
def test_s71_a_newer_format_is_refused_by_name(number):
    data = FILES[number]
    newer = data[:4] + (2).to_bytes(2, "big") + data[6:]
    with pytest.raises(NewerFormatError, match=rf"entry v{number} .*shop.*format 2.*upgrade"):
        entry_of(number, newer)


def test_s71_a_newer_form_is_refused_by_name_whatever_its_shape():
    for body in ([5, "token"], [5, {"a": 1}, [], None, 5, 6, 7, 8]):
        data = seal("journal", "shop", "v3", msgspec.msgpack.encode(body))
        with pytest.raises(NewerFormatError, match=r"entry v3 .*shop.*form 5.*upgrade"):
            entry_of(3, data)


def test_s71_a_form_from_before_answers_is_refused_with_a_remedy():
    old = (GOLDEN / "journal1" / "entry-03.bin").read_bytes()
    with pytest.raises(JournalError, match=r"entry v3 .*shop.*form 1.*reads 2.*the version that"):
        decode_entry("shop", SeqNo(3), old)


def test_s71_an_unknown_kind_of_record_is_one_of_a_newer_version():
    body = msgspec.msgpack.encode(["MERGE", 1, 2])
    found = Link(5, b"", b"", body)
    with pytest.raises(NewerFormatError, match="record #5 of pipeline shop is a 'MERGE'"):
        records_of("shop", msgspec.structs.replace(entry_of(1), links=(found,)))


@pytest.mark.parametrize("name", LACKING)
def test_s71_a_record_without_a_field_that_it_must_have_is_refused_with_a_remedy(name):
    number, field = int(name[6:8]), name[9:-4]
    entry = entry_of(number, LACKING[name])
    check(number, entry)
    where = rf"record #{entry.first} of pipeline shop, a \w+ of form 2 or later"
    message = rf"{where}, has no `{field}`.*version"
    with pytest.raises(JournalError, match=message):
        records_of("shop", entry)


def test_s71_a_snapshot_without_a_field_is_refused_and_not_read_as_empty():
    standing = decode_snapshot("shop", CHECKPOINT, SNAPSHOT)
    fields = msgspec.to_builtins(standing, builtin_types=(bytes,))
    # Without `retain` all is kept, as it was before there was such a field.
    for name in set(Standing.__struct_fields__) - {"retain"}:
        lacking = {key: value for key, value in fields.items() if key != name}
        body = seal("checkpoint", "shop", f"#{CHECKPOINT}", msgspec.msgpack.encode(lacking))
        with pytest.raises(CorruptionError, match=f"snapshot #14 of pipeline shop.*{name}"):
            decode_snapshot("shop", CHECKPOINT, body)


def test_what_makes_no_sense_is_refused_by_name():
    for value in (["SEAL", "five"], ["SEAL", None], 7, [], [[1]], {"a": 1}):
        found = Link(5, b"", b"", msgspec.msgpack.encode(value))
        with pytest.raises(JournalError, match="record #5 of pipeline shop"):
            records_of("shop", msgspec.structs.replace(entry_of(1), links=(found,)))
    broken = Link(5, b"", b"", b"\xc1\xc1")
    with pytest.raises(CorruptionError, match="record #5 of pipeline shop is damaged"):
        records_of("shop", msgspec.structs.replace(entry_of(1), links=(broken,)))


def test_a_large_entry_refers_to_its_records_and_says_all_else_itself():
    data = (GOLDEN / "journal2" / "large.bin").read_bytes()
    slim, whole = entry_of(9, data), entry_of(9)
    assert slim.links == ()
    assert (slim.spilled.key, slim.committed) == ("journal/shop/" + "a" * 32, whole.committed)
    assert encode_entry("shop", SeqNo(9), slim) == data
    found = with_links("shop", SeqNo(9), slim, pack_links(whole))
    assert found.links == whole.links
    for packed in (b"\x90", b"\xc1", b"", b"\x91\x01"):
        with pytest.raises(CorruptionError, match="entry v9 of the journal of pipeline shop"):
            with_links("shop", SeqNo(9), slim, packed)


def test_fields_that_a_newer_version_added_are_passed_over():
    body = msgspec.msgpack.encode(["SEAL", 5, "new"])
    found = Link(5, b"", b"", body)
    assert records_of("shop", msgspec.structs.replace(entry_of(1), links=(found,))) == [r.Seal(5)]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(FILES) - 1), st.data())
def test_x10_bytes_that_somebody_made_up_are_refused_and_nothing_else_happens(number, data):
    body = bytearray(msgspec.msgpack.encode(entry_of(number)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    forged = seal("journal", "shop", f"v{number}", bytes(body))
    with suppress(CorruptionError):
        entry = entry_of(number, forged)
        check_links("shop", entry, entry.first - 1, entry.links[0].prev)
        records_of("shop", entry)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_x10_any_value_in_the_place_of_an_entry_or_a_record_is_refused(value):
    packed = msgspec.msgpack.encode(value)
    with pytest.raises(CorruptionError, match="pipeline shop"):
        entry_of(3, seal("journal", "shop", "v3", packed))
    with pytest.raises(CorruptionError, match="record #5 of pipeline shop"):
        records_of("shop", msgspec.structs.replace(entry_of(1), links=(Link(5, b"", b"", packed),)))


def test_an_entry_without_records_is_refused():
    empty = seal("journal", "shop", "v0", msgspec.msgpack.encode([2, "t", 0, 0, 1, [], None]))
    with pytest.raises(JournalError, match="has no record"):
        entry_of(0, empty)
