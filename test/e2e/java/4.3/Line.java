import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

// Line is what the newest line calls differently.
class Line {
    static KafkaFuture<TopicDescription> describe(AdminClient admin, String topic) {
        return admin.describeTopics(List.of(topic)).topicNameValues().get(topic);
    }

    static KafkaFuture<Void> alter(AdminClient admin, String topic, String config, String value) {
        AlterConfigOp op = new AlterConfigOp(new ConfigEntry(config, value), AlterConfigOp.OpType.SET);
        return admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), List.of(op))).all();
    }

    static void offsets(KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> ends, KafkaConsumer<byte[], byte[]> consumer, String group) {
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
    }

    // close leaves an open transaction as it is.
    static void close(KafkaProducer<byte[], byte[]> producer) {
        producer.close(Duration.ZERO);
    }
}
