package org.apache.kafka.common.test;

import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.server.common.KRaftVersion;

/**
 * The processes of a cluster, each a node of ours with a directory below one that goes at the end.
 *
 * Ids, roles, listeners and settings are those that Apache's KafkaClusterTestKit gives its nodes. At the end each node
 * must stop by itself, and no node may have said a traceback: what a test does not look at is looked at here.
 */
public final class Nodes {
    private static final int FIRST_CONTROLLER = 3000;

    private final ClusterConfig config;
    private final boolean combined;
    private final Identity identity;
    private final Path base;
    private final Map<Integer, Node> nodes = new TreeMap<>();

    /** The ids that a test has chosen: those of the controllers' directories, and those that the first voters have. */
    record Identity(String clusterId, Map<Integer, Uuid> directories, Map<Integer, Uuid> voters) {
        static Identity random() {
            return new Identity(Uuid.randomUuid().toString(), Map.of(), Map.of());
        }
    }

    /** A node with its roles and ports. */
    private static final class Node {
        final NodeProcess process;
        boolean broker;
        boolean controller;
        /** Of a combined node: it runs as a controller alone. */
        boolean brokerStopped;
        final int port;
        final int controllerPort;
        final Uuid directoryId;
        final int healthPort;

        Node(int id, Path directory, Uuid directoryId) throws IOException {
            process = new NodeProcess(id, directory);
            this.directoryId = directoryId;
            port = NodeProcess.freePort();
            controllerPort = NodeProcess.freePort();
            healthPort = NodeProcess.freePort();
        }

        int id() {
            return process.id;
        }
    }

    Nodes(ClusterConfig config, boolean combined, Identity identity) throws IOException {
        this.config = config;
        this.combined = combined;
        this.identity = identity;
        this.base = Files.createTempDirectory("ottla-apache-");
        for (int id = 0; id < config.numBrokers(); id++) {
            node(id).broker = true;
        }
        for (int each = 0; each < config.numControllers(); each++) {
            node(combined ? each : FIRST_CONTROLLER + each).controller = true;
        }
        for (Node node : nodes.values()) {
            describe(node);
        }
    }

    String clusterId() {
        return identity.clusterId();
    }

    List<Integer> brokerIds() {
        return nodes.values().stream().filter(node -> node.broker).map(Node::id).toList();
    }

    List<Integer> controllerIds() {
        return nodes.values().stream().filter(node -> node.controller).map(Node::id).toList();
    }

    int port(int id) {
        return nodes.get(id).port;
    }

    int port(int id, ListenerName listener) {
        Node node = nodes.get(id);
        return listener.equals(config.controllerListenerName()) ? node.controllerPort : node.port;
    }

    /** Where the controllers show their metrics. */
    List<Integer> controllerMetricsPorts() {
        return nodes.values().stream().filter(node -> node.controller).map(node -> node.healthPort).toList();
    }

    int controllerPort(int id) {
        return nodes.get(id).controllerPort;
    }

    Properties properties(int id) {
        return nodes.get(id).process.properties;
    }

    boolean alive(int id) {
        return !nodes.get(id).brokerStopped && nodes.get(id).process.alive();
    }

    /** Whether a node says of itself that it serves clients. */
    boolean ready(int id) {
        try {
            URL health = new URL("http://localhost:" + nodes.get(id).healthPort + "/ready");
            return ((HttpURLConnection) health.openConnection()).getResponseCode() == HttpURLConnection.HTTP_OK;
        } catch (IOException e) {
            return false;
        }
    }

    /** Format all directories. */
    void format() throws IOException, InterruptedException {
        List<Process> formats = new ArrayList<>();
        for (Node node : nodes.values()) {
            formats.add(node.process.format(clusterId(), formatOptions(node)));
        }
        for (Process each : formats) {
            if (each.waitFor() != 0) {
                throw new IllegalStateException("a directory cannot be formatted: " + said());
            }
        }
        for (int id : identity.directories().keySet()) {
            name(nodes.get(id));
        }
    }

