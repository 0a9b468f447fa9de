"""Runs Delta in an environment of its own: a request a line on standard input, an answer a line.

Started by `benchmarks/delta.py`. Settings beside the machine's size are those that help Delta with
small tables: as few shuffle partitions as ours, and a short state reconstruction.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

Answer = dict[str, float | list[float]]
LAYOUT = "id bigint, customer bigint, amount double, name string, placed bigint"


def make_session(options: argparse.Namespace) -> SparkSession:
    settings = {
        "spark.jars": options.jars,
        "spark.driver.memory": options.memory,
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(2 * options.cores),
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(Path(options.folder) / "warehouse"),
        "spark.databricks.delta.snapshotPartitions": str(options.cores),
    }
    builder = SparkSession.builder.appName("delta").master(f"local[{options.cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def load(spark: SparkSession, table: str, plain: str) -> None:
    frame = spark.read.schema(LAYOUT).parquet(plain)
    made = frame.write.format("delta").option("delta.enableDeletionVectors", "true")
    made.save(table)


def merge(spark: SparkSession, table: str, plain: str) -> None:
    merge_frame(spark, table, spark.read.schema(LAYOUT).parquet(plain))


def merge_frame(spark: SparkSession, table: str, changes: DataFrame) -> None:
    changes.createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO delta.`{table}` t USING changes s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()


def stream(spark: SparkSession, table: str, request: dict[str, str]) -> list[float]:
    """Take all that a topic has since the last time, so many rows a batch; the seconds of each."""
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", request["servers"])
        .option("subscribe", request["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", request["rows"])
        .load()
        .select(from_json(col("value").cast("string"), LAYOUT).alias("row"))
        .select("row.*")
    )
    query = (
        rows.writeStream.foreachBatch(
            lambda batch, _: merge_frame(batch.sparkSession, table, batch)
        )
        .option("checkpointLocation", f"{table}-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    done = [each for each in query.recentProgress if each.numInputRows]
    if any(each.numInputRows != int(request["rows"]) for each in done):
        raise SystemExit(f"batches of {[each.numInputRows for each in done]} rows")
    return [each.batchDuration / 1000 for each in done]


def publish(spark: SparkSession, request: dict[str, str]) -> None:
    """Each row as a message, by Spark's own sink."""
    rows = spark.read.schema(LAYOUT).parquet(request["plain"])
    messages = rows.selectExpr("to_json(struct(id)) AS key", "to_json(struct(*)) AS value")
    sink = messages.write.format("kafka").option("kafka.bootstrap.servers", request["servers"])
    sink.option("topic", request["topic"]).save()


def counts(spark: SparkSession, table: str) -> dict[str, int]:
    """What Delta says of its last operation."""
    found = spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").collect()[0]
    wanted = {"rows": "numTargetRowsUpdated", "vectors": "numTargetDeletionVectorsAdded"}
    metrics = found["operationMetrics"]
    return {name: int(metrics.get(metric, 0)) for name, metric in wanted.items()}


def answer(spark: SparkSession, request: dict[str, str], folder: str, number: int) -> Answer:
    table = f"{folder}/{request['table']}"
    group = f"request-{number}"
    spark.sparkContext.setJobGroup(group, group)
    begin = time.perf_counter()
    if request["what"] == "load":
        load(spark, table, request["plain"])
        return {"seconds": time.perf_counter() - begin}
    if request["what"] == "publish":
        publish(spark, request)
        return {"seconds": time.perf_counter() - begin}
    if request["what"] == "stream":
        return {"batches": stream(spark, table, request)}
    merge(spark, table, request["plain"])
    taken = time.perf_counter() - begin
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    spark.sparkContext.setJobGroup("history", "history")
    return {"seconds": taken, "jobs": jobs, **counts(spark, table)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--jars", required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--memory", required=True)
    options = parser.parse_args()
    spark = make_session(options)
    print(json.dumps({"version": spark.version}), flush=True)
    for number, line in enumerate(sys.stdin):
        print(json.dumps(answer(spark, json.loads(line), options.folder, number)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
