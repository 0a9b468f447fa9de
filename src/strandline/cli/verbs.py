"""The verbs of pipelines, and their options; what they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.advice import FAILED
from strandline.cli.options import (
    AnyPipeline,
    AsOf,
    Json,
    PipelineName,
    Raw,
    Store,
    engine_of,
)
from strandline.cli.output import Output

transactions = typer.Typer(
    help="Begin, fill, commit or abort an explicit transaction; amend a sealed one.",
    no_args_is_help=True,
)
File = Annotated[
    Path, typer.Argument(help="The program: SQL.", metavar="FILE.sql", exists=True, dir_okay=False)
]
Folder = Annotated[str, typer.Option("--store", help="The store's folder; created if missing.")]
Named = Annotated[
    str | None, typer.Option("--name", help="The pipeline's name; else that of the file.")
]
Replica = Annotated[
    str | None, typer.Option("--replica", help="The replica's name; else the first that is free.")
]
Handle = Annotated[str, typer.Argument(help="The transaction's id.", metavar="ID")]
Bytes = Annotated[
    int | None,
    typer.Option("--bytes", min=1, help="A transaction takes at most so many bytes a source."),
]
CheckpointEvery = Annotated[
    int | None, typer.Option(min=1, help="Transactions between two checkpoints.", metavar="N")
]
Retain = Annotated[
    int | None,
    typer.Option(min=1, help="Keep so many transactions; on record for all.", metavar="N"),
]
OneSink = Annotated[
    str | None, typer.Option("--sink", help="Only this sink; the pipeline goes on.", metavar="NAME")
]
Patience = Annotated[int, typer.Option("--timeout", min=1, help="Wait so many seconds, at most.")]


def run(
    context: typer.Context,
    file: File,
    store: Folder = "./lake",
    name: Named = None,
    replica: Replica = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Verify what others commit; write nothing.")
    ] = False,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when there is nothing left to do.")
    ] = False,
    transactions: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many.", metavar="N")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="A transaction takes at most so many rows a source.")
    ] = None,
    delay: Annotated[
        int | None, typer.Option(min=0, help="A transaction closes after so many ms.")
    ] = None,
    size: Bytes = None,
    checkpoint_every: CheckpointEvery = None,
    retain: Retain = None,
    json: Json = False,
) -> None:
    """Run a program: a replica of its pipeline, until it is stopped (Ctrl-C)."""
    from strandline.cli.running import Running, run_pipeline, settings_of

    wanted = Running(
        file=file,
        store=store,
        name=name,
        replica=replica,
        read_only=read_only,
        until_idle=until_idle,
        transactions=transactions,
        settings=settings_of(
            rows_max=rows,
            bytes_max=size,
            delay_ms=delay,
            checkpoint_every=checkpoint_every,
            retain=retain,
        ),
    )
    if not run_pipeline(wanted, Output(as_json=json), engine_of(context)):
        raise typer.Exit(FAILED)


def status(store: Store, name: AnyPipeline = None, json: Json = False) -> None:
    """Show pipelines: state, committed time, lag, sources, sinks, replicas, transactions."""
    from strandline.cli.pipelines import show_status

    if show_status(store, name, Output(as_json=json)):
        raise typer.Exit(FAILED)


def top(
    store: Store,
    name: AnyPipeline = None,
    every: Annotated[int, typer.Option(min=100, help="Milliseconds between two looks.")] = 1_000,
    count: Annotated[int | None, typer.Option(min=1, help="Look so often, then end.")] = None,
    json: Json = False,
) -> None:
    """Watch pipelines live, until Ctrl-C."""
    from strandline.cli.pipelines import watch

    watch(store, name, Output(as_json=json), every_ms=every, count=count)


def query(
    context: typer.Context,
    store: Store,
    sql: Annotated[str, typer.Argument(help="A SELECT over tables and views.", metavar="SQL")],
    as_of: AsOf = None,
    name: PipelineName = None,
    rows: Annotated[int, typer.Option(min=0, help="Show so many rows.")] = 100,
    json: Json = False,
    raw: Raw = False,
) -> None:
    """Answer a query over all tables and views at one committed time."""
    from strandline.cli.pipelines import Asked, answer_query

    asked = Asked(sql, as_of, rows)
    answer_query(store, name, asked, Output(as_json=json, raw=raw), engine_of(context))


def subscribe(
    store: Store,
    collection: Annotated[str, typer.Argument(help="A table or a view.", metavar="COLLECTION")],
    name: PipelineName = None,
    start: Annotated[
        str | None, typer.Option("--from", help="A time or an instant; else the newest.")
    ] = None,
    until: Annotated[
        int | None, typer.Option(min=0, help="End before this time instead of following.")
    ] = None,
    json: Json = False,
    raw: Raw = False,
) -> None:
    """Follow a table or a view of a pipeline: its rows, then every change."""
    from strandline.cli.pipelines import shard_of
    from strandline.cli.tail import Following, follow

    shard = shard_of(store, name, collection)
    follow(store, shard, Following(start, until), Output(as_json=json, raw=raw))


def replay(
    context: typer.Context,
    store: Store,
    name: AnyPipeline = None,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="The first transaction; else the oldest.")
    ] = None,
    stop: Annotated[
        int | None, typer.Option("--to", min=0, help="Up to this one, itself not; else all.")
    ] = None,
    verify: Annotated[  # noqa: ARG001 - there is no replay that does not
        bool, typer.Option("--verify", help="Compare with what is on record; always done.")
    ] = True,
    json: Json = False,
) -> None:
    """Compute committed transactions again, and compare each with what is on record."""
    from strandline.cli.running import replay_pipeline

    if not replay_pipeline(store, name, (start, stop), Output(as_json=json), engine_of(context)):
        raise typer.Exit(FAILED)


def verify_sink(
    store: Store,
    name: Annotated[str, typer.Argument(help="The sink, or its pipeline.", metavar="[PIPELINE]")],
    sink: Annotated[
        str | None, typer.Argument(help="The sink, after its pipeline.", metavar="NAME")
    ] = None,
    json: Json = False,
    raw: Raw = False,
) -> None:
    """Read a sink's target back, and compare it with its view at the delivered time."""
    from strandline.cli.verifying import verify_target

    pipeline, which = (None, name) if sink is None else (name, sink)
    if not verify_target(store, pipeline, which, Output(as_json=json, raw=raw)):
        raise typer.Exit(FAILED)


