package org.apache.kafka.common.test;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Stands before Apache's class of this name on the class path: the clusters of Kafka Streams' and Connect's integration
 * tests, and those of the quorum, are then of nodes of ours. It has what these ask for.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private final TestKitNodes nodes;
    private final OttlaCluster cluster;
    private final MockFaultHandler faults = new MockFaultHandler("nodes of ours");

    private KafkaClusterTestKit(TestKitNodes nodes, OttlaCluster cluster) {
        this.nodes = nodes;
        this.cluster = cluster;
    }

    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, String> settings = new HashMap<>();
        private boolean standalone;
        private Map<Integer, Uuid> voters = Map.of();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String name, Object value) {
            settings.put(name, NodeProcess.text(value));
            return this;
        }

        public Builder setStandalone(boolean standalone) {
            this.standalone = standalone;
            return this;
        }

        public Builder setInitialVoterSet(Map<Integer, Uuid> voters) {
            this.voters = voters;
            return this;
        }

        public KafkaClusterTestKit build() {
            boolean combined = !nodes.controllerNodes().isEmpty() && nodes.isCombined(nodes.controllerNodes().firstKey());
            Map<Integer, Map<String, String>> each = new HashMap<>();
            nodes.brokerNodes().forEach((id, node) -> each.put(id, node.propertyOverrides()));
            nodes.controllerNodes().forEach((id, node) -> each.put(id, node.propertyOverrides()));
            ClusterConfig config = ClusterConfig.defaultBuilder()
                .setTypes(Set.of(combined ? Type.CO_KRAFT : Type.KRAFT))
                .setBrokers(nodes.brokerNodes().size())
                .setControllers(nodes.controllerNodes().size())
                .setDisksPerBroker(disks())
                .setBrokerListenerName(nodes.brokerListenerName())
                .setBrokerSecurityProtocol(nodes.brokerListenerProtocol())
                .setControllerListenerName(nodes.controllerListenerName())
                .setControllerSecurityProtocol(nodes.controllerListenerProtocol())
                .setMetadataVersion(nodes.bootstrapMetadata().metadataVersion())
                .setFeatures(features(nodes.bootstrapMetadata()))
                .setServerProperties(settings)
                .setPerServerProperties(each)
                .setStandalone(standalone)
                .build();
            Map<Integer, Uuid> directories = new HashMap<>();
            if (standalone || !voters.isEmpty()) {
                nodes.controllerNodes().forEach((id, node) -> directories.put(id, node.metadataDirectoryId()));
            }
            var identity = new Nodes.Identity(nodes.clusterId(), directories, voters);
            return new KafkaClusterTestKit(nodes, new OttlaCluster(config, combined, identity));
        }

        private int disks() {
            return nodes.brokerNodes().values().stream().mapToInt(node -> node.logDataDirectories().size()).findFirst().orElse(1);
        }

        /** The levels of features that are not those of the release. */
        private static Map<Feature, Short> features(BootstrapMetadata metadata) {
            Map<Feature, Short> all = new HashMap<>();
            MetadataVersion release = metadata.metadataVersion();
            for (Feature each : Feature.PRODUCTION_FEATURES) {
                String name = each.featureName();
                boolean ofQuorum = name.equals(KRaftVersion.FEATURE_NAME) || name.equals(MetadataVersion.FEATURE_NAME);
                short level = metadata.featureLevel(name);
                if (!ofQuorum && level != each.defaultLevel(release)) {
                    all.put(each, level);
                }
            }
            return all;
        }
    }

    /** It is done at the start. */
    public void format() {
    }

    public void startup() {
        cluster.start();
    }

    public void waitForReadyBrokers() throws InterruptedException {
        cluster.waitForReadyBrokers();
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public Admin admin() {
        return cluster.admin();
    }

    public Admin admin(Map<String, Object> settings) {
        return cluster.admin(settings);
    }

    public Admin admin(Map<String, Object> settings, boolean atControllers) {
        return cluster.admin(settings, atControllers);
    }

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    public String bootstrapControllers() {
        return cluster.bootstrapControllers();
    }

    public Map<Integer, BrokerServer> brokers() {
        Map<Integer, BrokerServer> all = new TreeMap<>();
        cluster.brokers().forEach((id, broker) -> all.put(id, (BrokerServer) broker));
        return all;
    }

    public Map<Integer, ControllerServer> controllers() {
        return cluster.controllers();
    }

    public Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> raftManagers() {
        return cluster.raftManagers();
    }

    public MockFaultHandler fatalFaultHandler() {
        return faults;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return faults;
    }

    @Override
    public void close() {
        cluster.stop();
    }
}
