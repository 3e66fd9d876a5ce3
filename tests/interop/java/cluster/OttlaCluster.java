package org.apache.kafka.common.test;

import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.IntFunction;
import java.util.function.Predicate;
import java.util.stream.Stream;
import kafka.raft.KafkaRaftManager;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.fault.FaultHandlerException;

/** A cluster of nodes of ours, as Apache's tests see one. */
public final class OttlaCluster implements ClusterInstance {
    private static final long WAIT_NS = 60_000_000_000L;
    private static final long POLL_MS = 20;

    private final ClusterConfig config;
    private final boolean combined;
    private final Nodes.Identity identity;
    private Nodes nodes;
    private boolean started;
    private boolean stopped;
    private Inside inside;

    public OttlaCluster(ClusterConfig config, boolean combined) {
        this(config, combined, Nodes.Identity.random());
    }

    OttlaCluster(ClusterConfig config, boolean combined, Nodes.Identity identity) {
        this.config = config;
        this.combined = combined;
        this.identity = identity;
    }

    /** A question to the cluster, for a test that waits. */
    private interface Question {
        boolean holds(Admin admin) throws ExecutionException, InterruptedException, IOException;
    }

    private Nodes nodes() {
        if (nodes == null) {
            try {
                nodes = new Nodes(config, combined, identity);
                inside = new Inside(nodes, this);
                nodes.format();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }
        return nodes;
    }

    @Override
    public Type type() {
        return combined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return objects(nodes().brokerIds(), id -> inside.broker(id));
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return objects(nodes().controllerIds(), id -> inside.controller(id));
    }

    Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> raftManagers() {
        List<Integer> all = Stream.concat(nodes().brokerIds().stream(), nodes().controllerIds().stream()).distinct().toList();
        return objects(all, id -> inside.raftManager());
    }

    private static <T> Map<Integer, T> objects(List<Integer> ids, IntFunction<T> made) {
        Map<Integer, T> all = new TreeMap<>();
        ids.forEach(id -> all.put(id, made.apply(id)));
        return all;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public Set<Integer> controllerIds() {
        return new TreeSet<>(nodes().controllerIds());
    }

    @Override
    public Set<Integer> brokerIds() {
        return new TreeSet<>(nodes().brokerIds());
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        String named = config.serverProperties().getOrDefault("group.coordinator.rebalance.protocols", "consumer");
        boolean switchedOff = config.features().entrySet().stream()
            .anyMatch(each -> each.getKey() == Feature.GROUP_VERSION && each.getValue() == 0);
        boolean has = named.contains("consumer") && !switchedOff;
        return has ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return String.join(",", nodes().brokerIds().stream().map(id -> "localhost:" + nodes.port(id)).toList());
    }

    @Override
    public String bootstrapControllers() {
        return String.join(",",
            nodes().controllerIds().stream().map(id -> "localhost:" + nodes.controllerPort(id)).toList());
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return nodes().brokerIds().stream().map(nodes::port).toList();
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return nodes().controllerIds().stream().map(nodes::controllerPort).toList();
    }

    @Override
    public String clusterId() {
        return nodes().clusterId();
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    @Override
    public void start() {
        if (started) {
            return;
        }
        started = true;
        try {
            nodes().startAll();
            Elections.show(nodes.controllerMetricsPorts());
            waitForReadyBrokers();
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    @Override
    public boolean started() {
        return started;
    }

    @Override
    public void stop() {
        if (stopped) {
            return;
        }
        stopped = true;
        Elections.hide();
        try {
            if (nodes != null) {
                nodes.close();
            }
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public void shutdownBroker(int id) {
        try {
            nodes().stop(id);
        } catch (IOException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    @Override
    public void startBroker(int id) {
        try {
            nodes().start(id);
            waitForReadyBrokers();
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        waitUntil(admin -> {
            nodes.check();
            if (nodes.signInOfItsOwn()) {
                return alive().stream().allMatch(nodes::ready);
            }
            return admin.describeCluster().nodes().get().size() == alive().size();
        }, "the brokers that run are there");
    }

    private List<Integer> alive() {
        return nodes().brokerIds().stream().filter(nodes::alive).toList();
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        eachBrokerSays(all -> all.containsKey(topic) && all.get(topic).partitions().size() == partitions,
            topic + " is there");
    }

    /** All topics as a client's broker tells them. */
    static Map<String, TopicDescription> topics(Admin admin) throws ExecutionException, InterruptedException {
        Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        return admin.describeTopics(names).allTopicNames().get();
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        eachBrokerSays(all -> !all.containsKey(topic), topic + " is gone");
    }

    /** Wait until each broker alone says so of all topics. */
    private void eachBrokerSays(Predicate<Map<String, TopicDescription>> told, String what) throws InterruptedException {
        for (int id : alive()) {
            waitUntil(adminOf(id), admin -> {
                return told.test(topics(admin));
            }, what + " for broker " + id);
        }
    }

    @Override
    public void ensureConsistentMetadata() throws InterruptedException {
        long end;
        try (Admin admin = admin()) {
            end = admin.describeMetadataQuorum().quorumInfo().get().highWatermark();
        } catch (ExecutionException e) {
            throw new AssertionError(e);
        }
        waitUntil(admin -> admin.describeMetadataQuorum().quorumInfo().get().observers().stream()
            .allMatch(each -> each.logEndOffset() >= end), "the observers have the metadata up to " + end);
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers)
        throws InterruptedException {
        ensureConsistentMetadata();
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> wanted) throws InterruptedException {
        for (int id : alive()) {
            waitUntil(adminOf(id), admin -> {
                Set<AccessControlEntry> found = new HashSet<>();
                for (AclBinding each : admin.describeAcls(filter).values().get()) {
                    found.add(each.entry());
                }
                return found.equals(Set.copyOf(wanted));
            }, "broker " + id + " has the ACLs " + wanted);
        }
    }

    /** A client that begins with this broker alone. */
    Admin adminOf(int id) {
        return brief(Map.of("bootstrap.servers", "localhost:" + nodes.port(id)));
    }

    /** A client whose calls end soon: who asks again and again looks at the processes between. */
    private Admin brief(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.putAll(Map.of("request.timeout.ms", 3000, "default.api.timeout.ms", 3000));
        return admin(all);
    }

    private void waitUntil(Question question, String what) throws InterruptedException {
        waitUntil(brief(Map.of()), question, what);
    }

    private void waitUntil(Admin asked, Question question, String what) throws InterruptedException {
        long deadline = System.nanoTime() + WAIT_NS;
        String last = "";
        try (asked) {
            while (System.nanoTime() < deadline) {
                try {
                    if (question.holds(asked)) {
                        return;
                    }
                } catch (ExecutionException e) {
                    last = ": " + e.getCause();
                } catch (IOException e) {
                    throw new AssertionError(e);
                }
                Thread.sleep(POLL_MS);
            }
        }
        throw new AssertionError("it did not come true that " + what + last);
    }
}
