"""What programs on top of the log use to reach it."""
