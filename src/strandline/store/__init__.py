"""Where bytes are put: two ports, and the places that implement them.

blob       pure   the Blob port: immutable objects that survive us
consensus  pure   the Consensus port: one agreed sequence of versions per key
retry      pure   backoff as a plain value
memory     shell  both ports in memory, for tests and the simulator
disk       shell  the few calls through which `files` reaches a disk
files      shell  Blob on a folder of files
holder     shell  who keeps everybody from writing to a SQLite file
lane       shell  a SQLite connection that threads share and that survives a fork
locate     shell  where a store is: its URL, and the backends behind it
sqlite     shell  Consensus on one SQLite file
"""
