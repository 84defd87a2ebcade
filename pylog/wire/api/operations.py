"""The bit field of what a client may do with a topic, a group or the cluster.

Its bits are the operations of `pylog.security.acl`.
"""

NOT_ASKED = -(1 << 31)
"""The bit field where the client did not ask for one."""
