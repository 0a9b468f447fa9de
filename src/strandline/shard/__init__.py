"""A durable collection that many processes write and read at once, with a clock.

accounts       shell  what a subscription has listed, fetched and given out so far
build          pure   from updates to a part: its bytes and its facts
cancel         shell  how to end a blocked call from another task
change         pure   what one version changed, as it is stored, and how it is read back
chunk          pure   lists of parts as columnar objects
chunks         shell  loads the lists of parts that a state refers to, each once
codec          pure   a shard's history as bytes: records and manifests
collect        shell  deletes what nobody needs, in an order in which every crash is safe
command        pure   what may be asked of a shard's state, and what may come of it
compact        shell  carries out one unit of compaction
compaction     pure   what is worth rewriting: which pieces to merge into which
consolidate    pure   what updates add up to: the sums of diffs of equal rows
decide         pure   one command against one state gives one outcome
decide_append  pure   whether an append counts, and what it changes
decide_upkeep  pure   what upkeep may do: swap pieces, merge history, forget
descriptor     pure   a part's description that travels to another process
diagnose       shell  finds out why a part can't be read
env            shell  what every shell module of a process is given
envelope       pure   the wrapping of every metadata object, so that damage is noticed
events         pure   what a subscription gives out
extract        pure   the rows that a descriptor asks for, out of a part's bytes
fetch          shell  fetches parts, several at once, with a bound on the bytes in flight
filters        pure   which rows a reader wants: conditions on columns
findings       pure   what a check of a store may find
follow         shell  the listing half of a subscription, through outages of the store
frontiers      shell  how far a shard is settled, as its readers may see it
fsck           shell  proves that a store is what it says, and finds what nobody needs
garbage        pure   what may be deleted, and when
gather         shell  fetches all of several parts, and waits for them
groups         shell  reads a part one row group at a time
holds          pure   what one reader holds back, and what it could let go of
inline         pure   rows that are kept in the metadata itself
layout         pure   where updates lie: their places, their order, where parts are cut
leases         shell  all leases of one process: taken, moved and given back
ledger         pure   the accounts of outstanding fetches, one per time
lister         shell  lists what a subscription has to fetch, one increment after the other
listing        pure   which pieces of a state answer a read, and when each is owed
machine        shell  commits transitions through Consensus, and retries them safely
metrics        shell  what a process counts about its shards
moments        pure   lists of moments as objects of their own
outputs        shell  writes what a merge gives, part by part
ownership      shell  owning a timeline: staging rows in several shards, committing together
parallel       shell  runs several jobs beside each other and waits for all of them
parquet        pure   parts as Parquet: bytes that any reader can read, and back
part           pure   parts, chunks of parts, and batches of both
progress       pure   which steps of a frontier are worth telling
prune          pure   which of many parts a condition rules out
pulse          pure   a process's heartbeat, and how it ends
pulses         shell  pulses in Consensus: beginning, beating, stopping, burying the dead
ranges         pure   where parts lie in the space of places
request        pure   what a reader asks for, checked against a schema
retention      pure   how far history may be merged
rounds         shell  one round of upkeep of one shard
rows           pure   what a caller gave, as checked updates with their digests
settings       pure   the numbers of a shard, in one place
show           pure   rows as a small HTML table for notebooks
snapshot       shell  a shard's rows as of one time
stage          shell  puts the rows of an append where they stay, before it counts
state          pure   what a shard is, and the rules that hold in every version
stats          pure   what the values of a part lie between, and its compact form
stop           pure   how several workers stop together
subscribe      shell  a shard's changes as they come, with frontiers
sweep          pure   one pass over many sorted inputs
terrain        pure   all parts of a shard as columns: where each lies
timeline       shell  a plain, durable timeline
units          pure   the numbers of upkeep, its units of work, and when its jobs are due
upkeep         shell  keeps shards small and quick, in the background or when asked
verify         shell  whether what is settled is what a replica computed
versions       shell  loads a shard's newest version: a manifest, and the records after it
view           shell  what a reader sees of a shard: a pinned state, its parts, its instants
watch          pure   whether a reader makes progress
write          shell  the handle through which rows get into a shard
"""
