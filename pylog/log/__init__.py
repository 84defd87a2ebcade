"""Bytes at rest: one partition's segment files.  A directory and the time come in; no socket, no clock."""
