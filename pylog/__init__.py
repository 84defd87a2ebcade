"""pylog: a distributed log for activity and operational data that speaks the Kafka protocol."""

__version__ = "0.2.0"
