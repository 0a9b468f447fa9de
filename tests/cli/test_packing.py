"""What the verb `pack` prints; what it packs is tested with `strandline.spark.pack`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.cli import packing
from strandline.spark.pack import FOLDER, Packed


@pytest.fixture
def packed(monkeypatch, tmp_path):
    """An archive that takes no time to make."""
    wanted = []

    def made(target, *, extra, report):
        wanted.append((target, list(extra)))
        report(1, 2)
        return Packed(tmp_path / "x.tar.gz", 2_500_000, 17, {"numpy": "2.0", "strandline": "1.0"})

    monkeypatch.setattr(packing, "pack", made)
    return wanted


def test_it_says_where_the_archive_is_what_is_in_it_and_what_to_set(ask, packed, tmp_path):
    said = ask("pack")
    assert (said.code, said.err) == (0, "")
    assert packed == [(None, [])]
    for each in (
        f"{tmp_path / 'x.tar.gz'}: 2.5 MB, 17 files",
        "numpy 2.0, strandline 1.0",
        f"spark.archives                {tmp_path / 'x.tar.gz'}#{FOLDER}",
        f"spark.executorEnv.PYTHONPATH  {FOLDER}:../{FOLDER}",
    ):
        assert each in said.out


def test_options_are_passed_on_and_json_has_the_settings(ask, packed, tmp_path):
    said = ask("pack", "-o", str(tmp_path), "--with", "pandas", "--with", "duckdb", "--json")
    assert packed == [(Path(tmp_path), ["pandas", "duckdb"])]
    document = json.loads(said.out)
    assert document["archive"] == str(tmp_path / "x.tar.gz")
    assert document["settings"]["spark.archives"] == f"{tmp_path / 'x.tar.gz'}#{FOLDER}"
    assert document["versions"] == {"numpy": "2.0", "strandline": "1.0"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--with", "no-such-package"], 1, "no-such-package is not installed"),
        (["-o", "x.zip"], 2, "x.zip does not end in .tar.gz"),
        (["-o", "/no/such/folder/x.tar.gz"], 1, "can't write to /no/such/folder"),
    ],
)
def test_what_can_not_be_packed_is_said_in_one_line(ask, arguments, code, words):
    said = ask("pack", *arguments)
    assert (said.code, said.out) == (code, "")
    assert words in said.err
    assert said.err.count("\n") == 1
