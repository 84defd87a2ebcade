"""Transactions: who keeps each transactional id, how partitions learn the end of a transaction, and what they verify.

A commit travels through these modules in this order: `handlers`, `coordinator` (finds the shard), `shard` (the decision
in `__transaction_state`), `markers` (the end of the transaction, sent to the leader of each partition), `ends` (written
to the partition by its leader).  `verifying` asks before a partition takes the first batch of a transaction.
"""
