"""The broker's part in its cluster: registration, the controller's election and operations, cluster images.

A change of the cluster travels through these modules in this order:

1. `topics`, `configs`, `client_quotas`, `reassignments`, `elections`: the handler of the client's request.
2. `link`: executes the request here if this broker is the controller, and forwards it to the controller otherwise.
3. the subject's `execute`, which hands an operation to the agent's thread (`agent`).
4. the operation, which decides by `pylog.cluster.controller` and writes to the store through `controller`.
5. `images`: every broker pulls the new image; the request is answered once its effect is visible on this broker.
"""
