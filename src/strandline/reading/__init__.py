"""From parts back to rows: listing, fetching, snapshots, and changes as they come.

accounts    shell  what a subscription has listed, fetched and given out so far
descriptor  pure   a part's description that travels to another process
diagnose    shell  finds out why a part can't be read
events      pure   what a subscription gives out
extract     pure   the rows that a descriptor asks for, out of a part's bytes
feed        shell  what runs behind a subscription: lists, fetches, holds the lease
fetch       shell  fetches parts, several at once, with a bound on the bytes in flight
follow      shell  the listing half of a subscription, through outages of the store
frames      pure   rows in types that other libraries can hold
gather      shell  fetches all of several parts, and waits for them
ledger      pure   the accounts of outstanding fetches, one per time
lister      shell  lists what a subscription has to fetch, one increment after the other
listing     pure   which pieces of a state answer a read, and when each is owed
progress    pure   which steps of a frontier are worth telling
relay       shell  workers of a subscription in processes of their own
request     pure   what a reader asks for, checked against a schema
show        pure   rows as a small HTML table for notebooks
snapshot    shell  a shard's rows as of one time
stop        pure   how several workers stop together
subscribe   shell  a shard's changes as they come, with frontiers
view        shell  what a reader sees of a shard: a pinned state, its parts, its instants
watch       pure   whether a reader makes progress
"""
