"""A report on a topic with Spark: `python examples/spark_batch.py HOST:PORT TOPIC`."""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks run in the Python that has pylog
cluster, topic = sys.argv[1:3]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

records = spark.read.format("pylog").option("bootstrap", cluster).option("topic", topic).load()
report = records.groupBy(f.col("key").cast("string").alias("user")).agg(f.count("*").alias("records")).orderBy("user")
for row in report.collect():
    print(row.user, row.records)
spark.stop()
