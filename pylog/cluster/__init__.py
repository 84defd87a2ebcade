"""Who leads what: the cluster image and the decisions that change it.  Decides; waits for nothing."""
