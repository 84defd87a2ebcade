"""Host logs in: follow a source, produce, remember the cursor after the acknowledgement."""
