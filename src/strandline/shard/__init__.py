"""A durable collection's metadata: what it may do, who holds what, how it is committed.

cancel         shell  how to end a blocked call from another task
change         pure   what one version changed, as it is stored, and how it is read back
chunks         shell  loads the lists of parts that a state refers to, each once
codec          pure   a shard's history as bytes: records and manifests
command        pure   what may be asked of a shard's state, and what may come of it
decide         pure   one command against one state gives one outcome
decide_append  pure   whether an append counts, and what it changes
decide_upkeep  pure   what upkeep may do: swap pieces, merge history, forget
env            shell  what every shell module of a process is given
frontiers      shell  how far a shard is settled, as its readers may see it
holds          pure   what one reader holds back, and what it could let go of
lease          shell  one lease as its holder has it: a reader with its pins, or a writer
leases         shell  all leases of one process: taken, moved and given back
machine        shell  commits transitions through Consensus, and retries them safely
metrics        shell  what a process counts about its shards
moments        pure   lists of moments as objects of their own
pulse          pure   a process's heartbeat, and how it ends
pulses         shell  pulses in Consensus: beginning, beating, stopping, burying the dead
retention      pure   how far history may be merged
settings       pure   the numbers of a shard, in one place
state          pure   what a shard is, and the rules that hold in every version
term           pure   readers that nobody renews, for a fixed time by the store's clock
timeline       shell  a plain, durable timeline
txn            pure   transactions of applications: a batch that is tried again counts once
versions       shell  loads a shard's newest version: a manifest, and the records after it
"""
