"""What is measured from outside the brokers: a canary's records, the lag of groups, and ZooKeeper.

Runs beside Prometheus as one program with one ``/metrics`` page.  None of it costs a broker more than a client would.
"""
