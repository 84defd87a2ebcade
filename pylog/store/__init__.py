"""Cluster state at rest behind one interface: ZooKeeper, or one process's own journal."""
