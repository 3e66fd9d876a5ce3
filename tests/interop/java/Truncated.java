import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Apache's own consumer of one partition, which does what the lines of its input say: seek OFFSET [EPOCH], poll COUNT
 * SECONDS, commit, committed. Each line has an answer: a line of JSON.
 */
public final class Truncated {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final KafkaConsumer<String, String> consumer;
    private final TopicPartition place;

    private Truncated(Properties settings, String topic) {
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        place = new TopicPartition(topic, 0);
        consumer.assign(List.of(place));
    }

    /** Truncated BOOTSTRAP TOPIC GROUP POLICY PROTOCOL */
    public static void main(String[] words) throws IOException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("group.id", words[2]);
        settings.put("auto.offset.reset", words[3]);
        settings.put("group.protocol", words[4]);
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "200");
        Truncated it = new Truncated(settings, words[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            it.run(line.split(" "), answer);
            System.out.println(answer);
        }
        it.consumer.close();
    }

    private void run(String[] command, ObjectNode answer) {
        switch (command[0]) {
            case "seek" -> {
                Optional<Integer> epoch = command.length > 2 ? Optional.of(Integer.valueOf(command[2])) : Optional.empty();
                consumer.seek(place, new OffsetAndMetadata(Long.parseLong(command[1]), epoch, ""));
            }
            case "poll" -> poll(Integer.parseInt(command[1]), Long.parseLong(command[2]), answer);
            case "commit" -> consumer.commitSync();
            case "committed" -> {
                OffsetAndMetadata found = consumer.committed(Set.of(place)).get(place);
                answer.putArray("committed").add(found.offset()).add(found.leaderEpoch().orElse(-1));
            }
            default -> throw new IllegalArgumentException("no such command: " + command[0]);
        }
    }

    private void poll(int count, long seconds, ObjectNode answer) {
        ArrayNode records = answer.putArray("records");
        long end = System.nanoTime() + Duration.ofSeconds(seconds).toNanos();
        while (records.size() < count && System.nanoTime() < end) {
            try {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    records.addArray().add(record.offset()).add(record.leaderEpoch().orElse(-1)).add(record.value());
                }
            } catch (LogTruncationException truncated) {
                OffsetAndMetadata divergent = truncated.divergentOffsets().get(place);
                ArrayNode told = answer.putArray("truncated").add(truncated.offsetOutOfRangePartitions().get(place));
                if (divergent != null) {
                    told.add(divergent.offset()).add(divergent.leaderEpoch().orElse(-1));
                }
                return;
            }
        }
    }
}
