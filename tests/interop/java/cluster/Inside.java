package org.apache.kafka.common.test;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What a test finds inside a broker or a controller: objects of Apache's classes that ask a node of ours for each answer.
 *
 * Settings, ports, state, start, stop, metadata, the directories and ends of logs, and counts of sign-ins can be had. All
 * else is refused with NOT_HERE.
 */
public final class Inside {
    private static final String NOT_HERE = "the test looks into Apache's broker: ";
    private static final String SIGN_INS = "kafka_server_socket_server_metrics_";

    private final Nodes nodes;
    private final OttlaCluster cluster;

    Inside(Nodes nodes, OttlaCluster cluster) {
        this.nodes = nodes;
        this.cluster = cluster;
    }

    /** What an object answers to a method of this name with these arguments; `null` for what it does not know. */
    public interface Answers {
        Object to(String method, Object[] arguments) throws Exception;
    }

    private static final Answers NO_ANSWERS = (method, arguments) -> null;
    /** The answer of a method that returns nothing. */
    public static final Object NOTHING = new Object();

    public static <T> T made(Class<T> type, Answers answers) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            String method = call.getMethod().getName();
            if (method.equals("toString")) {
                return type.getSimpleName() + " of a node of ours";
            }
            Object found = answers.to(method, call.getArguments());
            if (found == null) {
                throw new UnsupportedOperationException(NOT_HERE + type.getSimpleName() + "." + method);
            }
            return found == NOTHING ? null : found;
        }));
    }

    /** The same object for each answer, after something has been waited for. */
    public static <T> T waiting(Class<T> type, T known, Runnable wait) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            wait.run();
            try {
                return call.getMethod().invoke(known, call.getArguments());
            } catch (InvocationTargetException e) {
                throw e.getCause();
            }
        }));
    }

    BrokerServer broker(int id) {
        KafkaConfig config = new KafkaConfig(nodes.properties(id), false);
        KRaftMetadataCache cache = made(KRaftMetadataCache.class, (method, arguments) -> cached(id, method, arguments));
        MetadataLoader loader = made(MetadataLoader.class,
            (method, arguments) -> method.equals("lastAppliedOffset") ? applied(id) : null);
        SharedServer shared = made(SharedServer.class, (method, arguments) -> method.equals("loader") ? loader : null);
        SocketServer sockets = made(SocketServer.class,
            (method, arguments) -> method.equals("boundPort") ? nodes.port(id, (ListenerName) arguments[0]) : null);
        LogManager logs = logManager(config, nodes.port(id));
        ReplicaManager replicas = replicaManager(id, cache, () -> nodes.alive(id), logs);
        GroupCoordinator groups = groupCoordinator(config);
        KafkaApis requests = made(KafkaApis.class, (method, arguments) -> switch (method) {
            case "metadataCache" -> cache;
            case "clusterId" -> nodes.clusterId();
            case "brokerId" -> id;
            case "isConsumerGroupProtocolEnabled" -> cluster.supportedGroupProtocols().contains(GroupProtocol.CONSUMER);
            default -> null;
        });
        return made(BrokerServer.class, (method, arguments) -> {
            switch (method) {
                case "config": return config;
                case "clusterId": return nodes.clusterId();
                case "boundPort": return nodes.port(id, (ListenerName) arguments[0]);
                case "brokerState": return nodes.alive(id) ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
                case "isShutdown": return !nodes.alive(id);
                case "socketServer": return sockets;
                case "sharedServer": return shared;
                case "metadataCache": return cache;
                case "groupCoordinator": return groups;
                case "replicaManager": return replicas;
                case "logManager": return logs;
                case "dataPlaneRequestProcessor": return requests;
                case "startup": cluster.startBroker(id); return NOTHING;
                case "shutdown": cluster.shutdownBroker(id); return NOTHING;
                case "awaitShutdown": return NOTHING;
                default: return null;
            }
        });
    }

    ControllerServer controller(int id) {
        KafkaConfig config = new KafkaConfig(nodes.properties(id), false);
        KafkaRaftManager<?> raft = raftManager();
        SocketServer sockets = made(SocketServer.class, (method, arguments) -> switch (method) {
            case "boundPort" -> nodes.port(id, (ListenerName) arguments[0]);
            case "config" -> config;
            default -> null;
        });
        Controller controller = made(Controller.class,
            (method, arguments) -> method.equals("findAllTopicIds") ? CompletableFuture.completedFuture(topicIds()) : null);
        return made(ControllerServer.class, (method, arguments) -> {
            switch (method) {
                case "config": return config;
                case "clusterId": return nodes.clusterId();
                case "raftManager": return raft;
                case "controller": return controller;
                case "socketServer": return sockets;
                default: return null;
            }
        });
    }

    /** A raft manager that knows what the leader of the quorum tells. */
    @SuppressWarnings("unchecked")
    KafkaRaftManager<ApiMessageAndVersion> raftManager() {
        RaftLog log = made(RaftLog.class,
            (method, arguments) -> method.equals("endOffset") ? new LogOffsetMetadata(quorum().highWatermark()) : null);
        KafkaRaftClient<?> client = made(KafkaRaftClient.class, (method, arguments) -> method.equals("leaderAndEpoch")
            ? new LeaderAndEpoch(OptionalInt.of(quorum().leaderId()), (int) quorum().leaderEpoch()) : null);
        return made(KafkaRaftManager.class, (method, arguments) -> switch (method) {
            case "raftLog" -> log;
            case "client" -> client;
            default -> null;
        });
    }

    /** A replica manager of a broker that knows what it leads, and in which epoch, from this metadata. */
    public static ReplicaManager replicaManager(int id, MetadataCache metadata, BooleanSupplier alive, LogManager logs) {
        return made(ReplicaManager.class, (method, arguments) -> {
            if (method.equals("logManager")) {
                return logs;
            }
            if (method.equals("metadataCache")) {
                return metadata;
            }
            if (!(arguments.length == 1 && arguments[0] instanceof TopicPartition wanted)) {
                return null;
            }
            Partition partition = made(Partition.class, (of, none) -> {
                LeaderAndIsr known = metadata.getLeaderAndIsr(wanted.topic(), wanted.partition()).get();
                return switch (of) {
                    case "getLeaderEpoch" -> known.leaderEpoch();
                    case "isLeader" -> known.leader() == id;
                    case "leaderReplicaIdOpt" -> Option.apply(known.leader());
                    case "leaderIdIfLocal" -> Option.apply(known.leader() == id ? id : null);
                    case "leaderLogIfLocal" -> Option.apply(known.leader() == id ? made(UnifiedLog.class, NO_ANSWERS) : null);
                    default -> null;
                };
            });
            return switch (method) {
                case "onlinePartition" -> {
                    boolean there = alive.getAsBoolean() && metadata.contains(wanted);
                    yield Option.apply(there ? partition : null);
                }
                case "getPartitionOrException" -> partition;
                case "localLog" -> logs.getLog(wanted, false);
                case "localLogOrException" -> logs.getLog(wanted, false).get();
                default -> null;
            };
        });
    }

    /** A log manager that knows which directories of partitions are on the disks of a node with this port. */
    public static LogManager logManager(KafkaConfig config, int port) {
        List<File> disks = config.logDirs().stream().map(each -> new File(each).getAbsoluteFile()).toList();
        return made(LogManager.class, (method, arguments) -> switch (method) {
            case "getLog$default$2" -> false;
            case "liveLogDirs" -> CollectionConverters.asScala(disks).toSeq();
            case "getLog" -> {
                TopicPartition wanted = (TopicPartition) arguments[0];
                boolean future = arguments.length > 1 && (Boolean) arguments[1];
                yield Option.apply(disks.stream().map(disk -> directory(disk, wanted, future))
                    .filter(Optional::isPresent).map(Optional::get).findFirst()
                    .map(found -> made(UnifiedLog.class, (of, none) -> switch (of) {
                        case "dir" -> found;
                        case "logEndOffset" -> offset(port, wanted, ListOffsetsRequest.LATEST_TIMESTAMP);
                        case "logStartOffset" -> offset(port, wanted, ListOffsetsRequest.EARLIEST_TIMESTAMP);
                        default -> null;
                    })).orElse(null));
            }
            default -> null;
        });
    }

    /** The start or the end of a node's own log, which also a follower tells to whom looks for errors. */
    private static long offset(int port, TopicPartition wanted, long timestamp) throws IOException {
        short version = 4;
        ListOffsetsRequest request = ListOffsetsRequest.Builder.forReplica(version, ListOffsetsRequest.DEBUGGING_REPLICA_ID)
            .setTargetTimes(List.of(new ListOffsetsTopic().setName(wanted.topic()).setPartitions(List.of(
                new ListOffsetsPartition().setPartitionIndex(wanted.partition()).setTimestamp(timestamp)))))
            .build(version);
        ListOffsetsResponse told = IntegrationTestUtils.connectAndReceive(request, port);
        return told.topics().get(0).partitions().get(0).offset();
    }

    /** The directory of a partition on a disk; that of a move has a name of its own. */
    private static Optional<File> directory(File disk, TopicPartition partition, boolean future) {
        File[] found = disk.listFiles((where, name) -> future
            ? name.startsWith(partition + ".") && name.endsWith("-future") : name.equals(partition.toString()));
        return Arrays.stream(found == null ? new File[0] : found).findFirst();
    }

    /** The counts of a node that shows its metrics at this port, each under the name that Apache's own has. */
    public static Metrics metrics(int port) throws IOException {
        Metrics all = new Metrics();
        for (String each : shown(port, SIGN_INS)) {
            String name = each.substring(SIGN_INS.length(), each.indexOf('{')).replace('_', '-');
            String listener = each.substring(each.indexOf('"') + 1, each.lastIndexOf('"'));
            double value = Double.parseDouble(each.substring(each.lastIndexOf(' ') + 1));
            MetricName known = all.metricName(name, "socket-server-metrics", Map.of("listener", listener));
            all.addMetric(known, (config, now) -> value);
        }
        return all;
    }

    /** The samples that begin so among the metrics that a node shows at this port. */
    static List<String> shown(int port, String beginning) throws IOException {
        URL where = new URL("http://localhost:" + port + "/metrics");
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(where.openStream()))) {
            return lines.lines().filter(each -> each.startsWith(beginning)).toList();
        }
    }

    /** A group coordinator that knows the settings of its topic. */
    public static GroupCoordinator groupCoordinator(KafkaConfig config) {
        return made(GroupCoordinator.class,
            (method, arguments) -> method.equals("groupMetadataTopicConfigs") ? offsetsTopic(config) : null);
    }

    /** The settings with which a test creates the topic of the groups. */
    private static Properties offsetsTopic(KafkaConfig config) {
        Properties all = new Properties();
        all.put("cleanup.policy", "compact");
        all.put("compression.type", "producer");
        all.put("segment.bytes", Integer.toString(config.groupCoordinatorConfig().offsetsTopicSegmentBytes()));
        return all;
    }

    private Map<String, Uuid> topicIds() throws Exception {
        Map<String, Uuid> ids = new HashMap<>();
        topics(nodes.brokerIds().get(0)).forEach((name, topic) -> ids.put(name, topic.topicId()));
        return ids;
    }

    private QuorumInfo quorum() throws Exception {
        try (Admin admin = cluster.admin()) {
            return admin.describeMetadataQuorum().quorumInfo().get();
        }
    }

    /** How far a node has the metadata, by what the leader of the quorum says of it. */
    private long applied(int id) throws Exception {
        QuorumInfo told = quorum();
        return Stream.concat(told.voters().stream(), told.observers().stream())
            .filter(each -> each.replicaId() == id).mapToLong(each -> each.logEndOffset()).max().orElse(-1);
    }

    /** The metadata that one broker alone tells. */
    private Object cached(int id, String method, Object[] arguments) throws Exception {
        switch (method) {
            case "getAllTopics":
                return topics(id).keySet();
            case "numPartitions":
                return Optional.ofNullable(topics(id).get(arguments[0])).map(topic -> topic.partitions().size());
            case "getTopicId": {
                TopicDescription topic = topics(id).get(arguments[0]);
                return topic == null ? Uuid.ZERO_UUID : topic.topicId();
            }
            case "contains":
                if (arguments[0] instanceof TopicPartition wanted) {
                    return partition(id, wanted.topic(), wanted.partition()) != null;
                }
                return topics(id).containsKey(arguments[0]);
            case "getLeaderAndIsr": {
                TopicPartitionInfo found = partition(id, (String) arguments[0], (Integer) arguments[1]);
                return Optional.ofNullable(found).map(each -> new LeaderAndIsr(
                    each.leader() == null ? LeaderAndIsr.NO_LEADER : each.leader().id(),
                    each.isr().stream().map(Node::id).toList()));
            }
            case "hasAliveBroker":
                return alive(id).stream().anyMatch(each -> arguments[0].equals(each.id()));
            case "getAliveBrokerNodes":
                return alive(id);
            default:
                return null;
        }
    }

    private TopicPartitionInfo partition(int id, String topic, int partition) throws Exception {
        TopicDescription found = topics(id).get(topic);
        List<TopicPartitionInfo> all = found == null ? List.of() : found.partitions();
        return all.stream().filter(each -> each.partition() == partition).findFirst().orElse(null);
    }

    private List<Node> alive(int id) throws Exception {
        try (Admin admin = cluster.adminOf(id)) {
            return List.copyOf(admin.describeCluster().nodes().get());
        }
    }

    private Map<String, TopicDescription> topics(int id) throws Exception {
        try (Admin admin = cluster.adminOf(id)) {
            return OttlaCluster.topics(admin);
        }
    }
}
