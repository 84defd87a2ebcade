"""Who is at the other end of a connection, and how it proves that.  No sockets, clocks or files."""
