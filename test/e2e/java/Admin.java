// Calls every method of the admin client once and prints one line each, without
// what differs from run to run, for test/e2e/keys: "method, what: result". An
// exception is printed by its name. Run as a source file: java Admin.java ADDRESS.

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

public class Admin {
    interface Call { Object run() throws Exception; }

    static final Set<String> called = new TreeSet<>();
    static org.apache.kafka.clients.admin.Admin admin;

    // call prints what a call gives. The method's name is up to the first comma.
    static void call(String name, Call c) {
        called.add(name.split(",")[0]);
        String result;
        try {
            result = String.valueOf(c.run());
        } catch (Throwable e) {
            while (e instanceof ExecutionException && e.getCause() != null) e = e.getCause();
            result = e.getClass().getSimpleName();
        }
        System.out.println(name + ": " + result);
    }

    static <T> T get(KafkaFuture<T> f) throws Exception { return f.get(30, TimeUnit.SECONDS); }

    // each resolves futures one by one: what fails is there by its name.
    static <K> Map<String, Object> each(Map<K, ? extends KafkaFuture<?>> m) {
        Map<String, Object> out = new TreeMap<>();
        m.forEach((k, f) -> {
            try {
                Object v = f.get(30, TimeUnit.SECONDS);
                out.put(String.valueOf(k), v == null ? "ok" : v);
            } catch (Exception e) {
                Throwable t = e instanceof ExecutionException ? e.getCause() : e;
                out.put(String.valueOf(k), t.getClass().getSimpleName());
            }
        });
        return out;
    }

    static <K, V> Map<String, Object> sorted(Map<K, V> m) {
        Map<String, Object> out = new TreeMap<>();
        m.forEach((k, v) -> out.put(String.valueOf(k), v));
        return out;
    }

    static String topic(TopicDescription d) {
        return d.name() + " internal=" + d.isInternal() + " id=" + !d.topicId().equals(Uuid.ZERO_UUID) + " "
            + d.partitions().stream().map(p -> p.partition() + " leader=" + p.leader().id() + " replicas=" + p.replicas().size() + " isr=" + p.isr().size()
                + " elr=" + p.elr() + " last=" + p.lastKnownElr()).collect(Collectors.joining("; "))
            + " operations=" + (d.authorizedOperations() == null ? null : new TreeSet<>(d.authorizedOperations()));
    }

    static String entry(ConfigEntry e) {
        return e.name() + "=" + e.value() + " " + e.source() + " " + e.type() + (e.isReadOnly() ? " read-only" : "") + (e.isSensitive() ? " sensitive" : "");
    }

    static Object configs(ConfigResource r, String... names) throws Exception {
        Config c = get(admin.describeConfigs(List.of(r)).all()).get(r);
        return Stream.of(names).map(n -> c.get(n) == null ? n + " is absent" : entry(c.get(n))).collect(Collectors.toList());
    }

    static Object alter(ConfigResource r, AlterConfigOp.OpType t, String name, String value) {
        return each(admin.incrementalAlterConfigs(Map.of(r, List.of(new AlterConfigOp(new ConfigEntry(name, value), t)))).values());
    }

    static String group(ConsumerGroupDescription d) {
        return d.groupId() + " " + d.groupState() + " " + d.type() + " assignor=" + d.partitionAssignor() + " coordinator=" + d.coordinator().id() + " members="
            + d.members().stream().map(m -> m.clientId() + " host=" + m.host().startsWith("/") + " " + m.assignment().topicPartitions().stream().map(String::valueOf).sorted().collect(Collectors.toList())).collect(Collectors.toList())
            + " operations=" + (d.authorizedOperations() == null ? null : new TreeSet<>(d.authorizedOperations()));
    }

    static String listing(GroupListing g) { return g.groupId() + " " + g.type() + " " + g.protocol() + " " + g.groupState() + " simple=" + g.isSimpleConsumerGroup(); }

    static Object offsets(OffsetSpec spec, IsolationLevel level, TopicPartition... tps) {
        Map<TopicPartition, OffsetSpec> m = new HashMap<>();
        for (TopicPartition tp : tps) m.put(tp, spec);
        ListOffsetsResult r = admin.listOffsets(m, new ListOffsetsOptions(level));
        Map<TopicPartition, KafkaFuture<?>> fs = new HashMap<>();
        for (TopicPartition tp : tps)
            fs.put(tp, r.partitionResult(tp).thenApply(o -> o.offset() + " at " + o.timestamp() + " epoch " + o.leaderEpoch()));
        return each(fs);
    }

