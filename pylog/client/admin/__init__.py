"""What operators ask of a cluster: topics, partitions, settings, groups, health."""
