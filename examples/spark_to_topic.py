"""Clicks by key and hour, back into a topic: `python examples/spark_to_topic.py HOST:PORT CLICKS COUNTS DIRECTORY`.

Each micro-batch writes the counts that changed.  A compacted topic keeps the last one of each key and hour.  A query
that is stopped in the middle of a micro-batch writes it again when it goes on: at least once, with equal counts.
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat_ws, count, date_format, window

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks run in the Python that has pylog
cluster, clicks_topic, counts_topic, directory = sys.argv[1:5]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", 2)
    .getOrCreate()
)

counted = (
    spark.readStream.format("pylog")
    .option("bootstrap", cluster)
    .option("topic", clicks_topic)
    .option("startingOffsets", "earliest")
    .load()
    .withWatermark("timestamp", "10 minutes")  # what comes later than this is left out, and its window forgotten
    .groupBy(window("timestamp", "1 hour"), col("key").cast("string").alias("user"))
    .agg(count("*").cast("string").alias("value"))
)
counts = counted.select(concat_ws(" ", "user", date_format("window.start", "yyyy-MM-dd HH:mm")).alias("key"), "value")


def write(changed: DataFrame, _batch: int) -> None:
    """Write the counts that changed; Spark lets a format of Python's write in the modes append and complete only."""
    writer = changed.write.format("pylog").option("bootstrap", cluster).option("topic", counts_topic)
    writer.mode("append").save()


query = (
    counts.writeStream.outputMode("update")
    .foreachBatch(write)
    .option("checkpointLocation", f"{directory}/checkpoint")
    .trigger(availableNow=True)  # all there is; leave it out to run on
    .start()
)
query.awaitTermination()
spark.stop()
