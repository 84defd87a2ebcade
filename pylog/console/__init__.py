"""The console: a cluster in a browser."""
