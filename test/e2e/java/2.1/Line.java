import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

// Line is what the oldest line calls differently.
class Line {
    static KafkaFuture<TopicDescription> describe(AdminClient admin, String topic) {
        return admin.describeTopics(List.of(topic)).values().get(topic);
    }

    static KafkaFuture<Void> alter(AdminClient admin, String topic, String config, String value) {
        Config all = new Config(List.of(new ConfigEntry(config, value)));
        return admin.alterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), all)).all();
    }

    static void offsets(KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> ends, KafkaConsumer<byte[], byte[]> consumer, String group) {
        producer.sendOffsetsToTransaction(ends, group);
    }

    // close leaves an open transaction as it is.
    static void close(KafkaProducer<byte[], byte[]> producer) {
        producer.close(0, TimeUnit.MILLISECONDS);
    }
}
