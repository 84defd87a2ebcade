"""Consumer groups: the handlers of their APIs, the coordinator, and the shards it keeps.

A commit travels through these modules in this order: `handlers`, `coordinator` (finds the shard, and whether it may
answer), `offsets` (what is committed), `shards.log` (the record in `__consumer_offsets`).  Membership goes from
`coordinator` to the group's state machine in `pylog.group.state`, whose actions `shard` carries out.
"""
