"""Spark as the data plane: the only package that imports pyspark.

source          shell  the data source `strandline`: which class serves which use
source_cast     shell  Arrow tables as Spark takes them
source_delete   pure   which incoming rows are deletions
source_options  pure   the options of the data source, parsed and checked for every use
source_plan     pure   how a read is divided into tasks
source_read     shell  batch reads: snapshots and changes
source_rows     pure   what one task of a read gives
source_store    shell  stores as Spark's own processes open them
"""
