"""A topic as a stream into Parquet, each record once: `python examples/spark_stream.py HOST:PORT TOPIC DIRECTORY`.

Run it again and it goes on where it stopped: the checkpoint has its offsets.
"""

import os
import sys

from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks run in the Python that has pylog
cluster, topic, directory = sys.argv[1:4]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

records = (
    spark.readStream.format("pylog")
    .option("bootstrap", cluster)
    .option("topic", topic)
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    records.selectExpr("CAST(key AS STRING) AS user", "CAST(value AS STRING) AS event", "timestamp")
    .writeStream.format("parquet")
    .option("path", f"{directory}/events")
    .option("checkpointLocation", f"{directory}/checkpoint")
    .trigger(availableNow=True)  # all there is; leave it out to run on
    .start()
)
query.awaitTermination()
print(spark.read.parquet(f"{directory}/events").count(), "events")
spark.stop()
