"""kafka-python."""

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata, TopicPartition

import scenario


class Client:
    def __init__(self, address):
        self.address = address

    def admin(self, f):
        admin = KafkaAdminClient(bootstrap_servers=self.address)
        try:
            f(admin)
        finally:
            admin.close()

    def create(self, topic, partitions):
        self.admin(lambda a: a.create_topics([NewTopic(topic, partitions, 1)]))

    def delete(self, topic):
        self.admin(lambda a: a.delete_topics([topic]))

    def produce(self, topic, codec, records):
        producer = KafkaProducer(bootstrap_servers=self.address, acks="all", compression_type=None if codec == "none" else codec, linger_ms=5)
        sent = [producer.send(topic, partition=p, key=k, value=v, headers=h, timestamp_ms=ts) for p, k, v, h, ts in records]
        producer.flush()
        for s in sent:
            s.get(timeout=30)
        producer.close()

    def consume(self, topic, group, n):
        consumer = KafkaConsumer(topic, bootstrap_servers=self.address, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest", max_poll_records=100)
        out = []
        while len(out) < n:
            for messages in consumer.poll(timeout_ms=1000).values():
                for m in messages:
                    out.append((m.offset, m.partition, m.key, m.value, list(m.headers), m.timestamp))
        ends = {p: max(r[0] for r in out if r[1] == p) + 1 for p in {r[1] for r in out}}
        consumer.commit({TopicPartition(topic, p): OffsetAndMetadata(o, "", -1) for p, o in ends.items()})
        consumer.close()
        return out


scenario.main(Client)
