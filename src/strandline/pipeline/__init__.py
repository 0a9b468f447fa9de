"""One running program: what goes into each transaction, who computes it, when it counts.

agree     pure   whether two computations of one time agree
catalog   pure   the collections of a program and their shards
claim     pure   who publishes to a sink, and how far it was
claims    shell  claims in Consensus: looked for, taken, renewed
compute   pure   the Computer port: what a sealed transaction makes of the collections
delivery  pure   where a sink goes on, and whether a transaction is for it
land      shell  lands what was computed in the shards, before anybody commits it
meaning   pure   what the rows of a transaction mean for a table, in Arrow
offer     pure   when an automatic transaction closes
outgoing  shell  the changes of a collection as its sink takes them
place     shell  what a sink publishes, where its changes are, and its lineage
planner   shell  what goes into the next transaction, and where sealed rows are
publish   shell  publishes one sink beside the loop, exactly once
publishing shell  all sinks of one replica
replica   shell  carries out what the journal says is next
replay    shell  computes committed transactions again and compares
rig       shell  what every replica of one program works with
runner    shell  runs a replica until it is told otherwise, and says what it is doing
settings  pure   the numbers of a pipeline
sinks     shell  the sinks of a program, as their publishers open them
sources   shell  the sources of a program, opened by what its tables say
states    pure   what a replica may be doing, and which moves are legal
"""
