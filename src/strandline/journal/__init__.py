"""What a pipeline did, as a chain of records: the only truth about its transactions.

record      pure   the records, as people name them and as bytes
chain       pure   entries: records that are written at once, numbered and chained by hash
sealed      pure   a transaction that is sealed: what it reads, and what it was found to be
needs       pure   what records need to be legal, one need per function
standing    pure   where a pipeline stands: the fold of its records, and which may follow which
next        pure   what a replica does next: one table
staging     shell  objects that records refer to: what is too large for a record, and snapshots
entries     shell  the entries in Consensus: read, searched, written and forgotten
log         shell  a journal as one process sees it: read on, propose the next entry, cut
timeline    shell  a pipeline's journal as the timeline of its shards
handles     shell  explicit transactions that are open: what they staged so far
fsck        shell  proves that journals are what they say, and finds what no record refers to
checkpoint  shell  where a pipeline can go on from, and below which its journal may be cut
"""
