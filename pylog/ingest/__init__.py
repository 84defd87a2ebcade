"""The log into the lake, through Spark."""
