"""Queries over topics that run on and on, from a file each: `pylog stream`."""
