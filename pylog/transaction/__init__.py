"""Transactions of producers: which are open, how they end, what is written down.  Decides; waits for nothing."""
