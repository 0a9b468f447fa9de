"""The verbs of `strandline`, their options, and what comes of errors.

A store comes first (`strandline shards ./lake`), and every verb takes `--json`. What a verb needs
is imported when it runs: `--help` and a mistyped option must not wait for Arrow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

import typer

from strandline.cli.advice import DONE, FAILED, INTERRUPTED, exit_code
from strandline.cli.options import (
    AnyShard,
    AsOf,
    Columns,
    Filters,
    Json,
    Raw,
    Run,
    ShardName,
    Store,
)
from strandline.cli.output import Output, SeenEnoughError, complain
from strandline.cli.verbs import add_verbs
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.pipeline.engine import NewEngine

app = typer.Typer(
    name="strandline",
    help="Tables with a clock: run pipelines, look at a store, follow it, keep it tidy.",
    epilog="Every verb takes --json. Exit codes: 0 done, 1 trouble, 2 a command to rewrite.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@runtime_checkable
class _CommandLineError(Protocol):
    """What typer raises about a command line, whichever module it keeps the class in."""

    exit_code: int

    def format_message(self) -> str: ...


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"strandline {version('strandline')}\n")
        raise typer.Exit


@app.callback()
def strandline(
    context: typer.Context,
    show_version: Annotated[  # noqa: ARG001 - its callback answers
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    if isinstance(context.obj, Run):
        context.obj.debug = debug


@app.command(rich_help_panel="Look")
def shards(store: Store, json: Json = False) -> None:
    """List all shards: rows, parts, frontiers, lag, who is there."""
    from strandline.cli.looking import list_shards

    if list_shards(store, Output(as_json=json)):
        raise typer.Exit(FAILED)


@app.command(rich_help_panel="Look")
def show(
    store: Store,
    shard: ShardName,
    rows: Annotated[int | None, typer.Option(min=0, help="Show so many rows.")] = None,
    as_of: AsOf = None,
    columns: Columns = None,
    filter: Filters = None,  # noqa: A002 - the word that the option has
    json: Json = False,
    raw: Raw = False,
) -> None:
    """Show one shard: columns, layout, retention; or its rows as of a time."""
    from strandline.cli.looking import RowsWanted, show_shard

    wanted = RowsWanted(as_of, rows, columns, filter or [])
    show_shard(store, shard, wanted, Output(as_json=json, raw=raw))


@app.command(rich_help_panel="Look")
def tail(
    store: Store,
    shard: ShardName,
    start: Annotated[
        str | None, typer.Option("--from", help="A time or an instant; else the newest.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(min=0, help="End before this time instead of following.")
    ] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot/--no-snapshot", help="The rows at the start, too.")
    ] = True,
    columns: Columns = None,
    filter: Filters = None,  # noqa: A002 - the word that the option has
    json: Json = False,
    raw: Raw = False,
) -> None:
    """Follow a shard: every update with its time and diff, and how far it is settled."""
    from strandline.cli.tail import Following, follow

    wanted = Following(start, until, columns, filter or [], snapshot=snapshot)
    follow(store, shard, wanted, Output(as_json=json, raw=raw))


@app.command(rich_help_panel="Look")
def history(
    store: Store,
    shard: ShardName,
    limit: Annotated[int, typer.Option(min=1, help="At most so many times.")] = 20,
    full: Annotated[bool, typer.Option("--full", help="Whole digests.")] = False,
    json: Json = False,
) -> None:
    """List the times of a shard, or the transactions of a pipeline, newest first."""
    from strandline.cli.looking import show_history
    from strandline.cli.pipelines import is_pipeline, show_transactions

    if is_pipeline(store, shard):
        show_transactions(store, shard, limit, Output(as_json=json))
    else:
        show_history(store, shard, limit, Output(as_json=json), full=full)


@app.command(rich_help_panel="Look")
def holds(
    store: Store,
    shard: AnyShard = None,
    expire_dead: Annotated[
        bool, typer.Option("--expire-dead", help="Drop leases of processes that are gone.")
    ] = False,
    json: Json = False,
    raw: Raw = False,
) -> None:
    """Show who holds what, and what keeps history from being merged."""
    from strandline.cli.looking import show_holds

    if show_holds(store, shard, Output(as_json=json, raw=raw), expire_dead=expire_dead):
        raise typer.Exit(FAILED)


@app.command(rich_help_panel="Tend")
def retain(
    store: Store,
    shard: ShardName,
    rule: Annotated[
        str,
        typer.Argument(
            help="1h, 7d, '100 versions', '1h or 100 versions', forever; "
            "of a pipeline '100 transactions' or forever."
        ),
    ],
    json: Json = False,
) -> None:
    """Say how much history of a shard, or of a pipeline, stays readable."""
    from strandline.cli.pipelines import is_pipeline
    from strandline.cli.tending import retain_history, retain_transactions

    retain = retain_transactions if is_pipeline(store, shard) else retain_history
    retain(store, shard, rule, Output(as_json=json))


@app.command(rich_help_panel="Tend")
def compact(
    store: Store,
    shard: AnyShard = None,
    every: Annotated[bool, typer.Option("--all", help="All shards.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Merge everything, not only what is due.")
    ] = False,
    json: Json = False,
) -> None:
    """Merge a shard's history and parts now, and delete what nobody needs."""
    from strandline.cli.tending import compact_shards

    if (shard is None) == (not every):
        raise typer.BadParameter("name one shard, or give --all")
    compact_shards(store, shard, Output(as_json=json), full=full)


