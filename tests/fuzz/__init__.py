"""Bytes from strangers and from damaged disks.  `make test` has a minute of it, `make fuzz` more."""
