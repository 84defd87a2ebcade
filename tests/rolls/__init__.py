"""Rolls on live hosts: what Molecule's scenarios verify. Every test changes the cluster and leaves it well."""
