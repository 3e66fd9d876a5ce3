package org.apache.kafka.common.test;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;

/**
 * Stands before Apache's class of this name on the class path: the clusters of Kafka Streams' and Connect's integration
 * tests are then of nodes of ours. It has what these ask for.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    private final OttlaCluster cluster;
    private final MockFaultHandler faults = new MockFaultHandler("nodes of ours");

    private KafkaClusterTestKit(OttlaCluster cluster) {
        this.cluster = cluster;
    }

    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, String> settings = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String name, Object value) {
            settings.put(name, value.toString());
            return this;
        }

        public KafkaClusterTestKit build() {
            boolean combined = nodes.isCombined(nodes.controllerNodes().firstKey());
            Map<Integer, Map<String, String>> each = new HashMap<>();
            nodes.brokerNodes().forEach((id, node) -> each.put(id, node.propertyOverrides()));
            ClusterConfig config = ClusterConfig.defaultBuilder()
                .setTypes(Set.of(combined ? Type.CO_KRAFT : Type.KRAFT))
                .setBrokers(nodes.brokerNodes().size())
                .setControllers(nodes.controllerNodes().size())
                .setDisksPerBroker(nodes.brokerNodes().get(nodes.brokerNodes().firstKey()).logDataDirectories().size())
                .setBrokerListenerName(nodes.brokerListenerName())
                .setBrokerSecurityProtocol(nodes.brokerListenerProtocol())
                .setControllerListenerName(nodes.controllerListenerName())
                .setControllerSecurityProtocol(nodes.controllerListenerProtocol())
                .setMetadataVersion(nodes.bootstrapMetadata().metadataVersion())
                .setServerProperties(settings)
                .setPerServerProperties(each)
                .build();
            return new KafkaClusterTestKit(new OttlaCluster(config, combined));
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

    public String bootstrapServers() {
        return cluster.bootstrapServers();
    }

    public Map<Integer, BrokerServer> brokers() {
        Map<Integer, BrokerServer> all = new TreeMap<>();
        cluster.brokers().forEach((id, broker) -> all.put(id, (BrokerServer) broker));
        return all;
    }

    public Map<Integer, ControllerServer> controllers() {
        return cluster.controllers();
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
