"""Three brokers: replication, failover, and what partitions cost."""
