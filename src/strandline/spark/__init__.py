"""Spark as the data plane, and what its Python workers keep at hand.

blocks     shell  the updates of some keys out of a part, through the cache
blockfile  pure   a cached block as one file: Arrow, and a trailer that proves it whole
cache      shell  blocks on the local disk, mapped into memory, shared by all workers
"""
