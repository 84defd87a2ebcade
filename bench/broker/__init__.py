"""One broker: what it is asked for, what it costs, how long it takes."""
