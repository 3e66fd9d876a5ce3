// The cases of tests/streams/test_option.py in Kafka Streams' TopologyTestDriver: one line for each, `name: result`.

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

public final class Options {
    public static void main(String[] arguments) {
        sessionsWithoutGrace();
        durations();
        sessionsBackwards();
        windowsBackwards();
        buffers();
        clockOfATopic();
        emitStrategies();
        branchFunctions();
        logging();
        retention();
        readOnlyStore();
    }

    private static Duration ms(long count) {
        return Duration.ofMillis(count);
    }

    private static void tell(String name, Object result) {
        System.out.println(name + ": " + result);
    }

    private static TopologyTestDriver driver(Topology topology) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "test");
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        return new TopologyTestDriver(topology, config, Instant.ofEpochMilli(0));
    }

    private static TestInputTopic<String, String> input(TopologyTestDriver driver) {
        return driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
    }

    private static TestOutputTopic<String, String> output(TopologyTestDriver driver, String topic) {
        return driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer());
    }

    private static long dropped(TopologyTestDriver driver) {
        return driver.metrics().entrySet().stream()
            .filter(each -> each.getKey().name().equals("dropped-records-total"))
            .mapToLong(each -> ((Number) each.getValue().metricValue()).longValue()).sum();
    }

    private static void sessionsWithoutGrace() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("in").groupByKey()
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(ms(10))).count(Materialized.as("sessions"));
        try (TopologyTestDriver driver = driver(builder.build())) {
            TestInputTopic<String, String> topic = input(driver);
            topic.pipeInput("k", "v", 10);
            topic.pipeInput("other", "v", 20);
            topic.pipeInput("k", "v", 10);
            long before = dropped(driver);
            topic.pipeInput("other", "v", 21);
            topic.pipeInput("k", "v", 10);
            tell("sessions without grace", before + " " + dropped(driver));
        }
    }

    private static void durations() {
        Map<String, LongConsumer> takers = new TreeMap<>();
        takers.put("TimeWindows.of", value -> TimeWindows.ofSizeWithNoGrace(ms(value)));
        takers.put("TimeWindows.grace", value -> TimeWindows.ofSizeAndGrace(ms(10), ms(value)));
        takers.put("TimeWindows.advance_by", value -> TimeWindows.ofSizeWithNoGrace(ms(10)).advanceBy(ms(value)));
        takers.put("UnlimitedWindows.start_on", value -> UnlimitedWindows.of().startOn(Instant.ofEpochMilli(value)));
        takers.put("SlidingWindows.of", value -> SlidingWindows.ofTimeDifferenceWithNoGrace(ms(value)));
        takers.put("SlidingWindows.grace", value -> SlidingWindows.ofTimeDifferenceAndGrace(ms(10), ms(value)));
        takers.put("SessionWindows.of", value -> SessionWindows.ofInactivityGapWithNoGrace(ms(value)));
        takers.put("SessionWindows.grace", value -> SessionWindows.ofInactivityGapAndGrace(ms(10), ms(value)));
        takers.put("JoinWindows.of", value -> JoinWindows.ofTimeDifferenceWithNoGrace(ms(value)));
        takers.put("JoinWindows.grace", value -> JoinWindows.ofTimeDifferenceAndGrace(ms(10), ms(value)));
        takers.put("JoinWindows.before", value -> JoinWindows.ofTimeDifferenceWithNoGrace(ms(10)).before(ms(value)));
        takers.put("JoinWindows.after", value -> JoinWindows.ofTimeDifferenceWithNoGrace(ms(10)).after(ms(value)));
        takers.put("Suppressed.until_time_limit", value -> Suppressed.untilTimeLimit(ms(value), BufferConfig.unbounded()));
        takers.put("BufferConfig.max_records", BufferConfig::maxRecords);
        takers.put("BufferConfig.max_bytes", BufferConfig::maxBytes);
        takers.put("Materialized.with_retention", value -> counts().withRetention(ms(value)));
        takers.forEach((name, taker) -> {
            List<Long> taken = new ArrayList<>();
            for (long value : new long[] {-11, -10, -1, 0, 1, 10, 11}) {
                try {
                    taker.accept(value);
                    taken.add(value);
                } catch (RuntimeException error) {
                    // Refused.
                }
            }
            tell(name, taken);
        });
    }

    private static String values(Iterator<? extends KeyValue<?, String>> found) {
        List<String> values = new ArrayList<>();
        found.forEachRemaining(each -> values.add(each.value));
        return String.join(" ", values);
    }

    private static final class Sessions extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            SessionStore<String, String> store = context().getStateStore("sessions");
            for (long[] each : new long[][] {{0, 5}, {10, 20}, {30, 40}}) {
                store.put(new Windowed<>(record.key(), new SessionWindow(each[0], each[1])), "" + each[0]);
            }
            context().forward(record.withValue(values(store.findSessions(record.key(), 6, 35))));
            context().forward(record.withValue(values(store.backwardFindSessions(record.key(), 6, 35))));
            context().forward(record.withValue(values(store.backwardFindSessions(record.key(), 0, 29))));
        }
    }

    private static void sessionsBackwards() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.sessionStoreBuilder(
            Stores.persistentSessionStore("sessions", ms(100_000)), Serdes.String(), Serdes.String()));
        builder.<String, String>stream("in").process(Sessions::new, "sessions").to("out");
        try (TopologyTestDriver driver = driver(builder.build())) {
            input(driver).pipeInput("k", "v", 0);
            tell("sessions backwards", output(driver, "out").readValuesToList());
        }
    }

    private static final class Windows extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            WindowStore<String, String> store = context().getStateStore("windows");
            store.put("a", "a0", 0);
            store.put("b", "b10", 10);
            store.put("a", "a20", 20);
            for (KeyValueIterator<Windowed<String>, String> all : List.of(store.all(), store.backwardAll())) {
                context().forward(record.withValue(values(all)));
            }
        }
    }

    private static void windowsBackwards() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("windows", ms(100_000), ms(10), false), Serdes.String(), Serdes.String()));
        builder.<String, String>stream("in").process(Windows::new, "windows").to("out");
        try (TopologyTestDriver driver = driver(builder.build())) {
            input(driver).pipeInput("k", "v", 0);
            tell("windows backwards", output(driver, "out").readValuesToList());
        }
    }

    private static void suppressing(BufferConfig<?> buffer, Consumer<TopologyTestDriver> use) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>table("in").suppress(Suppressed.untilTimeLimit(ms(1_000), buffer)).toStream().to("out");
        try (TopologyTestDriver driver = driver(builder.build())) {
            use.accept(driver);
        }
    }

    private static void buffers() {
        suppressing(BufferConfig.maxRecords(100).withMaxBytes(500), driver -> {
            input(driver).pipeInput("a", "x".repeat(300), 0L);
            boolean empty = output(driver, "out").isEmpty();
            input(driver).pipeInput("b", "y".repeat(300), 1L);
            tell("a buffer of 500 bytes", empty + " " + output(driver, "out").readKeyValuesToMap().keySet());
        });
        suppressing(BufferConfig.maxRecords(100).withMaxBytes(500).shutDownWhenFull(), driver -> {
            input(driver).pipeInput("a", "x".repeat(300), 0L);
            try {
                input(driver).pipeInput("b", "y".repeat(300), 1L);
                tell("a full buffer", "goes on");
            } catch (RuntimeException error) {
                tell("a full buffer", "stops");
            }
        });
        suppressing(BufferConfig.maxRecords(1).withMaxBytes(1).withNoBound(), driver -> {
            TestInputTopic<String, String> topic = input(driver);
            for (int number = 0; number < 50; number++) {
                topic.pipeInput("k" + number, "x".repeat(100), 0L);
            }
            boolean empty = output(driver, "out").isEmpty();
            topic.pipeInput("late", "x", 1_000L);
            tell("a buffer without a bound", empty + " " + output(driver, "out").readValuesToList().size());
        });
    }

    private static void clockOfATopic() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("in").to("out");
        try (TopologyTestDriver driver = driver(builder.build())) {
            TestInputTopic<String, String> topic = driver.createInputTopic(
                "in", new StringSerializer(), new StringSerializer(), Instant.ofEpochMilli(5), ms(2));
            topic.pipeInput("a", "1");
            topic.advanceTime(ms(100));
            topic.pipeInput("b", "2");
            topic.pipeInput("c", "3");
            List<Long> times = new ArrayList<>();
            output(driver, "out").readRecordsToList().forEach(each -> times.add(each.timestamp()));
            tell("the clock of a topic", times);
        }
    }

    private static void emitStrategies() {
        for (EmitStrategy strategy : List.of(EmitStrategy.onWindowUpdate(), EmitStrategy.onWindowClose())) {
            StreamsBuilder builder = new StreamsBuilder();
            builder.<String, String>stream("in").groupByKey()
                .windowedBy(TimeWindows.ofSizeAndGrace(ms(10), ms(0))).emitStrategy(strategy)
                .count(Materialized.as("counts")).toStream((key, count) -> key.key())
                .to("out", Produced.with(Serdes.String(), Serdes.Long()));
            try (TopologyTestDriver driver = driver(builder.build())) {
                input(driver).pipeInput("k", "v", 0L);
                input(driver).pipeInput("k", "v", 5L);
                driver.advanceWallClockTime(ms(1_000));
                input(driver).pipeInput("k", "v", 12L);
                tell("windows emit " + strategy.type(), driver.createOutputTopic(
                    "out", new StringDeserializer(), new LongDeserializer()).readValuesToList());
            }
        }
    }

    private static void branchFunctions() {
        StreamsBuilder builder = new StreamsBuilder();
        Branched<String, String> made = Branched.withFunction(each -> each.mapValues(value -> value.toUpperCase()), "loud");
        Branched<String, String> none = Branched.withFunction(each -> {
            each.to("quiet");
            return null;
        }, "quiet");
        Map<String, KStream<String, String>> branches = builder.<String, String>stream("in")
            .split(org.apache.kafka.streams.kstream.Named.as("cut-"))
            .branch((key, value) -> value.compareTo("m") > 0, made).defaultBranch(none);
        branches.get("cut-loud").to("loud");
        try (TopologyTestDriver driver = driver(builder.build())) {
            input(driver).pipeInput("k", "z");
            input(driver).pipeInput("k", "a");
            tell("branches", new TreeSet<>(branches.keySet()) + " " + output(driver, "loud").readValuesToList() + " "
                + output(driver, "quiet").readValuesToList());
        }
    }

    private static Topology counting(Materialized<String, Long, WindowStore<Bytes, byte[]>> options) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("in").groupByKey().windowedBy(TimeWindows.ofSizeWithNoGrace(ms(10))).count(options);
        return builder.build();
    }

    private static Materialized<String, Long, WindowStore<Bytes, byte[]>> counts() {
        return Materialized.as("counts");
    }

    private static void logging() {
        for (boolean on : new boolean[] {false, true}) {
            Materialized<String, Long, WindowStore<Bytes, byte[]>> options = counts().withLoggingDisabled();
            options = on ? options.withLoggingEnabled(Map.of("segment.ms", "60000")) : options;
            try (TopologyTestDriver driver = driver(counting(options))) {
                input(driver).pipeInput("k", "v", 0L);
                tell("logging " + on, driver.producedTopicNames());
            }
        }
    }

    private static void retention() {
        for (long retention : new long[] {20, 500_000}) {
            try (TopologyTestDriver driver = driver(counting(counts().withRetention(ms(retention)).withCachingDisabled()))) {
                input(driver).pipeInput("k", "v", 0L);
                input(driver).pipeInput("k", "v", 400_000L);
                tell("retention " + retention, driver.getWindowStore("counts").fetch("k", 0) != null);
            }
        }
        try {
            counting(counts().withRetention(ms(9)));
            tell("retention 9", "taken");
        } catch (IllegalArgumentException error) {
            tell("retention 9", "refused");
        }
    }

    private static final class Keep extends ContextualProcessor<String, Long, Void, Void> {
        @Override
        public void process(Record<String, Long> record) {
            KeyValueStore<String, Long> store = context().getStateStore("rates");
            store.put(record.key(), record.value());
        }
    }

    private static void readOnlyStore() {
        Topology topology = new Topology();
        topology.addReadOnlyStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("rates"), Serdes.String(), Serdes.Long())
                .withLoggingDisabled(),
            "source", new StringDeserializer(), new LongDeserializer(), "rates-topic", "keep", Keep::new);
        try (TopologyTestDriver driver = driver(topology)) {
            TestInputTopic<String, Long> topic =
                driver.createInputTopic("rates-topic", new StringSerializer(), new LongSerializer());
            topic.pipeInput("a", 7L);
            topic.pipeInput("a", 8L);
            tell("a read-only store", driver.getKeyValueStore("rates").get("a") + " " + driver.producedTopicNames());
        }
    }
}