def reload(
    context: typer.Context,
    store: Store,
    table: Annotated[str, typer.Argument(help="The table.", metavar="TABLE")],
    word: Annotated[str, typer.Argument(help="The word FROM.", metavar="FROM")],
    path: Annotated[
        str,
        typer.Argument(
            help="A file, a folder of files, or a connector: kafka, strandline, generator.",
            metavar="PATH",
        ),
    ],
    name: PipelineName = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="json, csv, parquet or avro; else by the file's name."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", help="NAME=VALUE, as a table's OPTIONS has it; repeat it."),
    ] = None,
    timeout: Patience = 600,
    json: Json = False,
) -> None:
    """Replace what a table holds in one transaction; only what differs is seen as changed."""
    from strandline.cli.reloading import reload_table

    said, how = (table, word, path), (form, options or [], timeout * 1_000)
    reload_table(store, name, said, how, Output(as_json=json), engine_of(context))


def promote(
    context: typer.Context,
    store: Store,
    name: Annotated[str, typer.Argument(help="The pipeline.", metavar="PIPELINE")],
    file: Annotated[
        Path, typer.Argument(help="The program that it shall run.", metavar="FILE.sql")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Only say what would change, or why it can't be.")
    ] = False,
    json: Json = False,
) -> None:
    """Let a pipeline run another program, or other versions: replicas before it are fenced."""
    from strandline.cli.promoting import promote_program

    out, engine = Output(as_json=json), engine_of(context)
    promote_program(store, name, file, out, engine, check=check)


def checkpoint(
    context: typer.Context,
    store: Store,
    name: AnyPipeline = None,
    timeout: Patience = 60,
    json: Json = False,
) -> None:
    """Take a checkpoint now."""
    from strandline.cli.running import take_checkpoint

    take_checkpoint(store, name, timeout * 1_000, Output(as_json=json), engine_of(context))


def pause(
    store: Store,
    name: AnyPipeline = None,
    sink: OneSink = None,
    timeout: Patience = 60,
    json: Json = False,
) -> None:
    """Let all replicas commit nothing new, or nobody publish a sink, until resume."""
    from strandline.cli.running import ask_publishers, ask_replicas

    out = Output(as_json=json)
    if sink is None:
        ask_replicas(store, name, "pause", timeout * 1_000, out)
    else:
        ask_publishers(store, name, sink, "pause", timeout * 1_000, out)


def resume(
    store: Store,
    name: AnyPipeline = None,
    sink: OneSink = None,
    timeout: Patience = 60,
    json: Json = False,
) -> None:
    """Let all replicas, or a sink, go on after pause; or a sink that has stopped."""
    from strandline.cli.running import ask_publishers, ask_replicas

    out = Output(as_json=json)
    if sink is None:
        ask_replicas(store, name, "resume", timeout * 1_000, out)
    else:
        ask_publishers(store, name, sink, "resume", timeout * 1_000, out)


