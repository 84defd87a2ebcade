"""From a producer to the other datacenter and to Parquet: mirror, ingestion, audit."""
