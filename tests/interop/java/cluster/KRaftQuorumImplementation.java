package kafka.server;

import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.utils.Logging;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.message.DescribeQuorumResponseData;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.DescribeQuorumRequest;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.Inside;
import org.apache.kafka.common.test.NodeProcess;
import org.apache.kafka.common.test.Nodes;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.BrokerLifecycleManager;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandler;
import scala.Option;

/**
 * Stands before Apache's class of this name on the class path: the tests of its core that begin with one controller and
 * create brokers then have brokers of ours in the quorum of Apache's controller.
 */
public class KRaftQuorumImplementation implements QuorumImplementation {
    private static final long WAIT_NS = 60_000_000_000L;
    private static final Map<String, String> MECHANISMS = Map.of(
        "org.apache.kafka.common.security.plain.PlainLoginModule", "plain",
        "org.apache.kafka.common.security.scram.ScramLoginModule", "scram-sha-256,scram-sha-512",
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule", "oauthbearer",
        "com.sun.security.auth.module.Krb5LoginModule", "gssapi");

    private final ControllerServer controller;
    private final FaultHandlerFactory faultHandlers;
    private final File metadataDir;
    private final CompletableFuture<Map<Integer, InetSocketAddress>> voters;
    private final String clusterId;
    private final Logging log;
    private final FaultHandler faultHandler;
    private final List<NodeProcess> brokers = new ArrayList<>();

    public KRaftQuorumImplementation(
        ControllerServer controller, FaultHandlerFactory faultHandlers, File metadataDir,
        CompletableFuture<Map<Integer, InetSocketAddress>> voters, String clusterId, Logging log, FaultHandler faultHandler
    ) {
        this.controller = controller;
        this.faultHandlers = faultHandlers;
        this.metadataDir = metadataDir;
        this.voters = voters;
        this.clusterId = clusterId;
        this.log = log;
        this.faultHandler = faultHandler;
    }

    public ControllerServer controllerServer() {
        return controller;
    }

    public FaultHandlerFactory faultHandlerFactory() {
        return faultHandlers;
    }

    public File metadataDir() {
        return metadataDir;
    }

    public CompletableFuture<Map<Integer, InetSocketAddress>> controllerQuorumVotersFuture() {
        return voters;
    }

    public String clusterId() {
        return clusterId;
    }

    public Logging log() {
        return log;
    }

    public FaultHandler faultHandler() {
        return faultHandler;
    }

