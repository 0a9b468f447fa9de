"""A pipeline gets another program from a terminal."""

from __future__ import annotations

from pathlib import Path

from tests.cli.shop import TEXT

CHANGED = TEXT.replace("> 10", "> 11").replace("CREATE TABLE notes", "CREATE TABLE memos")
OTHER_TYPE = TEXT.replace("amount BIGINT", "amount STRING").split("CREATE MATERIALIZED")[0]


def written(shop, text: str) -> str:
    path = Path(shop.folder) / "next.sql"
    path.write_text(text)
    return str(path)


def epoch_of(shop) -> int:
    return shop.ask("status", shop.lake, "--json").json()["pipelines"][0]["epoch"]


def test_what_would_change_is_told_and_nothing_happens(run_shop):
    said = run_shop.ask(
        "promote", run_shop.lake, "shop", written(run_shop, CHANGED), "--check", "--json"
    )
    told = said.json()
    assert said.code == 0
    assert list(told) == [
        *("pipeline", "promoted", "epoch", "program", "before", "same", "sealed", "kept", "added"),
        *("rebuilt", "removed", "begun", "ended", "versions"),
    ]
    assert (told["promoted"], told["epoch"], told["same"], epoch_of(run_shop)) == (
        *(False, 2, False),
        1,
    )
    assert (told["kept"], told["added"]) == (["orders"], ["memos"])
    assert (told["rebuilt"], told["removed"]) == (["large"], ["notes"])
    assert (told["begun"], told["ended"]) == (["memos"], ["notes"])
    assert run_shop.run("--until-idle").code == 0, "the program before still runs"


def test_a_program_is_promoted_and_the_one_before_is_refused(run_shop):
    file = written(run_shop, CHANGED)
    said = run_shop.ask("promote", run_shop.lake, "shop", file)
    assert said.code == 0, said.err
    assert "shop is at e2" in said.out
    assert "computed anew" in said.out
    assert run_shop.run("--until-idle").code == 2
    ran = run_shop.ask("run", file, "--store", run_shop.lake, "--name", "shop", "--until-idle")
    assert ran.code == 0, ran.err
    again = run_shop.ask("promote", run_shop.lake, "shop", file, "--json").json()
    assert (again["promoted"], again["epoch"], again["same"]) == (True, 3, True)


def test_what_can_not_be_promoted_is_refused_either_way(run_shop):
    file = written(run_shop, OTHER_TYPE)
    for more in (["--check"], []):
        said = run_shop.ask("promote", run_shop.lake, "shop", file, *more)
        assert said.code != 0
        assert "can't be promoted, and nothing was: table orders" in said.err
    assert run_shop.ask("promote", run_shop.lake, "nowhere", file).code == 2
    assert epoch_of(run_shop) == 1
