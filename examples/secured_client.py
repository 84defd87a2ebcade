"""Where brokers ask for a login all that is needed stands in a file: `python examples/secured_client.py [FILE]`."""

import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer

# Lines NAME=VALUE as kcat reads them: addresses, protocol, user, password and authority. `make up` writes this one.
file = Path(sys.argv[1] if len(sys.argv) > 1 else ".local/client.properties")
cluster = dict(line.split("=", 1) for line in file.read_text().splitlines())
producer = Producer(cluster)
for number in range(3):
    producer.produce("secured", value=f"record {number}", key="any")
producer.flush()

consumer = Consumer({**cluster, "group.id": "secured", "auto.offset.reset": "earliest"})
consumer.subscribe(["secured"])
seen = 0
while seen < 3:
    record = consumer.poll(1.0)
    if record is not None and record.error() is None:
        print(record.offset(), record.value().decode())
        seen += 1
consumer.close()  # commits, and leaves the group
