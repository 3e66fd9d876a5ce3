package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.common.test.OttlaCluster;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/** Stands before Apache's class of this name on the class path: its integration tests then run against nodes of ours. */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean combined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean combined) {
        this.name = name;
        this.config = config;
        this.combined = combined;
    }

    @Override
    public String getDisplayName(int index) {
        String type = combined ? "Combined" : "Isolated";
        return String.format("%s [%d] Type=Raft-%s, %s", name, index, type, String.join(",", config.displayTags()));
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        OttlaCluster cluster = new OttlaCluster(config, combined);
        return List.of(
            (BeforeEachCallback) context -> {
                if (config.isAutoStart()) {
                    cluster.start();
                }
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            // It is all that is called when what goes before a test fails.
            (AfterEachCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }
}
