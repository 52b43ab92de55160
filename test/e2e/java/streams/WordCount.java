// Counts words with Kafka Streams, exactly once, for test/e2e/streams: lines of
// the topic lines, split into words, by a repartition topic into a store with a
// changelog, every change of a count to the topic counts. Runs until SIGTERM; an
// error that Streams does not recover from by itself ends it with 1. Once it runs,
// which is when the store has been read from the changelog, it prints what the
// store holds if a third argument asks for it.

import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

public class WordCount {
    public static void main(String[] args) {
        Properties p = new Properties();
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, "wordcount");
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        p.put(StreamsConfig.STATE_DIR_CONFIG, args[1]);
        p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 64 << 10); // some counts leave it before a commit
        // What was killed comes back as the same member. Its transaction does not end
        // before its timeout: with no store on the disk the next one has another id.
        p.put(StreamsConfig.consumerPrefix("group.instance.id"), "one");
        p.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 5000);
        p.put(StreamsConfig.mainConsumerPrefix("max.poll.records"), 100);
        // The changelog is to be compacted while all this goes on.
        p.put(StreamsConfig.topicPrefix("min.cleanable.dirty.ratio"), "0.01");
        p.put(StreamsConfig.topicPrefix("max.compaction.lag.ms"), "1000");
        p.put(StreamsConfig.topicPrefix("segment.ms"), "1000");

        StreamsBuilder b = new StreamsBuilder();
        b.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(String::valueOf)
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(b.build(), p);
        streams.setStateListener((now, before) -> {
            System.err.println("wordcount: " + before + " -> " + now);
            if (now == KafkaStreams.State.ERROR) Runtime.getRuntime().halt(1);
            if (now == KafkaStreams.State.RUNNING && args.length > 2) show(streams);
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static void show(KafkaStreams streams) {
        StringBuilder lines = new StringBuilder();
        try (KeyValueIterator<String, Long> all =
                streams.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.<String, Long>keyValueStore())).all()) {
            all.forEachRemaining(e -> lines.append("store: ").append(e.key).append(' ').append(e.value).append('\n'));
        }
        System.out.println(lines + "store: end");
    }
}
