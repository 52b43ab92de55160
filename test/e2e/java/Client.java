// A Java client as a program for test/e2e/clients: the protocol is in
// process_test.go there. One source for both lines of the library; what they
// call differently is in the class Line beside each pom.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

public class Client {
    static final ObjectMapper json = new ObjectMapper();
    static final PrintStream out = System.out;

    final String address;
    final String name;
    final AdminClient admin;
    final Map<String, Member> members = new HashMap<>();
    final Map<String, Transactor> transactors = new HashMap<>();

    Client(String address, String name) {
        this.address = address;
        this.name = name;
        this.admin = AdminClient.create(settings());
    }

    Map<String, Object> settings() {
        Map<String, Object> s = new HashMap<>();
        s.put("bootstrap.servers", address);
        s.put("client.id", name);
        return s;
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // loggers must not write between the answers
        Client client = new Client(args[0], args[1]);
        say(json.createObjectNode().put("version", AppInfoParser.getVersion()));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"), 1 << 20);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode call = json.readTree(line);
            ObjectNode answer = json.createObjectNode().put("id", call.get("id").asInt());
            try {
                answer.set("result", json.valueToTree(client.handle(call)));
            } catch (Throwable e) {
                e.printStackTrace();
                Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
                answer.put("error", cause.toString());
                if (cause instanceof OffsetOutOfRangeException) answer.put("code", Errors.OFFSET_OUT_OF_RANGE.code()); // the consumer's own
                if (cause instanceof ApiException) answer.put("code", Errors.forException(cause).code());
            }
            say(answer);
        }
        System.exit(0);
    }

    static void say(ObjectNode line) throws IOException {
        synchronized (out) {
            out.println(json.writeValueAsString(line));
            out.flush();
        }
    }

    Object handle(JsonNode p) throws Exception {
        String topic = p.path("topic").asText();
        switch (p.get("op").asText()) {
            case "create":
                Map<String, String> configs = new HashMap<>();
                p.get("configs").fields().forEachRemaining(c -> configs.put(c.getKey(), c.getValue().asText()));
                admin.createTopics(List.of(new NewTopic(topic, p.get("partitions").asInt(), (short) 1).configs(configs))).all().get();
                return null;
            case "partitions":
                return Line.describe(admin, topic).get().partitions().size();
            case "topics":
                return admin.listTopics().names().get();
            case "alter":
                Line.alter(admin, topic, p.get("config").asText(), p.get("value").asText()).get();
                return null;
            case "config":
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(p.get("config").asText()).value();
            case "grow":
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(p.get("count").asInt()))).all().get();
                return null;
            case "truncate":
                admin.deleteRecords(Map.of(new TopicPartition(topic, p.get("partition").asInt()), RecordsToDelete.beforeOffset(p.get("before").asLong()))).all().get();
                return null;
            case "remove":
                admin.deleteTopics(List.of(topic)).all().get();
                return null;
            case "produce":
                produce(topic, p);
                return null;
            case "read":
                return read(topic, p);
            case "transactor_open":
                transactors.put(p.get("producer").asText(), new Transactor(this, p.get("transactional").asText()));
                return null;
            case "transactor_send":
                transactors.get(p.get("producer").asText()).send(records(topic, p.get("records")));
                return null;
            case "transactor_end":
                transactors.get(p.get("producer").asText()).end(p.get("commit").asBoolean());
                return null;
            case "transactor_close":
                Line.close(transactors.remove(p.get("producer").asText()).producer);
                return null;
            case "pipe":
                pipe(p);
                return null;
            case "join":
                Member m = new Member(this, p);
                members.put(p.get("member").asText(), m);
                m.start();
                return null;
            case "commit":
                members.get(p.get("member").asText()).call(Member::commit);
                return null;
            case "leave":
                members.remove(p.get("member").asText()).call(Member::leave);
                return null;
            default:
                throw new IllegalArgumentException(p.toString());
        }
    }

    void produce(String topic, JsonNode p) throws Exception {
        Map<String, Object> s = settings();
        s.put("acks", "all");
        s.put("linger.ms", 5);
        s.put("compression.type", p.get("codec").asText());
        if (p.get("idempotent").asBoolean()) s.put("enable.idempotence", true);
        List<Future<?>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(s, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (ProducerRecord<byte[], byte[]> r : records(topic, p.get("records"))) sent.add(producer.send(r));
            producer.flush();
        }
        for (Future<?> f : sent) f.get();
    }

    static List<ProducerRecord<byte[], byte[]>> records(String topic, JsonNode all) throws IOException {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (JsonNode r : all) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode h : r.get("headers")) headers.add(new RecordHeader(new String(bytes(h.get(0)), "UTF-8"), bytes(h.get(1))));
            records.add(new ProducerRecord<>(topic, r.get("partition").asInt(), r.get("time").asLong(), bytes(r.get("key")), bytes(r.get("value")), headers));
        }
        return records;
    }

    // Transactor is a producer with a transactional id.
    static class Transactor {
        final KafkaProducer<byte[], byte[]> producer;
        boolean open;

        Transactor(Client client, String id) {
            Map<String, Object> s = client.settings();
            s.put("transactional.id", id);
            s.put("linger.ms", 5);
            producer = new KafkaProducer<>(s, new ByteArraySerializer(), new ByteArraySerializer());
            producer.initTransactions();
        }

        void send(List<ProducerRecord<byte[], byte[]>> records) throws Exception {
            if (!open) producer.beginTransaction();
            open = true;
            List<Future<?>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> r : records) sent.add(producer.send(r));
            producer.flush();
            for (Future<?> f : sent) f.get();
        }

        void end(boolean commit) {
            open = false;
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    void pipe(JsonNode p) throws Exception {
        String group = p.get("group").asText();
        Transactor x = new Transactor(this, p.get("transactional").asText());
        try (KafkaProducer<byte[], byte[]> producer = x.producer;
            KafkaConsumer<byte[], byte[]> c = consumer(new HashMap<>(Map.of("group.id", group, "auto.offset.reset", "earliest",
                "isolation.level", "read_committed", "heartbeat.interval.ms", 500)))) {
            c.subscribe(Set.of(p.get("from").asText()));
            for (int done = 0; done < p.get("n").asInt(); ) {
                List<ProducerRecord<byte[], byte[]>> out = new ArrayList<>();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(500))) {
                    byte[] value = Arrays.copyOf(r.value(), r.value().length + 1);
                    value[value.length - 1] = '!';
                    out.add(new ProducerRecord<>(p.get("to").asText(), r.partition(), r.timestamp(), r.key(), value, r.headers()));
                    ends.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                }
                if (out.isEmpty()) continue;
                x.send(out);
                Line.offsets(producer, ends, c, group);
                x.end(p.get("commit").asBoolean());
                done += out.size();
            }
        }
    }

    KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        settings.putAll(settings());
        settings.put("enable.auto.commit", false);
        settings.put("fetch.max.wait.ms", 100);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    List<ObjectNode> read(String topic, JsonNode p) {
        List<ObjectNode> read = new ArrayList<>();
        Map<String, Object> settings = new HashMap<>(Map.of("auto.offset.reset", p.get("reset").asText()));
        if (!p.get("isolation").asText().isEmpty()) settings.put("isolation.level", "read_" + p.get("isolation").asText());
        try (KafkaConsumer<byte[], byte[]> c = consumer(settings)) {
            TopicPartition tp = new TopicPartition(topic, p.get("partition").asInt());
            c.assign(List.of(tp));
            if (p.get("time").isNull()) {
                c.seek(tp, p.get("offset").asLong());
            } else {
                c.seek(tp, c.offsetsForTimes(Map.of(tp, p.get("time").asLong())).get(tp).offset());
            }
            while (read.size() < p.get("n").asInt()) {
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(500))) read.add(toJson(r));
            }
        }
        return read;
    }

    static byte[] bytes(JsonNode n) {
        return n.isNull() ? null : Base64.getDecoder().decode(n.asText());
    }

    static ObjectNode toJson(ConsumerRecord<byte[], byte[]> r) {
        ObjectNode n = json.createObjectNode().put("partition", r.partition()).put("offset", r.offset()).put("time", r.timestamp());
        n.put("key", r.key()).put("value", r.value()); // base64, null as null
        ArrayNode headers = n.putArray("headers");
        for (Header h : r.headers()) headers.addArray().add(h.key().getBytes()).add(h.value());
        return n;
    }

    interface Call {
        void on(Member m) throws Exception;
    }

    // Member polls a consumer in a thread of its own; commits and leaves come
    // between two polls.
    static class Member extends Thread {
        final String name;
        final KafkaConsumer<byte[], byte[]> consumer;
        final BlockingQueue<Runnable> calls = new LinkedBlockingQueue<>();
        final Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        boolean left;

        Member(Client client, JsonNode p) {
            setDaemon(true);
            name = p.get("member").asText();
            Map<String, Object> s = new HashMap<>(Map.of("group.id", p.get("group").asText(), "auto.offset.reset", "earliest", "heartbeat.interval.ms", 500));
            if (!p.get("instance").asText().isEmpty()) s.put("group.instance.id", p.get("instance").asText());
            s.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + (p.get("cooperative").asBoolean() ? "CooperativeStickyAssignor" : "RangeAssignor"));
            consumer = client.consumer(s);
            consumer.subscribe(Set.of(p.get("topic").asText()));
        }

        @Override
        public void run() {
            while (!left) {
                Runnable call = calls.poll();
                if (call != null) {
                    call.run();
                    continue;
                }
                try {
                    for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) {
                        ends.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                        ObjectNode line = json.createObjectNode().put("member", name);
                        line.set("record", toJson(r));
                        say(line);
                    }
                } catch (Exception e) {
                    try {
                        say(json.createObjectNode().put("member", name).put("error", e.toString()));
                    } catch (IOException broken) {
                        return;
                    }
                }
            }
        }

        void call(Call c) throws Exception {
            CompletableFuture<Void> done = new CompletableFuture<>();
            calls.add(() -> {
                try {
                    c.on(this);
                    done.complete(null);
                } catch (Exception e) {
                    done.completeExceptionally(e);
                }
            });
            done.get();
        }

        void commit() {
            consumer.commitSync(ends);
            ends.clear();
        }

        void leave() {
            left = true;
            consumer.close();
        }
    }
}