    /** Give a controller's directory the id that the test has chosen, also if it is not that of a voter. */
    private static void name(Node node) throws IOException {
        Path file = node.process.directory().resolve("metadata").resolve("meta.properties");
        Properties all = new Properties();
        try (var from = Files.newBufferedReader(file)) {
            all.load(from);
        }
        all.put("directory.id", node.directoryId.toString());
        try (var to = Files.newBufferedWriter(file)) {
            all.store(to, null);
        }
    }

    void start(int id) throws IOException, InterruptedException {
        Node node = nodes.get(id);
        if (node.brokerStopped) {
            node.process.stop();
            node.brokerStopped = false;
            describeRoles(node);
        }
        node.process.start();
    }

    void startAll() throws IOException, InterruptedException {
        for (int id : nodes.keySet()) {
            start(id);
        }
    }

    /** Stop a broker; the controller of a combined node goes on after a start of its own. */
    void stop(int id) throws IOException, InterruptedException {
        Node node = nodes.get(id);
        node.process.stop();
        if (node.controller && node.broker) {
            node.brokerStopped = true;
            describeRoles(node);
            node.process.start();
        }
    }

    /** A node that has ended by itself is an error, with what it said. */
    void check() throws IOException {
        for (Node node : nodes.values()) {
            if (node.process.endedByItself()) {
                throw new IllegalStateException("node " + node.id() + " has ended by itself: " + said());
            }
        }
    }

