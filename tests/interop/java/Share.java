import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A share group of Apache's own consumer. Each argument is a command; what each gives is one line.
 *
 * <p>Commands: poll N (until N records came), take N (accept what comes until it is N records), idle (one poll that must
 * give nothing), TYPE FIRST LAST (say what became of records that were polled), until FILE (polls until it is there), commit,
 * close, timed-close, open MODE.
 */
public final class Share {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private final Properties settings = new Properties();
    private final String topic;
    private final Map<Long, ConsumerRecord<String, String>> held = new TreeMap<>();
    private KafkaShareConsumer<String, String> consumer;

    private Share(String bootstrap, String group, String topic) {
        this.topic = topic;
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("fetch.max.wait.ms", "200");
        settings.put("share.acknowledgement.mode", "explicit");
    }

    /** Share BOOTSTRAP GROUP TOPIC COMMAND... */
    public static void main(String[] words) {
        Share share = new Share(words[0], words[1], words[2]);
        for (int at = 3; at < words.length; at++) {
            System.out.println(share.run(words[at].split(" ")));
        }
    }

    private String run(String[] command) {
        switch (command[0]) {
            case "open":
                settings.put("share.acquire.mode", command[1]);
                settings.put("max.poll.records", command[2]);
                consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
                consumer.subscribe(List.of(topic));
                return "open";
            case "poll":
                return poll(Integer.parseInt(command[1]));
            case "take":
                return take(Integer.parseInt(command[1]));
            case "idle":
                return "idle " + (consumer.poll(Duration.ofMillis(600)).count());
            case "until":
                return until(Path.of(command[1]));
            case "commit":
                return commit();
            case "close":
                consumer.close();
                held.clear();
                return "close";
            case "timed-close":
                long began = System.nanoTime();
                consumer.close();
                held.clear();
                return "closed after " + Duration.ofNanos(System.nanoTime() - began).toMillis() + " ms";
            default:
                return acknowledge(AcknowledgeType.valueOf(command[0]), command[1], command[2]);
        }
    }

    private String poll(int wanted) {
        List<String> got = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (got.size() < wanted && System.nanoTime() < deadline) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                held.put(record.offset(), record);
                got.add(record.offset() + "x" + record.deliveryCount().orElse((short) 0));
            }
        }
        return "poll " + String.join(" ", got);
    }

    /** Polls until this file is there. */
    private String until(Path file) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!Files.exists(file) && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(50));
        }
        return "until " + Files.exists(file);
    }

    /** In any number of polls: what another consumer gives back may come later than what nobody had. */
    private String take(int wanted) {
        Map<Long, String> got = new TreeMap<>();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (got.size() < wanted && System.nanoTime() < deadline) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                got.put(record.offset(), record.offset() + "x" + record.deliveryCount().orElse((short) 0));
            }
        }
        return "take " + String.join(" ", got.values());
    }

    private String acknowledge(AcknowledgeType type, String first, String last) {
        for (long offset = Long.parseLong(first); offset <= Long.parseLong(last); offset++) {
            try {
                consumer.acknowledge(held.get(offset), type);
            } catch (IllegalStateException error) {
                return type + " refused";
            }
        }
        return type.toString();
    }

    private String commit() {
        Map<TopicIdPartition, Optional<KafkaException>> results = new HashMap<>(consumer.commitSync(PATIENCE));
        List<String> said = new ArrayList<>();
        for (Optional<KafkaException> each : results.values()) {
            said.add(each.map(error -> error.getClass().getSimpleName()).orElse("ok"));
        }
        return "commit " + String.join(" ", said);
    }
}
