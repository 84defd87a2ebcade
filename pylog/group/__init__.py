"""Consumer groups: who is a member, what each reads, what was committed.  Decides; waits for nothing."""
