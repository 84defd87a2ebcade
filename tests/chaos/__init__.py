"""Real brokers, a real ZooKeeper ensemble and other people's clients under faults that one seed decides."""
