"""Spark as the data plane: the only package that imports pyspark.

blockfile       pure   a block of rows as a file that can be mapped, and whether it is whole
blocks          shell  finds the rows of keys in parts, through the cache
cache           shell  keeps blocks on the local disk, mapped by every worker
source          shell  the data source `strandline`: which class serves which use
source_cast     shell  Arrow tables as Spark takes them
source_commit   shell  commits what the tasks of a write have staged
source_delete   pure   which incoming rows are deletions
source_options  pure   the options of the data source, parsed and checked for every use
source_plan     pure   how a read is divided into tasks
source_read     shell  batch reads: snapshots and changes
source_rows     pure   what one task of a read gives
source_stage    shell  what a task of a write does with its rows
source_store    shell  stores as Spark's own processes open them
source_stream   shell  streaming reads, whose offsets are frontiers
source_write    shell  batch and streaming writes
"""
