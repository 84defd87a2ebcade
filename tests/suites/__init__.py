"""Suites that others wrote for brokers of theirs, run against one of ours: `make suites`."""
