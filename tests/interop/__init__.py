"""Clients not written here against a broker: pylog's by default, Apache Kafka's to calibrate a test.

pytest tests/interop                               # pylog
PYLOG_INTEROP_PEER=kafka pytest tests/interop      # the same tests against Apache Kafka 3.9
"""