    @Override
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        try {
            NodeProcess process = new NodeProcess(config.nodeId(), Files.createTempDirectory("ottla-apache-"));
            brokers.add(process);
            Map<String, Integer> ports = describe(process.properties, config);
            if (process.format(clusterId, List.of("--ignore-formatted")).waitFor() != 0) {
                throw new IllegalStateException("a directory cannot be formatted: " + process.said());
            }
            if (startup) {
                start(process);
            }
            return broker(process, new KafkaConfig(process.properties, false), ports);
        } catch (IOException | InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    /** Write the settings of a broker; returns the port of each listener. */
    private Map<String, Integer> describe(Properties to, KafkaConfig config) throws IOException {
        config.originals().forEach((name, value) -> to.put(name, NodeProcess.text(value)));
        Map<String, Integer> ports = new HashMap<>();
        List<String> listeners = new ArrayList<>();
        for (String each : to.getProperty("listeners").split("\\s*,\\s*")) {
            String name = each.substring(0, each.indexOf("://"));
            String host = each.substring(each.indexOf("://") + 3, each.lastIndexOf(':'));
            int port = Integer.parseInt(each.substring(each.lastIndexOf(':') + 1));
            ports.put(name, port == 0 ? NodeProcess.freePort() : port);
            listeners.add(name + "://" + host + ":" + ports.get(name));
        }
        to.put("listeners", String.join(",", listeners));
        to.remove("advertised.listeners");
        List<String> addresses = new ArrayList<>();
        voters.join().forEach((id, address) -> addresses.add(id + "@localhost:" + address.getPort()));
        to.put("controller.quorum.voters", String.join(",", addresses));
        signIns(to);
        if (to.getProperty("authorizer.class.name", "").endsWith("$TestableStandardAuthorizer")) {
            // It changes what a controller does, which is Apache's here.
            to.put("authorizer.class.name", StandardAuthorizer.class.getName());
        }
        to.put("metrics.listener", "localhost:" + NodeProcess.freePort());
        return ports;
    }

    /** What the JVM's file of sign-ins says of a server, or of one listener, as the setting of each mechanism. */
    private static void signIns(Properties to) {
        if (System.getProperty("java.security.auth.login.config") == null) {
            return;
        }
        Configuration file = Configuration.getConfiguration();
        String map = to.getProperty("listener.security.protocol.map", "");
        for (String each : (map + "," + to.getProperty("listeners")).split("\\s*,\\s*")) {
            String listener = each.split(":")[0].toLowerCase();
            AppConfigurationEntry[] own = file.getAppConfigurationEntry(listener + ".KafkaServer");
            AppConfigurationEntry[] entries = own == null ? file.getAppConfigurationEntry("KafkaServer") : own;
            for (AppConfigurationEntry entry : entries == null ? new AppConfigurationEntry[0] : entries) {
                StringBuilder text = new StringBuilder(entry.getLoginModuleName()).append(" required");
                entry.getOptions().forEach((name, value) -> text.append(' ').append(name).append("=\"").append(value).append('"'));
                for (String mechanism : MECHANISMS.getOrDefault(entry.getLoginModuleName(), "").split(",")) {
                    to.putIfAbsent("listener.name." + listener + "." + mechanism + ".sasl.jaas.config", text + ";");
                }
            }
        }
    }

    private void start(NodeProcess process) throws IOException, InterruptedException {
        process.start();
        long deadline = System.nanoTime() + WAIT_NS;
        while (!controller.metadataCache().hasAliveBroker(process.id)) {
            if (process.endedByItself() || System.nanoTime() > deadline) {
                throw new IllegalStateException("node " + process.id + " does not come up: " + process.said());
            }
            Thread.sleep(20);
        }
    }

    private KafkaBroker broker(NodeProcess process, KafkaConfig config, Map<String, Integer> ports) {
        MetadataLoader loader = Inside.made(MetadataLoader.class,
            (method, arguments) -> method.equals("lastAppliedOffset") ? applied(process.id) : null);
        SharedServer shared = Inside.made(SharedServer.class,
            (method, arguments) -> method.equals("loader") ? loader : null);
        SocketServer sockets = Inside.made(SocketServer.class,
            (method, arguments) -> method.equals("boundPort") ? port(ports, (ListenerName) arguments[0]) : null);
        KRaftMetadataCache metadata = Inside.waiting(KRaftMetadataCache.class, controller.metadataCache(), () -> await(process));
        LogManager logs = Inside.logManager(config, ports.values().iterator().next());
        ReplicaManager replicas = Inside.replicaManager(process.id, metadata, process::alive, logs);
        KafkaApis requests = Inside.made(KafkaApis.class, (method, arguments) -> switch (method) {
            case "metadataCache" -> metadata;
            case "clusterId" -> clusterId;
            case "brokerId" -> process.id;
            case "authorizerPlugin" -> authorizer(process);
            default -> null;
        });
        BrokerLifecycleManager lifecycle = Inside.made(BrokerLifecycleManager.class, (method, arguments) ->
            method.equals("initialUnfenceFuture") ? CompletableFuture.completedFuture(null) : null);
        return Inside.made(BrokerServer.class, (method, arguments) -> {
            switch (method) {
                case "config": return config;
                case "clusterId": return clusterId;
                case "boundPort": return port(ports, (ListenerName) arguments[0]);
                case "brokerState": return process.alive() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
                case "isShutdown": return !process.alive();
                case "socketServer": return sockets;
                case "sharedServer": return shared;
                case "metadataCache": return metadata;
                case "groupCoordinator": return Inside.groupCoordinator(config);
                case "replicaManager": return replicas;
                case "logManager": return logs;
                case "dataPlaneRequestProcessor": return requests;
                case "authorizerPlugin": return authorizer(process);
                case "lifecycleManager": return lifecycle;
                case "credentialProvider": await(process); return controller.credentialProvider();
                case "tokenCache": await(process); return controller.tokenCache();
                case "metrics": return Inside.metrics(metricsPort(process));
                case "startup": start(process); return Inside.NOTHING;
                case "shutdown": process.stop(); return Inside.NOTHING;
                case "awaitShutdown": return Inside.NOTHING;
                default: return null;
            }
        });
    }

    /** The controller's authorizer; whoever looks at its ACLs waits until the broker has them, as for users and tokens. */
    private Option<Plugin<Authorizer>> authorizer(NodeProcess process) {
        if (controller.authorizerPlugin().isEmpty()) {
            return Option.empty();
        }
        Authorizer known = controller.authorizerPlugin().get().get();
        return Option.apply(Plugin.wrapInstance(Inside.waiting(Authorizer.class, known, () -> await(process)), null, ""));
    }

    /** Wait until a broker that runs has the metadata that the controller has. */
    private void await(NodeProcess process) {
        long end = controller.raftManager().raftLog().endOffset().offset();
        long deadline = System.nanoTime() + WAIT_NS;
        try {
            while (process.alive() && applied(process.id) < end && System.nanoTime() < deadline) {
                Thread.sleep(5);
            }
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    private static int metricsPort(NodeProcess process) {
        return Integer.parseInt(process.properties.getProperty("metrics.listener").split(":")[1]);
    }

    private static Integer port(Map<String, Integer> ports, ListenerName listener) {
        return ports.get(listener.value());
    }

    /** How far a broker has the metadata, by what the controller knows of it. */
    private long applied(int id) throws Exception {
        RequestHeader header = new RequestHeader(ApiKeys.DESCRIBE_QUORUM, ApiKeys.DESCRIBE_QUORUM.latestVersion(), "", 0);
        RequestContext context = new RequestContext(header, "", InetAddress.getLoopbackAddress(), KafkaPrincipal.ANONYMOUS,
            ListenerName.normalised("CONTROLLER"), SecurityProtocol.PLAINTEXT, ClientInformation.EMPTY, false);
        DescribeQuorumResponseData told = (DescribeQuorumResponseData) controller.raftManager().handleRequest(context, header,
            DescribeQuorumRequest.singletonRequest(new TopicPartition("__cluster_metadata", 0)), System.currentTimeMillis())
            .get();
        return told.topics().get(0).partitions().get(0).observers().stream()
            .filter(each -> each.replicaId() == id).mapToLong(each -> each.logEndOffset()).max().orElse(-1);
    }

    /** Stop the brokers that a test has left, and the controller. A traceback of a broker is an error. */
    @Override
    public void shutdown() {
        StringBuilder failed = new StringBuilder();
        try {
            brokers.forEach(NodeProcess::terminate);
            for (NodeProcess each : brokers) {
                each.stop();
                failed.append(each.hasFailed() ? each.said() : "");
                Nodes.delete(each.directory());
            }
        } catch (IOException | InterruptedException e) {
            throw new RuntimeException(e);
        } finally {
            controller.shutdown();
        }
        if (failed.length() > 0) {
            throw new IllegalStateException("a broker of ours has failed: " + failed);
        }
    }
}
