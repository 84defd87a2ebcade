"""What every program of the pipeline has: it ends at a signal, tells of itself on stderr, answers HTTP."""