    public static void main(String[] args) throws Exception {
        Properties s = new Properties();
        s.put("bootstrap.servers", args[0]);
        s.put("client.id", "admin");
        s.put("default.api.timeout.ms", "20000");
        s.put("request.timeout.ms", "15000");
        admin = org.apache.kafka.clients.admin.Admin.create(s);
        try {
            topics();
            configs();
            records(s);
            replicas();
            groups(s);
            cluster();
            later();
        } finally {
            call("close", () -> { admin.close(Duration.ofSeconds(10)); return "ok"; });
        }
        Set<String> all = new TreeSet<>();
        for (Method m : org.apache.kafka.clients.admin.Admin.class.getMethods()) all.add(m.getName());
        all.removeAll(called);
        all.removeAll(Set.of("create"));
        System.out.println("not called: " + all);
        System.exit(0);
    }

    static final TopicPartition a0 = new TopicPartition("admin-a", 0), a1 = new TopicPartition("admin-a", 1), x0 = new TopicPartition("admin-x", 0);

    static void topics() {
        call("createTopics", () -> {
            NewTopic t = new NewTopic("admin-a", 2, (short) 1).configs(Map.of("retention.ms", "3600000"));
            CreateTopicsResult r = admin.createTopics(List.of(t));
            return get(r.numPartitions("admin-a")) + " " + get(r.replicationFactor("admin-a")) + " " + !get(r.topicId("admin-a")).equals(Uuid.ZERO_UUID)
                + " " + entry(get(r.config("admin-a")).get("retention.ms")) + " of " + get(r.config("admin-a")).entries().size();
        });
        call("createTopics, exists", () -> each(admin.createTopics(List.of(new NewTopic("admin-a", 2, (short) 1), new NewTopic("admin b", 1, (short) 1))).values()));
        call("createTopics, only validated", () -> each(admin.createTopics(List.of(new NewTopic("admin-v", Optional.empty(), Optional.empty())), new CreateTopicsOptions().validateOnly(true)).values()));
        call("createTopics, another", () -> each(admin.createTopics(List.of(new NewTopic("admin-d", 1, (short) 1))).values()));
        call("listTopics", () -> get(admin.listTopics(new ListTopicsOptions().listInternal(false)).listings()).stream()
            .map(l -> l.name() + " internal=" + l.isInternal() + " id=" + !l.topicId().equals(Uuid.ZERO_UUID)).sorted().collect(Collectors.toList()));
        call("describeTopics", () -> get(admin.describeTopics(List.of("admin-a", "admin-d"), new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames())
            .values().stream().map(Admin::topic).sorted().collect(Collectors.toList()));
        call("describeTopics, by pages", () -> get(admin.describeTopics(List.of("admin-a", "admin-d"), new DescribeTopicsOptions().partitionSizeLimitPerResponse(1)).allTopicNames())
            .values().stream().map(Admin::topic).sorted().collect(Collectors.toList()));
        call("describeTopics, unknown", () -> each(admin.describeTopics(List.of("admin-x", "admin b")).topicNameValues()));
        call("describeTopics, by id", () -> {
            Uuid id = get(admin.describeTopics(List.of("admin-a")).allTopicNames()).get("admin-a").topicId();
            Map<String, Object> m = each(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id, new Uuid(1, 2)))).topicIdValues());
            return m.values().stream().map(v -> v instanceof TopicDescription ? topic((TopicDescription) v) : v.toString()).sorted().collect(Collectors.toList());
        });
        call("createPartitions", () -> each(admin.createPartitions(Map.of("admin-a", NewPartitions.increaseTo(3), "admin-d", NewPartitions.increaseTo(1), "admin-x", NewPartitions.increaseTo(2))).values()));
        call("deleteTopics", () -> each(admin.deleteTopics(List.of("admin-d", "admin-x")).topicNameValues()));
        call("deleteTopics, by id", () -> {
            Uuid id = get(admin.createTopics(List.of(new NewTopic("admin-e", 1, (short) 1))).topicId("admin-e"));
            return new TreeSet<>(each(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id, new Uuid(1, 2)))).topicIdValues()).values().stream().map(String::valueOf).collect(Collectors.toList()));
        });
    }

    static void configs() {
        ConfigResource t = new ConfigResource(ConfigResource.Type.TOPIC, "admin-a"), x = new ConfigResource(ConfigResource.Type.TOPIC, "admin-x");
        ConfigResource b = new ConfigResource(ConfigResource.Type.BROKER, "1");
        call("describeConfigs", () -> {
            Config c = get(admin.describeConfigs(List.of(t), new DescribeConfigsOptions().includeSynonyms(true)).all()).get(t);
            return c.entries().stream().filter(e -> !e.name().equals("min.insync.replicas")).map(Admin::entry).sorted().collect(Collectors.toList());
        });
        call("describeConfigs, min.insync.replicas", () -> configs(t, "min.insync.replicas"));
        call("describeConfigs, documented", () -> {
            Config c = get(admin.describeConfigs(List.of(t), new DescribeConfigsOptions().includeDocumentation(true)).all()).get(t);
            return c.entries().stream().allMatch(e -> e.documentation() != null && !e.documentation().isEmpty());
        });
        call("describeConfigs, unknown", () -> each(admin.describeConfigs(List.of(x)).values()));
        call("describeConfigs, broker", () -> configs(b, "node.id", "message.max.bytes", "auto.create.topics.enable"));
        call("incrementalAlterConfigs, set", () -> alter(t, AlterConfigOp.OpType.SET, "retention.ms", "7200000") + " " + configs(t, "retention.ms"));
        call("incrementalAlterConfigs, delete", () -> alter(t, AlterConfigOp.OpType.DELETE, "retention.ms", "") + " " + configs(t, "retention.ms"));
        call("incrementalAlterConfigs, append to what is no list", () -> alter(t, AlterConfigOp.OpType.APPEND, "retention.ms", "1"));
        call("incrementalAlterConfigs, bad value", () -> alter(t, AlterConfigOp.OpType.SET, "retention.ms", "soon"));
        call("incrementalAlterConfigs, unknown key", () -> alter(t, AlterConfigOp.OpType.SET, "no.such.key", "1"));
        call("incrementalAlterConfigs, unknown topic", () -> alter(x, AlterConfigOp.OpType.SET, "retention.ms", "1"));
        call("incrementalAlterConfigs, read-only broker key", () -> alter(b, AlterConfigOp.OpType.SET, "node.id", "7"));
        call("listConfigResources", () -> get(admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER), new ListConfigResourcesOptions()).all()).stream().map(String::valueOf).sorted().collect(Collectors.toList()));
        call("listClientMetricsResources", () -> get(admin.listClientMetricsResources().all()));
    }

    static void records(Properties s) {
        call("deleteRecords, nothing there", () -> each(admin.deleteRecords(Map.of(a0, RecordsToDelete.beforeOffset(1))).lowWatermarks()));
        Properties p = new Properties();
        p.putAll(s);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            long now = System.currentTimeMillis() / 1000 * 1000;
            for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>("admin-a", 0, now - 100000 + i, "k", "v" + i));
            producer.flush();
            call("listOffsets, earliest", () -> offsets(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED, a0, a1));
            call("listOffsets, latest", () -> offsets(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED, a0, a1));
            call("listOffsets, maximum", () -> offsets(OffsetSpec.maxTimestamp(), IsolationLevel.READ_UNCOMMITTED, a0, a1).toString().replace("" + (now - 100000 + 9), "T+9"));
            call("listOffsets, time", () -> offsets(OffsetSpec.forTimestamp(now - 100000 + 4), IsolationLevel.READ_UNCOMMITTED, a0, a1).toString().replace("" + (now - 100000 + 4), "T+4"));
            call("listOffsets, earliest local", () -> offsets(OffsetSpec.earliestLocal(), IsolationLevel.READ_UNCOMMITTED, a0));
            call("listOffsets, latest tiered", () -> offsets(OffsetSpec.latestTiered(), IsolationLevel.READ_UNCOMMITTED, a0));
            call("listOffsets, earliest pending upload", () -> offsets(OffsetSpec.earliestPendingUpload(), IsolationLevel.READ_UNCOMMITTED, a0));
            call("describeProducers", () -> get(admin.describeProducers(List.of(a0)).partitionResult(a0)).activeProducers().stream()
                .map(i -> (i.producerId() >= 0) + " epoch=" + i.producerEpoch() + " last=" + i.lastSequence() + " time=" + (i.lastTimestamp() > 0)
                    + " coordinator=" + i.coordinatorEpoch() + " transaction=" + i.currentTransactionStartOffset()).collect(Collectors.toList()));
        }
        call("deleteRecords", () -> {
            DeleteRecordsResult r = admin.deleteRecords(Map.of(a0, RecordsToDelete.beforeOffset(3), a1, RecordsToDelete.beforeOffset(5)));
            Map<String, Object> m = each(r.lowWatermarks());
            m.replaceAll((k, v) -> v instanceof DeletedRecords ? ((DeletedRecords) v).lowWatermark() : v);
            return m + " " + offsets(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED, a0);
        });
        call("describeLogDirs", () -> get(admin.describeLogDirs(List.of(1)).allDescriptions()).values().stream()
            .map(dirs -> dirs.values().stream().map(d -> d.error() + " total=" + d.totalBytes().isPresent() + " usable=" + d.usableBytes().isPresent() + " "
                + d.replicaInfos().entrySet().stream().filter(e -> e.getKey().topic().startsWith("admin-a"))
                    .map(e -> e.getKey() + " " + (e.getValue().size() > 0) + " lag=" + e.getValue().offsetLag() + " future=" + e.getValue().isFuture()).sorted().collect(Collectors.toList()))
                .collect(Collectors.toList())).collect(Collectors.toList()));
        TopicPartitionReplica r = new TopicPartitionReplica("admin-a", 0, 1), none = new TopicPartitionReplica("admin-x", 0, 1);
        call("describeReplicaLogDirs", () -> {
            Map<String, Object> m = each(admin.describeReplicaLogDirs(List.of(r, none)).values());
            m.replaceAll((k, v) -> v instanceof DescribeReplicaLogDirsResult.ReplicaLogDirInfo
                ? (((DescribeReplicaLogDirsResult.ReplicaLogDirInfo) v).getCurrentReplicaLogDir() != null) + " lag=" + ((DescribeReplicaLogDirsResult.ReplicaLogDirInfo) v).getCurrentReplicaOffsetLag() : v);
            return m;
        });
        call("alterReplicaLogDirs", () -> each(admin.alterReplicaLogDirs(Map.of(r, "/no/such/dir")).values()));
    }

    static void replicas() {
        call("electLeaders", () -> sorted(get(admin.electLeaders(ElectionType.PREFERRED, Set.of(a0, x0)).partitions())).toString().replaceAll("Exception: [^,\\]]*", "Exception"));
        call("electLeaders, all", () -> get(admin.electLeaders(ElectionType.UNCLEAN, null).partitions()));
        call("alterPartitionReassignments", () -> each(admin.alterPartitionReassignments(Map.of(
            a0, Optional.of(new NewPartitionReassignment(List.of(1))), a1, Optional.of(new NewPartitionReassignment(List.of(2))), x0, Optional.empty())).values()));
        call("alterPartitionReassignments, cancel", () -> each(admin.alterPartitionReassignments(Map.of(a0, Optional.empty())).values()));
        call("listPartitionReassignments", () -> get(admin.listPartitionReassignments().reassignments()));
        call("listPartitionReassignments, some", () -> get(admin.listPartitionReassignments(Set.of(a0)).reassignments()));
    }

    static void groups(Properties s) {
        Properties p = new Properties();
        p.putAll(s);
        p.put("group.id", "admin-g");
        p.put("group.instance.id", "one");
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        call("describeConsumerGroups, unknown", () -> each(admin.describeConsumerGroups(List.of("admin-g")).describedGroups()));
        call("describeClassicGroups, unknown", () -> each(admin.describeClassicGroups(List.of("admin-g")).describedGroups()));
        call("listConsumerGroupOffsets, unknown", () -> get(admin.listConsumerGroupOffsets("admin-g").partitionsToOffsetAndMetadata()));
        call("deleteConsumerGroups, unknown", () -> each(admin.deleteConsumerGroups(List.of("admin-g")).deletedGroups()));
        call("deleteConsumerGroupOffsets, unknown", () -> each(Map.of("all", admin.deleteConsumerGroupOffsets("admin-g", Set.of(a0)).all())));
        KafkaConsumer<String, String> c = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
        try {
            c.subscribe(List.of("admin-a"));
            for (int n = 0; n < 7; ) n += c.poll(Duration.ofSeconds(1)).count();
            c.commitSync(Map.of(a0, new OffsetAndMetadata(5, Optional.of(0), "note")));
            call("listConsumerGroups", () -> get(admin.listConsumerGroups().all()).stream().map(g -> g.groupId() + " " + g.groupState().get() + " " + g.type().get() + " simple=" + g.isSimpleConsumerGroup()).sorted().collect(Collectors.toList()));
            call("listGroups", () -> get(admin.listGroups().all()).stream().map(Admin::listing).sorted().collect(Collectors.toList()));
            call("listGroups, filtered", () -> get(admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY)).withTypes(Set.of(GroupType.CLASSIC))).all()));
            call("describeConsumerGroups", () -> group(get(admin.describeConsumerGroups(List.of("admin-g"), new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all()).get("admin-g")));
            call("describeClassicGroups", () -> {
                ClassicGroupDescription d = get(admin.describeClassicGroups(List.of("admin-g")).all()).get("admin-g");
                return d.groupId() + " " + d.state() + " " + d.protocol() + " " + d.protocolData() + " members=" + d.members().size() + " simple=" + d.isSimpleConsumerGroup();
            });
            call("listConsumerGroupOffsets", () -> get(admin.listConsumerGroupOffsets("admin-g").partitionsToOffsetAndMetadata()));
            call("listConsumerGroupOffsets, some", () -> sorted(get(admin.listConsumerGroupOffsets(Map.of("admin-g", new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(a0, a1)))).partitionsToOffsetAndMetadata("admin-g"))));
            call("alterConsumerGroupOffsets, active", () -> each(Map.of("all", admin.alterConsumerGroupOffsets("admin-g", Map.of(a0, new OffsetAndMetadata(1))).all())));
            call("deleteConsumerGroupOffsets, active", () -> each(Map.of("a", admin.deleteConsumerGroupOffsets("admin-g", Set.of(a0)).partitionResult(a0))));
            call("deleteConsumerGroups, active", () -> each(admin.deleteConsumerGroups(List.of("admin-g")).deletedGroups()));
            call("removeMembersFromConsumerGroup, unknown", () -> each(Map.of("all", admin.removeMembersFromConsumerGroup("admin-g", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).all())));
            call("removeMembersFromConsumerGroup", () -> each(Map.of("all", admin.removeMembersFromConsumerGroup("admin-g", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all())));
        } finally {
            c.close(CloseOptions.timeout(Duration.ofSeconds(5)));
        }
        call("describeConsumerGroups, empty", () -> group(get(admin.describeConsumerGroups(List.of("admin-g")).all()).get("admin-g")));
        call("alterConsumerGroupOffsets", () -> each(Map.of("a", admin.alterConsumerGroupOffsets("admin-g", Map.of(a0, new OffsetAndMetadata(1), a1, new OffsetAndMetadata(2, "m"))).all()))
            + " " + sorted(get(admin.listConsumerGroupOffsets("admin-g").partitionsToOffsetAndMetadata())));
        call("alterConsumerGroupOffsets, unknown topic", () -> each(Map.of("all", admin.alterConsumerGroupOffsets("admin-g", Map.of(x0, new OffsetAndMetadata(1))).all())));
        call("deleteConsumerGroupOffsets", () -> {
            DeleteConsumerGroupOffsetsResult r = admin.deleteConsumerGroupOffsets("admin-g", Set.of(a0, x0));
            return each(Map.of("known", r.partitionResult(a0), "unknown", r.partitionResult(x0))) + " " + sorted(get(admin.listConsumerGroupOffsets("admin-g").partitionsToOffsetAndMetadata()));
        });
        call("deleteConsumerGroups", () -> each(admin.deleteConsumerGroups(List.of("admin-g")).deletedGroups()));
    }

    static void cluster() {
        call("describeCluster", () -> {
            DescribeClusterResult r = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return get(r.clusterId()).length() + " nodes=" + get(r.nodes()).size() + " controller=" + get(r.controller()).id() + " operations=" + new TreeSet<>(get(r.authorizedOperations()));
        });
        call("describeFeatures, supported", () -> sorted(get(admin.describeFeatures().featureMetadata()).supportedFeatures()));
        call("describeFeatures, in force", () -> sorted(get(admin.describeFeatures().featureMetadata()).finalizedFeatures()));
        call("metrics", () -> !admin.metrics().isEmpty());
        call("registerMetricForSubscription", () -> { admin.registerMetricForSubscription(null); return "ok"; });
        call("unregisterMetricFromSubscription", () -> { admin.unregisterMetricFromSubscription(null); return "ok"; });
        call("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(2)));
    }

    // later calls what is not served yet, or never will be.
    static void later() {
        AclBinding acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "admin-a", PatternType.LITERAL), new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW));
        ClientQuotaEntity user = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "a"));
        call("describeAcls", () -> get(admin.describeAcls(AclBindingFilter.ANY).values()));
        call("createAcls", () -> get(admin.createAcls(List.of(acl)).all()));
        call("deleteAcls", () -> get(admin.deleteAcls(List.of(acl.toFilter())).all()));
        call("describeClientQuotas", () -> get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()));
        call("alterClientQuotas", () -> get(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(user, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6)))), new AlterClientQuotasOptions().validateOnly(true)).all()));
        call("describeUserScramCredentials", () -> get(admin.describeUserScramCredentials().all()));
        call("alterUserScramCredentials", () -> get(admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion("a", ScramMechanism.SCRAM_SHA_256))).all()));
        call("createDelegationToken", () -> get(admin.createDelegationToken().delegationToken()));
        call("renewDelegationToken", () -> get(admin.renewDelegationToken(new byte[] {1}).expiryTimestamp()));
        call("expireDelegationToken", () -> get(admin.expireDelegationToken(new byte[] {1}).expiryTimestamp()));
        call("describeDelegationToken", () -> get(admin.describeDelegationToken().delegationTokens()));
        call("describeTransactions", () -> each(Map.of("t", admin.describeTransactions(List.of("t")).description("t"))));
        call("listTransactions", () -> get(admin.listTransactions().all()));
        call("fenceProducers", () -> get(admin.fenceProducers(List.of("t")).all()));
        call("abortTransaction", () -> get(admin.abortTransaction(new AbortTransactionSpec(a0, 1, (short) 0, 0)).all()));
        call("forceTerminateTransaction", () -> get(admin.forceTerminateTransaction("t").result()));
        call("describeMetadataQuorum", () -> get(admin.describeMetadataQuorum().quorumInfo()).leaderId());
        call("updateFeatures", () -> get(admin.updateFeatures(Map.of("group.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions().validateOnly(true)).all()));
        call("unregisterBroker", () -> get(admin.unregisterBroker(77).all()));
        call("addRaftVoter", () -> get(admin.addRaftVoter(7, new Uuid(1, 2), Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 1))).all()));
        call("removeRaftVoter", () -> get(admin.removeRaftVoter(7, new Uuid(1, 2)).all()));
        call("describeShareGroups", () -> each(admin.describeShareGroups(List.of("admin-s")).describedGroups()));
        call("listShareGroupOffsets", () -> get(admin.listShareGroupOffsets(Map.of("admin-s", new ListShareGroupOffsetsSpec())).all()));
        call("alterShareGroupOffsets", () -> get(admin.alterShareGroupOffsets("admin-s", Map.of(a0, 1L)).all()));
        call("deleteShareGroupOffsets", () -> get(admin.deleteShareGroupOffsets("admin-s", Set.of("admin-a")).all()));
        call("deleteShareGroups", () -> each(admin.deleteShareGroups(List.of("admin-s")).deletedGroups()));
        call("describeStreamsGroups", () -> each(admin.describeStreamsGroups(List.of("admin-t")).describedGroups()));
        call("listStreamsGroupOffsets", () -> get(admin.listStreamsGroupOffsets(Map.of("admin-t", new ListStreamsGroupOffsetsSpec())).all()));
        call("alterStreamsGroupOffsets", () -> each(Map.of("all", admin.alterStreamsGroupOffsets("admin-t", Map.of(x0, new OffsetAndMetadata(1))).all())));
        call("deleteStreamsGroupOffsets", () -> get(admin.deleteStreamsGroupOffsets("admin-t", Set.of(a0)).all()));
        call("deleteStreamsGroups", () -> each(admin.deleteStreamsGroups(List.of("admin-t")).deletedGroups()));
    }
}
