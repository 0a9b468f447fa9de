"""A durable collection that many processes write and read at once, with a clock.

cancel         shell  how to end a blocked call from another task
change         pure   what one version changed, as it is stored, and how it is read back
codec          pure   a shard's history as bytes: records and manifests
command        pure   what may be asked of a shard's state, and what may come of it
consolidate    pure   what updates add up to: the sums of diffs of equal rows
decide         pure   one command against one state gives one outcome
decide_append  pure   whether an append counts, and what it changes
decide_upkeep  pure   what upkeep may do: swap pieces, merge history, forget
descriptor     pure   a part's description that travels to another process
env            shell  what every shell module of a process is given
envelope       pure   the wrapping of every metadata object, so that damage is noticed
filters        pure   which rows a reader wants: conditions on columns
frontiers      shell  how far a shard is settled, as its readers may see it
holds          pure   what one reader holds back, and what it could let go of
inline         pure   rows that are kept in the metadata itself
leases         shell  all leases of one process: taken, moved and given back
ledger         pure   the accounts of outstanding fetches, one per time
machine        shell  commits transitions through Consensus, and retries them safely
metrics        shell  what a process counts about its shards
ownership      shell  owning a timeline: staging rows in several shards, committing together
part           pure   parts, chunks of parts, and batches of both
progress       pure   which steps of a frontier are worth telling
prune          pure   which of many parts a condition rules out
pulse          pure   a process's heartbeat, and how it ends
pulses         shell  pulses in Consensus: beginning, beating, stopping, burying the dead
retention      pure   how far history may be merged
rows           pure   what a caller gave, as checked updates with their digests
settings       pure   the numbers of a shard, in one place
state          pure   what a shard is, and the rules that hold in every version
stats          pure   what the values of a part lie between, and its compact form
stop           pure   how several workers stop together
timeline       shell  a plain, durable timeline
versions       shell  loads a shard's newest version: a manifest, and the records after it
watch          pure   whether a reader makes progress
"""
