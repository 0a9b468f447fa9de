"""S67: in logs, status, metrics, history and outputs a transaction has the same number."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from tests.scenarios.recovering import Run, served

from strandline.system import SystemTasks

PROGRAM = """CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING generator
    OPTIONS (seed '3', keys '1000', rows '120', rowsPerSecond '60');
CREATE SINK out FROM orders USING files OPTIONS (path '{folder}/out', format 'json');"""


def _manifests(folder: Path) -> dict[int, dict[str, object]]:
    found = sorted((folder / "out").rglob("_manifests/*.json"))
    return {int(path.stem): json.loads(path.read_bytes()) for path in found}


def _net(folder: Path, t: int) -> int:
    """How many rows more a transaction has made, by the lines that its manifest refers to."""
    (manifest,) = (folder / "out").rglob(f"_manifests/{t:020}.json")
    told = json.loads(manifest.read_bytes())
    attempt = manifest.parent.parent / told["attempt"]
    lines = [(attempt / name).read_text().splitlines() for name in told["files"]]
    return sum(json.loads(line)["_diff"] for each in lines for line in each)


def _committed(run: Run) -> list[int]:
    """The last transaction, every time that the log tells of it."""
    told = [each["committed"] for each in run.events() if each["kind"] in {"progress", "ended"}]
    return [each - 1 for each in told if each]


@pytest.mark.process
def test_s67_the_log_of_a_recovery_has_the_numbers_of_everybody_else(tmp_path):
    (tmp_path / "shop.sql").write_text(PROGRAM.format(folder=tmp_path))
    first = Run(tmp_path, "--rows", "10", "--delay", "0")
    deadline = time.monotonic() + 60
    while len(_manifests(tmp_path)) < 3 or not _committed(first):
        assert time.monotonic() < deadline, first.erred.read_text()
        SystemTasks().sleep(20)
    first.kill()
    before, published = _committed(first)[-1], set(_manifests(tmp_path))
    second = Run(tmp_path, "--rows", "10", "--delay", "0", "--until-idle")
    assert second.ended() == 0, second.erred.read_text()

    told, manifests = _committed(second), _manifests(tmp_path)
    last = told[-1]
    assert told == sorted(told)
    assert min(told) >= before, "a recovery goes on counting, it does not begin again"
    with served(tmp_path / "lake") as answers:
        status = json.loads(answers["/v1/pipelines/shop/status"][4:])
        history = json.loads(answers["/v1/pipelines/shop/history"][4:])["transactions"]
        metrics = answers["/metrics"].decode()
    assert status["committed"] == last + 1
    assert status["checkpoint"] == last
    counted = re.search(r'strandline_pipeline_committed\{pipeline="shop"\} (\S+)', metrics)
    assert float(counted[1]) == last + 1
    assert history[0]["time"] == last
    assert set(told) <= set(range(last + 1))

    assert published <= manifests.keys()
    assert max(manifests) == last, "all that came has changes"
    assert {number: each["t"] for number, each in manifests.items()} == {
        number: number for number in manifests
    }
    changes = {each["time"]: each["changes"]["orders"] for each in history}
    assert {t: _net(tmp_path, t) for t in manifests if t in changes} == {
        t: changes[t] for t in manifests if t in changes
    }, "it is the same transaction that has the number"
