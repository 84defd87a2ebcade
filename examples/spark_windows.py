"""Clicks by member and hour, as they come: `python examples/spark_windows.py HOST:PORT CLICKS MEMBERS DIRECTORY`.

Windows, late records, joins of a stream with a table or with another stream are Spark's own, over topics as streams.
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, max_by, window

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks run in the Python that has pylog
cluster, clicks_topic, members_topic, directory = sys.argv[1:5]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", 2)
    .getOrCreate()
)

# The latest value of each key is a table; a compacted topic keeps just those.
members = (
    spark.read.format("pylog")
    .option("bootstrap", cluster)
    .option("topic", members_topic)
    .load()
    .groupBy("key")
    .agg(max_by(col("value").cast("string"), "offset").alias("member"))
)
clicks = (
    spark.readStream.format("pylog")
    .option("bootstrap", cluster)
    .option("topic", clicks_topic)
    .option("startingOffsets", "earliest")
    .load()
    .withWatermark("timestamp", "10 minutes")  # what comes later than this is left out, and its window forgotten
)
counted = clicks.join(members, "key").groupBy(window("timestamp", "1 hour"), "member").agg(count("*").alias("clicks"))


def show(changed: DataFrame, _batch: int) -> None:
    """Print the windows that changed."""
    for row in changed.orderBy("window", "member").collect():
        print(row.window.start, row.member, row.clicks)


query = (
    counted.writeStream.outputMode("update")
    .foreachBatch(show)
    .option("checkpointLocation", f"{directory}/checkpoint")
    .trigger(availableNow=True)  # all there is; leave it out to run on
    .start()
)
query.awaitTermination()
spark.stop()
