"""What coordinators have in common: state in one partition of a topic of the brokers, kept by the partition's leader.

`topic` makes the topic and says who coordinates, `loading` reads a partition before anything of it is answered, and
`log` writes to it.
"""
