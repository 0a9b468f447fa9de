"""What tests need and production must never import: simulated histories, faults, checkers.

audit              pure   judges every entry of a journal, by rules told a second time
bank_appends       shell  mutants of appends, commits and timelines
bank_emptying      shell  mutants of reloads and truncations
bank_ingest        shell  mutants of ingest: verdicts, times, stash, comparison
bank_journal       shell  mutants of the journal: its law, its chain, its checkpoints
bank_kafka         shell  mutants of the Kafka sink: producers, progress, what silence means
bank_leases        shell  mutants of leases: pulses, holds and pins
bank_pipeline      shell  mutants of pipelines: replicas, planning, views, handles
bank_reads         shell  mutants of reading: listing, fetching, frontiers and filters
bank_sinks         shell  mutants of publishing: claim, progress, intents, holds
bank_upkeep        shell  mutants of upkeep: compaction, collection, retention, manifests
broker             shell  a broker in memory that loses, delays and repeats requests, and forgets
broker_log         pure   what a broker does with requests: transactions, fencing, stable offsets
brokered           shell  roles around a broker: replicas that publish, who reads along, a judge
cases              shell  whole histories, and how they are judged
changing           shell  roles around a sink that becomes another one, and its judge
checkers           pure   judge recorded histories: what is wrong, as sentences
clerks             shell  roles around a journal: replicas without anything to compute
clock              shell  clocks of simulated processes and of the simulated store
computing          shell  a computer of plain Arrow, in one process
conformance        shell  what every Blob and every Consensus must show
conformance_cluster shell what every Cluster must show
conformance_sink   shell  what every sink must show
conformance_source shell  what every source must show
conformance_tasks  shell  what every implementation of Tasks and Clock must show
damage             shell  objects that are no longer what was put
disk               shell  a disk that forgets what was not synced when the power goes
engines            shell  an engine of plain Arrow for pipelines in tests
faults             shell  stores that fail on purpose
history            pure   what clients did and were told
jobs               shell  roles of jobs that others run: sinks, planners, executors
journals           shell  journals for tests: records as a replica would write them
lab                shell  a store in memory with real threads, for tests without simulated time
ledger             pure   what a table with a sequence must hold
lying              shell  a replica that computes something else, and must be told
mutants            shell  wrong variants of the shipped code, which must be caught
node               shell  one simulated process: its ports, and the ways it can suffer
observer           shell  sees every effect on the shared store of a history
oracle             pure   what a shard must hold at each time, by what writers were told
owners             shell  roles around a timeline
picking            shell  chooses which ready task runs next
pipelines          shell  roles around a pipeline
publishers         shell  roles around a sink, and its judge
reference          pure   an engine of plain lists and dicts, slow and obviously right
remains            shell  what a history leaves behind in its store
roles              shell  what simulated processes do with shards
scheduler          shell  runs tasks one at a time as greenlets, in simulation time
scripted_sink      shell  a target in memory that fences, fails and forgets as it is told
scripted_source    shell  a source in memory that grows, forgets and fails as it is told
seeds              shell  runs one scenario under many seeds
simulation         shell  a whole history from one seed
specimen           shell  a small store with every kind of object in it, to be damaged
streaming          shell  roles that follow a shard
streams            shell  chance: named streams from one seed, swarm options
tables             pure   test data written as a table
task               shell  a simulated task, and the life of its process
topics             pure   what a topic tells of transactions, and what a reader saw of them
toy                pure   shards whose rows are small numbers, and what a reader would see
trace              shell  who did what when, as a running hash and its last lines
upserting          shell  replicas that upsert one stream together, and what must come of it
verdicts           shell  whole histories of a pipeline, and what is wrong with them
waiting            shell  simulated events and conditions
workload           shell  calls that are recorded
world              shell  a store with simulated processes in it

The names below are public, for testers of their own stores and programs; `__all__` follows from
the table, and a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.exports import lazy as _lazy

if TYPE_CHECKING:
    from strandline.testing.cases import (
        CASES as CASES,
        Case as Case,
    )
    from strandline.testing.checkers import (
        CHECKERS as CHECKERS,
        HistoryError as HistoryError,
        check_history as check_history,
    )
    from strandline.testing.clock import (
        SimulatedClock as SimulatedClock,
        StoreClock as StoreClock,
    )
    from strandline.testing.conformance import (
        check_blob as check_blob,
        check_consensus as check_consensus,
    )
    from strandline.testing.conformance_sink import (
        SinkStand as SinkStand,
        check_sink as check_sink,
    )
    from strandline.testing.conformance_source import (
        Stand as Stand,
        check_source as check_source,
    )
    from strandline.testing.conformance_tasks import (
        check_tasks as check_tasks,
    )
    from strandline.testing.damage import (
        DamagedBlob as DamagedBlob,
    )
    from strandline.testing.faults import (
        FailNth as FailNth,
        Fault as Fault,
        FaultKind as FaultKind,
        FaultPlan as FaultPlan,
        FaultyBlob as FaultyBlob,
        FaultyConsensus as FaultyConsensus,
        NoFaults as NoFaults,
        SeededFaults as SeededFaults,
    )
    from strandline.testing.history import (
        Append as Append,
        History as History,
        Read as Read,
        Result as Result,
        Seen as Seen,
        Stream as Stream,
    )
    from strandline.testing.mutants import (
        Mutant as Mutant,
        all_mutants as all_mutants,
        catch as catch,
        planted as planted,
    )
    from strandline.testing.node import (
        Node as Node,
    )
    from strandline.testing.scripted_sink import (
        ScriptedSink as ScriptedSink,
        ScriptedTarget as ScriptedTarget,
    )
    from strandline.testing.scripted_source import (
        ScriptedSource as ScriptedSource,
        ScriptedTopic as ScriptedTopic,
    )
    from strandline.testing.seeds import (
        SeedReport as SeedReport,
        SeedsFailedError as SeedsFailedError,
        run_seeds as run_seeds,
        try_seeds as try_seeds,
    )
    from strandline.testing.simulation import (
        Simulation as Simulation,
        SimulationError as SimulationError,
    )
    from strandline.testing.streams import (
        Options as Options,
        shrink as shrink,
        stream as stream,
    )
    from strandline.testing.tables import (
        CRASH as CRASH,
        Crash as Crash,
        arrow as arrow,
        rows as rows,
        script as script,
    )
    from strandline.testing.task import (
        SimulatedCrash as SimulatedCrash,
    )
    from strandline.testing.world import (
        Host as Host,
        World as World,
    )

_HOMES = {
    "all_mutants": "strandline.testing.mutants",
    "Append": "strandline.testing.history",
    "arrow": "strandline.testing.tables",
    "Case": "strandline.testing.cases",
    "CASES": "strandline.testing.cases",
    "catch": "strandline.testing.mutants",
    "check_blob": "strandline.testing.conformance",
    "check_consensus": "strandline.testing.conformance",
    "check_history": "strandline.testing.checkers",
    "check_sink": "strandline.testing.conformance_sink",
    "check_source": "strandline.testing.conformance_source",
    "check_tasks": "strandline.testing.conformance_tasks",
    "CHECKERS": "strandline.testing.checkers",
    "CRASH": "strandline.testing.tables",
    "Crash": "strandline.testing.tables",
    "DamagedBlob": "strandline.testing.damage",
    "FailNth": "strandline.testing.faults",
    "Fault": "strandline.testing.faults",
    "FaultKind": "strandline.testing.faults",
    "FaultPlan": "strandline.testing.faults",
    "FaultyBlob": "strandline.testing.faults",
    "FaultyConsensus": "strandline.testing.faults",
    "History": "strandline.testing.history",
    "HistoryError": "strandline.testing.checkers",
    "Mutant": "strandline.testing.mutants",
    "Node": "strandline.testing.node",
    "NoFaults": "strandline.testing.faults",
    "Options": "strandline.testing.streams",
    "planted": "strandline.testing.mutants",
    "Host": "strandline.testing.world",
    "Read": "strandline.testing.history",
    "Result": "strandline.testing.history",
    "rows": "strandline.testing.tables",
    "run_seeds": "strandline.testing.seeds",
    "script": "strandline.testing.tables",
    "ScriptedSink": "strandline.testing.scripted_sink",
    "ScriptedTarget": "strandline.testing.scripted_sink",
    "ScriptedSource": "strandline.testing.scripted_source",
    "ScriptedTopic": "strandline.testing.scripted_source",
    "SeededFaults": "strandline.testing.faults",
    "SeedReport": "strandline.testing.seeds",
    "SeedsFailedError": "strandline.testing.seeds",
    "Seen": "strandline.testing.history",
    "shrink": "strandline.testing.streams",
    "SimulatedClock": "strandline.testing.clock",
    "SimulatedCrash": "strandline.testing.task",
    "Simulation": "strandline.testing.simulation",
    "SimulationError": "strandline.testing.simulation",
    "SinkStand": "strandline.testing.conformance_sink",
    "Stand": "strandline.testing.conformance_source",
    "StoreClock": "strandline.testing.clock",
    "Stream": "strandline.testing.history",
    "stream": "strandline.testing.streams",
    "try_seeds": "strandline.testing.seeds",
    "World": "strandline.testing.world",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy(__name__, _HOMES)
