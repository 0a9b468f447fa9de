"""S90: a secret that is really used is nowhere but where it is used, before and after a crash."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.broker.broker import PASSWORD, USER
from tests.scenarios.recovering import Run, served

import strandline
from strandline.system import SystemTasks

WRONG = "hunter2-marker"
PROGRAM = """CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING kafka OPTIONS (
    kafka.bootstrap.servers '{servers}', subscribe '{topic}',
    kafka.security.protocol 'SASL_PLAINTEXT', kafka.sasl.mechanism 'PLAIN',
    kafka.sasl.username '{user}', kafka.sasl.password 'file:{secret}');
CREATE SINK out FROM orders USING files OPTIONS (path '{folder}/out', format 'json');"""


def _held(folder: Path) -> dict[str, bytes]:
    """Every byte that the runs have left: the store, what was published, what was said."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "secret":
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def _send(topics, topic: str, ids: range) -> None:
    topics.write(topic, [json.dumps({"id": i, "amount": i}).encode() for i in ids])


@pytest.mark.process
def test_s90_a_secret_that_moves_is_resolved_again_and_no_byte_holds_it(
    broker, topics, tmp_path, monkeypatch
):
    topic, secret = topics.make(), tmp_path / "secret"
    text = PROGRAM.format(
        servers=broker.sasl_address, topic=topic, user=USER, secret=secret, folder=tmp_path
    )
    (tmp_path / "shop.sql").write_text(text)
    _send(topics, topic, range(20))
    secret.write_text(f"{PASSWORD}\n")
    first = Run(tmp_path, "--rows", "5")
    deadline = time.monotonic() + 60
    while not any(each.get("committed") for each in first.events()):
        assert time.monotonic() < deadline, first.erred.read_text()
        SystemTasks().sleep(50)
    first.kill()

    _send(topics, topic, range(20, 30))
    secret.write_text(WRONG)
    assert Run(tmp_path, "--until-idle").ended() != 0, "the value of before is not used any more"
    secret.write_text(PASSWORD)
    last = Run(tmp_path, "--until-idle", "--rows", "5")
    assert last.ended() == 0, last.erred.read_text()
    with (
        strandline.open(str(tmp_path / "lake"), upkeep=False) as store,
        store.shard("shop.orders").snapshot() as snapshot,
    ):
        assert sorted(snapshot.to_arrow()["id"].to_pylist()) == list(range(30))

    monkeypatch.setenv("STRANDLINE_ALLOW_HOSTS", "127.0.0.1, localhost")
    with served(tmp_path / "lake") as answers:
        assert all(each.startswith(b"200 ") for each in answers.values()), answers
        held = {**_held(tmp_path), **answers}
    assert any(str(secret).encode() in each for name, each in held.items() if "lake" in name), (
        "the reference is on record, so what is on record is looked at"
    )
    assert any(b"do not accept each other" in each for each in held.values())
    for marker in (PASSWORD, WRONG):
        leaks = [name for name, each in held.items() if marker.encode() in each]
        assert leaks == []
