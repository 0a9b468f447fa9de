"""Where rows enter: sources, their formats and their envelopes. Knows offsets, not our times.

kafka          shell  a topic of Kafka as a source
kafka_cluster  shell  asks a cluster about a topic, and says what its errors mean
kafka_options  pure   a topic's options in Spark's words, and what librdkafka is told
kafka_plan     pure   what of a topic comes next, and what of it is lost
kafka_reader   shell  reads exact ranges of a partition
position       pure   how far a source was taken, and the ranges that were taken from it
raw            pure   the columns in which every source gives its rows
registry       shell  connectors by name
secret         pure   values that may be used and never shown
source         pure   the Source port: what a source offers, and how anybody reads what was taken
"""