@app.command(rich_help_panel="Tend")
def fsck(
    store: Store,
    shard: AnyShard = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every object, too.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Delete orphans.")] = False,
    json: Json = False,
) -> None:
    """Prove that a store is whole; exit code 1 if something is damaged."""
    from strandline.cli.tending import check_store

    if check_store(store, shard, Output(as_json=json), deep=deep, repair=repair):
        raise typer.Exit(FAILED)


@app.command(rich_help_panel="Tend")
def doctor(
    store: Annotated[
        str | None, typer.Argument(help="A store's folder, if there is one.", metavar="[STORE]")
    ] = None,
    json: Json = False,
) -> None:
    """Check this machine and a store's folder; say what to do about what is not well."""
    from strandline.cli.doctor import examine

    if examine(store, Output(as_json=json)):
        raise typer.Exit(FAILED)


@app.command(rich_help_panel="Spark")
def pack(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file, or a folder for it; else here."),
    ] = None,
    extra: Annotated[
        list[str] | None,
        typer.Option("--with", help="An installed package to take along. Repeat it for more."),
    ] = None,
    json: Json = False,
) -> None:
    """Pack this package for executors of a cluster; say what to set."""
    from strandline.cli.packing import pack_environment

    pack_environment(output, extra or [], Output(as_json=json))


add_verbs(app)


def main(arguments: list[str] | None = None, *, engine: NewEngine | None = None) -> int:
    """Run one command; the answer is its exit code. Errors are one line, never a traceback.

    `engine` computes pipelines instead of Spark.
    """
    run = Run(engine=engine)
    try:
        code = app(arguments, prog_name="strandline", standalone_mode=False, obj=run)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, SeenEnoughError):
        # Nothing may be written to a closed pipe at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:  # noqa: BLE001 - the last stop: a person gets a sentence
        return _complain(error, debug=run.debug)
    return code if isinstance(code, int) else DONE


def _complain(error: Exception, *, debug: bool) -> int:
    if debug:
        sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, _CommandLineError):
        context = getattr(error, "ctx", None)
        path = getattr(context, "command_path", "strandline")
        message = error.format_message().strip().rstrip(".")
        if message:  # without one, the help has been shown already
            complain(f"error: {message}; next: {path} --help")
        return error.exit_code
    if isinstance(error, StrandlineError):
        steps = [note for note in getattr(error, "__notes__", ()) if note]
        complain(f"error: {error}" + "".join(f"; next: {step}" for step in steps))
        return exit_code(error)
    complain(
        f"error: {type(error).__name__}: {error}; this should not happen, so please report it "
        "with the output of: strandline --debug …"
    )
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
