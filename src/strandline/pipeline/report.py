"""What anybody can see of a pipeline, in this process or another: its standing, and its history."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.connectors.push import PushSource
from strandline.connectors.registry import sink_identity
from strandline.connectors.source import Limits
from strandline.errors import (
    CancelledError,
    HandleClosedError,
    NotFoundError,
    NotInstalledError,
    StoreError,
    StrandlineError,
)
from strandline.journal.checkpoint import Checkpoints
from strandline.journal.handles import Handles
from strandline.journal.record import Amend, Begin, Commit
from strandline.journal.timeline import JournalTimeline, timeline_name
from strandline.pipeline import agree
from strandline.pipeline.claims import claim_of
from strandline.pipeline.place import history_word, lineage_of
from strandline.pipeline.presence import Presence
from strandline.pipeline.requests import Requests
from strandline.pipeline.said import SILENT
from strandline.pipeline.sink_status import SinkSight, fate_of, report_of, trouble_of
from strandline.pipeline.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from strandline.connectors.source import Source
    from strandline.journal.handles import Handle
    from strandline.journal.log import Journal
    from strandline.journal.record import Position
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Frontier, Time
    from strandline.pipeline.claim import Claim
    from strandline.pipeline.requests import Asked
    from strandline.pipeline.said import Seen
    from strandline.pipeline.sink_status import SinkReport
    from strandline.shard.state import State as ShardState
    from strandline.views.declared import Sink
    from strandline.views.program import Program

_BEST_FIRST = (
    State.RUNNING,
    State.STARTING,
    State.STALLED,
    State.PAUSED,
    State.STOPPING,
    SILENT,
    State.FAILED,
    State.FENCED,
    State.STOPPED,
)
"""A pipeline is as well as the best of its replicas: one of them is enough."""


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """A source, as far as the journal took from it."""

    name: str
    state: str
    """`live`, `paused` or `removed`."""
    position: Position
    behind: int | None
    """How many rows it has beyond that, at most; for files, bytes. `None` if nobody can say."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """Where a pipeline stands, and who runs it."""

    name: str
    state: str
    """Of the best replica: `running` only if one of them said so within the last seconds."""
    cause: str
    """Why it is not running, if somebody knows; and which sinks have stopped, also while it is."""
    epoch: int
    program: str
    committed: Frontier
    lag_seconds: float | None
    """Since the last commit; `None` before the first."""
    still_seconds: float
    """For how long its best replica has committed nothing although there was work."""
    sealed: Time | None
    """The oldest time that is buffered: it is sealed, and not committed."""
    paused: bool
    checkpoint: Time | None
    checkpoints: int
    verifiable_from: Time
    retain: int | None
    """So many transactions are kept, by the record; `None` is all."""
    endpoints: tuple[EndpointStatus, ...]
    sinks: tuple[SinkReport, ...]
    replicas: tuple[Seen, ...]
    transactions: tuple[Handle, ...]
    """Explicit ones that are open."""
    findings: tuple[str, ...]
    """Checkpoints that are damaged, as sentences."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A pipeline of which nobody can say where it stands: what is on record of it is damaged, or
    not for this version."""

    name: str
    cause: str


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """One committed transaction."""

    t: Time
    epoch: int
    instant_ms: int
    began_ms: int
    rows: int
    """How many came in, of all endpoints."""
    inputs: dict[str, int]
    changes: dict[str, int]
    """By collection that changed, rows more or fewer."""
    handle: str | None
    """If it was an explicit one."""
    amended: dict[str, str]
    """By endpoint whose input was replaced after it was sealed, the reason."""
    sinks: dict[str, str]
    """By sink: `delivered`, `no change` or `pending`; without those that are newer than it."""


def each_for_itself(name: str, ask: Callable[[], PipelineStatus]) -> PipelineStatus | Unreadable:
    """Where one of several pipelines stands, or why that can't be read: the others are told of all
    the same. What is the store's trouble is none of the pipeline's, and is raised."""
    try:
        return ask()
    except (StoreError, CancelledError, HandleClosedError):
        raise
    except StrandlineError as error:
        return Unreadable(name, f"it can't be read: {error}")


def status_of(
    journal: Journal,
    sources: Mapping[str, Source] | None = None,
    look: Callable[[str], ShardState] | None = None,
    program: Program | None = None,
) -> PipelineStatus:
    """Where a pipeline stands now; with `sources` also how far each of them is ahead. With `look`,
    which reads the newest state of a shard, what its shards can be read from counts as well, and
    of the sinks of the `program` it is told how far each of them is behind."""
    env = journal.env
    standing = journal.refresh()
    if not standing.epoch:
        raise NotFoundError(f"there is no pipeline {journal.pipeline}")
    now_ms = env.patient(env.consensus.now_ms)
    replicas = tuple(Presence(env, journal.pipeline).all())
    state, cause = overall(replicas)
    best = _best(replicas)
    asked = Requests(env, journal.pipeline).read()
    sights = sink_sights(journal, look, program, asked)
    sinks = tuple(_sink(journal, each, replicas, now_ms) for each in sights)
    kept = standing.checkpoints
    committed = standing.next_t > 0
    return PipelineStatus(
        name=journal.pipeline,
        state=state,
        cause="; ".join(filter(None, (cause, trouble_of(sinks)))),
        epoch=standing.epoch,
        program=standing.program,
        committed=standing.committed,
        lag_seconds=max(0, now_ms - standing.committed_ms) / 1000 if committed else None,
        still_seconds=0.0 if best is None or not best.alive else best.said.still_ms / 1000,
        sealed=None if standing.sealed is None else standing.sealed.t,
        paused=asked.paused,
        checkpoint=kept[-1].t if kept else None,
        checkpoints=len(kept),
        verifiable_from=max(
            Checkpoints(journal).verifiable_from(),
            0 if look is None else _computable_from(standing, look),
        ),
        retain=standing.retain,
        endpoints=_endpoints(standing, sources or {}),
        sinks=sinks,
        replicas=replicas,
        transactions=tuple(
            each
            for each in Handles(env, journal.pipeline).all()
            if each.closed is None and each.id not in standing.closed
        ),
        findings=journal.findings,
    )


def _computable_from(standing: Standing, look: Callable[[str], ShardState]) -> Time:
    """The first time whose transaction finds what its shards held before it."""
    found = 0
    for bound in standing.bindings.values():
        try:
            oldest = look(bound.shard).readable_from()
        except NotFoundError:
            # It was promoted this moment, and nobody has made its shards yet.
            continue
        found = max(found, oldest + 1 if oldest else 0)
    return found


def overall(replicas: tuple[Seen, ...]) -> tuple[str, str]:
    """The state of a pipeline by those of its replicas, and why it is that."""
    best = _best(replicas)
    if best is None:
        return State.STOPPED, "no replica was ever started"
    if best.state == SILENT:
        said = f"replica {best.name} was {best.said.state} and is silent since "
        return SILENT, f"{said}{best.silent_ms / 1000:.0f} s"
    return best.state, best.said.cause


def _best(replicas: tuple[Seen, ...]) -> Seen | None:
    writing = [each for each in replicas if not each.said.read_only]
    return min(
        writing, key=lambda each: (_BEST_FIRST.index(each.state), -each.said.at_ms), default=None
    )


def sink_sights(
    journal: Journal,
    look: Callable[[str], ShardState] | None,
    program: Program | None,
    asked: Asked | None = None,
) -> list[SinkSight]:
    """What is on record of each sink. Nothing of a target is opened, and no secret is asked for."""
    standing = journal.standing
    found = []
    for each in () if program is None else program.sinks:
        claim = claim_of(journal.env, journal.pipeline, each.name)
        bound = standing.bindings.get(each.source)
        lineage = ""
        if bound is not None and look is not None:
            with suppress(NotFoundError):
                table = None if program is None else program.table(each.source)
                columns = None if table is None else table.columns.names
                word = history_word(look(bound.shard).id, bound.since, columns)
                lineage = _lineage(each, word, claim)
        found.append(
            SinkSight(
                each.name,
                each.source,
                each.connector,
                lineage,
                claim,
                asked is not None and each.name in asked.sinks,
                0 if bound is None else bound.since,
            )
        )
    return found


def _lineage(sink: Sink, history: str, claim: Claim) -> str:
    """The lineage that is published now; where its connector is not installed, the newest."""
    try:
        return lineage_of(history, sink_identity(sink.connector, sink.options))
    except (NotInstalledError, ModuleNotFoundError):
        return next(reversed(claim.marks), "")


def _sink(
    journal: Journal, sight: SinkSight, replicas: tuple[Seen, ...], now_ms: int
) -> SinkReport:
    report = report_of(sight, replicas, journal.standing.committed)
    if not report.behind:
        return replace(report, lag_seconds=0.0)
    first = max(sight.since, 0 if report.reached is None else report.reached + 1)
    instant = JournalTimeline(journal.env, timeline_name(journal.pipeline)).instant_of(first)
    return replace(report, lag_seconds=None if instant is None else max(0, now_ms - instant) / 1000)


def history_of(
    journal: Journal, count: int, sinks: Sequence[SinkSight] = ()
) -> list[TransactionSummary]:
    """The last transactions, the newest first; fewer if the journal does not go back so far."""
    standing = journal.refresh()
    first, reach = journal.first(), 8 * count
    while True:
        start = max(first, standing.lsn + 1 - reach)
        found = _summaries(journal, start)
        if len(found) >= count or start == first:
            return [_shipped(each, sinks) for each in found[::-1][:count]]
        reach *= 4


def _shipped(summary: TransactionSummary, sinks: Sequence[SinkSight]) -> TransactionSummary:
    fates = {
        each.name: fate_of(each, summary.t, changed=each.source in summary.changes)
        for each in sinks
    }
    return replace(summary, sinks={name: fate for name, fate in fates.items() if fate})


def _summaries(journal: Journal, start: int) -> list[TransactionSummary]:
    found = []
    begun: Begin | None = None
    amended: dict[str, str] = {}
    for _, record in journal.records(start):
        if isinstance(record, Begin):
            begun, amended = record, {}
        if isinstance(record, Amend):
            amended[record.endpoint] = record.reason
        if isinstance(record, Commit) and begun is not None:
            found.append(_summary(begun, amended, record))
    return found


def _summary(begun: Begin, amended: dict[str, str], commit: Commit) -> TransactionSummary:
    inputs = {name: each.count for name, each in agree.unpacked(commit.inputs).items()}
    changes = {name: each.count for name, each in agree.unpacked(commit.deltas).items()}
    return TransactionSummary(
        t=commit.t,
        epoch=commit.epoch,
        instant_ms=commit.instant_ms,
        began_ms=begun.now_ms,
        rows=sum(inputs.values()),
        inputs=inputs,
        changes=changes,
        handle=begun.handle,
        amended=amended,
        sinks={},
    )


def _endpoints(standing: Standing, sources: Mapping[str, Source]) -> tuple[EndpointStatus, ...]:
    return tuple(
        EndpointStatus(
            name,
            state,
            standing.pending.get(name, {}),
            _behind(sources.get(name), standing.pending.get(name, {})),
        )
        for name, state in sorted(standing.endpoints.items())
        if state != "removed"
    )


def _behind(source: Source | None, position: Position) -> int | None:
    if source is None or isinstance(source, PushSource):
        return None
    try:
        offered = source.plan(position, Limits())
    except StrandlineError:
        # It is away, gone or refuses us; whoever runs the pipeline says so.
        return None
    return 0 if offered is None else offered.rows
