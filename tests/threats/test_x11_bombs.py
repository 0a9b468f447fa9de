"""X11: files that are made to hurt are refused by name, and little of them is ever in memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline
from strandline.errors import SourceError
from strandline.testing.engines import arrow_engine

PROGRAM = """CREATE TABLE t (k BIGINT, v STRING, PRIMARY KEY (k)) USING files
    OPTIONS (path '{folder}', format '{kind}', maxRecordBytes '1000000');"""
READ = """
import resource, sys
from strandline.connectors.files import Files, fetch
from strandline.connectors.source import Limits
source = Files({"path": sys.argv[1], "format": "json"})
taken = source.plan({}, Limits())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(batch.num_rows for split in source.splits(taken) for batch in fetch(split, str))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def _long_line(path):
    with path.open("wb") as file:
        file.write(b'{"k": 1, "v": "')
        # So much that takes no room on the disk.
        file.truncate(64 * 1024 * 1024)


def _bomb(path):
    values = pa.DictionaryArray.from_arrays(
        pa.array([0] * 20_000, pa.int32()), pa.array(["x" * 500_000])
    )
    keys = pa.array(range(20_000), pa.int64())
    pq.write_table(pa.table({"k": keys, "v": values}), path, store_schema=False)
    assert path.stat().st_size < 500_000


def _work(pipeline):
    """What a replica tries again and again, until the file is another or is gone."""
    for _ in range(10):
        pipeline.step()


@pytest.mark.parametrize(
    ("kind", "make", "words"),
    [("json", _long_line, "maxRecordBytes"), ("parquet", _bomb, "maxRatio")],
)
def test_x11_a_pipeline_names_the_file_and_commits_nothing(tmp_path, kind, make, words):
    folder = tmp_path / "in"
    folder.mkdir()
    make(folder / "evil")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with strandline.open("memory://") as store:
        text = PROGRAM.format(folder=folder, kind=kind)
        pipeline = store.pipeline("p", text, engine=arrow_engine)
        with pytest.raises(SourceError, match=rf"'evil'.*{words}"):
            _work(pipeline)
        assert pipeline.committed.time in {None, 0}
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 2 * 1024 * 1024, "10 GB were never in memory"


@pytest.mark.process
def test_x11_a_large_file_is_read_in_little_memory(tmp_path):
    line = json.dumps({"k": 1, "v": "x" * 200}).encode() + b"\n"
    with (tmp_path / "large").open("wb") as file:
        for _ in range(200):
            file.write(line * 4_000)
    assert (tmp_path / "large").stat().st_size > 160_000_000
    said = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True, check=True
    )
    rows, grown_kb = map(int, said.stdout.split())
    assert rows == 800_000
    assert grown_kb < 100_000
