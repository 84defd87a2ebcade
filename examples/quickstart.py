"""Ten lines: send three records and read them back; `python examples/quickstart.py [HOST:PORT]`."""

import sys

from pylog.client import Consumer, Producer

cluster = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
with Producer(cluster) as producer:  # leaves when all is acknowledged, raises if something was not
    for word in (b"hello", b"log", b"!"):
        producer.send("quickstart", word, key=b"words")
with Consumer(cluster) as consumer:
    consumer.assign_topic("quickstart")
    for record in consumer.records_to_end():
        print(record.offset, record.value)
