"""Bytes of format 1 mean what they always meant, and today's code writes the same ones."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path

import pytest

from strandline.errors import CorruptionError, NewerFormatError
from strandline.model.ids import SeqNo
from strandline.shard.change import Change, evolve
from strandline.shard.codec import decode_manifest, decode_record, encode_manifest, encode_record
from strandline.shard.pulse import decode_pulse, encode_pulse

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = {path.name: path.read_bytes() for path in sorted((GOLDEN / "format1").glob("*.bin"))}
FACTS = json.loads((GOLDEN / "format1" / "facts.json").read_text())
NAME = "toy"


def _maker():
    path = GOLDEN / "make_format1.py"
    spec = importlib.util.spec_from_file_location("golden_make_format1", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


facts_of = _maker().facts_of


def _number(file):
    return SeqNo(int(file.removesuffix(".bin").partition("-")[2]))


def _decode(file, data, name=NAME, seqno=None):
    if file.startswith("pulse"):
        return decode_pulse(3 if name == NAME else 4, seqno or SeqNo(5), data)
    if file.startswith("manifest"):
        return decode_manifest(name, seqno or _number(file), data, "key")
    return decode_record(name, seqno or _number(file), data)


def _encode(file, value):
    if file.startswith("pulse"):
        return encode_pulse(value, SeqNo(5))
    if file.startswith("manifest"):
        return encode_manifest(value)
    return encode_record(NAME, _number(file), value)


def test_there_is_a_golden_file_for_each_fact_and_each_field_of_a_change():
    assert set(FILES) == set(FACTS)
    named = {name for file, fact in FACTS.items() if file.startswith("rec") for name in fact[0]}
    assert named == set(Change.__struct_fields__)


@pytest.mark.parametrize("file", FILES)
def test_a_golden_file_means_what_it_meant(file):
    assert json.loads(json.dumps(facts_of(_decode(file, FILES[file])))) == FACTS[file]


@pytest.mark.parametrize("file", FILES)
def test_a_golden_file_is_written_byte_for_byte(file):
    assert _encode(file, _decode(file, FILES[file])) == FILES[file]


@pytest.mark.parametrize("file", ["manifest-16.bin", "record-03.bin", "record-20.bin"])
def test_parts_without_the_fields_that_came_later_mean_what_they_meant(file):
    before = (GOLDEN / "first" / file).read_bytes()
    assert before != FILES[file]
    assert _decode(file, before) == _decode(file, FILES[file])


def test_the_golden_records_add_up_to_the_golden_manifests():
    state = None
    manifests = 0
    for file in sorted(file for file in FILES if file.startswith("record")):
        state = evolve(state, _decode(file, FILES[file]).change)
        manifest = FILES.get(file.replace("record", "manifest"))
        if manifest is not None:
            manifests += 1
            assert decode_manifest(NAME, state.seqno, manifest, "key") == state
            assert encode_manifest(state) == manifest
    assert manifests == 6


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_byte_anywhere_is_damage_and_never_another_value(file):
    data = FILES[file]
    for position in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :]
            with pytest.raises(CorruptionError):
                _decode(file, damaged)


@pytest.mark.parametrize("file", FILES)
def test_a_truncated_file_is_damage(file):
    for length in range(len(FILES[file])):
        with pytest.raises(CorruptionError):
            _decode(file, FILES[file][:length])


@pytest.mark.parametrize("file", FILES)
def test_format_2_is_refused_by_name(file):
    data = FILES[file]
    newer = data[:4] + (2).to_bytes(2, "big") + data[6:]
    what = {"r": "version v", "m": "manifest key of shard toy", "p": "pulse 3"}[file[0]]
    with pytest.raises(NewerFormatError, match=f"{what}.*format 2.*upgrade"):
        _decode(file, newer)


@pytest.mark.parametrize("file", FILES)
def test_a_file_in_the_place_of_another_is_refused(file):
    for name, seqno in (("other", None), (NAME, SeqNo(99))):
        with pytest.raises(CorruptionError, match="not what it should be"):
            _decode(file, FILES[file], name, seqno)


def test_neighbouring_records_can_not_be_swapped():
    records = [file for file in FILES if file.startswith("record")]
    for file, neighbour in itertools.pairwise(records):
        with pytest.raises(CorruptionError):
            _decode(file, FILES[neighbour])
        with pytest.raises(CorruptionError):
            _decode(neighbour, FILES[file])


def test_a_record_is_no_manifest_and_a_manifest_no_record():
    with pytest.raises(CorruptionError):
        decode_manifest(NAME, SeqNo(1), FILES["record-01.bin"], "key")
    with pytest.raises(CorruptionError):
        decode_record(NAME, SeqNo(1), FILES["manifest-01.bin"])
