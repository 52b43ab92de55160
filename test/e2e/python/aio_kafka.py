"""aiokafka."""

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

import scenario


class Client:
    def __init__(self, address):
        self.address = address

    async def admin(self, f):
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            await f(admin)
        finally:
            await admin.close()

    async def create(self, topic, partitions):
        await self.admin(lambda a: a.create_topics([NewTopic(topic, partitions, 1)]))

    async def delete(self, topic):
        await self.admin(lambda a: a.delete_topics([topic]))

    async def produce(self, topic, codec, records):
        producer = AIOKafkaProducer(bootstrap_servers=self.address, enable_idempotence=True, compression_type=None if codec == "none" else codec)
        await producer.start()
        sent = [await producer.send(topic, partition=p, key=k, value=v, headers=h, timestamp_ms=ts) for p, k, v, h, ts in records]
        for s in sent:
            await s
        await producer.stop()

    async def consume(self, topic, group, n):
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=self.address, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest")
        await consumer.start()
        out = []
        while len(out) < n:
            for messages in (await consumer.getmany(timeout_ms=1000, max_records=100)).values():
                for m in messages:
                    out.append((m.offset, m.partition, m.key, m.value, list(m.headers), m.timestamp))
        await consumer.commit({TopicPartition(topic, p): max(r[0] for r in out if r[1] == p) + 1 for p in {r[1] for r in out}})
        await consumer.stop()
        return out


scenario.main(Client)
