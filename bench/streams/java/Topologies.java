import java.io.IOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * The programs of bench/streams/programs.py for Kafka Streams, exactly once. Ends when its standard input does.
 *
 * <p>Topologies BOOTSTRAP PROGRAM APPLICATION STATE_DIR INPUT OTHER OUTPUT [NAME=VALUE...]
 */
public final class Topologies {
    private static final Serde<String> TEXT = Serdes.String();

    public static void main(String[] words) throws IOException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("application.id", words[2]);
        settings.put("state.dir", words[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("auto.offset.reset", "earliest");
        settings.put("num.stream.threads", "2");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        for (int at = 7; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        KafkaStreams streams = new KafkaStreams(program(words[1], words[4], words[5], words[6]).build(), settings);
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            System.out.flush();
        });
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        streams.close(Duration.ofSeconds(30));
    }

    private static StreamsBuilder program(String name, String input, String other, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> read = Consumed.with(TEXT, TEXT);
        switch (name) {
            case "stateless":
                builder.stream(input, read).filter((key, value) -> value.length() > 3)
                    .mapValues(value -> value.toUpperCase()).to(output);
                break;
            case "count":
                builder.stream(input, read).groupByKey().count()
                    .toStream().to(output, Produced.with(TEXT, Serdes.Long()));
                break;
            case "windowed-count":
                Duration size = Duration.ofMinutes(1);
                builder.stream(input, read).groupByKey().windowedBy(TimeWindows.ofSizeWithNoGrace(size)).count()
                    .toStream().to(output, Produced.with(
                        WindowedSerdes.timeWindowedSerdeFrom(String.class, size.toMillis()), Serdes.Long()));
                break;
            case "stream-table":
                builder.stream(input, read).join(builder.table(other, read), (left, right) -> left + right).to(output);
                break;
            case "stream-stream":
                KStream<String, String> right = builder.stream(other, read);
                builder.stream(input, read).join(right, (one, two) -> one + two,
                    JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(1)),
                    StreamJoined.with(TEXT, TEXT, TEXT)).to(output);
                break;
            case "table-aggregate":
                builder.table(input, read)
                    .groupBy((key, value) -> KeyValue.pair(key.substring(key.length() - 2), value), Grouped.with(TEXT, TEXT))
                    .count().toStream().to(output, Produced.with(TEXT, Serdes.Long()));
                break;
            default:
                throw new IllegalArgumentException("unknown program: " + name);
        }
        return builder;
    }
}
