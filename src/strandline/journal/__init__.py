"""What a pipeline did, as a chain of records: the only truth about its transactions.

record    pure   the records, as people name them and as bytes
chain     pure   entries: records that are written at once, numbered and chained by hash
standing  pure   where a pipeline stands: the fold of its records, and which may follow which
next      pure   what a replica does next: one table
"""
