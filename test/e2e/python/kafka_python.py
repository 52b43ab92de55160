"""kafka-python."""

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import BrokerResponseError, for_code
from kafka.structs import OffsetAndMetadata, TopicPartition

import driver


def records(polled):
    for messages in polled.values():
        for m in messages:
            yield m.partition, m.offset, m.key, m.value, m.headers, m.timestamp


class Member:
    def __init__(self, consumer):
        self.consumer, self.ends = consumer, {}

    def poll(self):
        out = list(records(self.consumer.poll(timeout_ms=100)))
        for r in out:
            self.ends[r[0]] = r[1] + 1
        return out

    def commit(self):
        (topic,) = self.consumer.subscription()
        self.consumer.commit({TopicPartition(topic, p): OffsetAndMetadata(o, "", -1) for p, o in self.ends.items()})
        self.ends = {}

    def close(self):
        self.consumer.close(autocommit=False)


class Transactor(driver.Transactor):
    def __init__(self, settings, transactional):
        self.producer = KafkaProducer(**settings, transactional_id=transactional, linger_ms=5)
        self.producer.init_transactions()

    def write(self, topic, records):
        produce(self.producer, topic, records)

    def commit(self):
        self.producer.commit_transaction()

    def abort(self):
        self.producer.abort_transaction()

    def close(self):
        self.producer.close(timeout=0)


def produce(producer, topic, records):
    sent = [producer.send(topic, partition=p, key=k, value=v, headers=h, timestamp_ms=ts) for p, k, v, h, ts in records]
    producer.flush()
    for s in sent:
        s.get(timeout=30)


class Client:
    def __init__(self, address, name):
        self.settings = {"bootstrap_servers": address, "client_id": name}

    def admin(self, f):
        admin = KafkaAdminClient(**self.settings)
        try:
            return f(admin)
        finally:
            admin.close()

    def create(self, topic, partitions, configs):
        self.admin(lambda a: a.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}}))

    def partitions(self, topic):
        (t,) = self.admin(lambda a: a.describe_topics([topic]))
        if t["error_code"]:
            raise for_code(t["error_code"])(topic)
        return len(t["partitions"])

    def topics(self):
        return self.admin(lambda a: a.list_topics())

    def alter(self, topic, config, value):
        # Its answer for a resource is a text that begins with the code.
        result = self.admin(lambda a: a.alter_configs([ConfigResource("TOPIC", topic, {config: value})]))["topic"][topic]
        if result != "OK":
            raise driver.Refused(int(result.split("]")[0].split("Error ")[-1].strip("[")), result)

    def config(self, topic, config):
        found = self.admin(lambda a: a.describe_configs([ConfigResource("TOPIC", topic, {config: None})], config_filter="all"))
        return found["topic"][topic][config]["value"]

    def grow(self, topic, count):
        self.admin(lambda a: a.create_partitions({topic: count}))

    def truncate(self, topic, partition, before):
        self.admin(lambda a: a.delete_records({TopicPartition(topic, partition): before}))

    def remove(self, topic):
        self.admin(lambda a: a.delete_topics([topic]))

    def produce(self, topic, codec, idempotent, records):
        producer = KafkaProducer(**self.settings, acks="all", enable_idempotence=idempotent, compression_type=None if codec == "none" else codec, linger_ms=5)
        try:
            produce(producer, topic, records)
        finally:
            producer.close()

    def transactor(self, transactional):
        return Transactor(self.settings, transactional)

    def pipe(self, transactional, group, to, n, commit, **source):
        x = Transactor(self.settings, transactional)
        consumer = KafkaConsumer(
            source["from"], **self.settings, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
            isolation_level="read_committed", heartbeat_interval_ms=500, fetch_max_wait_ms=100)
        try:
            while n > 0:
                out, ends = driver.transform(records(consumer.poll(timeout_ms=200)))
                if not out:
                    continue
                x.send(to, out)
                offsets = {TopicPartition(source["from"], p): OffsetAndMetadata(o, "", -1) for p, o in ends.items()}
                x.producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                x.end(commit)
                n -= len(out)
        finally:
            consumer.close(autocommit=False)
            x.producer.close()

    def read(self, topic, partition, offset, time, reset, isolation, n):
        level = {"isolation_level": "read_" + isolation} if isolation else {}
        consumer = KafkaConsumer(**self.settings, **level, auto_offset_reset=reset, fetch_max_wait_ms=100)
        try:
            tp = TopicPartition(topic, partition)
            consumer.assign([tp])
            if time is not None:
                offset = consumer.offsets_for_times({tp: time})[tp].offset
            consumer.seek(tp, offset)
            out = []
            while len(out) < n:
                out += records(consumer.poll(timeout_ms=500))
            return out
        finally:
            consumer.close()

    def join(self, group, topic, instance, cooperative):
        return Member(KafkaConsumer(
            topic, **self.settings, group_id=group, group_instance_id=instance or None, enable_auto_commit=False,
            auto_offset_reset="earliest", heartbeat_interval_ms=500, fetch_max_wait_ms=100,
            partition_assignment_strategy=[CooperativeStickyAssignor if cooperative else RangePartitionAssignor]))


driver.main(kafka.__version__, Client, BrokerResponseError, lambda e: e.errno)
