// Apache Kafka's own cleaner on a log of its own, for broker/compact: commands in
// binary on standard input, answers on standard output.
//
//   1 retention        a new, empty log with that delete.retention.ms (long)
//   2 length bytes     appends one batch, which becomes a segment
//   3 dirty end now    cleans (longs), the offsets below dirty having been cleaned
//                      before; answers length and the batches below end
//   4 length bytes     reads batches as a client does; answers how many records

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class LogCleaner {
    // Files are removed when they are said to be, nothing else happens by itself.
    static final Scheduler SCHEDULER = new Scheduler() {
        public void startup() {}
        public void shutdown() {}
        public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            if (period < 0) task.run();
            return null;
        }
        public void resizeThreadPool(int size) {}
    };

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(System.out);
        File root = Files.createTempDirectory(new File(args[0]).toPath(), "cleaner").toFile();
        BrokerTopicStats stats = new BrokerTopicStats();
        Throttler throttler = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "none", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 20), 1 << 16, 1 << 20, 0.9, throttler, Time.SYSTEM, partition -> {});
        UnifiedLog log = null;
        for (int logs = 0;; out.flush()) {
            int command;
            try {
                command = in.readByte();
            } catch (EOFException e) {
                return;
            }
            if (command == 1) {
                if (log != null) log.closeHandlers();
                Properties p = new Properties();
                p.putAll(Map.of("cleanup.policy", "compact", "delete.retention.ms", Long.toString(in.readLong()), "segment.index.bytes", "4096"));
                File dir = new File(root, "log-" + logs++);
                if (!dir.mkdir()) throw new IllegalStateException(dir.toString());
                log = UnifiedLog.create(dir, new LogConfig(p), 0, 0, SCHEDULER, stats, Time.SYSTEM, 1 << 30,
                    new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 1 << 30, new LogDirFailureChannel(1), true, Optional.of(Uuid.randomUuid()));
            } else if (command == 2) {
                MemoryRecords records = MemoryRecords.readableRecords(read(in));
                log.appendAsFollower(records, 7);
                log.roll();
            } else if (command == 3) {
                long dirty = in.readLong(), end = in.readLong(), now = in.readLong();
                log.updateHighWatermark(log.logEndOffset());
                if (end > dirty) {
                    long cleaned = cleaner.doClean(new LogToClean(log, dirty, end, false), now).getKey();
                    if (cleaned != end) throw new IllegalStateException("cleaned up to " + cleaned + " instead of " + end);
                }
                List<LogSegment> below = log.logSegments(0, end);
                int size = 0;
                for (LogSegment s : below) size += s.log().sizeInBytes();
                ByteBuffer all = ByteBuffer.allocate(size);
                for (LogSegment s : below) {
                    ByteBuffer one = ByteBuffer.allocate(s.log().sizeInBytes());
                    s.log().readInto(one, 0);
                    all.put(one);
                }
                out.writeInt(size);
                out.write(all.array());
            } else if (command == 4) {
                int n = 0;
                for (RecordBatch b : MemoryRecords.readableRecords(read(in)).batches()) {
                    b.ensureValid();
                    for (Record r : b) {
                        r.ensureValid();
                        n++;
                    }
                }
                out.writeInt(n);
            } else {
                throw new IllegalStateException("command " + command);
            }
        }
    }

    static ByteBuffer read(DataInputStream in) throws Exception {
        byte[] p = new byte[in.readInt()];
        in.readFully(p);
        return ByteBuffer.wrap(p);
    }
}
