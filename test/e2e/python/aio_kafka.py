"""aiokafka, its event loop in a thread."""

import asyncio
import functools
import threading

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError, ProducerFenced, for_code

import driver

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


def blocking(f):
    """An async method as one that blocks; errors of the broker keep their code."""

    @functools.wraps(f)
    def g(*args, **kwargs):
        try:
            return asyncio.run_coroutine_threadsafe(f(*args, **kwargs), loop).result()
        except KafkaError as e:
            code = 90 if isinstance(e, ProducerFenced) else getattr(e, "errno", 0) or 0
            raise driver.Refused(code, repr(e)) from e

    return g


def check(errors):
    """errors are tuples (name, code, ...)."""
    for name, code, *_ in errors:
        if code:
            raise for_code(code)(name)


def records(polled):
    return [(m.partition, m.offset, m.key, m.value, m.headers, m.timestamp) for messages in polled.values() for m in messages]


class Member:
    def __init__(self, consumer, topic):
        self.consumer, self.topic, self.ends = consumer, topic, {}

    @blocking
    async def poll(self):
        out = records(await self.consumer.getmany(timeout_ms=100))
        for r in out:
            self.ends[r[0]] = r[1] + 1
        return out

    @blocking
    async def commit(self):
        if self.ends:
            await self.consumer.commit({TopicPartition(self.topic, p): o for p, o in self.ends.items()})
        self.ends = {}

    @blocking
    async def close(self):
        await self.consumer.stop()


class Transactor:
    def __init__(self, producer):
        self.producer, self.open = producer, False

    async def write(self, topic, records):
        if not self.open:
            await self.producer.begin_transaction()
        self.open = True
        sent = [await self.producer.send(topic, partition=p, key=k, value=v, headers=h, timestamp_ms=ts) for p, k, v, h, ts in records]
        for s in sent:
            await s

    async def finish(self, commit):
        self.open = False
        await (self.producer.commit_transaction() if commit else self.producer.abort_transaction())

    send, end = blocking(write), blocking(finish)

    @blocking
    async def close(self):
        await self.producer.stop()


class Client:
    def __init__(self, address, name):
        self.settings = {"bootstrap_servers": address, "client_id": name}

    async def admin(self, f):
        admin = AIOKafkaAdminClient(**self.settings)
        await admin.start()
        try:
            return await f(admin)
        finally:
            await admin.close()

    @blocking
    async def create(self, topic, partitions, configs):
        made = await self.admin(lambda a: a.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)]))
        check(made.topic_errors)

    @blocking
    async def partitions(self, topic):
        (t,) = await self.admin(lambda a: a.describe_topics([topic]))
        check([(topic, t["error_code"])])
        return len(t["partitions"])

    @blocking
    async def topics(self):
        return await self.admin(lambda a: a.list_topics())

    @blocking
    async def alter(self, topic, config, value):
        (done,) = await self.admin(lambda a: a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {config: value})]))
        check((name, code) for code, _, _, name, *_ in done.resources)

    @blocking
    async def config(self, topic, config):
        (got,) = await self.admin(lambda a: a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {config: None})]))
        code, _, _, name, configs, *_ = got.resources[0]
        check([(name, code)])
        return {c[0]: c[1] for c in configs}[config]

    @blocking
    async def grow(self, topic, count):
        await self.admin(lambda a: a.create_partitions({topic: NewPartitions(count)}))

    @blocking
    async def truncate(self, topic, partition, before):
        await self.admin(lambda a: a.delete_records({TopicPartition(topic, partition): RecordsToDelete(before)}))

    @blocking
    async def remove(self, topic):
        gone = await self.admin(lambda a: a.delete_topics([topic]))
        check(gone.topic_error_codes)

    @blocking
    async def produce(self, topic, codec, idempotent, records):
        producer = AIOKafkaProducer(**self.settings, acks="all", enable_idempotence=idempotent, compression_type=None if codec == "none" else codec, linger_ms=5)
        await producer.start()
        try:
            sent = [await producer.send(topic, partition=p, key=k, value=v, headers=h, timestamp_ms=ts) for p, k, v, h, ts in records]
            for s in sent:
                await s
        finally:
            await producer.stop()

    async def open(self, transactional):
        producer = AIOKafkaProducer(**self.settings, transactional_id=transactional, linger_ms=5)
        await producer.start()
        return Transactor(producer)

    transactor = blocking(open)

    @blocking
    async def pipe(self, transactional, group, to, n, commit, **source):
        x = await self.open(transactional)
        consumer = AIOKafkaConsumer(
            source["from"], **self.settings, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
            isolation_level="read_committed", heartbeat_interval_ms=500, fetch_max_wait_ms=100)
        await consumer.start()
        try:
            while n > 0:
                out, ends = driver.transform(records(await consumer.getmany(timeout_ms=200)))
                if not out:
                    continue
                await x.write(to, out)
                await x.producer.send_offsets_to_transaction({TopicPartition(source["from"], p): o for p, o in ends.items()}, group)
                await x.finish(commit)
                n -= len(out)
        finally:
            await consumer.stop()
            await x.producer.stop()

    @blocking
    async def read(self, topic, partition, offset, time, reset, isolation, n):
        level = {"isolation_level": "read_" + isolation} if isolation else {}
        consumer = AIOKafkaConsumer(**self.settings, **level, auto_offset_reset=reset, fetch_max_wait_ms=100)
        await consumer.start()
        try:
            tp = TopicPartition(topic, partition)
            consumer.assign([tp])
            if time is not None:
                offset = (await consumer.offsets_for_times({tp: time}))[tp].offset
            consumer.seek(tp, offset)
            out = []
            while len(out) < n:
                out += records(await consumer.getmany(timeout_ms=500))
            return out
        finally:
            await consumer.stop()

    @blocking
    async def join(self, group, topic, instance, cooperative):
        consumer = AIOKafkaConsumer(
            topic, **self.settings, group_id=group, group_instance_id=instance or None, enable_auto_commit=False,
            auto_offset_reset="earliest", heartbeat_interval_ms=500, fetch_max_wait_ms=100,
            partition_assignment_strategy=[RangePartitionAssignor])
        await consumer.start()  # waits for its share; other members go on meanwhile
        return Member(consumer, topic)


driver.main(aiokafka.__version__, Client)
