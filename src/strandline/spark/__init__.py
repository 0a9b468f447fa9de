"""Spark as the data plane: the only package that imports pyspark.

appends      shell  appends a DataFrame: one job that puts parts, then one commit
arrowtypes   pure   which Arrow type Spark takes for each type that a column may have
attempts     shell  the one loop of writers that own no time: try until no other is faster
blockfile    pure   a cached block as one file: Arrow, and a trailer that proves it whole
blocks       shell  the updates of some keys out of a part, through the cache
cache        shell  blocks on the local disk, mapped into memory, shared by all workers
changes      shell  puts changes as parts in tasks, or reads parts that nobody has appended
columns      pure   whether the columns of a DataFrame are those that a table takes
compacts     shell  compacts large tables: the units of a plan are merged in tasks
computer     shell  the Computer port of pipelines on Spark
confs        pure   the settings that were measured to matter, and what they did
cores        shell  how much the machine of a session does at once
desk         shell  the driver's side of one table: its writer, its grounds, what it sees
engine       shell  the Engine port on Spark
engines      shell  Spark as the engine of pipelines: computes and answers
errands      pure   the errands of a range job on their way to its tasks
incoming     shell  from a user's DataFrame to the columns that tasks take
instruction  pure   what tasks are told, and what they answer: structs that travel as bytes
intake       shell  takes rows in, in tasks: fetch, decode, put by place
intakes      shell  takes in what a transaction brings: one job for all of its intakes
java         shell  finds the Java that Spark would run, before Spark does
jobs         shell  runs Spark jobs of ours and takes their answers
landed       shell  what tasks have put becomes one append
layouts      shell  the columns of a table as Spark knows them, and the other way round
lookups      shell  looks keys up: one job, whatever the table's size
merging      shell  merges a unit of compaction in a task
opening      shell  opens tables: where a store's handles meet Spark's
pack         shell  packs this package and its native wheels into an archive for executors
parcels      pure   what the tasks of a job are told, each by its number
perform      shell  carries out what tasks are told, against a Blob
placing      pure   whether an append is put by place, and in which ranges
placings     shell  puts a large append by place: one more job before its commit
plan         pure   what each task of a range job is told
premises     shell  the shards of a pipeline as the jobs of one transaction use them
put          shell  puts what tasks make, under names that no other attempt has
queries      shell  the queries of views, in a session of their own
reasons      pure   what Spark raises for a row, in words that all computers use
relations    shell  changes and whole collections as relations that a query reads
relay        pure   errors of tasks on their way through Spark: as text with a mark, and back
resolver     shell  resolves what came for ranges of several shards, in tasks
resolves     shell  resolves all keyed collections of a transaction: one job
runtime      pure   what is known of a Java or a pyspark, and what is wrong with it
scan         shell  a table as a DataFrame: Spark's own scan, corrected by the tail
scanplan     pure   what Spark scans itself, and what corrects it
schedule     pure   how the work of a range job is divided: into ranges, and ranges into tasks
sessions     shell  builds a session, or prepares one that the user has
slices       pure   rows on their way between tasks: Arrow, cut into slices by place
source         shell  the data source `strandline`: which class serves which use
source_cast    shell  rows exactly as Spark expects them from a reader
source_commit  shell  commits what the tasks of a write have staged
source_delete  pure   which incoming rows are deletions: the option deleteWhen
source_fetch   shell  fetches what a task of a read asks for: whole pieces, or some row groups
source_options pure   the options of the data source, parsed and checked for every use
source_plan    pure   how a read is divided into tasks
source_read    shell  batch reads: snapshots and changes
source_rows    pure   what one task of a read gives
source_stage   shell  what a task of a write does with its rows
source_store   shell  stores as Spark's own processes open them
source_stream  shell  streaming reads, whose offsets are frontiers
source_write   shell  batch and streaming writes
sparktypes   pure   Spark's types as Arrow's: what a table keeps, and what it refuses by name
stagings     shell  stages the rows of a reload in tasks
strips       shell  puts what parts hold of ranges of places, in tasks
sweeps       shell  tombstones that are old enough go with a transaction
table        shell  a table as Spark's users hold it
tables       shell  what changes in the tables of one transaction
upstream     shell  the changes of a shard that feeds a table: listed, fetched by tasks
upserts      shell  upserts a DataFrame: gather its rows, resolve them, one commit
view_full    shell  views that are computed anew and compared: one job each
view_linear  shell  views that map changes: one query for all of them
worker       shell  what runs in Spark's Python workers: from a closure to a task's answer

The names below are public; `__all__` follows from the table, and a test compares the two. Nothing
of pyspark is loaded before one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.exports import lazy as _lazy

if TYPE_CHECKING:
    from strandline.spark.landed import Landed as Landed
    from strandline.spark.sessions import (
        register as register,
        session as session,
    )
    from strandline.spark.table import Table as Table

_HOMES = {
    "Landed": "strandline.spark.landed",
    "register": "strandline.spark.sessions",
    "session": "strandline.spark.sessions",
    "Table": "strandline.spark.table",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy(__name__, _HOMES)
