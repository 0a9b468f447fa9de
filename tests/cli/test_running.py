"""The verbs that run pipelines, and what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from strandline.assembly import open_store
from strandline.cli.output import Output
from strandline.cli.running import Running, run_pipeline
from strandline.connectors.files_sink import read_published
from strandline.journal.log import Journal
from strandline.pipeline.requests import Requests
from strandline.pipeline.settings import PipelineSettings
from strandline.system import SystemTasks
from strandline.testing.engines import arrow_engine


def test_it_runs_until_idle_and_says_how_it_ended(shop):
    said = shop.run("--until-idle", "--json")
    assert said.code == 0, said.err
    events = said.events()
    assert events[0]["kind"] == "starting"
    assert (events[0]["tables"], events[0]["views"]) == (2, 1)
    last = events[-1]
    assert (last["kind"], last["state"], last["committed"]) == ("ended", "stopped", 4)
    again = shop.run("--until-idle")
    assert again.code == 0
    assert "shop: committed up to 3, stopped" in again.out


def test_it_runs_so_many_transactions(shop):
    assert shop.run("--transactions", "2", "--json").events()[-1]["committed"] == 2
    assert (
        shop.run("--transactions", "1", "--name", "other", "--json").events()[-1]["pipeline"]
        == "other"
    )


def test_numbers_are_given_and_retention_is_on_record(shop):
    more = ["--retain", "2", "--bytes", "4096", "--checkpoint-every", "1"]
    assert shop.run("--until-idle", *more).code == 0
    assert shop.run("--until-idle").code == 0, "who says nothing follows the record"
    (told,) = shop.ask("status", shop.lake, "--json").json()["pipelines"]
    assert (told["retain"], told["checkpoint"]) == (2, 3)
    with open_store(shop.lake, upkeep=False) as store:
        assert store.shard("shop.orders").state().retention.count == 2
        kinds = [type(each).__name__ for _, each in Journal(store.env, "shop").records()]
    assert kinds.count("Checkpoint") >= 2


def test_a_program_with_errors_is_refused_with_all_of_them(shop):
    (shop.folder / "shop.sql").write_text("CREATE TABLE t (k INT) USING nowhere; SELECT 1;")
    said = shop.run("--until-idle")
    assert said.code == 2
    assert "nowhere" in said.err
    assert "line 1" in said.err


def test_another_program_under_the_same_name_is_refused(run_shop):
    changed = (run_shop.folder / "shop.sql").read_text().replace("> 10", "> 11")
    (run_shop.folder / "shop.sql").write_text(changed)
    said = run_shop.run("--until-idle")
    assert said.code == 2
    assert "promote" in said.err


def test_replay_verifies_all_or_a_stretch(run_shop):
    told = run_shop.ask("replay", run_shop.lake, "--verify", "--json").json()
    assert (told["from"], told["to"], told["transactions"]) == (0, 4, 4)
    assert told["equal"] is True
    some = run_shop.ask("replay", run_shop.lake, "shop", "--from", "1", "--to", "3")
    assert "2 transactions computed again from 20 rows" in some.out
    assert run_shop.ask("replay", run_shop.lake, "--to", "99").code == 2


def test_a_replay_of_nothing_verifies_nothing_and_says_so(run_shop):
    for between in (("--from", "4"), ("--from", "2", "--to", "2")):
        said = run_shop.ask("replay", run_shop.lake, *between, "--json")
        told = json.loads(said.out)
        assert (said.code, told["equal"], told["transactions"]) == (1, False, 0)
    shown = run_shop.ask("replay", run_shop.lake, "--from", "4")
    assert "no transaction was computed again: there is none from 4 up to 4" in shown.out


def test_replay_names_what_it_could_not_compute_and_does_not_end_well(run_shop):
    with open_store(run_shop.lake) as store:
        pipeline = store.pipeline("shop", engine=arrow_engine)
        with pipeline.transaction() as work:
            work.insert("notes", [{"id": 1, "note": "hello"}])
        for each in list(store.env.blob.list("journal/shop/")):
            if each.key.endswith(".rows"):
                store.env.blob.delete(each.key)
    said = run_shop.ask("replay", run_shop.lake, "--json")
    told = json.loads(said.out)
    assert (said.code, told["equal"], told["transactions"]) == (1, False, 4)
    assert "4: rows of transaction.notes are gone" in told["skipped"][0]
    shown = run_shop.ask("replay", run_shop.lake)
    assert "1 transaction not computed: 4: rows of" in shown.out


def test_a_checkpoint_is_taken_where_nobody_runs(run_shop):
    told = run_shop.ask("checkpoint", run_shop.lake, "--json").json()
    assert told == {"pipeline": "shop", "checkpoint": 3}


def test_pause_and_resume_are_kept_where_nobody_runs(run_shop):
    assert run_shop.ask("pause", run_shop.lake, "--json").json()["paused"] is True
    with open_store(run_shop.lake) as store:
        pipeline = store.pipeline("shop", engine=arrow_engine)
        pipeline.start()
        while pipeline.here.state != "paused":
            SystemTasks().sleep(5)
        pipeline.resume()
        pipeline.stop()
    assert run_shop.ask("resume", run_shop.lake, "--json").json()["paused"] is False


def test_a_sink_that_has_stopped_is_told_at_the_end_and_it_did_not_end_well(shop):
    shop.publish()
    shop.target.write_text("this is no folder")
    said = shop.run("--until-idle", "--json")
    last = said.events()[-1]
    assert (said.code, last["state"], last["committed"]) == (1, "stopped", 4)
    (sink,) = last["sinks"]
    assert (sink["sink"], sink["state"]) == ("out", "stopped")
    assert "sink out: " in sink["cause"]
    again = shop.run("--until-idle")
    assert again.code == 1
    assert "; sink out: " in again.out
    assert again.out.splitlines()[-1].endswith(", stopped")


def test_a_sink_is_paused_and_resumed_by_its_name(shop):
    shop.publish()
    assert shop.run("--transactions", "2").code == 0
    paused = shop.ask("pause", shop.lake, "shop", "--sink", "OUT", "--json").json()
    assert (paused["paused"], paused["sinks"][0]["paused"]) == (False, True)
    assert paused["sinks"][0]["state"] == "paused"
    before = len(list(read_published(shop.target)))
    assert shop.run("--until-idle").code == 0
    assert len(list(read_published(shop.target))) == before
    held = shop.ask("status", shop.lake, "--json").json()["pipelines"][0]["sinks"][0]
    assert (held["state"], held["paused"]) == ("paused", True)
    assert held["behind"] >= 2
    assert held["lag_seconds"] > 0
    resumed = shop.ask("resume", shop.lake, "--sink", "out", "--json").json()
    assert resumed["sinks"][0]["paused"] is False
    assert shop.run("--until-idle").code == 0
    assert [each.t for each in read_published(shop.target)] == [0, 1, 2, 3]
    said = shop.ask("pause", shop.lake, "--sink", "nope")
    assert said.code == 2
    assert "no sink 'nope': it has out" in said.err


def test_a_sink_that_has_stopped_goes_on_once_it_is_mended_and_resumed(shop):
    shop.publish()
    shop.target.write_text("this is no folder")
    with open_store(shop.lake) as store:
        pipeline = store.pipeline("shop", Path(shop.file).read_text(), engine=arrow_engine)
        pipeline.start()
        until(lambda: [each.state for each in pipeline.here.sinks] == ["stopped"])
        shop.target.unlink()
        resumed = shop.ask("resume", shop.lake, "--sink", "OUT", "--json").json()
        assert resumed["sinks"][0]["state"] != "stopped"
        until(lambda: pipeline.here.sinks[0].reached == 0)
        pipeline.stop()
    assert [each.t for each in read_published(shop.target)] == [0]


def test_a_sink_that_is_resumed_is_not_waited_for_as_another_of_nearly_its_name(shop):
    """A program before this one may have written its name otherwise."""
    shop.publish()
    with open_store(shop.lake) as store:
        pipeline = store.pipeline("shop", Path(shop.file).read_text(), engine=arrow_engine)
        pipeline.start()
        for _ in range(3):
            Requests(store.env, "shop").resume("Out")
        until(lambda: pipeline.here.sinks[0].reached == 0)
        said = shop.ask("resume", shop.lake, "--sink", "out", "--timeout", "10", "--json")
        assert said.code == 0, said.err
        pipeline.stop()


def test_until_idle_ends_with_code_1_where_a_paused_sink_allows_nothing_new(shop, capsys):
    shop.publish()
    assert shop.run("--transactions", "1").code == 0
    with open_store(shop.lake) as store:
        pipeline = store.pipeline("shop", Path(shop.file).read_text(), engine=arrow_engine)
        store.shard(pipeline.collection("large").name).hold("sink.shop.out", 0)
        pipeline.pause(sink="out")
    settings = PipelineSettings(rows_max=10, delay_ms=0, sink_lag_max=3)
    wanted = Running(Path(shop.file), shop.lake, until_idle=True, settings=settings)
    assert run_pipeline(wanted, Output(), arrow_engine) is False
    said = capsys.readouterr().out.splitlines()[-1]
    assert ", stopped: sink out, which is paused, is 3 transactions behind" in said


def test_until_idle_ends_with_code_1_where_a_sink_s_function_is_nowhere_given(shop, capsys):
    file = Path(shop.file)
    sink = "CREATE SINK told FROM large USING callback OPTIONS (delivery 'at-least-once');"
    file.write_text(f"{file.read_text()}\n{sink}\n")
    settings = PipelineSettings(rows_max=10, delay_ms=0, claim_lease_ms=400)
    wanted = Running(file, shop.lake, until_idle=True, settings=settings)
    assert run_pipeline(wanted, Output(), arrow_engine) is False
    said = capsys.readouterr().out.splitlines()[-1]
    assert ", stopped: sink told is published by nobody: no function is given here" in said


@pytest.mark.process
def test_a_sink_of_another_process_is_seen_paused_and_resumed_through_the_store(shop):
    shop.publish()

    def sink():
        return shop.ask("status", shop.lake, "--json").json()["pipelines"][0]["sinks"][0]

    with Child(shop, "--replica", "a") as child:
        until(lambda: state_of(shop) == "running" and sink()["state"] == "publishing")
        until(lambda: sink()["reached"] == 3)
        assert (sink()["publisher"], sink()["behind"]) == ("a", 0)
        assert shop.ask("verify-sink", shop.lake, "out").code == 0, "its publisher is at work"
        paused = shop.ask("pause", shop.lake, "--sink", "out", "--json").json()
        assert paused["sinks"][0]["state"] == "paused"
        assert paused["replicas"][0]["state"] == "running", "the pipeline goes on"
        shop.ask("resume", shop.lake, "--sink", "out")
        until(lambda: sink()["state"] == "publishing")
        shop.ask("stop", shop.lake)
        assert child.wait(60) == 0


@pytest.mark.process
def test_another_process_is_paused_resumed_and_stopped_through_the_store(shop):
    with Child(shop, "--replica", "a") as child:
        until(lambda: state_of(shop) == "running")
        paused = shop.ask("pause", shop.lake, "--json").json()
        assert [each["state"] for each in paused["replicas"]] == ["paused"]
        resumed = shop.ask("resume", shop.lake, "--json").json()
        assert resumed["replicas"][0]["state"] in {"starting", "running"}
        stopped = shop.ask("stop", shop.lake, "--json").json()
        assert [each["state"] for each in stopped["replicas"]] == ["stopped"]
        assert child.wait(60) == 0
        assert stopped["checkpoint"] == 3


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_signal_stops_it_after_a_checkpoint(shop, number):
    with Child(shop) as child:
        until(lambda: state_of(shop) == "running")
        os.kill(child.pid, number)
        out, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        events = [json.loads(line) for line in out.splitlines()]
        assert [each["kind"] for each in events[-2:]] == ["stopping", "ended"]
    assert shop.ask("status", shop.lake, "--json").json()["pipelines"][0]["state"] == "stopped"


@pytest.mark.process
def test_status_never_says_running_of_a_process_that_was_killed(shop):
    with Child(shop) as child:
        until(lambda: state_of(shop) == "running")
        os.kill(child.pid, signal.SIGKILL)
        child.wait(60)
        until(lambda: state_of(shop) == "silent")


class Child:
    """A child that runs the shop, killed at the end if it still does."""

    def __init__(self, shop, *arguments: str) -> None:
        code = """
            import sys
            from strandline.cli.main import main
            from strandline.testing.engines import arrow_engine
            sys.exit(main(sys.argv[1:], engine=arrow_engine))
        """
        self._command = [
            *(sys.executable, "-c", textwrap.dedent(code), "run", shop.file),
            *("--store", shop.lake, "--rows", "10", "--delay", "0", "--json", *arguments),
        ]

    def __enter__(self) -> subprocess.Popen:
        self._child = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        return self._child

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        self._child.stdout.close()


def state_of(shop) -> str | None:
    said = shop.ask("status", shop.lake, "--json")
    found = said.json()["pipelines"] if said.out else []
    return found[0]["state"] if found else None


def until(holds) -> None:
    """Wait as long as the test's own timeout allows."""
    while not holds():
        SystemTasks().sleep(50)
