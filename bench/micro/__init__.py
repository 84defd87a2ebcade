"""One piece of code without a network, in microseconds."""
