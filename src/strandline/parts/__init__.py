"""How rows lie in objects: formats, statistics, filters, and the Arrow kernels. No I/O.

build        pure   from updates to a part: its bytes and its facts
chunk        pure   lists of parts as columnar objects
consolidate  pure   what updates add up to: the sums of diffs of equal rows
emptied      pure   what rows make of a table that is emptied among them
envelope     pure   the wrapping of every metadata object, so that damage is noticed
filters      pure   which rows a reader wants: conditions on columns
index        pure   the row groups of a part: where each lies, and how one is read
inline       pure   rows that are kept in the metadata itself
kept         pure   columns that keep what their key's row has
layout       pure   where updates lie: their places, their order, where parts are cut
lookup       pure   where the updates of some keys lie, found by binary search
parquet      pure   parts as Parquet: bytes that any reader can read, and back
part         pure   parts, chunks of parts, and batches of both
prune        pure   which of many parts a condition rules out
ranges       pure   where parts lie in the space of places
ranks        pure   values of any type that has an order, as whole numbers in it
rows         pure   what a caller gave, as checked updates with their digests
stats        pure   what the values of a part lie between, and its compact form
sweep        pure   one pass over many sorted inputs
tombstones   pure   the order of keys that are gone
upsert       pure   what rows that came in make of the rows that were there
"""
