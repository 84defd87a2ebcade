"""Any Kafka client works unchanged; this is confluent-kafka: `python examples/plain_client.py [HOST:PORT]`."""

import sys

from confluent_kafka import Consumer, Producer

cluster = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
producer = Producer({"bootstrap.servers": cluster})
for number in range(3):
    producer.produce("plain", value=f"record {number}", key="any")
producer.flush()

consumer = Consumer({"bootstrap.servers": cluster, "group.id": "plain", "auto.offset.reset": "earliest"})
consumer.subscribe(["plain"])
seen = 0
while seen < 3:
    record = consumer.poll(1.0)
    if record is not None and record.error() is None:
        print(record.offset(), record.value().decode())
        seen += 1
consumer.close()  # commits, and leaves the group
