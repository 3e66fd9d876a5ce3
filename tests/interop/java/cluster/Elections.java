package org.apache.kafka.common.test;

import com.yammer.metrics.core.Meter;
import com.yammer.metrics.core.Metric;
import com.yammer.metrics.core.MetricName;
import com.yammer.metrics.core.MetricsRegistry;
import java.io.IOException;
import java.lang.reflect.Field;
import java.util.List;
import java.util.Map;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;

/** The elections of replicas out of sync that controllers of ours have counted, where a test looks for those of its JVM. */
final class Elections {
    private static final MetricName NAME = new MetricName("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec");
    private static final String COUNTED = "kafka_controller_controllerstats_uncleanleaderelections_total ";

    private Elections() {
    }

    /** From now on the JVM's metrics have the sum of what the nodes show at these ports. */
    @SuppressWarnings("unchecked")
    static void show(List<Integer> ports) throws ReflectiveOperationException {
        Field metrics = MetricsRegistry.class.getDeclaredField("metrics");
        metrics.setAccessible(true);
        Meter meter = Inside.made(Meter.class, (method, arguments) -> switch (method) {
            case "count" -> sum(ports);
            case "stop" -> Inside.NOTHING;
            default -> null;
        });
        ((Map<MetricName, Metric>) metrics.get(KafkaYammerMetrics.defaultRegistry())).put(NAME, meter);
    }

    static void hide() {
        KafkaYammerMetrics.defaultRegistry().removeMetric(NAME);
    }

    private static long sum(List<Integer> ports) throws IOException {
        double sum = 0;
        for (int port : ports) {
            sum += Inside.shown(port, COUNTED).stream()
                .mapToDouble(each -> Double.parseDouble(each.substring(COUNTED.length()))).sum();
        }
        return Math.round(sum);
    }
}