    /** Stop what runs, brokers first as the kit does it. A node that has ended before, or says a traceback, is an error. */
    void close() throws IOException, InterruptedException {
        try (AutoCloseable rest = this::stopAll) {
            check();
        } catch (IOException | RuntimeException | InterruptedException e) {
            throw e;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private void stopAll() throws IOException, InterruptedException {
        try {
            stop(nodes.values().stream().filter(node -> node.broker).toList());
            stop(nodes.values());
            for (Node node : nodes.values()) {
                if (node.process.hasFailed()) {
                    throw new IllegalStateException("a node of ours has failed: " + said());
                }
            }
        } finally {
            delete(base);
        }
    }

    private static void stop(Collection<Node> nodes) throws InterruptedException {
        nodes.forEach(node -> node.process.terminate());
        for (Node node : nodes) {
            node.process.stop();
        }
    }

    /** The last lines of each node. */
    String said() throws IOException {
        StringBuilder text = new StringBuilder();
        for (Node node : nodes.values()) {
            text.append(node.process.said());
        }
        return text.toString();
    }

    private Node node(int id) throws IOException {
        Node node = nodes.get(id);
        if (node == null) {
            Uuid directoryId = identity.directories().getOrDefault(id, Uuid.randomUuid());
            node = new Node(id, base.resolve("node-" + id), directoryId);
            nodes.put(id, node);
        }
        return node;
    }

    /** Whether the test decides how clients sign in, which then only its own clients can. */
    boolean signInOfItsOwn() {
        return config.serverProperties().containsKey("listener.security.protocol.map");
    }

    private boolean dynamic() {
        return config.standalone() || !identity.voters().isEmpty() || config.features().entrySet().stream()
            .anyMatch(each -> each.getKey().featureName().equals(KRaftVersion.FEATURE_NAME) && each.getValue() > 0);
    }

    private void describe(Node node) {
        String broker = config.brokerListenerName().value();
        String controller = config.controllerListenerName().value();
        Properties all = node.process.properties;
        all.putAll(config.serverProperties());
        all.put("node.id", Integer.toString(node.id()));
        all.put("metadata.log.dir", node.process.directory().resolve("metadata").toString());
        all.put("log.dirs", node.broker ? disks(node) : node.process.directory().resolve("metadata").toString());
        // With metrics, brokers also serve the requests by which clients push theirs.
        if (signInOfItsOwn() || all.containsKey("unclean.leader.election.interval.ms")) {
            all.put("metrics.listener", "localhost:" + node.healthPort);
        }
        all.putIfAbsent("listener.security.protocol.map", String.format("%s:%s,%s:%s",
            broker, config.brokerSecurityProtocol().name, controller, config.controllerSecurityProtocol().name));
        describeRoles(node);
        all.putIfAbsent("inter.broker.listener.name", broker);
        all.putIfAbsent("controller.listener.names", controller);
        Stream<Node> voters = nodes.values().stream().filter(each -> each.controller);
        if (dynamic()) {
            all.put("controller.quorum.bootstrap.servers", joined(voters.map(each -> "localhost:" + each.controllerPort)));
        } else {
            all.put("controller.quorum.voters", joined(voters.map(each -> each.id() + "@localhost:" + each.controllerPort)));
        }
        all.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152");
        all.putIfAbsent("unstable.feature.versions.enable", "true");
        all.putIfAbsent("unstable.api.versions.enable", "true");
        if (node.broker) {
            all.remove("controller.quorum.auto.join.enable");
        }
        SecurityProtocol protocol = node.broker ? config.brokerSecurityProtocol() : config.controllerSecurityProtocol();
        if (protocol == SecurityProtocol.SASL_PLAINTEXT) {
            secure(all, broker, controller);
        }
        all.putAll(config.perServerOverrideProperties().getOrDefault(node.id(), Map.of()));
    }

    private void describeRoles(Node node) {
        boolean broker = node.broker && !node.brokerStopped;
        Properties all = node.process.properties;
        all.put("process.roles", broker ? node.controller ? "broker,controller" : "broker" : "controller");
        String atBroker = config.brokerListenerName().value() + "://localhost:" + node.port;
        String atController = config.controllerListenerName().value() + "://localhost:" + node.controllerPort;
        String own = broker ? node.controller ? atBroker + "," + atController : atBroker : atController;
        all.put("listeners", config.serverProperties().getOrDefault("listeners", own));
    }

    private static void secure(Properties all, String... listeners) {
        all.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
        all.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
        all.putIfAbsent("sasl.mechanism.controller.protocol", "PLAIN");
        all.putIfAbsent("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
        all.putIfAbsent("allow.everyone.if.no.acl.found", "false");
        all.putIfAbsent("super.users", "User:plain-admin");
        for (String listener : listeners) {
            all.putIfAbsent("listener.name." + listener.toLowerCase() + ".plain.sasl.jaas.config",
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"plain-admin\""
                    + " password=\"plain-admin-secret\" user_plain-admin=\"plain-admin-secret\""
                    + " user_plain-user1=\"plain-user1-secret\";");
        }
    }

    private String disks(Node node) {
        List<String> disks = new ArrayList<>();
        for (int each = 0; each < config.numDisksPerBroker(); each++) {
            disks.add(node.process.directory().resolve("data" + each).toString());
        }
        return String.join(",", disks);
    }

    private List<String> formatOptions(Node node) {
        List<String> all = new ArrayList<>(List.of("--release-version", config.metadataVersion().version()));
        config.features().forEach((feature, level) -> {
            if (!feature.featureName().equals(KRaftVersion.FEATURE_NAME) || level == 0) {
                all.addAll(List.of("--feature", feature.featureName() + "=" + level));
            }
        });
        if (dynamic()) {
            int first = controllerIds().get(0);
            if (!node.controller || (config.standalone() && node.id() != first)) {
                all.add("--no-initial-controllers");
            } else if (config.standalone() && identity.directories().isEmpty()) {
                all.add("--standalone");
            } else {
                all.addAll(List.of("--initial-controllers", joined(nodes.values().stream()
                    .filter(each -> each.controller && (!config.standalone() || each.id() == first))
                    .map(each -> each.id() + "@localhost:" + each.controllerPort + ":" + voterId(each)))));
            }
        }
        return all;
    }

    private Uuid voterId(Node node) {
        return identity.voters().getOrDefault(node.id(), node.directoryId);
    }

    private static String joined(Stream<String> parts) {
        return String.join(",", parts.toList());
    }

    public static void delete(Path directory) throws IOException {
        try (Stream<Path> all = Files.walk(directory)) {
            for (Path each : all.sorted(java.util.Comparator.reverseOrder()).toList()) {
                Files.delete(each);
            }
        }
    }
}
