"""Connectors of Apache Kafka Connect: what an inventory wants of them, how they are, and what is restarted."""
