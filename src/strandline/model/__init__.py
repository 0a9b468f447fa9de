"""The nouns that every other package speaks: immutable values and ports, no I/O.

clock       pure  the Clock and Random ports: where time and chance come from
columntype  pure  which Arrow types a column may have, how they widen, what is lossless
digest      pure  what a multiset of rows adds up to, so that two can be compared
engine      pure  the Engine port: what happens to the rows of shards, whoever computes it
equality    pure  columns in types that are equal wherever their values are
frontier    pure  times, and how far a collection is settled
ids         pure  names that people choose, ids that we generate, and versions
rowhash     pure  the specified 64-bit hash of a row, for placement and digests
schema      pure  a shard's columns, their ids, its key, and how they may change
sensitive   pure  names that say that a value is a secret
tasks       pure  the Tasks port: everything that waits, or runs beside something else
timeline    pure  the Timeline port: what settles several shards together
valuehash   pure  the hash of one value of any Arrow type, on which the row hash stands
"""
