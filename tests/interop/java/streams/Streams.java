import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsMetadata;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A word count of Kafka Streams with the streams group protocol (KIP-1071), driven by lines on stdin.
 *
 * <p>Its topology has two parts: the first splits lines into words and writes them to a repartition topic, the second
 * counts them, with a changelog. It says "state NAME" when its state changes, and answers the commands "tasks",
 * "hosts", "poison" (every record from now on is a fatal error that ends the whole application) and "close".
 */
public final class Streams {
    private static volatile boolean poisoned;

    /** Streams BOOTSTRAP APPLICATION INPUT OUTPUT STATE_DIR [NAME=VALUE...]: further settings of Kafka Streams. */
    public static void main(String[] words) throws IOException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("application.id", words[1]);
        settings.put("state.dir", words[4]);
        settings.put("group.protocol", "streams");
        settings.put("commit.interval.ms", "200");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        for (int at = 5; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        KafkaStreams streams = new KafkaStreams(topology(words[2], words[3]).build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            say("error " + error.getClass().getSimpleName() + ": " + error.getMessage());
            return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
        });
        streams.setStateListener((now, before) -> say("state " + now));
        streams.start();
        obey(streams);
        streams.close(Duration.ofSeconds(30));
        say("closed");
    }

    private static StreamsBuilder topology(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(input)
            .flatMapValues(Streams::split)
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder;
    }

    private static Iterable<String> split(String line) {
        if (poisoned) {
            throw new IllegalStateException("poisoned");
        }
        return Arrays.asList(line.split(" "));
    }

    private static void obey(KafkaStreams streams) throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            switch (command) {
                case "tasks":
                    say(tasks(streams));
                    break;
                case "hosts":
                    say(hosts(streams));
                    break;
                case "poison":
                    poisoned = true;
                    say("poisoned");
                    break;
                default:
                    return;
            }
        }
    }

    private static String tasks(KafkaStreams streams) {
        TreeSet<String> active = new TreeSet<>();
        TreeSet<String> standby = new TreeSet<>();
        for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
            add(active, thread.activeTasks());
            add(standby, thread.standbyTasks());
        }
        return "tasks " + String.join(",", active) + " | " + String.join(",", standby);
    }

    private static void add(TreeSet<String> names, Collection<TaskMetadata> tasks) {
        for (TaskMetadata task : tasks) {
            names.add(task.taskId().toString());
        }
    }

    /** Who has which partition, by application.server: what interactive queries go by. */
    private static String hosts(KafkaStreams streams) {
        TreeSet<String> hosts = new TreeSet<>();
        for (StreamsMetadata host : streams.metadataForAllStreamsClients()) {
            TreeSet<String> partitions = new TreeSet<>();
            for (TopicPartition partition : host.topicPartitions()) {
                partitions.add(partition.toString());
            }
            hosts.add(host.hostInfo().host() + ":" + host.hostInfo().port() + "=" + String.join(",", partitions));
        }
        return "hosts " + String.join(" ", hosts);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
