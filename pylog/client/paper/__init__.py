"""The paper's consumer: message streams, and a group whose registries are in ZooKeeper."""
