"""Where rows enter and leave: sources, formats, envelopes, sinks. Knows offsets, not our journal.

avrofile       pure   Avro files as Arrow
change_files   shell  one file of changes: Parquet, or a line of JSON for each
envelopes      pure   what a message means: append, upsert, Debezium
files          shell  new files in a folder, each taken whole and once
files_sink     shell  a folder per transaction, published by one manifest
folder         shell  a folder on disk in which names appear whole, once and for good
formats        pure   from bytes to messages: JSON, CSV, Avro
generator      pure   rows made up from a seed
incoming       pure   from a source's rows to rows that are upserted, and to error rows
kafka          shell  a topic of Kafka as a source
kafka_cluster  shell  asks a cluster about a topic, and says what its errors mean
kafka_options  pure   a topic's options in Spark's words, and what librdkafka is told
kafka_plan     pure   what of a topic comes next, and what of it is lost
kafka_reader   shell  reads exact ranges of a partition
keys           pure   the key of a message: its values, and its text
options        pure   a connector's options, read by name
position       pure   how far a source was taken, and the ranges that were taken from it
push           pure   rows that are pushed to us, and which of them are retries
raw            pure   the columns in which every source gives its rows
reading        pure   how a table reads its source: columns, key and options, checked once
registry       shell  connectors by name
secret         pure   values that may be used and never shown
shard          pure   another shard as a source, over a port
sink           pure   the Sink port: progress and changes, both or neither
source         pure   the Source port: what a source offers, and how anybody reads what was taken
values         pure   from plain Python values to Arrow columns, exactly or not at all
"""
