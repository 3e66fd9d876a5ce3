import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.com.google.protobuf.InvalidProtocolBufferException;
import org.apache.kafka.shaded.io.opentelemetry.proto.common.v1.KeyValue;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.AggregationTemporality;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.NumberDataPoint;

/** A reporter for an Apache Kafka broker that prints what clients push (KIP-714), a line for each metric. */
public final class Telemetry implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        try {
            byte[] data = org.apache.kafka.common.utils.Utils.toArray(payload.data());
            print(data, payload.clientInstanceId() + "\t" + payload.isTerminating());
        } catch (InvalidProtocolBufferException error) {
            System.out.println("pushed\tbroken\t" + error);
        }
    }

    /** Prints what stands in files of MetricsData. */
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            print(Files.readAllBytes(Path.of(file)), file + "\tfalse");
        }
    }

    private static void print(byte[] data, String from) throws InvalidProtocolBufferException {
        MetricsData.parseFrom(data).getResourceMetricsList().forEach(of -> {
            Map<String, String> resource = labels(of.getResource().getAttributesList());
            of.getScopeMetricsList().forEach(scope -> scope.getMetricsList().forEach(
                    each -> System.out.println("pushed\t" + from + "\t" + resource + "\t" + line(each))));
        });
    }

    private static String line(Metric metric) {
        boolean sum = metric.hasSum();
        List<NumberDataPoint> points = sum ? metric.getSum().getDataPointsList() : metric.getGauge().getDataPointsList();
        NumberDataPoint point = points.get(0);
        boolean delta = metric.getSum().getAggregationTemporality()
                == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA;
        String kind = !sum ? "gauge" : (delta ? "delta" : "total") + (metric.getSum().getIsMonotonic() ? "" : "?");
        return metric.getName() + "\t" + labels(point.getAttributesList()) + "\t" + kind + "\t" + point.getAsDouble();
    }

    private static Map<String, String> labels(List<KeyValue> pairs) {
        Map<String, String> found = new TreeMap<>();
        pairs.forEach(each -> found.put(each.getKey(), each.getValue().getStringValue()));
        return found;
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}

    @Override
    public void configure(Map<String, ?> configs) {}
}
