"""Data through both datacenters of the local cluster, counted at each place."""
