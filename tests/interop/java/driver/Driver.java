// Kafka Streams' TopologyTestDriver as a referee: programs and inputs come in as lines of JSON, outputs go out as lines of JSON.
// The program's language is that of tests/streams/program.py; Functions.java has its functions.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.test.TestRecord;

public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                run(JSON.readTree(line), answer);
            } catch (Exception error) {
                answer.put("error", root(error).toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void run(JsonNode job, ObjectNode answer) throws Exception {
        Path state = Files.createTempDirectory("driver");
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "unused:1");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        job.path("config").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        try {
            StreamsBuilder builder = new StreamsBuilder();
            Program program = new Program(builder);
            job.get("program").forEach(program::add);
            Topology topology = builder.build(settings);
            answer.put("describe", topology.describe().toString());
            Instant start = Instant.ofEpochMilli(job.path("wall_start").asLong(0));
            try (TopologyTestDriver driver = new TopologyTestDriver(topology, settings, start)) {
                steps(job, driver, answer.putArray("steps"));
            }
        } finally {
            try (Stream<Path> files = Files.walk(state)) {
                files.sorted(Comparator.reverseOrder()).forEach(each -> each.toFile().delete());
            }
        }
    }

    private static void steps(JsonNode job, TopologyTestDriver driver, ArrayNode steps) {
        Map<String, TestInputTopic<String, String>> topics = new TreeMap<>();
        for (JsonNode input : job.get("inputs")) {
            ObjectNode step = steps.addObject();
            try {
                if (input.has("wall")) {
                    driver.advanceWallClockTime(Duration.ofMillis(input.get("wall").asLong()));
                } else {
                    RecordHeaders headers = new RecordHeaders();
                    input.path("headers").forEach(each ->
                        headers.add(each.get(0).asText(), each.get(1).asText().getBytes(StandardCharsets.UTF_8)));
                    topics.computeIfAbsent(input.get("topic").asText(),
                            topic -> driver.createInputTopic(topic, new StringSerializer(), new StringSerializer()))
                        .pipeInput(new TestRecord<>(input.get("key").textValue(), input.get("value").textValue(), headers,
                            input.get("timestamp").asLong()));
                }
            } catch (RuntimeException error) {
                step.put("error", root(error).toString());
            }
            ObjectNode out = step.putObject("out");
            for (String topic : new TreeSet<>(driver.producedTopicNames())) {
                var output = driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                ArrayNode records = null;
                while (!output.isEmpty()) {
                    records = records == null ? out.putArray(topic) : records;
                    TestRecord<byte[], byte[]> record = output.readRecord();
                    ArrayNode each = records.addArray().add(hex(record.key())).add(hex(record.value()));
                    each.add(record.timestamp());
                    ArrayNode headers = each.addArray();
                    for (Header header : record.headers()) {
                        headers.addArray().add(header.key()).add(hex(header.value()));
                    }
                }
            }
        }
    }

    private static String hex(byte[] data) {
        return data == null ? null : HexFormat.of().formatHex(data);
    }

    private static Throwable root(Throwable error) {
        return error.getCause() == null ? error : root(error.getCause());
    }
}
