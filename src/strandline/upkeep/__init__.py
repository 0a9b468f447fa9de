"""What keeps a shard small and fast: merging, folding history, collecting, checking.

collect     shell  deletes what nobody needs, in an order in which every crash is safe
compact     shell  carries out one unit of compaction
compaction  pure   what is worth rewriting: which pieces to merge into which
findings    pure   what a check of a store may find
fsck        shell  proves that a store is what it says, and finds what nobody needs
garbage     pure   what may be deleted, and when
groups      shell  reads a part one row group at a time
merge       shell  merges one unit of compaction: what its pieces add up to, as new parts
outputs     shell  writes what a merge gives, part by part
rounds      shell  one round of upkeep of one shard
runs        pure   which parts count as one run, and which runs are worth merging
silence     shell  waits until it is known which silent processes are dead
spans       pure   how finely a unit is cut, and which stretches of it tasks can merge
terrain     pure   all parts of a shard as columns: where each lies
units       pure   the numbers of upkeep, its units of work, and when its jobs are due
upkeep      shell  keeps shards small and quick, in the background or when asked
"""
