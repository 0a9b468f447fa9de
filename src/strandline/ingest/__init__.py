"""Upserts without a pipeline: commands with times become updates of a shard, by any number of us.

bindings   shell  the binding shard: which offsets belong to which time, agreed on by all
decide     pure   LATE, DUE or EARLY: what becomes of commands
feed       shell  where commands come from, and the feed that takes its times from bindings
health     pure   how an ingest is, and why
rejects    pure   commands that are no rows, and what the error collection makes of them
road       shell  how commands become updates: the port, and the road of Arrow alone
spill      shell  a temporary folder for what does not fit into memory
stash      shell  commands that wait for their time, bounded in memory, spilled beyond
target     shell  one output: a shard, what is held for it, how far it has come
timetable  pure   which time each offset of a source has
upserter   shell  one replica of an ingest, turn by turn
"""
