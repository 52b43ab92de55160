"""confluent-kafka: librdkafka, with idempotence."""

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import scenario


class Client:
    def __init__(self, address):
        self.config = {"bootstrap.servers": address}

    def create(self, topic, partitions):
        admin = AdminClient(self.config)  # must live until the answer
        for f in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            f.result(30)

    def delete(self, topic):
        admin = AdminClient(self.config)
        for f in admin.delete_topics([topic]).values():
            f.result(30)

    def produce(self, topic, codec, records):
        failed = []
        producer = Producer(self.config | {"compression.type": codec, "enable.idempotence": True, "linger.ms": 5})
        for p, k, v, h, ts in records:
            producer.produce(topic, partition=p, key=k, value=v, headers=h, timestamp=ts, on_delivery=lambda err, _: err and failed.append(err))
        left = producer.flush(30)
        assert not left and not failed, f"{left} not delivered, {failed[:1]}"

    def consume(self, topic, group, n):
        consumer = Consumer(self.config | {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        out = []
        while len(out) < n:
            for m in consumer.consume(min(100, n - len(out)), 1.0):
                assert not m.error(), m.error()
                out.append((m.offset(), m.partition(), m.key(), m.value(), m.headers() or [], m.timestamp()[1]))
        ends = {p: max(r[0] for r in out if r[1] == p) + 1 for p in {r[1] for r in out}}
        consumer.commit(offsets=[TopicPartition(topic, p, o) for p, o in ends.items()], asynchronous=False)
        consumer.close()
        return out


scenario.main(Client)
