"""Accept, read, write, sendfile.  Knows frames, not requests."""
