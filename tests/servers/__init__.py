"""Servers of others that tests run against."""
