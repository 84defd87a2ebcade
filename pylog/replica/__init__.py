"""One partition's copies: progress, in-sync replicas and high watermark.  Decides; waits for nothing."""
