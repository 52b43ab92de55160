"""confluent-kafka: librdkafka."""

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType

import driver


def record(m):
    if m.error():
        raise KafkaException(m.error())
    return m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.timestamp()[1]


class Member:
    def __init__(self, consumer):
        self.consumer, self.ends = consumer, {}

    def poll(self):
        messages = self.consumer.consume(100, 0.1)
        out = [record(m) for m in messages]
        for m in messages:
            self.ends[m.partition()] = TopicPartition(m.topic(), m.partition(), m.offset() + 1)
        return out

    def commit(self):
        if self.ends:
            self.consumer.commit(offsets=list(self.ends.values()), asynchronous=False)
        self.ends = {}

    def close(self):
        self.consumer.close()


class Transactor(driver.Transactor):
    def __init__(self, settings, transactional):
        self.producer = Producer(settings | {"transactional.id": transactional, "linger.ms": 5})
        self.producer.init_transactions(30)

    def write(self, topic, records):
        produce(self.producer, topic, records)

    def commit(self):
        self.producer.commit_transaction(30)

    def abort(self):
        self.producer.abort_transaction(30)

    def close(self):
        del self.producer


def produce(producer, topic, records):
    failed = []
    for p, k, v, h, ts in records:
        producer.produce(topic, partition=p, key=k, value=v, headers=h, timestamp=ts, on_delivery=lambda err, _: err and failed.append(err))
    left = producer.flush(30)
    if failed:
        raise KafkaException(failed[0])
    assert not left, f"{left} not delivered"


class Client:
    def __init__(self, address, name):
        self.settings = {"bootstrap.servers": address, "client.id": name}

    def admin(self, f):
        admin = AdminClient(self.settings)  # must live until the answer
        (result,) = f(admin).values()
        return result.result(30)

    def create(self, topic, partitions, configs):
        self.admin(lambda a: a.create_topics([NewTopic(topic, partitions, 1, config=configs)]))

    def partitions(self, topic):
        return len(self.admin(lambda a: a.describe_topics(TopicCollection([topic]))).partitions)

    def topics(self):
        return list(AdminClient(self.settings).list_topics(timeout=10).topics)

    def alter(self, topic, config, value):
        entry = ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)
        self.admin(lambda a: a.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))

    def config(self, topic, config):
        return self.admin(lambda a: a.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[config].value

    def grow(self, topic, count):
        self.admin(lambda a: a.create_partitions([NewPartitions(topic, count)]))

    def truncate(self, topic, partition, before):
        self.admin(lambda a: a.delete_records([TopicPartition(topic, partition, before)]))

    def remove(self, topic):
        self.admin(lambda a: a.delete_topics([topic]))

    def produce(self, topic, codec, idempotent, records):
        produce(Producer(self.settings | {"compression.type": codec, "enable.idempotence": idempotent, "acks": "all", "linger.ms": 5}), topic, records)

    def transactor(self, transactional):
        return Transactor(self.settings, transactional)

    def pipe(self, transactional, group, to, n, commit, **source):
        x = Transactor(self.settings, transactional)
        consumer = Consumer(self.settings | {
            "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed", "heartbeat.interval.ms": 500})
        try:
            consumer.subscribe([source["from"]])
            while n > 0:
                out, ends = driver.transform(record(m) for m in consumer.consume(100, 0.2))
                if not out:
                    continue
                x.send(to, out)
                x.producer.send_offsets_to_transaction([TopicPartition(source["from"], p, o) for p, o in ends.items()], consumer.consumer_group_metadata())
                x.end(commit)
                n -= len(out)
        finally:
            consumer.close()

    def read(self, topic, partition, offset, time, reset, isolation, n):
        consumer = Consumer(
            self.settings
            | {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error" if reset == "none" else reset}
            | ({"isolation.level": "read_" + isolation} if isolation else {}))
        try:
            tp = TopicPartition(topic, partition, offset)
            if time is not None:
                (tp,) = consumer.offsets_for_times([TopicPartition(topic, partition, time)], timeout=10)
            consumer.assign([tp])
            out = []
            while len(out) < n:
                out += [record(m) for m in consumer.consume(n - len(out), 0.5)]
            return out
        finally:
            consumer.close()

    def join(self, group, topic, instance, cooperative):
        consumer = Consumer(self.settings | {
            "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "cooperative-sticky" if cooperative else "range",
        } | ({"group.instance.id": instance} if instance else {}))
        consumer.subscribe([topic])
        return Member(consumer)


driver.main(f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}", Client, KafkaException, lambda e: e.args[0].code())
