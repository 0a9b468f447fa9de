"""One running program: what goes into each transaction, who computes it, when it counts.

agree       pure   whether two computations of one time agree
amend       shell  replaces what a sealed transaction can't read any more, on the record
attendant   shell  stands beside a runner: says how it is, tells it what was asked
auditor     shell  a read-only replica: computes what others commit, and compares
away        shell  a source that was away when its pipeline was opened
bringing    shell  what a reload brings, as chunks of rows that fit their table
catalog     pure   the collections of a program and their shards
claim       pure   who publishes to a sink, and how far it was
claims      shell  claims in Consensus: looked for, taken, renewed
collected   shell  the shards of a program, made and widened
compare     pure   whether two multisets of rows are the same, and rows that differ
compute     shell  the Computer port: what a sealed transaction makes of the collections
delivery    pure   where a sink goes on, and whether a transaction is for it
documents   shell  what is told of a pipeline, as documents with stable names
drawing     shell  what a reload draws from a source: all that it has now
engine      shell  the Engine port: who computes transactions and answers queries
evolve      pure   columns that tables get from their sources, on the record
finish      shell  computes what is sealed, answers it, lands it, commits it
forgetful   shell  rows of sources that may lose them, staged before they are sealed
land        shell  lands what was computed in the shards, before anybody commits it
life        shell  the replica of a pipeline in this process, run here or beside
looking     shell  what is seen of a pipeline and its sinks, from any process
meaning     pure   what the rows of a transaction mean for a table, in Arrow
means       shell  what a pipeline is given by whoever opens it
offer       pure   when an automatic transaction closes
outgoing    shell  the changes of a collection as its sink takes them
pending     shell  changes that wait to be published, in bounded memory
pipeline    shell  a pipeline as its users hold it
place       shell  what a sink publishes, where its changes are, and its lineage
planner     shell  what goes into the next transaction, and where sealed rows are
presence    shell  the replicas of a pipeline, as they say themselves
promotion   shell  what a promotion would change, and whether it can be
publish     shell  publishes one sink beside the loop, exactly once
publishing  shell  all sinks of one replica
pushes      shell  takes rows that are pushed, and tells producers once they are sealed
query       shell  answers a query at one committed time
read_back   shell  compares a sink's target with what its collection held
register    shell  one small value in the store that any process may change
reload      shell  stages what a table is replaced by
replay      shell  computes committed transactions again and compares
replica     shell  carries out what the journal says is next
report      shell  what anybody can see of a pipeline: its standing, its history
requests    shell  what is asked of replicas, through the store
retain      shell  how far back a pipeline can be read and computed again
rig         shell  what every replica of one program works with
rows        pure   rows that a user gives, as they are staged
runner      shell  runs a replica until it is told otherwise, and says what it is doing
said        pure   what a replica says of itself, and what may be said of it
settings    pure   the numbers of a pipeline
sink_status pure   how a sink is, by its record and by what replicas say
sinks       shell  the sinks of a program, as their publishers open them
sources     shell  the sources of a program, opened by what its tables say
stall       pure   whether a replica stands still although there is work
states      pure   what a replica may be doing, and which moves are legal
transaction shell  an explicit transaction as its user holds it
turns       shell  one task at a time computes in this process
upstream    shell  shards that tables are fed from: read, and held
waiting     shell  waits for what was asked for; where nobody runs, by own steps
written     shell  the program of a pipeline: what was given, else what is on record now
"""
