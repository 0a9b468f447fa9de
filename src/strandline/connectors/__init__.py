"""Where rows enter and leave: sources, formats, envelopes, sinks. Knows offsets, not our journal.

addresses          pure   where a program may lead a connector
avroblocks         pure   the blocks of an Avro file, unpacked within a limit
avrofile           pure   Avro files as Arrow
callback_sink      shell  a function of the user's as a sink, at least once
change_files       shell  one file of changes: Parquet, or a line of JSON for each
connect_schema     pure   what the schema in a message of Kafka Connect says of its values
envelopes          pure   what a message means: append, upsert, Debezium
filerows           pure   the rows of a file, as a stream, within limits
files              shell  new files in a folder, each taken whole and once
files_sink         shell  a folder per transaction, published by one manifest
folder             shell  a folder on disk in which names appear whole, once and for good
formats            pure   from bytes to messages: JSON, CSV, Avro
generator          pure   rows made up from a seed
iceberg_files      shell  the data files of one transaction in an Iceberg table
iceberg_rows       pure   rows that go from data files, and types as Iceberg has them
iceberg_sink       shell  a collection as an Iceberg table, a snapshot for each transaction
incoming           pure   from a source's rows to rows that are upserted, and to error rows
hosts              shell  where the names of hosts lead now
json_text          pure   Arrow columns as JSON, a text for each row
kafka              shell  a topic of Kafka as a source
kafka_client       shell  the Cluster port on confluent-kafka
kafka_cluster      shell  asks a cluster about a topic, and says what its errors mean
kafka_fold         pure   from messages back to rows
kafka_form         pure   changes as messages: upsert, Debezium, changes
kafka_options      pure   a topic's options in Spark's words, and what librdkafka is told
kafka_plan         pure   what of a topic comes next, and what of it is lost
kafka_port         pure   the Cluster port: what the Kafka sink asks of a cluster
kafka_progress     pure   how far each lineage of a sink came, and whose keys are left
kafka_reader       shell  reads exact ranges of a partition
kafka_sink         shell  a transaction of ours as one of Kafka's, with its progress in it
kafka_target       pure   a sink's options, and what librdkafka is told to write
keys               pure   the key of a message: its values, and its text
object_folder      shell  the same below a prefix of an object store
options            pure   a connector's options, read by name
plain              pure   from Arrow's values to those that JSON has
position           pure   how far a source was taken, and the ranges that were taken from it
postgres_columns   pure   types of PostgreSQL's columns, and rows as COPY takes them
postgres_errors    pure   which of PostgreSQL's errors pass, and which stay
postgres_link      shell  a connection to PostgreSQL whose waits end
postgres_progress  shell  how far each sink is, in a table beside its target
postgres_session   shell  a session with PostgreSQL, and what its errors mean
postgres_sink      shell  a table of PostgreSQL that is kept equal to a collection
postgres_table     shell  the target table: made or checked, changed by sets of rows
push               pure   rows that are pushed to us, and which of them are retries
raw                pure   the columns in which every source gives its rows
reading            pure   how a table reads its source: columns, key and options, checked once
registry           shell  connectors by name
secret             pure   values that may be used and never shown
shard              pure   another shard as a source, over a port
sink               pure   the Sink port: progress and changes, both or neither
source             pure   the Source port: what a source offers, and how what was taken is read
values             pure   from plain Python values to Arrow columns, exactly or not at all
"""
