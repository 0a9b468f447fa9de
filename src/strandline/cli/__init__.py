"""The command `strandline`: what people ask a store from a terminal.

advice           pure   what to try after an error, and how the command ends
backfill         shell  how far a run has come, on a terminal
checkup          pure   what a measurement means for a store, and what to do about it
conditions       pure   what people write after --filter and --as-of, as values
doctor           shell  whether this machine and a store's folder are fit for work
escape           pure   text that may be shown on a terminal, whatever it holds
facts            pure   what a shard's state says about it, as documents with stable names
holding          pure   who holds a shard back, and what bounds its since
inserting        shell  the verbs of transactions: begin, insert, commit, abort, amend
looking          shell  the verbs that only look: shards, show, history, holds
main             shell  the verbs, their options, and what comes of errors
opening          shell  opens stores and shards for one verb, and says what to try next
options          shell  arguments and options that several verbs share
output           shell  documents as tables for people, or as JSON for programs
packing          shell  the verb that packs this package for executors of a cluster
pipeline_tables  pure   documents of pipelines as tables
pipelines        shell  the verbs that look at pipelines: status, top, history, query, subscribe
promoting        shell  the verb that replaces the program of a pipeline
reloading        shell  the verb that replaces what a table holds
render           pure   the pieces that tables are made of, and how numbers read
reports          pure   what came of work on a store, as tables
running          shell  the verbs that run pipelines: run, replay, checkpoint, pause, resume, stop
serving          shell  the verb that serves a store over HTTP
signals          shell  Ctrl-C as something that is noted
stream           pure   updates and frontiers as lines
tables           pure   documents as tables, one function for each verb
tail             shell  follows a shard's updates until told to stop
tending          shell  the verbs that change something: retain, compact, fsck
verifying        shell  the verb that compares a sink's target with its view
verbs            shell  the verbs of pipelines, and their options
"""
