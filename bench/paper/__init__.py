"""The paper's workload and its claims, beside Apache Kafka and others."""
