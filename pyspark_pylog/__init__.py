"""Found by Spark itself: any importable module named ``pyspark_*`` with a `DefaultSource` registers its format."""

from pylog.ingest.source import PylogDataSource

DefaultSource = PylogDataSource
