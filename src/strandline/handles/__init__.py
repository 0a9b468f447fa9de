"""What users hold: stores, shards, readers, writers, and the owners of timelines.

ownership  shell  owning a timeline: staging rows in several shards, committing together
parallel   shell  runs several jobs beside each other and waits for all of them
shard      shell  a shard as its users hold it: frontiers, and the handles that read and write
stage      shell  puts the rows of an append where they stay, before it counts
store      shell  a store as its users hold it: shards, timelines, this process's leases
verify     shell  whether what is settled is what a replica computed
write      shell  the handle through which rows get into a shard
"""
