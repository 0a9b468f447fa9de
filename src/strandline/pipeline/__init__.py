"""One running program: what goes into each transaction, who computes it, when it counts.

agree     pure   whether two computations of one time agree
catalog   pure   the collections of a program and their shards
compute   pure   the Computer port: what a sealed transaction makes of the collections
land      shell  lands what was computed in the shards, before anybody commits it
meaning   pure   what the rows of a transaction mean for a table, in Arrow
offer     pure   when an automatic transaction closes
planner   shell  what goes into the next transaction, and where sealed rows are
replica   shell  carries out what the journal says is next
replay    shell  computes committed transactions again and compares
rig       shell  what every replica of one program works with
runner    shell  runs a replica until it is told otherwise, and says what it is doing
settings  pure   the numbers of a pipeline
sources   shell  the sources of a program, opened by what its tables say
states    pure   what a replica may be doing, and which moves are legal
"""
