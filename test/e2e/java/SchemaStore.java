import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * SchemaStore asks of a cluster what Confluent's Schema Registry asks of it for the topic it keeps
 * schemas in (its classes KafkaStore and KafkaStoreReaderThread): it makes the topic or checks it,
 * reads all of it into memory from the beginning, without committing anything, and finds out where
 * its end is by writing there. A change is made when its own reader has seen it.
 *
 * <p>SchemaStore SERVERS TOPIC, then one command a line, fields with tabs between: put KEY VALUE;
 * delete KEY; show, which answers with a line for each key and "end". Else an answer is one line.
 */
class SchemaStore {
    static final long LIMIT = 30_000;
    static final byte[] NOOP = "{\"keytype\":\"NOOP\",\"magic\":0}".getBytes(StandardCharsets.UTF_8);

    final String topic;
    final Map<String, String> seen = new TreeMap<>(); // guarded by this, as is the next
    long offset = -1;
    volatile boolean closing;
    volatile Throwable died;
    KafkaConsumer<byte[], byte[]> consumer;
    KafkaProducer<byte[], byte[]> producer;

    SchemaStore(String topic) {
        this.topic = topic;
    }

    /** prepare makes or checks the topic and says which. */
    String prepare(String servers) throws Exception {
        try (AdminClient admin = AdminClient.create(Map.of("bootstrap.servers", servers))) {
            if (!admin.listTopics().names().get(LIMIT, TimeUnit.MILLISECONDS).contains(topic)) {
                int brokers = admin.describeCluster().nodes().get(LIMIT, TimeUnit.MILLISECONDS).size();
                NewTopic wanted = new NewTopic(topic, 1, (short) Math.min(brokers, 3)).configs(Map.of("cleanup.policy", "compact"));
                try {
                    admin.createTopics(Set.of(wanted)).all().get(LIMIT, TimeUnit.MILLISECONDS);
                    return "created";
                } catch (ExecutionException e) {
                    if (!(e.getCause() instanceof TopicExistsException)) {
                        throw e;
                    }
                }
            }
            TopicDescription is = admin.describeTopics(Set.of(topic)).allTopicNames().get(LIMIT, TimeUnit.MILLISECONDS).get(topic);
            if (is.partitions().size() != 1) {
                throw new IllegalStateException("the topic has " + is.partitions().size() + " partitions instead of one");
            }
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            String policy = admin.describeConfigs(Set.of(resource)).all().get(LIMIT, TimeUnit.MILLISECONDS).get(resource).get("cleanup.policy").value();
            if (!"compact".equals(policy)) {
                throw new IllegalStateException("the topic's cleanup.policy is " + policy + " instead of compact");
            }
            return "found";
        }
    }

    /** begin reads up to the end that the topic has now. */
    void begin(String servers) throws Exception {
        Properties writes = new Properties();
        writes.put("bootstrap.servers", servers);
        writes.put("acks", "-1");
        writes.put("retries", 0); // who registers tries again, not the producer
        writes.put("key.serializer", ByteArraySerializer.class);
        writes.put("value.serializer", ByteArraySerializer.class);
        producer = new KafkaProducer<>(writes);
        Properties reads = new Properties();
        reads.put("bootstrap.servers", servers);
        reads.put("group.id", "schema-registry-" + ProcessHandle.current().pid());
        reads.put("client.id", "KafkaStore-reader-" + topic);
        reads.put("auto.offset.reset", "earliest");
        reads.put("enable.auto.commit", "false");
        reads.put("key.deserializer", ByteArrayDeserializer.class);
        reads.put("value.deserializer", ByteArrayDeserializer.class);
        consumer = new KafkaConsumer<>(reads);
        if (consumer.partitionsFor(topic).size() != 1) {
            throw new IllegalStateException("the topic does not have one partition");
        }
        List<TopicPartition> all = List.of(new TopicPartition(topic, 0));
        consumer.assign(all);
        consumer.seekToBeginning(all);
        Thread reader = new Thread(this::read, "reader");
        reader.setDaemon(true);
        reader.start();
        write(NOOP, null);
    }

    void read() {
        try {
            while (!closing) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) {
                    synchronized (this) {
                        if (r.offset() <= offset) {
                            throw new IllegalStateException("offset " + r.offset() + " after " + offset);
                        }
                        String key = new String(r.key(), StandardCharsets.UTF_8);
                        if (r.value() == null) {
                            seen.remove(key);
                        } else {
                            seen.put(key, new String(r.value(), StandardCharsets.UTF_8));
                        }
                        offset = r.offset();
                        notifyAll();
                    }
                }
            }
            consumer.close();
        } catch (Throwable e) {
            died = e;
            synchronized (this) {
                notifyAll();
            }
        }
    }

    /** write returns when the reader has come to what was written. */
    long write(byte[] key, byte[] value) throws Exception {
        long at = producer.send(new ProducerRecord<>(topic, 0, key, value)).get(LIMIT, TimeUnit.MILLISECONDS).offset();
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LIMIT);
        synchronized (this) {
            while (offset < at) {
                long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
                if (died != null || left <= 0) {
                    throw new IllegalStateException("the reader has come to " + offset + " of " + at, died);
                }
                wait(left);
            }
        }
        return at;
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws Exception {
        SchemaStore s = new SchemaStore(args[1]);
        try {
            String how = s.prepare(args[0]);
            s.begin(args[0]);
            System.out.println(how);
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line; (line = in.readLine()) != null; ) {
                String[] f = line.split("\t", -1);
                switch (f[0]) {
                    case "put":
                        System.out.println(s.write(bytes(f[1]), bytes(f[2])));
                        break;
                    case "delete":
                        System.out.println(s.write(bytes(f[1]), null));
                        break;
                    case "show":
                        s.write(NOOP, null); // who shows the newest finds out first what it is
                        synchronized (s) {
                            s.seen.forEach((k, v) -> System.out.println(k + "\t" + v));
                        }
                        System.out.println("end");
                        break;
                    default:
                        throw new IllegalArgumentException(line);
                }
            }
        } catch (Exception e) {
            System.out.println("failed: " + e + (e.getCause() == null ? "" : ": " + e.getCause()));
            System.exit(1);
        }
        s.closing = true;
        s.producer.close(Duration.ofSeconds(5));
    }
}
