"""Benchmarks: the same clients against any broker that speaks the Kafka protocol; see README.md."""