def stop(
    store: Store,
    name: AnyPipeline = None,
    replica: Replica = None,
    timeout: Patience = 60,
    json: Json = False,
) -> None:
    """Stop all replicas that run now, or one of them, after a checkpoint."""
    from strandline.cli.running import ask_replicas

    ask_replicas(store, name, "stop", timeout * 1_000, Output(as_json=json), replica=replica)


def serve(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A program to run here; without one, nothing can be pushed.", metavar="[FILE.sql]"
        ),
    ] = None,
    store: Folder = "./lake",
    name: Named = None,
    replica: Replica = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes any.")] = 8_780,
    token_file: Annotated[
        Path | None, typer.Option(help="Holds the token; created if missing.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name it is reached by. Repeat it for more.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate, to serve others.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
    size: Bytes = None,
    checkpoint_every: CheckpointEvery = None,
    retain: Retain = None,
    json: Json = False,
) -> None:
    """Serve pushes, transactions, queries, status and metrics over HTTP."""
    from strandline.cli.running import settings_of
    from strandline.cli.serving import Wanted, serve_store

    wanted = Wanted(
        file=file,
        store=store,
        name=name,
        replica=replica,
        host=host,
        port=port,
        token_file=token_file,
        hosts=tuple(allow_host or ()),
        tls_cert=tls_cert,
        tls_key=tls_key,
        settings=settings_of(bytes_max=size, checkpoint_every=checkpoint_every, retain=retain),
    )
    serve_store(wanted, Output(as_json=json), engine_of(context))


@transactions.command()
def begin(store: Store, name: PipelineName = None, json: Json = False) -> None:
    """Open a transaction; prints its id."""
    from strandline.cli.inserting import begin_transaction

    begin_transaction(store, name, Output(as_json=json))


@transactions.command()
def insert(
    store: Store,
    handle: Handle,
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    file: Annotated[
        str, typer.Argument(help="JSON, one row a line; - is standard input.", metavar="FILE")
    ] = "-",
    name: PipelineName = None,
    chunk: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The number of the file's first chunk; each 10,000 rows are one, and count up. "
            "The same file with the same number counts once, however often it is sent.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Add rows to a transaction, durably. Give --chunk to be able to repeat the command."""
    from strandline.cli.inserting import insert_rows

    insert_rows(store, name, (handle, table, chunk), file, Output(as_json=json))


@transactions.command()
def commit(
    context: typer.Context,
    store: Store,
    handle: Handle,
    name: PipelineName = None,
    timeout: Patience = 60,
    json: Json = False,
) -> None:
    """Commit a transaction; ends when its rows can be read."""
    from strandline.cli.inserting import commit_transaction

    engine = engine_of(context)
    commit_transaction(store, name, handle, timeout * 1_000, Output(as_json=json), engine)


@transactions.command()
def abort(store: Store, handle: Handle, name: PipelineName = None, json: Json = False) -> None:
    """Let go of a transaction and of all that is in it."""
    from strandline.cli.inserting import abort_transaction

    abort_transaction(store, name, handle, Output(as_json=json))


@transactions.command()
def amend(
    store: Store,
    t: Annotated[int, typer.Argument(help="The time that is sealed.", metavar="T", min=0)],
    endpoint: Annotated[str, typer.Argument(help="Whose rows are gone.", metavar="ENDPOINT")],
    reason: Annotated[str, typer.Option(help="Why; on record for ever.")],
    take: Annotated[
        list[str] | None,
        typer.Option(help="Read this of what was sealed.", metavar="PARTITION:START:STOP"),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Read these: JSON, one row a line; - is standard input.")
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Read nothing.")] = False,
    name: PipelineName = None,
    json: Json = False,
) -> None:
    """Replace what a sealed transaction can't read any more."""
    from strandline.cli.inserting import Amending, amend_transaction

    wanted = Amending(t, endpoint, reason, tuple(take or ()), rows, empty)
    amend_transaction(store, name, wanted, Output(as_json=json))


def add_verbs(app: typer.Typer) -> None:
    """Give the command its verbs of pipelines."""
    for verb in (
        run,
        status,
        top,
        query,
        subscribe,
        replay,
        verify_sink,
        reload,
        promote,
        checkpoint,
        pause,
        resume,
        stop,
        serve,
    ):
        app.command(rich_help_panel="Pipelines")(verb)
    app.add_typer(transactions, name="transaction", rich_help_panel="Pipelines")
